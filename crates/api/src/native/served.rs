//! Which version of its own groups a cluster serves, for those who write groups.

use kube_core::ApiResource;

use super::{GROUP, PodGroup, V1ALPHA3, VERSION, Workload, v1alpha1, v1alpha2};

/// The version of Kubernetes' own groups that is used on a cluster: no cluster has more than one shape of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeVersion {
    /// 1.37.
    V1beta1,
    /// 1.37 where v1beta1 is switched off: the same shapes.
    V1alpha3,
    /// 1.36: PodGroups that never change.
    V1alpha2,
    /// 1.35: groups that stand in Workloads, which never change.
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

    /// The kind of Workloads.
    pub fn workloads(self) -> ApiResource {
        self.versioned(ApiResource::erase::<Workload>(&()))
    }

    /// The kind of groups that are objects of their own; `None` where groups stand in Workloads.
    pub fn pod_groups(self) -> Option<ApiResource> {
        (self != Self::V1alpha1).then(|| self.versioned(ApiResource::erase::<PodGroup>(&())))
    }

    /// Whether the minimum of a group that is there can be changed.
    pub fn minimums_may_change(self) -> bool {
        matches!(self, Self::V1beta1 | Self::V1alpha3)
    }

    fn versioned(self, resource: ApiResource) -> ApiResource {
        let version = self.name().to_owned();
        ApiResource { api_version: format!("{GROUP}/{version}"), version, ..resource }
    }
}
