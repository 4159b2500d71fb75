//! The provider for Muster's own PodGroup.

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::InvalidField;
use muster_api::keys::annotations::POD_GROUP;
use muster_api::owners::leader_worker_set::Replica;
use muster_api::owners::{Membership, requests};
use muster_api::wire::{Pod, PodGroup};
use serde_json::{Value, json};

use super::ensure::{DesiredGroup, ensure};
use super::{ReplicaGang, SchedulerProvider};
use crate::reconcile::Plan;

const NAME_CHARS_MAX: usize = 253;

#[derive(Debug)]
pub(super) struct Muster;

impl SchedulerProvider for Muster {
    fn resource(&self) -> Option<ApiResource> {
        Some(ApiResource::erase::<PodGroup>(&()))
    }

    fn scheduler_name(&self) -> Option<&'static str> {
        None
    }

    fn group_name(&self, replica: &Replica) -> String {
        replica.group_name(NAME_CHARS_MAX)
    }

    fn create_pod_group_if_not_exists(&self, gang: &ReplicaGang, current: Option<&DynamicObject>) -> Plan {
        let mut spec = json!({
            "policy": {"gang": {"minCount": gang.min_member}},
            "disruptionMode": gang.disruption_mode.as_str(),
        });
        if !gang.min_resources.is_empty() {
            // The number of pods lets Muster detect when all of them exist and no capacity is needed for later ones.
            let mut min_resources = gang.min_resources.clone();
            min_resources.insert("pods".to_owned(), gang.pods);
            spec["minResources"] = json!(requests::to_quantities(&min_resources));
        }
        if !gang.priority_class_name.is_empty() {
            spec["priorityClassName"] = json!(gang.priority_class_name);
        }
        let group = DesiredGroup {
            resource: ApiResource::erase::<PodGroup>(&()),
            name: self.group_name(&gang.replica),
            later_group: self.group_name(&gang.replica),
            annotations: Value::Null,
            spec,
            minimum: Some("/policy/gang/minCount"),
        };
        ensure(gang, &group, current)
    }

    fn inject_pod_group_metadata(&self, replica: &Replica, _: &Pod) -> Result<Membership, InvalidField> {
        let annotations = [(POD_GROUP.to_owned(), self.group_name(replica))].into();
        Ok(Membership::annotated(annotations))
    }
}
