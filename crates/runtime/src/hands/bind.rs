//! Binding a pod, and taking a bound one back. After an answer that leaves it open what happened, the truth is read.

use k8s_openapi::api::core::v1::{Binding, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use muster_api::wire::Pod;
use muster_engine::model::pod::PodName;
use muster_engine::{BindOutcome, TakeBackOutcome};
use tokio::time::timeout_at;

use super::Reach;
use super::outcome::Failure;

pub(super) const FENCED: &str = "this process may not write any more: it may have lost its lease";
const NO_ANSWER: &str = "no answer in time";

/// What a pod turned out to be.
enum Truth {
    /// It is not there any more, or it is another one.
    Gone,
    /// It is bound.
    Bound(String),
    /// It is not bound.
    Unbound { terminating: bool },
    /// That cannot be said.
    Unknown(String),
}

impl Reach {
    pub(super) async fn bind(&self, pod: &PodName, node: &str) -> BindOutcome {
        let Some(deadline) = self.deadline() else {
            return BindOutcome::Transient { message: FENCED.to_owned() };
        };
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let parameters = PostParams::default();
        let request =
            pods.create_subresource::<Binding, kube::core::Status>("binding", &pod.name, &parameters, &binding);
        let Err(failure) = self.send(("create", "pods/binding"), deadline, request).await else {
            return BindOutcome::Bound;
        };
        match failure {
            Failure::Busy(message, _) => BindOutcome::Transient { message },
            Failure::Missing(message) => BindOutcome::Refused { message },
            failure => self.bound_after_all(pod, node, failure).await,
        }
    }

    /// What became of a bind whose answer does not say it. A refusal does not either: it is about this request, and an
    /// earlier one whose answer was lost may have bound the pod. To free its room then would give it away twice.
    async fn bound_after_all(&self, pod: &PodName, node: &str, failure: Failure) -> BindOutcome {
        let said = failure.message().to_owned();
        match (self.truth(pod).await, failure) {
            (Truth::Bound(there), _) if there == node => BindOutcome::Bound,
            (Truth::Bound(there), _) => BindOutcome::Refused { message: format!("the pod is bound to node {there}") },
            (Truth::Gone, _) => BindOutcome::Refused { message: "the pod is gone".to_owned() },
            (Truth::Unbound { terminating: true }, _) => {
                BindOutcome::Refused { message: format!("the pod is being deleted: {said}") }
            }
            (Truth::Unbound { .. }, Failure::Refused(message)) => BindOutcome::Refused { message },
            (Truth::Unbound { .. }, Failure::Conflict(message)) => BindOutcome::Transient { message },
            (Truth::Unbound { .. }, _) => BindOutcome::Transient { message: format!("{said}; the pod is not bound") },
            (Truth::Unknown(why), _) => BindOutcome::Transient { message: format!("{said}; and then: {why}") },
        }
    }

    async fn truth(&self, pod: &PodName) -> Truth {
        let Some(deadline) = self.deadline() else { return Truth::Unknown(FENCED.to_owned()) };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        match timeout_at(deadline, pods.get(&pod.name)).await {
            Ok(Ok(found)) if found.metadata.uid.as_deref() != Some(&pod.uid) => Truth::Gone,
            Ok(Ok(found)) if !found.spec.node_name.is_empty() => Truth::Bound(found.spec.node_name),
            Ok(Ok(found)) => Truth::Unbound { terminating: found.metadata.deletion_timestamp.is_some() },
            Ok(Err(error)) => match Failure::of(&error) {
                Failure::Missing(_) => Truth::Gone,
                failure => Truth::Unknown(failure.message().to_owned()),
            },
            Err(_) => Truth::Unknown(NO_ANSWER.to_owned()),
        }
    }

    /// Whether the pod is not there any more.
    pub(super) async fn is_gone(&self, pod: &PodName) -> bool {
        matches!(self.truth(pod).await, Truth::Gone)
    }

    pub(super) async fn take_back(&self, pod: &PodName) -> TakeBackOutcome {
        let Some(deadline) = self.deadline() else {
            return TakeBackOutcome::Transient { message: FENCED.to_owned() };
        };
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let request = pods.delete(&pod.name, &parameters);
        let Err(failure) = self.send(("delete", "pods"), deadline, request).await else {
            return TakeBackOutcome::Deleted;
        };
        match failure {
            Failure::Missing(_) => TakeBackOutcome::Deleted,
            // Another pod of that name is there: ours is gone. Or somebody changed it in that moment.
            Failure::Conflict(_) if self.is_gone(pod).await => TakeBackOutcome::Deleted,
            Failure::Refused(message) => TakeBackOutcome::Refused { message },
            Failure::Conflict(message) | Failure::Busy(message, _) | Failure::Unknown(message) => {
                TakeBackOutcome::Transient { message }
            }
        }
    }
}
