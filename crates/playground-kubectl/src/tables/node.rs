//! Rows of nodes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell_text::{NONE, list, name, text, text_or};
use super::{AGE, NAME, TablePrinter, age, text as column, wide};

pub(super) static NODES: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Status", "Whether the node is ready, and whether pods may be scheduled to it."),
        column("Roles", "The roles of the node, from its labels."),
        AGE,
        column("Version", "The version of the node's kubelet."),
        wide("Internal-IP", "The node's address inside the cluster."),
        wide("External-IP", "The node's address outside the cluster."),
        wide("OS-Image", "The operating system of the node."),
        wide("Kernel-Version", "The kernel of the node, with its architecture."),
        wide("Container-Runtime", "The container runtime of the node."),
    ],
    cells,
);

const UNKNOWN: &str = "<unknown>";

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = &node["status"]["nodeInfo"];
    let kernel = text_or(&info["kernelVersion"], UNKNOWN);
    let kernel = match text(&info["architecture"]) {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    };
    vec![
        name(node),
        json!(status(node)),
        json!(roles(node)),
        age::of(node, now),
        json!(text(&info["kubeletVersion"])),
        json!(address(node, "InternalIP")),
        json!(address(node, "ExternalIP")),
        json!(text_or(&info["osImage"], UNKNOWN)),
        json!(kernel),
        json!(text_or(&info["containerRuntimeVersion"], UNKNOWN)),
    ]
}

fn status(node: &Value) -> String {
    // The last one counts if a condition occurs twice.
    let ready = list(&node["status"]["conditions"]).iter().rfind(|condition| condition["type"] == "Ready");
    let ready = match ready {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if node["spec"]["unschedulable"] == true { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

fn roles(node: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in node["metadata"]["labels"].as_object().into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => roles.insert(role),
            None if key == "kubernetes.io/role" => roles.insert(text(value)),
            None => false,
        };
    }
    roles.remove("");
    if roles.is_empty() { NONE.to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, of_type: &str) -> &'a str {
    let found = list(&node["status"]["addresses"]).iter().find(|address| address["type"] == of_type);
    found.map_or(NONE, |address| text(&address["address"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_roles_and_addresses() {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let node = json!({
            "metadata": {
                "name": "n", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu", "node-role.kubernetes.io/": ""},
            },
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "addresses": [{"type": "Hostname", "address": "n"}, {"type": "ExternalIP", "address": "1.2.3.4"}],
                "nodeInfo": {"kubeletVersion": "v1.37.1", "kernelVersion": "6.1", "architecture": "amd64"},
            },
        });
        let shown = [
            "n",
            "NotReady,SchedulingDisabled",
            "gpu,worker",
            "24h",
            "v1.37.1",
            "<none>",
            "1.2.3.4",
            "<unknown>",
            "6.1 (amd64)",
            "<unknown>",
        ];
        assert_eq!(cells(&node, now), shown);
        assert_eq!(status(&json!({})), "Unknown");
    }
}
