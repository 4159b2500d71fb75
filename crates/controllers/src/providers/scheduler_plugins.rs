//! The provider for the PodGroup of scheduler-plugins. Pods join by a label, so the name is limited to 63 characters.

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::InvalidField;
use muster_api::other_schedulers::scheduler_plugins::{POD_GROUP_LABEL, PodGroup};
use muster_api::owners::leader_worker_set::Replica;
use muster_api::owners::{Membership, requests};
use muster_api::wire::Pod;
use serde_json::{Value, json};

use super::ensure::{DesiredGroup, ensure};
use super::{ReplicaGang, SchedulerProvider};
use crate::reconcile::Plan;

const NAME_CHARS_MAX: usize = 63;

#[derive(Debug)]
pub(super) struct SchedulerPlugins;

impl SchedulerProvider for SchedulerPlugins {
    fn resource(&self) -> Option<ApiResource> {
        Some(ApiResource::erase::<PodGroup>(&()))
    }

    fn scheduler_name(&self) -> Option<&'static str> {
        Some("scheduler-plugins-scheduler")
    }

    fn group_name(&self, replica: &Replica) -> String {
        replica.group_name(NAME_CHARS_MAX)
    }

    fn create_pod_group_if_not_exists(&self, gang: &ReplicaGang, current: Option<&DynamicObject>) -> Plan {
        let mut spec = json!({"minMember": gang.min_member});
        if !gang.min_resources.is_empty() {
            spec["minResources"] = json!(requests::to_quantities(&gang.min_resources));
        }
        let group = DesiredGroup {
            resource: ApiResource::erase::<PodGroup>(&()),
            name: self.group_name(&gang.replica),
            later_group: self.group_name(&gang.replica),
            annotations: Value::Null,
            spec,
            minimum: Some("/minMember"),
        };
        ensure(gang, &group, current)
    }

    fn inject_pod_group_metadata(&self, replica: &Replica, _: &Pod) -> Result<Membership, InvalidField> {
        let labels = [(POD_GROUP_LABEL.to_owned(), self.group_name(replica))].into();
        Ok(Membership { labels, ..Membership::default() })
    }
}
