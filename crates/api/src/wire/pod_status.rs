//! The status of a pod, as written in the object.
//!
//! Unlisted fields are ignored; `null` is the same as unset.
//! Must not depend on how requests are computed (`pod_requests`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::resources::WrittenResources;
use crate::wire::condition::Condition;
use crate::wire::container::Requirements;

/// The status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub phase: String,
    /// The reason for the phase.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub reason: String,
    /// The pod's conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// The node on which victims are being evicted for it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub nominated_node_name: String,
    /// When the kubelet accepted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The statuses of the containers.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// The statuses of the init containers.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// The actuated pod-level resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Requirements>,
    /// The allocated pod-level resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<WrittenResources>,
}

/// The resources in the status of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The container's name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The allocated resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<WrittenResources>,
    /// The actuated resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Requirements>,
}

impl PodStatus {
    /// The status of the container `name`, with its list and index; names are unique over both lists.
    pub(crate) fn of_container(&self, name: &str) -> Option<(&'static str, usize, &ContainerStatus)> {
        [("containerStatuses", &self.container_statuses), ("initContainerStatuses", &self.init_container_statuses)]
            .into_iter()
            .find_map(|(field, list)| {
                let index = list.iter().position(|one| one.name == name)?;
                Some((field, index, &list[index]))
            })
    }

    /// Whether a pending resize is infeasible on the node.
    pub(crate) fn is_resize_infeasible(&self) -> bool {
        Condition::find(&self.conditions, "PodResizePending").is_some_and(|one| one.reason == "Infeasible")
    }
}
