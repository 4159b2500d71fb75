//! The demo `training`: a gang uses half of the nodes, notebooks use a quarter, and a second gang needs twice as many
//! nodes as are left: half of it would fit, so all of it is pending until the first has finished.

use serde_json::{Value, json};

use super::{GPUS, NAMESPACE, Step, WORK_SECONDS, gang, indexed_job, pod_spec};

/// The GPUs of a notebook: two of them do not fit on a node, nor a pod of a gang next to one.
const NOTEBOOK_GPUS: u32 = 5;

/// The number of pods, each on its own node.
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
         \x20 next      another gang, of {next}: {} of it fit next to the others, so all of it waits until train has ended\n\
         See it with kubectl -n {NAMESPACE} get pods,mpg -o wide\n\
         and why it waits with kubectl -n {NAMESPACE} describe mpg next",
        next / 2
    )
}

pub(super) fn steps(nodes: u32) -> Vec<Step> {
    let Sizes { train, notebooks, next } = Sizes::of(nodes);
    vec![
        Step {
            objects: vec![gang("train", train), indexed_job("train", train)],
            then: Some(("app=train", train as usize)),
        },
        Step { objects: vec![deployment(notebooks)], then: Some(("app=notebook", notebooks as usize)) },
        Step { objects: vec![gang("next", next), indexed_job("next", next)], then: None },
    ]
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
    fn second_gang_fits_after_the_first_and_not_with_it() {
        for nodes in super::super::Demo::NODES_MIN..200 {
            let Sizes { train, notebooks, next } = Sizes::of(nodes);
            assert!(train + notebooks + next > nodes && notebooks + next <= nodes, "{nodes} nodes");
        }
    }
}
