//! The groups of a LeaderWorkerSet: creates the workers of each leader, and recreates a group when one of its pods
//! fails.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions, PropagationPolicy};
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_reflector::Key;

use super::LeaderWorkerSetController;
use super::keys::{EXCLUSIVE_TOPOLOGY, GROUP_INDEX, NAME, RECREATE_AFTER_START, REVISION, WORKER_INDEX};
use super::object::{GroupTemplate, LeaderWorkerSet, is_subdomain_unique};
use crate::owners::{controlled_by, controller_of};
use crate::pod_record::{
    PodRecord, is_finished, is_terminating, label, node_name, phase, ready_since, restarts_with_init, uid,
};
use crate::recorder::EventType;
use crate::stateful::split_name;

fn is_leader(pod: &PodRecord) -> bool {
    label(pod, WORKER_INDEX) == "0"
}

impl LeaderWorkerSetController {
    /// Syncs every group.
    pub(super) async fn sync_groups(&mut self, key: &Key, lws: &LeaderWorkerSet) -> Result<(), kube::Error> {
        let template = GroupTemplate::of(&lws.spec.leader_worker_template);
        let pods: Vec<PodRecord> = self.pods.of(key).cloned().collect();
        let mut recreated: Vec<String> = Vec::new();
        for pod in &pods {
            if let Some(leader) = self.leader_to_recreate(key, lws, &template, pod) {
                if !is_terminating(&leader) && !recreated.contains(&leader.name_any()) {
                    self.recreate(key, lws, &leader, pod).await?;
                }
                recreated.push(leader.name_any());
            }
        }
        for leader in pods.iter().filter(|pod| is_leader(pod) && !is_terminating(pod)) {
            if !recreated.contains(&leader.name_any()) {
                self.sync_group(key, lws, &template, leader).await?;
            }
        }
        Ok(())
    }

    /// The leader whose group must be recreated because of this pod.
    fn leader_to_recreate(
        &self,
        key: &Key,
        lws: &LeaderWorkerSet,
        template: &GroupTemplate,
        pod: &PodRecord,
    ) -> Option<PodRecord> {
        let policy = template.restart_policy.as_deref().unwrap_or("RecreateGroupOnPodRestart");
        if policy == "None" || !(is_terminating(pod) || (!is_finished(pod) && restarts_with_init(pod) > 0)) {
            return None;
        }
        let only_after_start =
            policy == "RecreateGroupAfterStart" || lws.annotations().contains_key(RECREATE_AFTER_START);
        if only_after_start && self.has_pending(key, pod, template.size()) {
            return None;
        }
        if is_leader(pod) {
            return Some(pod.clone());
        }
        let name = pod.name_any();
        let leader = self.pods.get(key, split_name(&name)?.0)?;
        let is_same_revision = label(leader, REVISION) == label(pod, REVISION);
        (is_same_revision && self.belongs_to(key, pod, leader)).then(|| leader.clone())
    }

    /// Whether the group is incomplete, or one of its pods has not started.
    fn has_pending(&self, key: &Key, pod: &PodRecord, size: i32) -> bool {
        let group: Vec<&PodRecord> =
            self.pods.of(key).filter(|one| label(one, GROUP_INDEX) == label(pod, GROUP_INDEX)).collect();
        group.len() as i32 != size || group.iter().any(|one| phase(one) == "Pending")
    }

    /// Whether a worker belongs to this leader, and not to an earlier one of the same name.
    fn belongs_to(&self, key: &Key, worker: &PodRecord, leader: &PodRecord) -> bool {
        let Some(owner) = controller_of(worker).filter(|owner| owner.kind == "StatefulSet") else { return false };
        let set = self.sets.get(key, &owner.name).filter(|set| set.uid().as_ref() == Some(&owner.uid));
        set.and_then(controller_of).is_some_and(|above| above.kind == "Pod" && above.uid == uid(leader))
    }

    /// Deletes a leader in the foreground, workers first; its StatefulSet recreates it.
    async fn recreate(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        leader: &PodRecord,
        cause: &PodRecord,
    ) -> Result<(), kube::Error> {
        let pods: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: leader.uid(), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        let name = leader.name_any();
        match pods.delete(&name, &parameters).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => return Err(error),
            _ => self.pods.expectations.expect_deletion(key, leader),
        }
        let group = label(leader, GROUP_INDEX);
        let message =
            format!("Worker pod {} failed, deleted leader pod {name} to recreate group {group}", cause.name_any());
        self.record_event(lws, EventType::Normal, "RecreateGroup", message).await;
        Ok(())
    }

    /// Creates the service and the workers of a leader.
    async fn sync_group(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        template: &GroupTemplate,
        leader: &PodRecord,
    ) -> Result<(), kube::Error> {
        let name = leader.name_any();
        if is_subdomain_unique(lws.spec.network_config.as_ref()) {
            let selector = [(NAME, key.1.as_str()), (GROUP_INDEX, label(leader, GROUP_INDEX))];
            self.create_service(key, &name, &selector, controlled_by(leader)).await?;
        }
        let waits = lws.spec.startup_policy.as_deref() == Some("LeaderReady") && ready_since(leader).is_none();
        if template.size() == 1 || waits || self.sets.get(key, &name).is_some() {
            return Ok(());
        }
        let Some(revision) = self.revision_of(key, label(leader, REVISION)) else { return Ok(()) };
        let mut node_selector = None;
        if let Some(topology) = lws.annotations().get(EXCLUSIVE_TOPOLOGY) {
            if node_name(leader).is_empty() {
                return Ok(());
            }
            let Some(domain) = self.domain(node_name(leader), topology).await? else {
                let message = format!(
                    "Failed to create worker statefulset for leader pod {name}: node {} has no label {topology}",
                    node_name(leader)
                );
                self.record_event(lws, EventType::Warning, "FailedCreate", message).await;
                return Ok(());
            };
            node_selector = Some((topology.clone(), domain));
        }
        self.create_workers(key, lws, leader, &revision.data.0, node_selector).await
    }

    async fn domain(&self, node: &str, topology: &str) -> Result<Option<String>, kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        Ok(nodes.get_opt(node).await?.and_then(|node| node.labels().get(topology).cloned()))
    }
}
