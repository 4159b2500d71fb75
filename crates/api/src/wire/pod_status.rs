//! What has become of a pod, as it stands in the object.
//!
//! Fields that are not listed are ignored; `null` is the same as left out.
//! It must not know how requests are reckoned (`pod_requests`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::resources::WrittenResources;
use crate::wire::condition::Condition;
use crate::wire::container::Requirements;

/// What has become of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub phase: String,
    /// Why it is in that phase, one word.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub reason: String,
    /// The pod's conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// The node on which room is being made for it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub nominated_node_name: String,
    /// When the node took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The state of each container.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// The state of each init container.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// What is in force for the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Requirements>,
    /// What the node set aside for the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<WrittenResources>,
}

/// What a container was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The container's name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What the node set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<WrittenResources>,
    /// What is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Requirements>,
}

impl PodStatus {
    /// The state of the container `name` and where it stands; names are unique over both lists.
    pub(crate) fn of_container(&self, name: &str) -> Option<(&'static str, usize, &ContainerStatus)> {
        [("containerStatuses", &self.container_statuses), ("initContainerStatuses", &self.init_container_statuses)]
            .into_iter()
            .find_map(|(field, list)| {
                let index = list.iter().position(|one| one.name == name)?;
                Some((field, index, &list[index]))
            })
    }

    /// Whether the node has said that a wanted resize can never be done there.
    pub(crate) fn is_resize_infeasible(&self) -> bool {
        Condition::find(&self.conditions, "PodResizePending").is_some_and(|one| one.reason == "Infeasible")
    }
}
