//! The writes of a scheduler, from the API server's own metrics.
//!
//! The metrics do not show the client. Besides the scheduler only the driver writes pods, gangs and events, and it only
//! creates pods and gangs, which no scheduler does: all other writes are the scheduler's.

use std::collections::BTreeMap;

/// The resources that a scheduler writes; no other client does during a measurement.
const RESOURCES: [&str; 3] = ["pods", "podgroups", "events"];

/// Writing requests by verb and resource, such as `POST pods/binding`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes(BTreeMap<String, u64>);

impl Writes {
    /// The writes of the scheduler, from the text of the server's metrics.
    pub(crate) fn read(metrics: &str) -> Self {
        let mut writes = BTreeMap::new();
        for line in metrics.lines() {
            let Some((labels, count)) =
                line.strip_prefix("apiserver_request_total{").and_then(|line| line.rsplit_once("} "))
            else {
                continue;
            };
            let (verb, resource, below) =
                (label(labels, "verb"), label(labels, "resource"), label(labels, "subresource"));
            let is_write = matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE");
            let is_made = verb == "POST" && below.is_empty() && resource != "events";
            if !is_write || is_made || !RESOURCES.contains(&resource) {
                continue;
            }
            let slash = if below.is_empty() { "" } else { "/" };
            // Go prints large numbers with an exponent.
            let count = count.trim().parse::<f64>().unwrap_or(0.0) as u64;
            *writes.entry(format!("{verb} {resource}{slash}{below}")).or_insert(0) += count;
        }
        Self(writes)
    }

    /// The difference to an earlier state.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let grown = |(what, count): (&String, &u64)| {
            let more = count - before.0.get(what).copied().unwrap_or(0).min(*count);
            (more > 0).then(|| (what.clone(), more))
        };
        Self(self.0.iter().filter_map(grown).collect())
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn into_map(self) -> BTreeMap<String, u64> {
        self.0
    }
}

/// The value of a label, empty if there is none.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let value = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
    value.and_then(|value| value.strip_suffix('"')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 1.2e+01
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 1
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 99
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} 5
apiserver_request_total{code="201",component="apiserver",dry_run="",group="events.k8s.io",resource="events",scope="resource",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="scheduling.k8s.io",resource="podgroups",scope="resource",subresource="status",verb="PATCH",version="v1beta1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 40
"#;

    #[test]
    fn only_writes_of_a_scheduler_count() {
        let writes = Writes::read(METRICS);
        let shown: Vec<_> = writes.clone().into_map().into_iter().collect();
        let of = |what: &str, count| (what.to_owned(), count);
        assert_eq!(shown, [of("PATCH podgroups/status", 2), of("POST events", 3), of("POST pods/binding", 13)]);
        assert_eq!(writes.sum(), 18);
    }

    #[test]
    fn earlier_writes_do_not_count() {
        let before = Writes::read(METRICS);
        let after = Writes::read(&METRICS.replace("1.2e+01", "20"));
        let since = after.since(&before);
        assert_eq!(since.into_map().into_iter().collect::<Vec<_>>(), [("POST pods/binding".to_owned(), 8)]);
        assert_eq!(before.since(&before), Writes::default());
    }
}
