//! The StatefulSets of a LeaderWorkerSet, for leaders and workers, and its headless services.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use muster_playground_client::api_errors::is_conflict;
use muster_reflector::Key;
use serde_json::{Map, Value, json};

use super::LeaderWorkerSetController;
use super::keys::{
    EXCLUSIVE_TOPOLOGY, GROUP_INDEX, GROUP_KEY, LEADER_NAME, NAME, REPLICAS, REVISION, SIZE, SUBDOMAIN_POLICY,
    SUBGROUP_EXCLUSIVE_TOPOLOGY, SUBGROUP_POLICY_TYPE, SUBGROUP_SIZE, WORKER_INDEX,
};
use super::object::{GroupTemplate, LeaderWorkerSet, desired, is_subdomain_unique};
use super::rollout::{Steps, partition_of};
use crate::owners::{controlled_by, error_message};
use crate::pod_record::{PodRecord, label};
use crate::recorder::EventType;

impl LeaderWorkerSetController {
    /// Creates or updates the StatefulSet of leaders.
    pub(super) async fn write_leaders(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        present: Option<&StatefulSet>,
        steps: &Steps,
        revision: &str,
        is_updated: bool,
    ) -> Result<(), kube::Error> {
        let desired = leaders(lws, steps, revision);
        let Some(present) = present else {
            match self.create_set(key, &desired).await {
                Ok(created) => {
                    self.sets.expectations.expect_write(key, &created);
                    let message = format!("Created leader statefulset {}", key.1);
                    self.record_event(lws, EventType::Normal, "GroupsProgressing", message).await;
                }
                Err(error) => {
                    let message = format!("Failed to create leader statefulset {}: {}", key.1, error_message(&error));
                    self.record_event(lws, EventType::Warning, "FailedCreate", message).await;
                    return Err(error);
                }
            }
            return Ok(());
        };
        let mut changed = serde_json::to_value(present).unwrap_or_default();
        if includes(&changed, &desired, revision, present) {
            return Ok(());
        }
        json_patch::merge(&mut changed, &json!({"metadata": desired["metadata"]}));
        for field in ["replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy"] {
            if let Some(value) = desired["spec"].get(field) {
                changed["spec"][field] = value.clone();
            }
        }
        match self.write_set(key, &changed, &key.1).await {
            Ok(written) => self.sets.expectations.expect_write(key, &written),
            Err(error) => {
                let message = format!("Failed to update leader statefulset {}: {}", key.1, error_message(&error));
                self.record_event(lws, EventType::Warning, "FailedUpdate", message).await;
                return Err(error);
            }
        }
        self.record_steps(lws, present, steps, is_updated).await;
        Ok(())
    }

    async fn record_steps(&mut self, lws: &LeaderWorkerSet, present: &StatefulSet, steps: &Steps, is_updated: bool) {
        let (name, old) = (lws.name_any(), present.spec.replicas.unwrap_or(1));
        if steps.replicas < old && old > desired(lws) {
            let message = match old - steps.replicas {
                1 => format!("deleting surge replica {name}-{}", steps.replicas),
                _ => format!("deleting surge replicas from {name}-{} to {name}-{}", steps.replicas, old - 1),
            };
            self.record_event(lws, EventType::Normal, "GroupsProgressing", message).await;
        }
        let (was, is) = (partition_of(present), steps.partition);
        if !is_updated && is < was {
            let message = match was - is {
                1 => format!("Updating replica {is}"),
                _ => format!("Updating replicas {is} to {} (inclusive)", was - 1),
            };
            self.record_event(lws, EventType::Normal, "GroupsUpdating", message).await;
        }
    }

