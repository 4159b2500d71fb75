//! The demo `topology`: four racks in two zones. Notebooks leave no rack of the first zone free. A gang that has to be in
//! one zone takes the other, neighbours in rank on neighbouring nodes; a small one has to be in one rack; a third one
//! waits for a free rack, although as many nodes are free.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use muster_api::wire::Pod;
use muster_playground::Server;
use serde_json::{Value, json};

use super::{GPUS, NAMESPACE, Step, gang, indexed_job, pod_spec};

/// The racks of the nodes of `--nodes`.
const RACKS: u32 = 4;
/// Smaller racks have no room for all of it.
const RACK_NODES_MIN: u32 = 4;
const RACK: &str = "playground.muster.dev/rack";
const ZONE: &str = "topology.kubernetes.io/zone";
const RANK: &str = "batch.kubernetes.io/job-completion-index";
/// The GPUs of a notebook: nothing of a gang fits next to it.
const NOTEBOOK_GPUS: u32 = 5;
/// The racks of the first zone, with a notebook each.
const NOTEBOOK_RACKS: [&str; 2] = ["rack-0", "rack-1"];

/// The number of pods, each on its own node.
struct Sizes {
    wide: u32,
    train: u32,
    next: u32,
}

impl Sizes {
    fn of(nodes: u32) -> Self {
        let rack = nodes / RACKS;
        Self { wide: 2 * rack, train: rack / 2, next: rack }
    }
}

/// Why the demo cannot be shown on so many nodes.
pub(super) fn unsuitable(nodes: u32) -> Option<String> {
    let fits = nodes.is_multiple_of(RACKS) && nodes >= RACKS * RACK_NODES_MIN;
    (!fits).then(|| {
        format!("the demo topology needs {RACKS} racks of the same size, at least {RACK_NODES_MIN} nodes each")
    })
}

pub(super) fn introduction(nodes: u32) -> String {
    let Sizes { wide, train, next } = Sizes::of(nodes);
    format!(
        "The demo, in namespace {NAMESPACE}, on {RACKS} racks in two zones:\n\
         \x20 notebook  plain pods with {NOTEBOOK_GPUS} GPUs each, one on each rack of the first zone\n\
         \x20 wide      a gang of {wide} pods with {GPUS} GPUs each: has to be in one zone, should be in few racks\n\
         \x20 train     a gang of {train}: has to be in one rack\n\
         \x20 next      another gang, of {next}: as many nodes are free, but no rack has them all, so it waits until wide has ended\n\
         See it with kubectl -n {NAMESPACE} get pods,mpg -o wide, and the racks with kubectl get nodes -L {RACK}\n\
         and why it waits with kubectl -n {NAMESPACE} describe mpg next",
    )
}

pub(super) fn steps(nodes: u32) -> Vec<Step> {
    let Sizes { wide, train, next } = Sizes::of(nodes);
    let in_one_rack = json!([{"key": RACK, "mode": "Required"}]);
    let in_one_zone = json!([{"key": ZONE, "mode": "Required"}, {"key": RACK, "mode": "Preferred"}]);
    let gang_of = |name: &str, pods, topology: &Value| {
        let mut gang = gang(name, pods);
        gang["spec"]["topology"] = topology.clone();
        vec![gang, indexed_job(name, pods)]
    };
    vec![
        Step { objects: NOTEBOOK_RACKS.map(notebook).into(), then: Some(("app=notebook", NOTEBOOK_RACKS.len())) },
        Step { objects: gang_of("wide", wide, &in_one_zone), then: Some(("app=wide", wide as usize)) },
        Step { objects: gang_of("train", train, &in_one_rack), then: Some(("app=train", train as usize)) },
        Step { objects: gang_of("next", next, &in_one_rack), then: None },
    ]
}

fn notebook(rack: &str) -> Value {
    let mut spec = pod_spec(NOTEBOOK_GPUS);
    spec["nodeSelector"] = json!({RACK: rack});
    json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"namespace": NAMESPACE, "name": format!("notebook-{rack}"), "labels": {"app": "notebook"}}})
}

/// What is on each rack: a line for each, with the ranks of the gangs in the order of the nodes.
pub(super) async fn racks(server: &Server) -> anyhow::Result<String> {
    let nodes = Api::<Node>::all(server.client()).list(&ListParams::default()).await?;
    let label = |node: &Node, key: &str| node.labels().get(key).cloned().unwrap_or_default();
    let place_of: BTreeMap<String, (String, String)> =
        nodes.iter().map(|node| (node.name_any(), (label(node, ZONE), label(node, RACK)))).collect();
    let mut on: BTreeMap<String, String> = BTreeMap::new();
    for pod in Api::<Pod>::namespaced(server.client(), NAMESPACE).list(&ListParams::default()).await? {
        let app = pod.labels().get("app").cloned().unwrap_or_default();
        let work = pod.labels().get(RANK).map_or_else(|| app.clone(), |rank| format!("{app}:{rank}"));
        on.insert(pod.spec.node_name.clone(), work);
    }
    Ok(lines(&place_of, &on))
}

/// `place_of` and `on` by node.
fn lines(place_of: &BTreeMap<String, (String, String)>, on: &BTreeMap<String, String>) -> String {
    let mut racks: BTreeMap<&(String, String), Vec<&str>> = BTreeMap::new();
    for (node, place) in place_of {
        racks.entry(place).or_default().push(on.get(node).map_or("-", String::as_str));
    }
    let line = |((zone, rack), work): (&(String, String), Vec<&str>)| format!("  {zone}  {rack}  {}", work.join(" "));
    racks.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_gang_would_fit_on_the_free_nodes_but_into_no_rack() {
        for nodes in (0..200).filter(|nodes| unsuitable(*nodes).is_none()) {
            let Sizes { wide, train, next } = Sizes::of(nodes);
            let free = nodes - NOTEBOOK_RACKS.len() as u32 - wide - train;
            assert!(next <= free && next > nodes / RACKS - 1, "{nodes} nodes");
        }
    }

    #[test]
    fn each_rack_is_a_line_in_the_order_of_nodes() {
        let place = |zone: &str, rack: &str| (zone.to_owned(), rack.to_owned());
        let nodes = [("n0", place("z0", "r0")), ("n1", place("z0", "r0")), ("n2", place("z1", "r1"))];
        let place_of = nodes.map(|(node, place)| (node.to_owned(), place)).into();
        let on = [("n1".to_owned(), "wide:1".to_owned()), ("n2".to_owned(), "notebook".to_owned())].into();
        assert_eq!(lines(&place_of, &on), "  z0  r0  - wide:1\n  z1  r1  notebook");
    }
}
