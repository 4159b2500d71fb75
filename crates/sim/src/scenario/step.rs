//! Doing a step: what each action means on a cluster.
//!
//! Every failure says what was tried and what the server said. It must not know how claims are judged.

use std::time::Duration;

use http::Method;
use kube::api::{DynamicObject, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::wire::Pod;
use muster_playground::clock::seconds;
use muster_playground::faults;
use muster_runtime::config::Span;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::carrier::Member;
use super::manifest::{self, numbered, numbered_text};
use super::model::{
    self, Action, Answer, Create, Delete, Ending, Fault, Finish, Group, ObjectName, Patch, Subresource,
};
use super::nodes;
use super::objects::{Made, said};
use super::pattern::Glob;
use super::snapshot::key_of;
use super::world::World;

/// How long a deletion waits for what it deletes; what takes longer leaves in its own time.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Does what a step says; claims are not for here.
pub(super) async fn perform(world: &mut World, action: &Action) -> Result<(), String> {
    match action {
        Action::Group(group) => make_group(world, group).await,
        Action::Create(create) => make_objects(world, create).await,
        Action::Apply(apply) => {
            for document in &apply.manifests {
                apply_one(world, document.clone()).await?;
            }
            Ok(())
        }
        Action::Delete(list) => delete(world, list).await,
        Action::Patch(patch) => change(world, patch).await,
        Action::Finish(finish) => finish_pods(world, finish).await,
        Action::Nodes(list) => world.add_nodes(nodes::shapes(list)?).await,
        Action::Restart(how) => world.restart(*how).await,
        Action::Fault(fault) => {
            order(world, fault);
            Ok(())
        }
        Action::Expect(_) | Action::Hold(_) => Ok(()),
    }
}

async fn make_group(world: &mut World, group: &Group) -> Result<(), String> {
    let object = world.carriage.object(group, world.namespace());
    if let Some(made) = world.objects.apply(&object).await? {
        world.made(made);
    }
    Ok(())
}

async fn make_objects(world: &mut World, create: &Create) -> Result<(), String> {
    let template = Value::Object(create.manifest.clone());
    for number in 0..create.count {
        let mut object = numbered(&template, number);
        world.settle(&mut object).await?;
        if !create.group.is_empty() {
            let text = |text: &str| numbered_text(text, number);
            let (group, replica_key, subset) = (text(&create.group), text(&create.replica_key), text(&create.subset));
            let member = Member { group: &group, replica_key: &replica_key, subset: &subset };
            manifest::join(&mut object, &world.carriage, &member)?;
        }
        make(world, object).await?;
    }
    Ok(())
}

/// Makes an object; a node gets its kubelet.
async fn make(world: &mut World, object: Value) -> Result<(), String> {
    if is_node(&object) {
        return apply_one(world, object).await;
    }
    let made = world.objects.create(&object).await?;
    world.made(made);
    Ok(())
}

fn is_node(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "Node"
}

async fn apply_one(world: &mut World, mut document: Value) -> Result<(), String> {
    world.settle(&mut document).await?;
    let made = world.objects.apply(&document).await?;
    let Some(made) = made else { return Ok(()) };
    if is_node(&document) {
        let shape = nodes::shape_of(&document).map_err(|why| format!("Node {}: {why}", made.name))?;
        world.made(made);
        return world.add_nodes(vec![shape]).await;
    }
    world.made(made);
    Ok(())
}

async fn delete(world: &mut World, list: &[Delete]) -> Result<(), String> {
    let mut deleted = Vec::new();
    for one in list {
        let name = match one {
            Delete::Objects(name) => world.meant(name),
            Delete::Group(name) => {
                let (api_version, kind) = world.carriage.form(name).kind();
                ObjectName {
                    api_version: api_version.to_owned(),
                    kind: kind.to_owned(),
                    namespace: world.namespace().to_owned(),
                    name: Glob::new(name),
                }
            }
        };
        let found = world.objects.find(&name).await?;
        if found.is_empty() {
            return Err(format!("delete {} {}: there is none", name.kind, name.name.text()));
        }
        for object in found {
            deleted.push(delete_one(world, &name, &object).await?);
        }
    }
    wait_until_gone(world, &deleted).await
}

async fn delete_one(world: &mut World, name: &ObjectName, object: &DynamicObject) -> Result<Made, String> {
    let made = Made {
        api_version: name.api_version.clone(),
        kind: name.kind.clone(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    };
    if name.api_version == "v1" && name.kind == "Pod" {
        world.dismiss((made.namespace.clone(), made.name.clone(), made.uid.clone()));
    }
    if name.api_version == "v1" && name.kind == "Node" {
        remove_node(world, &made).await?;
    } else {
        world.objects.delete(&made, false).await?;
    }
    Ok(made)
}

/// A node leaves with its kubelet, and its pods with it, as a cluster's collector of orphaned pods sees to it.
async fn remove_node(world: &mut World, node: &Made) -> Result<(), String> {
    world.remove_kubelet(&node.name).await;
    world.objects.delete(node, false).await?;
    let pods = world.look().await?;
    world.remember(&pods);
    for pod in pods.iter().filter(|pod| pod.spec.node_name == node.name) {
        let (namespace, name, uid) = key_of(pod);
        world.dismiss((namespace.clone(), name.clone(), uid.clone()));
        let pod = Made { api_version: "v1".to_owned(), kind: "Pod".to_owned(), namespace, name, uid };
        world.objects.delete(&pod, true).await?;
    }
    Ok(())
}

async fn wait_until_gone(world: &mut World, deleted: &[Made]) -> Result<(), String> {
    let until = Instant::now() + GONE_WITHIN;
    for made in deleted {
        loop {
            let (api, _) = world.objects.api(&made.api_version, &made.kind, &made.namespace).await?;
            let there = api.get_opt(&made.name).await.map_err(|error| said(&error))?;
            let is_there = there.is_some_and(|there| there.uid().unwrap_or_default() == made.uid);
            if !is_there || Instant::now() >= until {
                break;
            }
            world.look().await.ok();
            tokio::time::sleep(world.look_every).await;
        }
    }
    Ok(())
}

async fn change(world: &mut World, patch: &Patch) -> Result<(), String> {
    let namespace = world.real_namespace(&patch.namespace).to_owned();
    let (api, _) = world.objects.api(&patch.api_version, &patch.kind, &namespace).await?;
    let body = kube::api::Patch::Merge(Value::Object(patch.patch.clone()));
    let parameters = PatchParams::default();
    let changed = match patch.subresource {
        Some(Subresource::Status) => api.patch_status(&patch.name, &parameters, &body).await,
        None => api.patch(&patch.name, &parameters, &body).await,
    };
    changed.map(drop).map_err(|error| format!("patch {} {}: {}", patch.kind, patch.name, said(&error)))
}

async fn finish_pods(world: &mut World, finish: &Finish) -> Result<(), String> {
    let pods = world.look().await?;
    world.remember(&pods);
    for meant in &finish.pods {
        let meant = world.meant_pods(meant);
        let is_meant =
            |pod: &&Pod| pod.namespace().as_deref() == Some(&meant.namespace) && meant.name.matches(&pod.name_any());
        let found: Vec<&Pod> = pods.iter().filter(is_meant).collect();
        if found.is_empty() {
            return Err(format!("finish {meant}: no pod matches"));
        }
        for pod in found {
            if pod.spec.node_name.is_empty() {
                return Err(format!("finish {meant}: {} has no node, and so no kubelet to tell it", pod.name_any()));
            }
            finish_one(world, pod, finish).await?;
        }
    }
    Ok(())
}

async fn finish_one(world: &World, pod: &Pod, finish: &Finish) -> Result<(), String> {
    let (namespace, name, uid) = key_of(pod);
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(world.objects.client(), &namespace);
    let whole = api.get(&name).await.map_err(|error| format!("finish {namespace}/{name}: {}", said(&error)))?;
    let status = serde_json::to_value(whole.status).map_err(|error| error.to_string())?;
    let now = seconds(world.now());
    let (phase, exit_code) = match finish.phase {
        Ending::Succeeded => ("Succeeded", 0),
        Ending::Failed => ("Failed", 1),
    };
    let mut patch = json!({"phase": phase, "reason": finish.reason});
    if let Some(containers) = status["containerStatuses"].as_array() {
        let ended = containers.iter().map(|one| ended(one.clone(), exit_code, &now));
        patch["containerStatuses"] = ended.collect();
    }
    if let Some(conditions) = status["conditions"].as_array() {
        let reason = if exit_code == 0 { "PodCompleted" } else { "PodFailed" };
        patch["conditions"] = conditions.iter().map(|one| not_ready(one.clone(), reason, &now)).collect();
    }
    let patch = kube::api::Patch::Merge(json!({"metadata": {"uid": uid}, "status": patch}));
    let patched = api.patch_status(&name, &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|error| format!("finish {namespace}/{name}: {}", said(&error)))
}

/// A container that ran has ended; one that never started stays as it is.
fn ended(mut container: Value, exit_code: i32, now: &str) -> Value {
    let started = container["state"]["running"]["startedAt"].clone();
    if !started.is_null() {
        let reason = if exit_code == 0 { "Completed" } else { "Error" };
        container["state"] = json!({"terminated": {
            "exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now,
            "containerID": container["containerID"],
        }});
        container["ready"] = false.into();
        container["started"] = false.into();
    }
    container
}

fn not_ready(mut condition: Value, reason: &str, now: &str) -> Value {
    if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
        if condition["status"] != "False" {
            condition["lastTransitionTime"] = now.into();
        }
        condition["status"] = "False".into();
        condition["reason"] = reason.into();
    }
    condition
}

fn order(world: &World, fault: &Fault) {
    let method = match fault.method {
        model::Method::Get => Method::GET,
        model::Method::Post => Method::POST,
        model::Method::Put => Method::PUT,
        model::Method::Patch => Method::PATCH,
        model::Method::Delete => Method::DELETE,
    };
    let path = fault.path.replace("/namespaces/default/", &format!("/namespaces/{}/", world.namespace()));
    let kind = match (fault.answer, fault.delay) {
        (Some(answer), _) => fault_of(answer),
        (None, delay) => faults::Fault::Delay(delay.map(Span::as_duration).unwrap_or_default()),
    };
    for _ in 0..fault.times {
        world.faults.order(method.clone(), &path, kind);
    }
}

fn fault_of(answer: Answer) -> faults::Fault {
    use faults::ServerError;
    match answer {
        Answer::Conflict => faults::Fault::Conflict,
        Answer::Throttled => faults::Fault::Throttled { retry_after_seconds: 1 },
        Answer::Internal => faults::Fault::Failed(ServerError::Internal),
        Answer::Unavailable => faults::Fault::Failed(ServerError::Unavailable),
        Answer::TimedOut => faults::Fault::Failed(ServerError::TimedOut),
        Answer::Lost => faults::Fault::Lost,
        Answer::AnswerLost => faults::Fault::AnswerLost,
    }
}