    /// Creates the workers of a leader. `node_selector` restricts them to the leader's domain.
    pub(super) async fn create_workers(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        leader: &PodRecord,
        data: &Value,
        node_selector: Option<(String, String)>,
    ) -> Result<(), kube::Error> {
        let set = workers(lws, leader, data, node_selector);
        let name = leader.name_any();
        match self.create_set(key, &set).await {
            Ok(created) => {
                self.sets.expectations.expect_write(key, &created);
                let message = format!("Created worker statefulset for leader pod {name}");
                self.record_event(lws, EventType::Normal, "GroupsProgressing", message).await;
                Ok(())
            }
            // The StatefulSet of an earlier leader is not gone yet.
            Err(error) if is_conflict(&error) => Err(error),
            Err(error) => {
                let message =
                    format!("Failed to create worker statefulset for leader pod {name}: {}", error_message(&error));
                self.record_event(lws, EventType::Warning, "FailedCreate", message).await;
                Err(error)
            }
        }
    }

    /// Creates a headless service if none has the name.
    pub(super) async fn create_service(
        &mut self,
        key: &Key,
        name: &str,
        selector: &[(&str, &str)],
        owner: OwnerReference,
    ) -> Result<(), kube::Error> {
        if self.services.get(key, name).is_some() {
            return Ok(());
        }
        let selector: Map<String, Value> =
            selector.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "labels": {NAME: key.1}, "ownerReferences": [owner]},
            "spec": {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": true},
        });
        let service: Service = serde_json::from_value(service).unwrap_or_default();
        let services: Api<Service> = Api::namespaced(self.client.clone(), &key.0);
        match services.create(&PostParams::default(), &service).await {
            Ok(created) => self.services.expectations.expect_write(key, &created),
            // An existing one without our label belongs to the user.
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn create_set(&self, key: &Key, set: &Value) -> Result<StatefulSet, kube::Error> {
        self.send("POST", &format!("/apis/apps/v1/namespaces/{}/statefulsets", key.0), set).await
    }

    async fn write_set(&self, key: &Key, set: &Value, name: &str) -> Result<StatefulSet, kube::Error> {
        self.send("PUT", &format!("/apis/apps/v1/namespaces/{}/statefulsets/{name}", key.0), set).await
    }

    /// Sends the unmodified template: unknown fields are rejected by the server, not dropped.
    async fn send(&self, method: &str, path: &str, set: &Value) -> Result<StatefulSet, kube::Error> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?fieldValidation=Strict"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(set).map_err(kube::Error::SerdeError)?)
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

/// Whether the StatefulSet of leaders is up to date. Its template is, if it has the revision label and our annotations.
fn includes(present: &Value, desired: &Value, revision: &str, set: &StatefulSet) -> bool {
    let holds = |path: &str| {
        let fields = desired.pointer(path).and_then(Value::as_object).cloned().unwrap_or_default();
        fields.iter().all(|(key, value)| present.pointer(path).and_then(|map| map.get(key)) == Some(value))
    };
    let same = |path: &str| desired.pointer(path).is_none_or(|value| present.pointer(path) == Some(value));
    set.labels().get(REVISION).is_some_and(|own| own == revision)
        && holds("/metadata/labels")
        && holds("/metadata/annotations")
        && holds("/spec/template/metadata/annotations")
        && same("/spec/replicas")
        && same("/spec/updateStrategy/rollingUpdate")
        && holds("/spec/persistentVolumeClaimRetentionPolicy")
}

/// A template with more labels and annotations.
fn with_metadata(template: &Value, labels: &Value, annotations: &Value) -> Value {
    let mut template = template.clone();
    json_patch::merge(&mut template, &json!({"metadata": {"labels": labels, "annotations": annotations}}));
    template
}

/// The annotations of all pods of a group.
fn group_annotations(lws: &LeaderWorkerSet, template: &GroupTemplate) -> Value {
    let mut annotations = json!({SIZE: template.size().to_string()});
    let own = lws.annotations();
    if let Some(topology) = own.get(EXCLUSIVE_TOPOLOGY).filter(|topology| !topology.is_empty()) {
        annotations[EXCLUSIVE_TOPOLOGY] = json!(topology);
    }
    if let Some(policy) = &template.sub_group_policy {
        let kind = policy.sub_group_policy_type.as_deref().unwrap_or("LeaderWorker");
        annotations[SUBGROUP_POLICY_TYPE] = json!(kind);
        annotations[SUBGROUP_SIZE] = json!(policy.sub_group_size.unwrap_or(1).to_string());
        if let Some(topology) = own.get(SUBGROUP_EXCLUSIVE_TOPOLOGY).filter(|topology| !topology.is_empty()) {
            annotations[SUBGROUP_EXCLUSIVE_TOPOLOGY] = json!(topology);
        }
    }
    annotations
}

/// The user's labels or annotations of the set, overridden by ours.
fn merged(own: &std::collections::BTreeMap<String, String>, ours: &Value) -> Value {
    let mut all = json!(own);
    json_patch::merge(&mut all, ours);
    all
}

fn add_claims(spec: &mut Value, template: &GroupTemplate) {
    if let Some(claims) = &template.volume_claim_templates {
        spec["volumeClaimTemplates"] = claims.clone();
    }
    if let Some(policy) = &template.persistent_volume_claim_retention_policy {
        spec["persistentVolumeClaimRetentionPolicy"] = policy.clone();
    }
}

/// The StatefulSet of leaders.
fn leaders(lws: &LeaderWorkerSet, steps: &Steps, revision: &str) -> Value {
    let name = lws.name_any();
    let template = GroupTemplate::of(&lws.spec.leader_worker_template);
    let mut annotations = group_annotations(lws, &template);
    if is_subdomain_unique(lws.spec.network_config.as_ref()) {
        annotations[SUBDOMAIN_POLICY] = json!("UniquePerReplica");
    }
    let labels = json!({WORKER_INDEX: "0", NAME: name, REVISION: revision});
    let pod = template.leader_template.as_ref().unwrap_or(&template.worker_template);
    let mut spec = json!({
        "serviceName": name,
        "replicas": steps.replicas,
        "podManagementPolicy": "Parallel",
        "template": with_metadata(pod, &labels, &annotations),
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {
            "partition": steps.partition, "maxUnavailable": steps.max_unavailable,
        }},
        "selector": {"matchLabels": {NAME: name, WORKER_INDEX: "0"}},
    });
    add_claims(&mut spec, &template);
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "labels": merged(lws.labels(), &json!({NAME: name, REVISION: revision})),
            "annotations": merged(lws.annotations(), &json!({REPLICAS: desired(lws).to_string()})),
            "ownerReferences": [controlled_by(lws)],
        },
        "spec": spec,
    })
}

