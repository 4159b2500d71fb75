//! The version of native groups that a cluster serves, for writers of groups.

use kube_core::ApiResource;

use super::{GROUP, PodGroup, V1ALPHA3, VERSION, Workload, v1alpha1, v1alpha2};

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

    /// Whether the minimum of an existing group is mutable.
    pub fn can_change_min_count(self) -> bool {
        matches!(self, Self::V1beta1 | Self::V1alpha3)
    }

    fn versioned(self, resource: ApiResource) -> ApiResource {
        let version = self.name().to_owned();
        ApiResource { api_version: format!("{GROUP}/{version}"), version, ..resource }
    }
}
