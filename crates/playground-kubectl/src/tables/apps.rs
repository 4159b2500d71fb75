//! Rows of ReplicaSets and the other kinds of the group `apps`.

use serde_json::{Value, json};

use super::cell_text::{NONE, containers, labels, list, name, number, selector, selector_text, text};
use super::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, age, integer, text as column};

const REPLICA_COLUMNS: &[super::Column] = &[
    NAME,
    integer("Desired", "How many pods there should be."),
    integer("Current", "How many pods there are."),
    integer("Ready", "How many pods are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn replicas(object: &Value) -> [Value; 3] {
    let status = &object["status"];
    [&object["spec"]["replicas"], &status["replicas"], &status["readyReplicas"]].map(|count| json!(number(count)))
}

pub(super) static REPLICA_SETS: TablePrinter = TablePrinter::new(REPLICA_COLUMNS, |set, now| {
    let [desired, current, ready] = replicas(set);
    let [names, images] = containers(&set["spec"]["template"]);
    let chosen = json!(selector(&set["spec"]["selector"]));
    vec![name(set), desired, current, ready, age::of(set, now), names, images, chosen]
});

pub(super) static REPLICATION_CONTROLLERS: TablePrinter = TablePrinter::new(REPLICA_COLUMNS, |set, now| {
    let [desired, current, ready] = replicas(set);
    let [names, images] = containers(&set["spec"]["template"]);
    let chosen = json!(labels(&set["spec"]["selector"]));
    vec![name(set), desired, current, ready, age::of(set, now), names, images, chosen]
});

/// Ready pods of desired pods.
fn ready_of_desired(object: &Value) -> Value {
    json!(format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"])))
}

pub(super) static DEPLOYMENTS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Ready", "How many of the desired pods are ready."),
        column("Up-to-date", "How many pods are of the newest template."),
        column("Available", "How many pods have been ready for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |deployment, now| {
        let status = &deployment["status"];
        let [names, images] = containers(&deployment["spec"]["template"]);
        vec![
            name(deployment),
            ready_of_desired(deployment),
            json!(number(&status["updatedReplicas"])),
            json!(number(&status["availableReplicas"])),
            age::of(deployment, now),
            names,
            images,
            json!(selector_text(&deployment["spec"]["selector"])),
        ]
    },
);

pub(super) static STATEFUL_SETS: TablePrinter = TablePrinter::new(
    &[NAME, column("Ready", "How many of the desired pods are ready."), AGE, CONTAINERS, IMAGES],
    |set, now| {
        let [names, images] = containers(&set["spec"]["template"]);
        vec![name(set), ready_of_desired(set), age::of(set, now), names, images]
    },
);

pub(super) static DAEMON_SETS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        integer("Desired", "How many nodes should have the pod."),
        integer("Current", "How many nodes have the pod and should."),
        integer("Ready", "How many of those pods are ready."),
        integer("Up-to-date", "How many of those pods are of the newest template."),
        integer("Available", "How many of those pods have been ready for long enough."),
        column("Node Selector", "Which nodes get the pod, by their labels."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |set, now| {
        let template = &set["spec"]["template"];
        let [names, images] = containers(template);
        let counters = [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        ];
        let mut cells = vec![name(set)];
        cells.extend(counters.map(|counter| json!(number(&set["status"][counter]))));
        cells.push(json!(labels(&template["spec"]["nodeSelector"])));
        cells.extend([age::of(set, now), names, images, json!(selector(&set["spec"]["selector"]))]);
        cells
    },
);

pub(super) static REVISIONS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Controller", "The object whose revision this is."),
        column("Revision", "The number of the revision."),
        AGE,
    ],
    |revision, now| {
        let mut owners = list(&revision["metadata"]["ownerReferences"]).iter();
        let controller = owners.find(|owner| owner["controller"] == true).map_or_else(
            || NONE.to_owned(),
            |owner| {
                let group = text(&owner["apiVersion"]).split_once('/').map(|(group, _)| format!(".{group}"));
                let kind = format!("{}{}", text(&owner["kind"]), group.unwrap_or_default());
                format!("{}/{}", kind.to_lowercase(), text(&owner["name"]))
            },
        );
        vec![name(revision), json!(controller), json!(number(&revision["revision"])), age::of(revision, now)]
    },
);

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(printer: &TablePrinter, object: &Value) -> Value {
        json!((printer.cells)(object, "2026-01-01T00:05:00Z".parse().unwrap()))
    }

    #[test]
    fn counters_of_sets() {
        let set = json!({
            "metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
                "template": {"spec": {
                    "nodeSelector": {"z": "1"}, "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}],
                }},
            },
            "status": {
                "replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "desiredNumberScheduled": 5, "numberReady": 4,
            },
        });
        assert_eq!(shown(&REPLICA_SETS, &set), json!(["x", 3, 2, 1, "5m", "c,d", "i,j", "a=b"]));
        assert_eq!(shown(&DEPLOYMENTS, &set), json!(["x", "1/3", 2, 0, "5m", "c,d", "i,j", "a=b"]));
        assert_eq!(shown(&STATEFUL_SETS, &set), json!(["x", "1/3", "5m", "c,d", "i,j"]));
        assert_eq!(shown(&DAEMON_SETS, &set), json!(["x", 5, 0, 4, 0, 0, "z=1", "5m", "c,d", "i,j", "a=b"]));
        let mut old = set.clone();
        old["spec"]["selector"] = json!({"q": "r"});
        assert_eq!(shown(&REPLICATION_CONTROLLERS, &old), json!(["x", 3, 2, 1, "5m", "c,d", "i,j", "q=r"]));
    }

    #[test]
    fn revisions_name_their_controller() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": true});
        let revision = json!({"metadata": {"name": "r", "ownerReferences": [owner]}, "revision": 2});
        assert_eq!(shown(&REVISIONS, &revision), json!(["r", "statefulset.apps/s", 2, "<unknown>"]));
    }
}
