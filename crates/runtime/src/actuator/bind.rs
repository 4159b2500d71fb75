//! Binds a pod, and deletes one again. If the response does not show whether a bind happened, the pod's current state
//! is read.

use k8s_openapi::api::core::v1::{Binding, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use muster_api::keys::annotations::START;
use muster_api::wire::Pod;
use muster_engine::model::pod::{PodName, StartStamp};
use muster_engine::{BindOutcome, DeleteOutcome};
use tokio::time::timeout_at;

use super::RequestContext;
use super::outcome::Failure;
use crate::start_stamp;

pub(super) const FENCED: &str = "this process may not write any more: it may have lost its lease";
pub(super) const NO_ANSWER: &str = "no answer in time";

/// The current state of a pod.
enum CurrentState {
    /// It does not exist, or another pod has its name.
    Gone,
    /// It is bound.
    Bound(String),
    /// It is not bound.
    Unbound { terminating: bool },
    /// It could not be read.
    Unknown(String),
}

impl RequestContext {
    /// Binds a pod. The API server copies the annotations of the Binding to the pod in the same write.
    pub(super) async fn bind(&self, pod: &PodName, node: &str, start: Option<&StartStamp>) -> BindOutcome {
        let Some(deadline) = self.deadline() else {
            return BindOutcome::Transient { message: FENCED.to_owned() };
        };
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                uid: Some(pod.uid.clone()),
                annotations: start.map(|start| [(START.to_owned(), start_stamp::write(start, &pod.uid))].into()),
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
            failure => self.resolve_bind(pod, node, failure).await,
        }
    }

    /// Reads the outcome of a bind that the response does not show. A rejection does not show it either: it is about
    /// this request, and an earlier one whose response was lost may have bound the pod. Freeing its capacity then would
    /// give it away twice.
    async fn resolve_bind(&self, pod: &PodName, node: &str, failure: Failure) -> BindOutcome {
        let error = failure.message().to_owned();
        match (self.read_current_state(pod).await, failure) {
            (CurrentState::Bound(bound_to), _) if bound_to == node => BindOutcome::Bound,
            (CurrentState::Bound(bound_to), _) => {
                BindOutcome::Refused { message: format!("the pod is bound to node {bound_to}") }
            }
            (CurrentState::Gone, _) => BindOutcome::Refused { message: "the pod is gone".to_owned() },
            (CurrentState::Unbound { terminating: true }, _) => {
                BindOutcome::Refused { message: format!("the pod is being deleted: {error}") }
            }
            (CurrentState::Unbound { .. }, Failure::Refused(message)) => BindOutcome::Refused { message },
            (CurrentState::Unbound { .. }, Failure::Conflict(message)) => BindOutcome::Transient { message },
            (CurrentState::Unbound { .. }, _) => {
                BindOutcome::Transient { message: format!("{error}; the pod is not bound") }
            }
            (CurrentState::Unknown(why), _) => BindOutcome::Transient { message: format!("{error}; and then: {why}") },
        }
    }

    async fn read_current_state(&self, pod: &PodName) -> CurrentState {
        let Some(deadline) = self.deadline() else { return CurrentState::Unknown(FENCED.to_owned()) };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        match timeout_at(deadline, pods.get(&pod.name)).await {
            Ok(Ok(found)) if found.metadata.uid.as_deref() != Some(&pod.uid) => CurrentState::Gone,
            Ok(Ok(found)) if !found.spec.node_name.is_empty() => CurrentState::Bound(found.spec.node_name),
            Ok(Ok(found)) => CurrentState::Unbound { terminating: found.metadata.deletion_timestamp.is_some() },
            Ok(Err(error)) => match Failure::of(&error) {
                Failure::Missing(_) => CurrentState::Gone,
                failure => CurrentState::Unknown(failure.message().to_owned()),
            },
            Err(_) => CurrentState::Unknown(NO_ANSWER.to_owned()),
        }
    }

    /// Whether the pod no longer exists.
    pub(super) async fn is_gone(&self, pod: &PodName) -> bool {
        matches!(self.read_current_state(pod).await, CurrentState::Gone)
    }

    pub(super) async fn delete_pod(&self, pod: &PodName) -> DeleteOutcome {
        let Some(deadline) = self.deadline() else {
            return DeleteOutcome::Transient { message: FENCED.to_owned() };
        };
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let request = pods.delete(&pod.name, &parameters);
        let Err(failure) = self.send(("delete", "pods"), deadline, request).await else {
            return DeleteOutcome::Deleted;
        };
        match failure {
            Failure::Missing(_) => DeleteOutcome::Deleted,
            // Either another pod of that name exists and ours is gone, or another client changed the pod at the same
            // time.
            Failure::Conflict(_) if self.is_gone(pod).await => DeleteOutcome::Deleted,
            Failure::Refused(message) => DeleteOutcome::Refused { message },
            Failure::Conflict(message) | Failure::Busy(message, _) | Failure::Unknown(message) => {
                DeleteOutcome::Transient { message }
            }
        }
    }
}