/// The StatefulSet of a leader's workers, from the leader's revision.
fn workers(lws: &LeaderWorkerSet, leader: &PodRecord, data: &Value, node_selector: Option<(String, String)>) -> Value {
    let template = GroupTemplate::of(&data["spec"]["leaderWorkerTemplate"]);
    let (name, own) = (lws.name_any(), leader.name_any());
    let mut labels = json!({
        GROUP_INDEX: label(leader, GROUP_INDEX), NAME: name, GROUP_KEY: label(leader, GROUP_KEY),
    });
    let selector = json!({"matchLabels": labels});
    labels[REVISION] = json!(label(leader, REVISION));
    let mut annotations = group_annotations(lws, &template);
    annotations[LEADER_NAME] = json!(own);
    let mut pod = with_metadata(&template.worker_template, &labels, &annotations);
    if let Some((key, value)) = node_selector {
        pod["spec"]["nodeSelector"][key] = json!(value);
    }
    let is_unique = data["spec"]["networkConfig"]["subdomainPolicy"] == "UniquePerReplica";
    let mut spec = json!({
        "serviceName": if is_unique { &own } else { &name },
        "replicas": template.size() - 1,
        "podManagementPolicy": "Parallel",
        "template": pod,
        "ordinals": {"start": 1},
        "selector": selector,
    });
    add_claims(&mut spec, &template);
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": own,
            "labels": merged(lws.labels(), &labels),
            "annotations": lws.annotations(),
            "ownerReferences": [controlled_by(leader)],
        },
        "spec": spec,
    })
}
