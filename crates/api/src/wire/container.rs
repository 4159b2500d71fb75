//! A container of a pod as written in the object: resources, ports and image.
//!
//! Unlisted fields are ignored; `null` is the same as unset. Must not depend on how requests are computed
//! (`pod_requests`).

use serde::{Deserialize, Deserializer, Serialize};

use crate::null::{is_default, null_is_default};
use crate::resources::WrittenResources;

/// A container or init container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// The name, unique in the pod.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The image; nodes that have it are preferred.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub image: String,
    /// The requests and limits.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resources: Requirements,
    /// Ports; a host port can be used by one pod at a time.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
    /// What happens on certain exit codes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub restart_policy_rules: Vec<RestartRule>,
    /// Volume mounts with options that a node may not support; all others are skipped.
    #[serde(deserialize_with = "with_options", skip_serializing_if = "is_default")]
    pub volume_mounts: Vec<VolumeMount>,
}

/// What happens when a container ends with certain exit codes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartRule {
    /// `Restart` or `RestartAllContainers`.
    #[serde(deserialize_with = "null_is_default")]
    pub action: String,
}

fn with_options<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<VolumeMount>, D::Error> {
    let all = Option::<Vec<VolumeMount>>::deserialize(deserializer)?;
    Ok(all.into_iter().flatten().filter(|mount| !mount.bind_mount_options.is_empty()).collect())
}

/// A volume that a container mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// The volume.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The mount options.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub bind_mount_options: Vec<String>,
}

impl Container {
    /// Whether this init container keeps running together with the containers after it.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// The port in the container; with `hostNetwork` also the host port.
    #[serde(deserialize_with = "null_is_default")]
    pub container_port: i32,
    /// The host port, 0 for none.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub host_port: i32,
    /// The host address, empty for all.
    #[serde(rename = "hostIP", deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub host_ip: String,
    /// `TCP`, also if empty, `UDP` or `SCTP`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub protocol: String,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirements {
    /// The requests. In a status, a missing list and an empty one differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<WrittenResources>,
    /// The limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<WrittenResources>,
}
