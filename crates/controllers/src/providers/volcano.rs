//! The provider for Volcano's PodGroup, written as LeaderWorkerSet's own manager writes it.

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::InvalidField;
use muster_api::other_schedulers::volcano::{DEFAULT_QUEUE, GROUP_NAME_ANNOTATION, PodGroup};
use muster_api::owners::leader_worker_set::Replica;
use muster_api::owners::{Membership, requests};
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use serde_json::json;

use super::ensure::{DesiredGroup, ensure};
use super::{ReplicaGang, SchedulerProvider};
use crate::reconcile::Plan;

const NAME_CHARS_MAX: usize = 253;
/// The prefix of annotations that are copied from a set to its groups.
const ANNOTATION_PREFIX: &str = "volcano.sh/";
/// The annotation of a set that names the queue of its groups.
const QUEUE_ANNOTATION: &str = "scheduling.volcano.sh/queue-name";

#[derive(Debug)]
pub(super) struct Volcano;

impl SchedulerProvider for Volcano {
    fn resource(&self) -> Option<ApiResource> {
        Some(ApiResource::erase::<PodGroup>(&()))
    }

    fn scheduler_name(&self) -> Option<&'static str> {
        Some("volcano")
    }

    fn group_name(&self, replica: &Replica) -> String {
        replica.group_name(NAME_CHARS_MAX)
    }

    fn create_pod_group_if_not_exists(&self, gang: &ReplicaGang, current: Option<&DynamicObject>) -> Plan {
        let queue = gang.set_annotations.get(QUEUE_ANNOTATION).map_or(DEFAULT_QUEUE, String::as_str);
        let mut spec = json!({"minMember": gang.min_member, "queue": queue});
        if !gang.min_resources.is_empty() {
            spec["minResources"] = json!(requests::to_quantities(&gang.min_resources));
        }
        let copied = gang.set_annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION_PREFIX));
        let annotations: Labels = copied.map(|(key, value)| (key.clone(), value.clone())).collect();
        let group = DesiredGroup {
            resource: ApiResource::erase::<PodGroup>(&()),
            name: self.group_name(&gang.replica),
            later_group: self.group_name(&gang.replica),
            annotations: json!(annotations),
            spec,
            minimum: Some("/minMember"),
        };
        ensure(gang, &group, current)
    }

    fn inject_pod_group_metadata(&self, replica: &Replica, _: &Pod) -> Result<Membership, InvalidField> {
        let annotations = [(GROUP_NAME_ANNOTATION.to_owned(), self.group_name(replica))].into();
        Ok(Membership::annotated(annotations))
    }
}
