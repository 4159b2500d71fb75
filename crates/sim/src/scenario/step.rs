//! Execution of steps: what each action does on a cluster.
//!
//! Must not depend on how assertions are checked.

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
    self, Action, Answer, Apply, Create, Delete, Ending, Fault, Finish, Group, ObjectName, Patch, Refused, Subresource,
};
use super::nodes;
use super::objects::CreatedObject;
use super::pattern::Glob;
use super::snapshot::key_of;
use super::step_error::StepError;
use super::world::World;

/// How long a deletion waits until the object is gone; slower deletions continue in the background.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Performs a step that is not an assertion.
pub(super) async fn perform(world: &mut World, action: &Action) -> Result<(), StepError> {
    match action {
        Action::Group(group) => create_group(world, group).await,
        Action::Create(create) => create_objects(world, create).await,
        Action::Apply(apply) => apply_all(world, apply).await,
        Action::Refused(refused) => expect_refusal(world, refused).await,
        Action::Delete(list) => delete(world, list).await,
        Action::Patch(patch) => change(world, patch).await,
        Action::Finish(finish) => finish_pods(world, finish).await,
        Action::Nodes(list) => world.add_nodes(nodes::shapes(list)?).await,
        Action::Restart(restart) => world.restart(restart).await,
        Action::Fault(fault) => {
            inject_fault(world, fault);
            Ok(())
        }
        Action::Expect(_) | Action::Hold(_) => Ok(()),
    }
}

async fn create_group(world: &mut World, group: &Group) -> Result<(), StepError> {
    let object = world.scenario_carrier.object(group, world.namespace());
    if let Some(created) = world.objects.apply(&object).await? {
        world.record_created(created);
    }
    Ok(())
}

async fn create_objects(world: &mut World, create: &Create) -> Result<(), StepError> {
    let template = Value::Object(create.manifest.clone());
    for number in 0..create.count {
        let mut object = numbered(&template, number);
        world.complete_manifest(&mut object).await?;
        if !create.group.is_empty() {
            let text = |text: &str| numbered_text(text, number);
            let (group, replica_key, subset) = (text(&create.group), text(&create.replica_key), text(&create.subset));
            let member = Member { group: &group, replica_key: &replica_key, subset: &subset };
            manifest::join(&mut object, &world.scenario_carrier, &member)?;
        }
        create_object(world, object).await?;
    }
    Ok(())
}

/// Creates an object; a node gets its kubelet.
async fn create_object(world: &mut World, object: Value) -> Result<(), StepError> {
    if is_node(&object) {
        return apply_one(world, object).await;
    }
    let created = world.objects.create(&object).await?;
    world.record_created(created);
    Ok(())
}

fn is_node(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "Node"
}

async fn apply_all(world: &mut World, apply: &Apply) -> Result<(), StepError> {
    for document in &apply.manifests {
        apply_one(world, document.clone()).await?;
    }
    Ok(())
}

