//! The demo `training`: a gang takes half of the nodes, notebooks sit on a quarter, and a second gang that needs half of
//! the nodes waits whole, since only half of it fits, until the first has ended.

use serde_json::{Value, json};

use super::{GPUS, NAMESPACE, Step, gang, pod_spec, works};

/// How long each gang works.
const WORK_SECONDS: u32 = 45;
/// A notebook's GPUs: two of them do not share a node, and a whole node does not fit beside one.
const NOTEBOOK_GPUS: u32 = 5;

pub(super) fn introduction(nodes: u32) -> String {
    let (half, quarter) = (nodes / 2, nodes / 4);
    format!(
        "The demo, in namespace {NAMESPACE}:\n\
         \x20 train     a gang of {half} pods with {GPUS} GPUs each; works {WORK_SECONDS} s as soon as all of it runs\n\
         \x20 notebook  {quarter} plain pods with {NOTEBOOK_GPUS} GPUs each\n\
         \x20 next      another gang of {half}: only {} of it fit beside the others, so it waits whole\n\
         See it with kubectl -n {NAMESPACE} get pods,podgroups.muster.dev -o wide\n\
         and why it waits with kubectl -n {NAMESPACE} describe podgroups.muster.dev next",
        nodes - half - quarter
    )
}

pub(super) fn steps(nodes: u32) -> Vec<Step> {
    let (half, quarter) = (nodes / 2, nodes / 4);
    vec![
        Step { objects: vec![gang("train", half), job("train", half)], then: Some(("app=train", half as usize)) },
        Step { objects: vec![notebooks(quarter)], then: Some(("app=notebook", quarter as usize)) },
        Step { objects: vec![gang("next", half), job("next", half)], then: None },
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

fn notebooks(pods: u32) -> Value {
    let labels = json!({"app": "notebook"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": NAMESPACE, "name": "notebook"},
        "spec": {"replicas": pods, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(NOTEBOOK_GPUS)}}})
}
