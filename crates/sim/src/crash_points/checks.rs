//! The rules: what no write may break, and what has to be true at the end, read from the server alone.
//!
//! Must not depend on the scheduler's code.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use muster_playground::Server;
use serde_json::Value;

use super::cases::{GANG, MEMBERS};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// What the server holds.
pub(super) struct Snapshot {
    pods: Vec<Value>,
    claims: Vec<Value>,
    volumes: Vec<Value>,
    nodes: Vec<Value>,
}

impl Snapshot {
    pub(super) async fn of(server: &Server) -> Self {
        Self {
            pods: list(server, "/api/v1/namespaces/default/pods").await,
            claims: list(server, "/api/v1/namespaces/default/persistentvolumeclaims").await,
            volumes: list(server, "/api/v1/persistentvolumes").await,
            nodes: list(server, "/api/v1/nodes").await,
        }
    }

    fn members(&self) -> impl Iterator<Item = &Value> {
        self.pods.iter().filter(|pod| text(&pod["metadata"]["annotations"]["muster.dev/pod-group"]) == GANG)
    }

    /// How many members have a node.
    pub(super) fn bound(&self) -> usize {
        self.members().filter(|pod| pod["spec"]["nodeName"].is_string()).count()
    }

    /// Whether all members run, which their kubelets allow only with their volumes, and all other pods have ended.
    pub(super) fn is_complete(&self) -> bool {
        let running = self.members().filter(|pod| pod["status"]["phase"] == "Running").count();
        let is_other = |pod: &&Value| !self.members().any(|member| member["metadata"] == pod["metadata"]);
        let mut others = self.pods.iter().filter(is_other);
        running == MEMBERS && others.all(|pod| pod["status"]["phase"] == "Succeeded")
    }

    fn claim(&self, name: &str) -> Option<&Value> {
        self.claims.iter().find(|claim| claim["metadata"]["name"] == name)
    }

    /// Why a pod could not use its claims on a node.
    fn unusable_claims(&self, pod: &Value, node: Option<&str>) -> Vec<String> {
        let mut reasons = Vec::new();
        for used in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            let Some(name) = used["persistentVolumeClaim"]["claimName"].as_str() else { continue };
            let claim = self.claim(name).unwrap_or(&Value::Null);
            if claim["metadata"]["annotations"][BIND_COMPLETED].is_null() || !claim["spec"]["volumeName"].is_string() {
                reasons.push(format!("claim {name} of {} is not bound", pod["metadata"]["name"]));
                continue;
            }
            let volume = self.volumes.iter().find(|one| one["metadata"]["name"] == claim["spec"]["volumeName"]);
            let Some(volume) = volume else {
                reasons.push(format!("claim {name} has lost its volume"));
                continue;
            };
            if node.is_some_and(|node| !self.is_accessible(volume, node)) {
                reasons.push(format!("the volume of claim {name} cannot be used on {node:?}"));
            }
        }
        reasons
    }

    /// Whether the node affinity of a volume allows a node; the volumes here have one expression at most.
    fn is_accessible(&self, volume: &Value, node: &str) -> bool {
        let expression = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        let Some(key) = expression["key"].as_str() else { return true };
        let node = self.nodes.iter().find(|one| one["metadata"]["name"] == node).unwrap_or(&Value::Null);
        let values = expression["values"].as_array().into_iter().flatten();
        values.into_iter().any(|value| *value == node["metadata"]["labels"][key])
    }

    /// What is wrong when everything is over.
    pub(super) fn violations_at_rest(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !self.is_complete() {
            wrong.push(format!("{} of {MEMBERS} members are bound in the end", self.bound()));
        }
        for pod in self.members() {
            wrong.extend(self.unusable_claims(pod, pod["spec"]["nodeName"].as_str()));
        }
        for claim in &self.claims {
            let name = text(&claim["metadata"]["name"]);
            let is_its = |volume: &&Value| volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"];
            let volumes = self.volumes.iter().filter(is_its).count();
            if volumes != 1 {
                wrong.push(format!("there are {volumes} volumes for claim {name}"));
            }
        }
        for volume in &self.volumes {
            let of = &volume["spec"]["claimRef"]["uid"];
            if of.is_string() && !self.claims.iter().any(|claim| claim["metadata"]["uid"] == *of) {
                wrong.push(format!("volume {} is for no claim", volume["metadata"]["name"]));
            }
        }
        wrong
    }
}

/// What is wrong with a write that the server has not seen yet.
pub(super) async fn of_write(server: &Server, method: &Method, path: &str, body: &Value) -> Vec<String> {
    let snapshot = Snapshot::of(server).await;
    let name = |from_end: usize| path.rsplit('/').nth(from_end).unwrap_or_default();
    if path.ends_with("/binding") {
        return of_bind(&snapshot, name(1), text(&body["target"]["name"]));
    }
    if path.contains("/persistentvolumeclaims/") {
        let (claim, node) = (snapshot.claim(name(0)), text(&body["metadata"]["annotations"][SELECTED_NODE]));
        let selected = claim.map_or("", |claim| text(&claim["metadata"]["annotations"][SELECTED_NODE]));
        if *method != Method::PATCH || node.is_empty() || !["", node].contains(&selected) {
            return vec![format!("the node of a claim that has {selected:?} becomes {node:?}")];
        }
    }
    if path.contains("/persistentvolumes/") && (*method != Method::PATCH || body["spec"]["claimRef"].is_null()) {
        return vec!["a volume is changed, and not reserved".to_owned()];
    }
    Vec::new()
}

/// No member is bound before the claims of all members are bound, nor where its own cannot be used.
fn of_bind(snapshot: &Snapshot, pod: &str, node: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_member = snapshot.members().any(|member| member["metadata"]["name"] == pod);
    for member in snapshot.members().filter(|_| is_member) {
        let own = member["metadata"]["name"] == pod;
        wrong.extend(snapshot.unusable_claims(member, own.then_some(node)));
    }
    wrong
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn list(server: &Server, path: &str) -> Vec<Value> {
    let request = Request::get(path).body(Body::empty()).expect("a path");
    let body = server.answer(request).await.into_body();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let list: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}
