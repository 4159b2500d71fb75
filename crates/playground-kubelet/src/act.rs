//! Acts of kubelets as calls of the API.
//!
//! Every change names the UID or the revision it is for, so that it never meets another object of the same name.
//! What fails is not tried again here: the state machine decides.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use muster_playground_client::mirror::Key;
use muster_playground_client::refusal::{is_conflict, is_not_found};
use muster_playground_client::seen::{SeenNode, SeenPod, slim};
use serde_json::Value;

use super::machine::{Act, Chore, Outcome, Task};
use super::node_body;
use crate::shape::NodeShape;

const LEASES: &str = "kube-node-lease";

/// Does an act and says what became of it. `shape` is that of the node which the act is for, if it is for one.
pub(super) async fn perform(
    client: Client,
    act: Act,
    shape: Option<Arc<NodeShape>>,
    now: Timestamp,
) -> (Task, Outcome) {
    let done = match (&act.task, &shape) {
        (Task::Node(index, chore), Some(shape)) => {
            let nodes = Nodes { client, shape, index: *index, now };
            match chore {
                Chore::Register => nodes.register().await,
                Chore::Renew => nodes.renew().await,
                Chore::Heartbeat => nodes.post_status().await,
            }
            .map(|()| None)
        }
        (Task::Node(..), None) => Ok(None),
        (Task::Status(key, _), _) => set_status(client, key, &act.body).await.map(Some),
        (Task::Remove(key, uid), _) => remove(client, key, uid).await.map(|()| None),
    };
    let outcome = match done {
        Ok(pod) => Outcome::Done(pod),
        Err(error) if is_not_found(&error) => Outcome::Gone,
        Err(_) => Outcome::Retry,
    };
    (act.task, outcome)
}

async fn set_status(client: Client, key: &Key, body: &Value) -> Result<Arc<SeenPod>, kube::Error> {
    let pods: Api<SeenPod> = Api::namespaced(client, &key.0);
    let mut pod = pods.patch_status(&key.1, &PatchParams::default(), &Patch::Merge(body)).await?;
    slim(&mut pod);
    Ok(Arc::new(pod))
}

async fn remove(client: Client, key: &Key, uid: &str) -> Result<(), kube::Error> {
    let pods: Api<SeenPod> = Api::namespaced(client, &key.0);
    let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let at_once = DeleteParams { preconditions: Some(only), ..DeleteParams::default().grace_period(0) };
    match pods.delete(&key.1, &at_once).await {
        // Another pod has the name: this one is gone.
        Err(error) if is_conflict(&error) => Ok(()),
        answer => answer.map(drop),
    }
}

/// What is done for one node.
struct Nodes<'a> {
    client: Client,
    shape: &'a NodeShape,
    index: usize,
    now: Timestamp,
}

impl Nodes<'_> {
    fn api(&self) -> Api<SeenNode> {
        Api::all(self.client.clone())
    }

    /// Creates the node, or takes over the one that is there.
    async fn register(&self) -> Result<(), kube::Error> {
        let body = node_body::node(self.shape, self.index, self.now);
        let node: SeenNode = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
        match self.api().create(&PostParams::default(), &node).await {
            Err(error) if is_conflict(&error) => {
                let labels = Patch::Merge(node_body::adoption(self.shape));
                self.api().patch(&self.shape.name, &PatchParams::default(), &labels).await?;
                self.post_status().await
            }
            answer => answer.map(drop),
        }
    }

    async fn post_status(&self) -> Result<(), kube::Error> {
        let node = self.api().get(&self.shape.name).await?;
        let patch = Patch::Merge(node_body::status_patch(self.shape, self.index, &node, self.now));
        self.api().patch_status(&self.shape.name, &PatchParams::default(), &patch).await.map(drop)
    }

    async fn renew(&self) -> Result<(), kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let patch = Patch::Merge(node_body::renewal(self.now));
        match leases.patch(&self.shape.name, &PatchParams::default(), &patch).await {
            Err(error) if is_not_found(&error) => {
                let node = self.api().get(&self.shape.name).await?;
                let body = node_body::lease(&node, self.now);
                let lease = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
                leases.create(&PostParams::default(), &lease).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }
}
