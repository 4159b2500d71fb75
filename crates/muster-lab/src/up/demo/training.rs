//! The demo `training`: a gang takes half of the nodes, notebooks sit on a quarter, and a second gang that needs twice as
//! many nodes as are left waits whole, since only half of it fits, until the first has ended.

use serde_json::{Value, json};

use super::{GPUS, NAMESPACE, Step, gang, pod_spec, works};

/// How long each gang works.
const WORK_SECONDS: u32 = 120;
/// A notebook's GPUs: two of them do not share a node, and a whole node does not fit beside one.
const NOTEBOOK_GPUS: u32 = 5;

/// How many pods, each on a node of its own.
struct Sizes {
    train: u32,
    notebooks: u32,
    next: u32,
}

impl Sizes {
    fn of(nodes: u32) -> Self {
        let (train, notebooks) = (nodes / 2, nodes / 4);
        Self { train, notebooks, next: 2 * (nodes - train - notebooks) }
    }
}

pub(super) fn introduction(nodes: u32) -> String {
    let Sizes { train, notebooks, next } = Sizes::of(nodes);
    format!(
        "The demo, in namespace {NAMESPACE}:\n\
         \x20 train     a gang of {train} pods with {GPUS} GPUs each; works {WORK_SECONDS} s as soon as all of it runs\n\
         \x20 notebook  plain pods with {NOTEBOOK_GPUS} GPUs each: {notebooks} of them\n\
         \x20 next      another gang, of {next}: {} of it fit beside the others, so it waits whole until train has ended\n\
         See it with kubectl -n {NAMESPACE} get pods,mpg -o wide\n\
         and why it waits with kubectl -n {NAMESPACE} describe mpg next",
        next / 2
    )
}

pub(super) fn steps(nodes: u32) -> Vec<Step> {
    let Sizes { train, notebooks, next } = Sizes::of(nodes);
    vec![
        Step { objects: vec![gang("train", train), job("train", train)], then: Some(("app=train", train as usize)) },
        Step { objects: vec![deployment(notebooks)], then: Some(("app=notebook", notebooks as usize)) },
        Step { objects: vec![gang("next", next), job("next", next)], then: None },
    ]
}

fn job(name: &str, pods: u32) -> Value {
    let mut annotations = works(name, pods, WORK_SECONDS);
    annotations["muster.dev/pod-group"] = json!(name);
    let mut spec = pod_spec(GPUS);
    spec["restartPolicy"] = json!("Never");
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "template": {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": spec}}})
}

fn deployment(pods: u32) -> Value {
    let labels = json!({"app": "notebook"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": NAMESPACE, "name": "notebook"},
        "spec": {"replicas": pods, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(NOTEBOOK_GPUS)}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_gang_fits_after_the_first_and_not_beside_it() {
        for nodes in super::super::Demo::NODES_MIN..200 {
            let Sizes { train, notebooks, next } = Sizes::of(nodes);
            assert!(train + notebooks + next > nodes && notebooks + next <= nodes, "{nodes} nodes");
        }
    }
}
