//! The part of a Kubernetes pod that decides what it asks for, as it stands in the object.
//!
//! Fields that are not listed are ignored; `null` is the same as left out.
//! It must not know how requests are reckoned (`pod_requests`).

use serde::Deserialize;

use crate::null::null_is_default;
use crate::resources::WrittenResources;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Its name and namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: PodMetadata,
    /// What it asks for.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: PodSpec,
    /// What it was given.
    #[serde(deserialize_with = "null_is_default")]
    pub status: PodStatus,
}

impl Pod {
    /// How errors name the pod: `Pod namespace/name`.
    pub fn object_name(&self) -> String {
        format!("Pod {}/{}", self.metadata.namespace, self.metadata.name)
    }
}

/// The identity of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodMetadata {
    /// The name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: String,
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The containers that run together.
    #[serde(deserialize_with = "null_is_default")]
    pub containers: Vec<Container>,
    /// The containers that run before them, one after the other, and sidecars.
    #[serde(deserialize_with = "null_is_default")]
    pub init_containers: Vec<Container>,
    /// Resources for the pod as a whole.
    pub resources: Option<Requirements>,
    /// What the runtime needs on top.
    #[serde(deserialize_with = "null_is_default")]
    pub overhead: WrittenResources,
}

/// A container or init container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// The name, unique in the pod.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What it asks for.
    #[serde(deserialize_with = "null_is_default")]
    pub resources: Requirements,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
}

impl Container {
    /// Whether this init container keeps running beside those after it.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirements {
    /// What is set aside. In a status, a list that is left out and an empty one differ.
    pub requests: Option<WrittenResources>,
    /// What may be used at most.
    pub limits: Option<WrittenResources>,
}

/// What a pod was given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// The state of each container.
    #[serde(deserialize_with = "null_is_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// The state of each init container.
    #[serde(deserialize_with = "null_is_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// The pod's conditions.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<PodCondition>,
    /// What is in force for the pod as a whole.
    pub resources: Option<Requirements>,
    /// What the node set aside for the pod as a whole.
    pub allocated_resources: Option<WrittenResources>,
}

/// What a container was given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The container's name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What the node set aside.
    pub allocated_resources: Option<WrittenResources>,
    /// What is in force.
    pub resources: Option<Requirements>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// The type of the condition.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub kind: String,
    /// The reason, one word.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,
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
        self.conditions
            .iter()
            .find(|condition| condition.kind == "PodResizePending")
            .is_some_and(|condition| condition.reason == "Infeasible")
    }
}
