//! Rows of namespaces, events, configuration and quotas.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell_text::{count, name, number, text, text_or, to_text};
use super::{AGE, Column, NAME, TablePrinter, age, text as column, wide};

pub(super) static NAMESPACES: TablePrinter = TablePrinter::new(
    &[NAME, column("Status", "Whether the namespace is active or being deleted."), AGE],
    |namespace, now| vec![name(namespace), json!(text(&namespace["status"]["phase"])), age::of(namespace, now)],
);

pub(super) static CONFIG_MAPS: TablePrinter =
    TablePrinter::new(&[NAME, column("Data", "How many entries there are, text and binary."), AGE], |map, now| {
        vec![name(map), json!(count(&map["data"]) + count(&map["binaryData"])), age::of(map, now)]
    });

pub(super) static SECRETS: TablePrinter = TablePrinter::new(
    &[NAME, column("Type", "What the secret is meant for."), column("Data", "How many entries the secret has."), AGE],
    |secret, now| vec![name(secret), json!(text(&secret["type"])), json!(count(&secret["data"])), age::of(secret, now)],
);

pub(super) static EVENTS: TablePrinter = TablePrinter::new(
    &[
        column("Last Seen", "The time since this last happened."),
        column("Type", "Normal, Warning or another type."),
        column("Reason", "Why it happened, in one word."),
        column("Object", "The object that it is about."),
        wide("Subobject", "The part of the object that it is about."),
        wide("Source", "The component that reports it."),
        column("Message", "What happened."),
        wide("First Seen", "The time since this first happened."),
        wide("Count", "How often it has happened."),
        Column { priority: 1, ..NAME },
    ],
    event,
);

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    const NEVER: &str = "<unknown>";
    let series = &event["series"];
    let first = match age::since(&event["firstTimestamp"], now) {
        first if first == NEVER => age::since(&event["eventTime"], now),
        first => first,
    };
    let last = if series.is_object() {
        age::since(&series["lastObservedTime"], now)
    } else {
        match age::since(&event["lastTimestamp"], now) {
            last if last == NEVER => first.clone(),
            last => last,
        }
    };
    let times = if series.is_object() { number(&series["count"]) } else { number(&event["count"]).max(1) };
    let object = &event["involvedObject"];
    let kind = text(&object["kind"]).to_lowercase();
    let target = match text(&object["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = text_or(&event["source"]["component"], text(&event["reportingComponent"]));
    let source = match text_or(&event["source"]["host"], text(&event["reportingInstance"])) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        json!(last),
        json!(text(&event["type"])),
        json!(text(&event["reason"])),
        json!(target),
        json!(text(&object["fieldPath"])),
        json!(source),
        json!(text(&event["message"]).trim()),
        json!(first),
        json!(times),
        name(event),
    ]
}

pub(super) static QUOTAS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Request", "Requests: used and allowed."),
        column("Limit", "What limits may add up to: used and allowed."),
        AGE,
    ],
    |quota, now| {
        let shown = |limits: bool| {
            let hard = quota["status"]["hard"].as_object().into_iter().flatten();
            let of_side = hard.filter(|(resource, _)| resource.starts_with("limits.") == limits);
            let entry = |(resource, hard): (&String, &Value)| {
                let used = quota["status"]["used"].get(resource).map_or_else(|| "0".to_owned(), to_text);
                format!("{resource}: {used}/{}", to_text(hard))
            };
            json!(of_side.map(entry).collect::<Vec<_>>().join(", "))
        };
        vec![name(quota), shown(false), shown(true), age::of(quota, now)]
    },
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_both_styles() {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let old = json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:59:00Z", "count": 3,
            "type": "Normal", "reason": "R", "message": " m\n", "source": {"component": "kubelet", "host": "n"},
        });
        let shown = json!(["60s", "Normal", "R", "pod/p", "spec.containers{c}", "kubelet, n", "m", "60m", 3, "e"]);
        assert_eq!(json!(event(&old, now)), shown);
        let new = json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Node"}, "eventTime": "2026-01-01T00:58:00.000000Z",
            "reportingComponent": "muster", "series": {"count": 7, "lastObservedTime": "2026-01-01T00:59:50.000000Z"},
        });
        assert_eq!(json!(event(&new, now)), json!(["10s", "", "", "node", "", "muster", "", "2m", 7, "e"]));
    }

    #[test]
    fn quotas_are_split_by_requests_and_limits() {
        let quota = json!({
            "metadata": {"name": "q", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"hard": {"limits.cpu": "4", "pods": "10", "requests.cpu": "2"}, "used": {"pods": "3"}},
        });
        let cells = (QUOTAS.cells)(&quota, "2026-01-01T00:00:05Z".parse().unwrap());
        assert_eq!(cells, ["q", "pods: 3/10, requests.cpu: 0/2", "limits.cpu: 0/4", "5s"]);
    }
}
