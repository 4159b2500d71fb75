//! The groups of a LeaderWorkerSet one by one: the workers of each leader, and what is done when a pod of one fails.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions, PropagationPolicy};
use muster_playground_client::mirror::Key;
use muster_playground_client::refusal::{is_conflict, is_not_found};

use super::Keeper;
use super::keys::{EXCLUSIVE_TOPOLOGY, GROUP_INDEX, NAME, RECREATE_AFTER_START, REVISION, WORKER_INDEX};
use super::object::{GroupTemplate, LeaderWorkerSet, is_subdomain_unique};
use crate::owners::{controlled_by, controller_of};
use crate::pod_card::{PodCard, is_finished, is_going, label, node_name, phase, ready_since, restarts_of_any, uid};
use crate::recorder::Tone;
use crate::stateful::split_name;

fn is_leader(pod: &PodCard) -> bool {
    label(pod, WORKER_INDEX) == "0"
}

impl Keeper {
    /// Looks after every group.
    pub(super) async fn tend_groups(&mut self, key: &Key, lws: &LeaderWorkerSet) -> Result<(), kube::Error> {
        let template = GroupTemplate::of(&lws.spec.leader_worker_template);
        let pods: Vec<PodCard> = self.pods.of(key).cloned().collect();
        let mut recreated: Vec<String> = Vec::new();
        for pod in &pods {
            if let Some(leader) = self.to_recreate(key, lws, &template, pod) {
                if !is_going(&leader) && !recreated.contains(&leader.name_any()) {
                    self.recreate(key, lws, &leader, pod).await?;
                }
                recreated.push(leader.name_any());
            }
        }
        for leader in pods.iter().filter(|pod| is_leader(pod) && !is_going(pod)) {
            if !recreated.contains(&leader.name_any()) {
                self.tend_group(key, lws, &template, leader).await?;
            }
        }
        Ok(())
    }

    /// The leader whose group must be made again because of this pod.
    fn to_recreate(
        &self,
        key: &Key,
        lws: &LeaderWorkerSet,
        template: &GroupTemplate,
        pod: &PodCard,
    ) -> Option<PodCard> {
        let policy = template.restart_policy.as_deref().unwrap_or("RecreateGroupOnPodRestart");
        if policy == "None" || !(is_going(pod) || (!is_finished(pod) && restarts_of_any(pod) > 0)) {
            return None;
        }
        let only_started = policy == "RecreateGroupAfterStart" || lws.annotations().contains_key(RECREATE_AFTER_START);
        if only_started && self.has_pending(key, pod, template.size()) {
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

    /// Whether the group is not complete, or one of its pods has not started.
    fn has_pending(&self, key: &Key, pod: &PodCard, size: i32) -> bool {
        let group: Vec<&PodCard> =
            self.pods.of(key).filter(|one| label(one, GROUP_INDEX) == label(pod, GROUP_INDEX)).collect();
        group.len() as i32 != size || group.iter().any(|one| phase(one) == "Pending")
    }

    /// Whether a worker is one of this very leader, and not of an earlier one of its name.
    fn belongs_to(&self, key: &Key, worker: &PodCard, leader: &PodCard) -> bool {
        let Some(owner) = controller_of(worker).filter(|owner| owner.kind == "StatefulSet") else { return false };
        let set = self.sets.get(key, &owner.name).filter(|set| set.uid().as_ref() == Some(&owner.uid));
        set.and_then(controller_of).is_some_and(|above| above.kind == "Pod" && above.uid == uid(leader))
    }

    /// Deletes a leader and, before it, its workers; the leader comes again and makes new ones.
    async fn recreate(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        leader: &PodCard,
        cause: &PodCard,
    ) -> Result<(), kube::Error> {
        let pods: Api<PodCard> = Api::namespaced(self.client.clone(), &key.0);
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: leader.uid(), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        let name = leader.name_any();
        match pods.delete(&name, &parameters).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => return Err(error),
            _ => self.pods.unseen.deleted(key, leader),
        }
        let group = label(leader, GROUP_INDEX);
        let message =
            format!("Worker pod {} failed, deleted leader pod {name} to recreate group {group}", cause.name_any());
        self.say(lws, Tone::Normal, "RecreateGroup", message).await;
        Ok(())
    }

    /// Makes what a leader needs: its service and its workers.
    async fn tend_group(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        template: &GroupTemplate,
        leader: &PodCard,
    ) -> Result<(), kube::Error> {
        let name = leader.name_any();
        if is_subdomain_unique(lws.spec.network_config.as_ref()) {
            let selector = [(NAME, key.1.as_str()), (GROUP_INDEX, label(leader, GROUP_INDEX))];
            self.serve(key, &name, &selector, controlled_by(leader)).await?;
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
                self.say(lws, Tone::Warning, "FailedCreate", message).await;
                return Ok(());
            };
            node_selector = Some((topology.clone(), domain));
        }
        self.make_workers(key, lws, leader, &revision.data.0, node_selector).await
    }

    async fn domain(&self, node: &str, topology: &str) -> Result<Option<String>, kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        Ok(nodes.get_opt(node).await?.and_then(|node| node.labels().get(topology).cloned()))
    }
}
