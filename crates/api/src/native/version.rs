//! The versions of native groups: their resources, what they allow, and how objects are converted.
//!
//! Objects are read and written in the version that a cluster serves. Everything else uses the internal form, which is
//! that of v1beta1, as Kubernetes does with its internal types.

use kube_core::ApiResource;
use serde::Deserialize;
use serde_json::{Value, json};

use super::pod_group::PodGroupSpec;
use super::workload::WorkloadSpec;
use super::{
    CompositePodGroup, GROUP, Gates, PodGroup, V1ALPHA3, VERSION, Workload, v1alpha1, v1alpha2, validate_pod_group,
};
use crate::field_error::FieldError;
use crate::keys::conditions::{POD_GROUP_INITIALLY_SCHEDULED, POD_GROUP_SCHEDULED};

/// The version of native groups on a cluster: no cluster serves more than one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeVersion {
    /// 1.37.
    V1beta1,
    /// 1.37 with v1beta1 disabled: the same format.
    V1alpha3,
    /// 1.36: immutable PodGroups.
    V1alpha2,
    /// 1.35: groups inside immutable Workloads.
    V1alpha1,
}

/// The release whose rules apply, where they differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    V1_36,
    V1_37,
}

impl NativeVersion {
    /// The name of the version.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1beta1 => VERSION,
            Self::V1alpha3 => V1ALPHA3,
            Self::V1alpha2 => v1alpha2::VERSION,
            Self::V1alpha1 => v1alpha1::VERSION,
        }
    }

    /// The resource of Workloads.
    pub fn workloads(self) -> ApiResource {
        self.versioned(ApiResource::erase::<Workload>(&()))
    }

    /// The resource of PodGroups; `None` where groups are part of Workloads.
    pub fn pod_groups(self) -> Option<ApiResource> {
        (self != Self::V1alpha1).then(|| self.versioned(ApiResource::erase::<PodGroup>(&())))
    }

    /// The resource whose objects define groups: PodGroups, or Workloads where groups are part of them.
    pub fn group_objects(self) -> ApiResource {
        self.pod_groups().unwrap_or_else(|| self.workloads())
    }

    /// The resource of CompositePodGroups; only one version has it.
    pub fn composite_pod_groups() -> ApiResource {
        ApiResource::erase::<CompositePodGroup>(&())
    }

    /// Whether the minimum of an existing group is mutable.
    pub fn can_change_min_count(self) -> bool {
        matches!(self, Self::V1beta1 | Self::V1alpha3)
    }

    /// Whether a server can have priorities of groups disabled. Its groups have none then, instead of 0.
    pub fn has_priority_gate(self) -> bool {
        self == Self::V1alpha2
    }

    /// The type of upstream's condition that a group has been scheduled.
    pub fn scheduled_condition(self) -> &'static str {
        match self {
            Self::V1alpha1 | Self::V1alpha2 => POD_GROUP_SCHEDULED,
            Self::V1alpha3 | Self::V1beta1 => POD_GROUP_INITIALLY_SCHEDULED,
        }
    }

    /// Reads a stored PodGroup, and validates it: the first error is returned with it. An invalid object may lose what
    /// the internal form cannot express.
    ///
    /// Every field that the server accepted counts, whatever its feature gates are.
    pub fn decode_pod_group(self, text: &str) -> serde_json::Result<(PodGroup, Option<FieldError>)> {
        let (group, errors) = if self == Self::V1alpha2 {
            let mut group: v1alpha2::PodGroup = serde_json::from_str(text)?;
            // A server with the gate off keeps no mode.
            group.spec.disruption_mode.get_or_insert_with(|| v1alpha2::DISRUPT_POD.to_owned());
            let errors = v1alpha2::validate_pod_group(&group, Gates::ALL);
            (group.into(), errors)
        } else {
            let group: PodGroup = serde_json::from_str(text)?;
            let errors = validate_pod_group(&group, Gates::ALL);
            (group, errors)
        };
        Ok((group, errors.into_iter().next()))
    }

    /// The spec of a PodGroup in this version.
    pub fn encode_pod_group_spec(self, spec: PodGroupSpec) -> Value {
        match self {
            Self::V1alpha2 => json!(v1alpha2::PodGroupSpec::from(spec)),
            _ => json!(spec),
        }
    }

    /// Reads the spec of a stored Workload.
    pub fn decode_workload_spec(self, spec: &Value) -> serde_json::Result<WorkloadSpec> {
        match self {
            Self::V1alpha1 => v1alpha1::WorkloadSpec::deserialize(spec).map(WorkloadSpec::from),
            Self::V1alpha2 => v1alpha2::WorkloadSpec::deserialize(spec).map(WorkloadSpec::from),
            Self::V1alpha3 | Self::V1beta1 => WorkloadSpec::deserialize(spec),
        }
    }

    /// The spec of a Workload in this version.
    pub fn encode_workload_spec(self, spec: WorkloadSpec) -> Value {
        match self {
            Self::V1alpha1 => json!(v1alpha1::WorkloadSpec::from(spec)),
            Self::V1alpha2 => json!(v1alpha2::WorkloadSpec::from(spec)),
            Self::V1alpha3 | Self::V1beta1 => json!(spec),
        }
    }

    fn versioned(self, resource: ApiResource) -> ApiResource {
        let version = self.name().to_owned();
        ApiResource { api_version: format!("{GROUP}/{version}"), version, ..resource }
    }
}
