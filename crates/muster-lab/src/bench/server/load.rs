//! The requests of the benchmark, the same for every transport, and the output of rates.

use std::io::Write;

use serde_json::json;

use super::Options;

const GROUPS: usize = 50;

/// Path and body that create a pod.
pub(super) fn create(index: usize) -> (String, String) {
    let group = index % GROUPS;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{index}"), "labels": {"group": format!("g{group}"), "app": "bench"}},
        "spec": {"schedulerName": "muster", "containers": [{
            "name": "main", "image": "registry.example/train:1", "command": ["sleep", "60"],
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"nvidia.com/gpu": "1"}},
        }]},
    });
    ("/api/v1/namespaces/default/pods".to_owned(), pod.to_string())
}

/// Path and body that bind it.
pub(super) fn bind(index: usize) -> (String, String) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": format!("pod-{index}")},
        "target": {"apiVersion": "v1", "kind": "Node", "name": format!("node-{}", index % GROUPS)},
    });
    (format!("/api/v1/namespaces/default/pods/pod-{index}/binding"), binding.to_string())
}

/// A watch, and how many events it must receive.
pub(super) struct Watched {
    pub(super) path: String,
    pub(super) expected: u64,
}

pub(super) fn watched(options: &Options) -> Vec<Watched> {
    let base = "/api/v1/pods?watch=true&resourceVersion=0&timeoutSeconds=3600";
    let of_group = |group: usize| (options.pods + GROUPS - 1 - group) / GROUPS;
    let one = |index: usize| {
        let group = index % GROUPS;
        // An unfiltered watch receives the creation and the bind of a pod; one by label too; one by node only the bind.
        let (path, expected) = if index < options.full {
            (base.to_owned(), 2 * options.pods)
        } else if index.is_multiple_of(2) {
            (format!("{base}&labelSelector=group%3Dg{group}"), 2 * of_group(group))
        } else {
            (format!("{base}&fieldSelector=spec.nodeName%3Dnode-{group}"), of_group(group))
        };
        Watched { path, expected: expected as u64 }
    };
    (0..options.full + options.selective).map(one).collect()
}

/// A summary of the watches.
pub(super) fn summary(options: &Options, events: u64) -> String {
    let (pods, full, all) = (options.pods, options.full, options.full + options.selective);
    format!("{pods} pods, {all} watches ({full} of all pods), {events} events received, none missed or repeated")
}

/// One line: a rate and its target.
pub(super) fn rate(out: &mut impl Write, what: &str, rate: f64, target: f64) -> std::io::Result<()> {
    let met = if rate >= target { "met" } else { "MISSED" };
    writeln!(out, "{what:>10} {rate:>8.0}   target {target:.0}: {met}")
}
