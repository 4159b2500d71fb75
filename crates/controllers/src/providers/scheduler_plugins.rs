//! The PodGroup of scheduler-plugins. Pods join by a label, so the name has room for 63 characters.

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::InvalidField;
use muster_api::makers::leader_worker_set::Replica;
use muster_api::makers::{Joining, requests};
use muster_api::others::scheduler_plugins::{POD_GROUP_LABEL, PodGroup};
use muster_api::wire::Pod;
use serde_json::{Value, json};

use super::ensure::{Shape, ensure};
use super::{ReplicaGang, SchedulerProvider};
use crate::plans::Plan;

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
            spec["minResources"] = json!(requests::written(&gang.min_resources));
        }
        let shape = Shape {
            resource: ApiResource::erase::<PodGroup>(&()),
            name: self.group_name(&gang.replica),
            annotations: Value::Null,
            spec,
            minimum: Some("/minMember"),
        };
        ensure(gang, &shape, current)
    }

    fn inject_pod_group_metadata(&self, replica: &Replica, _: &Pod) -> Result<Joining, InvalidField> {
        let labels = [(POD_GROUP_LABEL.to_owned(), self.group_name(replica))].into();
        Ok(Joining { labels, ..Joining::default() })
    }
}
