//! Sends the requests of the kubelets to the API server.
//!
//! Every write carries the UID or resourceVersion it was computed for, so that it never hits another object of the same
//! name. A failed request is not retried here: the state machine decides that.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::{CSINode, CSIStorageCapacity};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_playground_client::untyped::{UntypedNode, UntypedPod, strip_unused_fields};
use muster_reflector::Key;
use serde_json::Value;

use super::node_objects;
use super::state_machine::{ApiRequest, NodeTask, Operation, Outcome};
use super::storage_objects;
use crate::shape::NodeShape;

const LEASES: &str = "kube-node-lease";

/// Sends a request and returns its outcome. `shape` is the node's shape if the request is for a node.
pub(super) async fn send(
    client: Client,
    request: ApiRequest,
    shape: Option<Arc<NodeShape>>,
    now: Timestamp,
) -> (Operation, Outcome) {
    let done = match (&request.operation, &shape) {
        (Operation::Node(index, task), Some(shape)) => {
            let nodes = NodeRequests { client, shape, index: *index, now };
            match task {
                NodeTask::Register => nodes.register().await,
                NodeTask::RenewLease => nodes.renew().await,
                NodeTask::Heartbeat => nodes.post_status().await,
            }
            .map(|()| None)
        }
        (Operation::Node(..), None) => Ok(None),
        (Operation::PatchStatus(key, _), _) => set_status(client, key, &request.body).await.map(Some),
        (Operation::DeletePod(key, uid), _) => remove(client, key, uid).await.map(|()| None),
    };
    let outcome = match done {
        Ok(pod) => Outcome::Done(pod),
        Err(error) if is_not_found(&error) => Outcome::Gone,
        Err(_) => Outcome::Retry,
    };
    (request.operation, outcome)
}

async fn set_status(client: Client, key: &Key, body: &Value) -> Result<Arc<UntypedPod>, kube::Error> {
    let pods: Api<UntypedPod> = Api::namespaced(client, &key.0);
    let mut pod = pods.patch_status(&key.1, &PatchParams::default(), &Patch::Merge(body)).await?;
    strip_unused_fields(&mut pod);
    Ok(Arc::new(pod))
}

async fn remove(client: Client, key: &Key, uid: &str) -> Result<(), kube::Error> {
    let pods: Api<UntypedPod> = Api::namespaced(client, &key.0);
    let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let at_once = DeleteParams { preconditions: Some(only), ..DeleteParams::default().grace_period(0) };
    match pods.delete(&key.1, &at_once).await {
        // The name belongs to another pod: this one is gone.
        Err(error) if is_conflict(&error) => Ok(()),
        answer => answer.map(drop),
    }
}

/// The requests for one node.
struct NodeRequests<'a> {
    client: Client,
    shape: &'a NodeShape,
    index: usize,
    now: Timestamp,
}

impl NodeRequests<'_> {
    fn api(&self) -> Api<UntypedNode> {
        Api::all(self.client.clone())
    }

    /// Creates the node, or takes over an existing one.
    async fn register(&self) -> Result<(), kube::Error> {
        let body = node_objects::node(self.shape, self.index, self.now);
        let node: UntypedNode = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
        let node = match self.api().create(&PostParams::default(), &node).await {
            Err(error) if is_conflict(&error) => {
                let labels = Patch::Merge(node_objects::labels_patch(self.shape));
                let node = self.api().patch(&self.shape.name, &PatchParams::default(), &labels).await?;
                self.post_status().await?;
                node
            }
            answer => answer?,
        };
        self.publish_storage(&node).await
    }

    /// Writes the drivers of the node, and creates the pools that it reaches.
    async fn publish_storage(&self, node: &UntypedNode) -> Result<(), kube::Error> {
        if let Some(body) = storage_objects::csi_node(self.shape, node) {
            let csi_nodes: Api<CSINode> = Api::all(self.client.clone());
            let csi_node = serde_json::from_value(body.clone()).map_err(kube::Error::SerdeError)?;
            match csi_nodes.create(&PostParams::default(), &csi_node).await {
                Err(error) if is_conflict(&error) => {
                    let parameters = PatchParams::default();
                    csi_nodes.patch(&self.shape.name, &parameters, &Patch::Merge(body)).await.map(drop)
                }
                answer => answer.map(drop),
            }?;
        }
        for body in storage_objects::pools(self.shape) {
            let pools: Api<CSIStorageCapacity> = Api::namespaced(self.client.clone(), storage_objects::POOLS);
            let pool = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
            match pools.create(&PostParams::default(), &pool).await {
                Err(error) if is_conflict(&error) => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    async fn post_status(&self) -> Result<(), kube::Error> {
        let node = self.api().get(&self.shape.name).await?;
        let patch = Patch::Merge(node_objects::status_patch(self.shape, self.index, &node, self.now));
        self.api().patch_status(&self.shape.name, &PatchParams::default(), &patch).await.map(drop)
    }

    async fn renew(&self) -> Result<(), kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let patch = Patch::Merge(node_objects::lease_renewal_patch(self.now));
        match leases.patch(&self.shape.name, &PatchParams::default(), &patch).await {
            Err(error) if is_not_found(&error) => {
                let node = self.api().get(&self.shape.name).await?;
                let body = node_objects::lease(&node, self.now);
                let lease = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
                leases.create(&PostParams::default(), &lease).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }
}
