//! The provider for YuniKorn, which has no group objects: the pods of an application carry its requirements.
//!
//! A replica is an application with one task group. The group's resources are those of the annotated pod, which is
//! exact if leader and workers have the same requests. Under `LeaderReady` the minimum stays the size: it cannot be
//! raised later, and YuniKorn reserves the places with placeholder pods until the workers exist.

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::owners::leader_worker_set::{self, Replica};
use muster_api::owners::{Membership, requests};
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use serde_json::json;

use super::{ReplicaGang, SchedulerProvider};
use crate::reconcile::Plan;

const NAME_CHARS_MAX: usize = 63;
/// Names the application of a pod.
pub const APPLICATION_LABEL: &str = "applicationId";
/// Names the task group of a pod.
pub const TASK_GROUP_ANNOTATION: &str = "yunikorn.apache.org/task-group-name";
/// The task groups of the application.
pub const TASK_GROUPS_ANNOTATION: &str = "yunikorn.apache.org/task-groups";
const TASK_GROUP: &str = "replica";

#[derive(Debug)]
pub(super) struct YuniKorn;

impl SchedulerProvider for YuniKorn {
    fn resource(&self) -> Option<ApiResource> {
        None
    }

    fn scheduler_name(&self) -> Option<&'static str> {
        Some("yunikorn")
    }

    fn group_name(&self, replica: &Replica) -> String {
        replica.group_name(NAME_CHARS_MAX)
    }

    fn create_pod_group_if_not_exists(&self, _: &ReplicaGang, _: Option<&DynamicObject>) -> Plan {
        Plan::default()
    }

    fn inject_pod_group_metadata(&self, replica: &Replica, pod: &Pod) -> Result<Membership, InvalidField> {
        let none = Labels::new();
        let size = leader_worker_set::size(pod.metadata.annotations.as_ref().unwrap_or(&none))?;
        let requests = requests::requests_of(&pod.spec).map_err(|error| FieldPath::Root("spec").invalid("", error))?;
        let groups = json!([{
            "name": TASK_GROUP, "minMember": size, "minResource": requests::to_quantities(&requests),
            "nodeSelector": pod.spec.node_selector, "tolerations": pod.spec.tolerations,
        }]);
        let labels = [(APPLICATION_LABEL.to_owned(), self.group_name(replica))].into();
        let annotations = [
            (TASK_GROUP_ANNOTATION.to_owned(), TASK_GROUP.to_owned()),
            (TASK_GROUPS_ANNOTATION.to_owned(), groups.to_string()),
        ];
        Ok(Membership { labels, ..Membership::annotated(annotations.into()) })
    }
}