/// Succeeds if the API server refuses a request with the expected message.
async fn expect_refusal(world: &mut World, refused: &Refused) -> Result<(), StepError> {
    let outcome = match (&refused.apply, &refused.patch) {
        (Some(apply), _) => apply_all(world, apply).await,
        (None, Some(patch)) => change(world, patch).await,
        (None, None) => Ok(()),
    };
    match outcome {
        Ok(()) => Err(StepError::Precondition(format!("the API server did not refuse it: {:?}", refused.contains))),
        Err(error) if error.is_of_server() && error.to_string().contains(&refused.contains) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn apply_one(world: &mut World, mut document: Value) -> Result<(), StepError> {
    world.complete_manifest(&mut document).await?;
    let created = world.objects.apply(&document).await?;
    let Some(created) = created else { return Ok(()) };
    if is_node(&document) {
        let shape =
            nodes::shape_of(&document).map_err(|error| StepError::Node { name: created.name.clone(), error })?;
        world.record_created(created);
        return world.add_nodes(vec![shape]).await;
    }
    world.record_created(created);
    Ok(())
}

async fn delete(world: &mut World, list: &[Delete]) -> Result<(), StepError> {
    let mut deleted = Vec::new();
    for one in list {
        let name = match one {
            Delete::Objects(name) => world.resolve(name),
            Delete::Group(name) => {
                let (api_version, kind) = world.scenario_carrier.form(name).kind();
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
            let why = format!("delete {} {}: there is none", name.kind, name.name.text());
            return Err(StepError::Precondition(why));
        }
        for object in found {
            deleted.push(delete_one(world, &name, &object).await?);
        }
    }
    wait_until_gone(world, &deleted).await
}

async fn delete_one(world: &mut World, name: &ObjectName, object: &DynamicObject) -> Result<CreatedObject, StepError> {
    let created = CreatedObject {
        api_version: name.api_version.clone(),
        kind: name.kind.clone(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    };
    if name.api_version == "v1" && name.kind == "Pod" {
        world.mark_deleted((created.namespace.clone(), created.name.clone(), created.uid.clone()));
    }
    if name.api_version == "v1" && name.kind == "Node" {
        remove_node(world, &created).await?;
    } else {
        world.objects.delete(&created, false).await?;
    }
    Ok(created)
}

/// Removes a node with its kubelet and its pods, as the pod garbage collector of a cluster does.
async fn remove_node(world: &mut World, node: &CreatedObject) -> Result<(), StepError> {
    world.remove_kubelet(&node.name).await;
    world.objects.delete(node, false).await?;
    let pods = world.list_pods().await?;
    world.record_pods(&pods);
    for pod in pods.iter().filter(|pod| pod.spec.node_name == node.name) {
        let (namespace, name, uid) = key_of(pod);
        world.mark_deleted((namespace.clone(), name.clone(), uid.clone()));
        let pod = CreatedObject { api_version: "v1".to_owned(), kind: "Pod".to_owned(), namespace, name, uid };
        world.objects.delete(&pod, true).await?;
    }
    Ok(())
}

async fn wait_until_gone(world: &mut World, deleted: &[CreatedObject]) -> Result<(), StepError> {
    let until = Instant::now() + GONE_WITHIN;
    for created in deleted {
        loop {
            let (api, _) = world.objects.api(&created.api_version, &created.kind, &created.namespace).await?;
            let there = api.get_opt(&created.name).await?;
            let is_there = there.is_some_and(|there| there.uid().unwrap_or_default() == created.uid);
            if !is_there || Instant::now() >= until {
                break;
            }
            world.list_pods().await.ok();
            tokio::time::sleep(world.poll_every).await;
        }
    }
    Ok(())
}

async fn change(world: &mut World, patch: &Patch) -> Result<(), StepError> {
    let namespace = world.real_namespace(&patch.namespace).to_owned();
    let (api, _) = world.objects.api(&patch.api_version, &patch.kind, &namespace).await?;
    let body = kube::api::Patch::Merge(Value::Object(patch.patch.clone()));
    let parameters = PatchParams::default();
    let changed = match patch.subresource {
        Some(Subresource::Status) => api.patch_status(&patch.name, &parameters, &body).await,
        None => api.patch(&patch.name, &parameters, &body).await,
    };
    changed.map(drop).map_err(|error| StepError::request(format!("patch {} {}", patch.kind, patch.name), error))
}

async fn finish_pods(world: &mut World, finish: &Finish) -> Result<(), StepError> {
    let pods = world.list_pods().await?;
    world.record_pods(&pods);
    for pattern in &finish.pods {
        let pattern = world.resolve_pods(pattern);
        let is_match = |pod: &&Pod| {
            pod.namespace().as_deref() == Some(&pattern.namespace) && pattern.name.matches(&pod.name_any())
        };
        let found: Vec<&Pod> = pods.iter().filter(is_match).collect();
        if found.is_empty() {
            return Err(StepError::Precondition(format!("finish {pattern}: no pod matches")));
        }
        for pod in found {
            if pod.spec.node_name.is_empty() {
                let why = format!("finish {pattern}: {} has no node, so no kubelet can report it", pod.name_any());
                return Err(StepError::Precondition(why));
            }
            finish_one(world, pod, finish).await?;
        }
    }
    Ok(())
}

async fn finish_one(world: &World, pod: &Pod, finish: &Finish) -> Result<(), StepError> {
    let (namespace, name, uid) = key_of(pod);
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(world.objects.client(), &namespace);
    let failed = |error| StepError::request(format!("finish {namespace}/{name}"), error);
    let status = json!(api.get(&name).await.map_err(failed)?.status);
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
    patched.map(drop).map_err(failed)
}

/// A container that ran becomes terminated; one that never started is unchanged.
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

fn inject_fault(world: &World, fault: &Fault) {
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
        world.faults.schedule(method.clone(), &path, kind);
    }
}

fn fault_of(answer: Answer) -> faults::Fault {
    use faults::ServerError;
    match answer {
        Answer::Conflict => faults::Fault::Conflict,
        Answer::Invalid => faults::Fault::Invalid,
        Answer::Throttled => faults::Fault::Throttled { retry_after_seconds: 1 },
        Answer::Internal => faults::Fault::Failed(ServerError::Internal),
        Answer::Unavailable => faults::Fault::Failed(ServerError::Unavailable),
        Answer::TimedOut => faults::Fault::Failed(ServerError::TimedOut),
        Answer::Lost => faults::Fault::Lost,
        Answer::AnswerLost => faults::Fault::ResponseLost,
    }
}
