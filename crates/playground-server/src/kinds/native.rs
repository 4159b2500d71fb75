//! The versions of the native PodGroup API, and the kinds of each.
//!
//! Kubernetes has had three shapes of it, and a server has at most one of them. kube-apiserver serves none by
//! default; this server serves v1beta1.
//! Must not depend on the strategies of the kinds.

use muster_api::native::Gates;

use super::Builtin;
use super::builtin::{CONTROLLED, PLAIN};
use super::{composite_pod_group, native_v1alpha1, native_v1alpha2, pod_group};

/// The API group of PodGroups and Workloads.
pub(crate) const GROUP: &str = "scheduling.k8s.io";

/// The native PodGroup API of a server, and so the Kubernetes release that it imitates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeGroups {
    /// None, as with default feature gates: a pod's reference to a group is dropped silently.
    Stock,
    /// `v1alpha1` of 1.35: groups inside Workloads, and `workloadRef` in pods.
    V1alpha1,
    /// `v1alpha2` of 1.36: immutable PodGroups, and `schedulingGroup` in pods.
    V1alpha2,
    /// `v1alpha3` of 1.37, without v1beta1.
    V1alpha3,
    /// `v1beta1` of 1.37, without v1alpha3.
    #[default]
    V1beta1,
}

impl NativeGroups {
    /// The Kubernetes release that the server imitates.
    pub(crate) fn release(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1.35.8",
            Self::V1alpha2 => "v1.36.4",
            Self::Stock | Self::V1alpha3 | Self::V1beta1 => "v1.37.1",
        }
    }

    /// The version of PodGroups, if there are any.
    pub(crate) fn pod_groups(self) -> Option<&'static str> {
        match self {
            Self::Stock | Self::V1alpha1 => None,
            Self::V1alpha2 => Some("v1alpha2"),
            Self::V1alpha3 => Some("v1alpha3"),
            Self::V1beta1 => Some("v1beta1"),
        }
    }

    /// The kinds of this API.
    pub(super) fn rows(self) -> &'static [Builtin] {
        match self {
            Self::Stock => &[],
            Self::V1alpha1 => V1ALPHA1,
            Self::V1alpha2 => V1ALPHA2,
            Self::V1alpha3 => V1ALPHA3,
            Self::V1beta1 => V1BETA1,
        }
    }
}

impl NativeGroups {
    /// The kinds that a feature gate adds.
    pub(super) fn gated_rows(self, gates: Gates) -> &'static [Builtin] {
        let has_them = matches!(self, Self::V1alpha3 | Self::V1beta1);
        if has_them && gates.composite_pod_group { COMPOSITE } else { &[] }
    }
}

const POD_GROUP: Builtin = Builtin {
    group: GROUP,
    version: "v1beta1",
    kind: "PodGroup",
    plural: "podgroups",
    decode: pod_group::decode,
    generation: false,
    allows_unconditional_update: false,
    set_defaults: pod_group::set_defaults,
    prepare_for_create: pod_group::prepare_for_create,
    prepare_for_update: pod_group::prepare_for_update,
    prepare_for_status_update: pod_group::prepare_for_status_update,
    validate_status_update: pod_group::validate_status_update,
    gated: Some(&pod_group::GATED),
    ..CONTROLLED
};

const WORKLOAD: Builtin = Builtin {
    group: GROUP,
    version: "v1beta1",
    kind: "Workload",
    plural: "workloads",
    decode: pod_group::decode_workload,
    allows_unconditional_update: false,
    set_defaults: pod_group::set_workload_defaults,
    gated: Some(&pod_group::GATED_WORKLOAD),
    ..PLAIN
};

static V1BETA1: &[Builtin] = &[POD_GROUP, WORKLOAD];

/// The same kinds in another version.
static V1ALPHA3: &[Builtin] =
    &[Builtin { version: "v1alpha3", ..POD_GROUP }, Builtin { version: "v1alpha3", ..WORKLOAD }];

/// Groups of groups, in one version only.
static COMPOSITE: &[Builtin] = &[Builtin {
    version: "v1alpha3",
    kind: "CompositePodGroup",
    plural: "compositepodgroups",
    decode: composite_pod_group::decode,
    set_defaults: composite_pod_group::set_defaults,
    validate_status_update: composite_pod_group::validate_status_update,
    gated: Some(&composite_pod_group::GATED),
    ..POD_GROUP
}];

static V1ALPHA2: &[Builtin] = &[
    Builtin {
        version: "v1alpha2",
        decode: native_v1alpha2::decode,
        allows_unconditional_update: true,
        set_defaults: native_v1alpha2::set_defaults,
        validate_status_update: native_v1alpha2::validate_status_update,
        gated: Some(&native_v1alpha2::GATED),
        ..POD_GROUP
    },
    Builtin {
        version: "v1alpha2",
        decode: native_v1alpha2::decode_workload,
        allows_unconditional_update: true,
        gated: Some(&native_v1alpha2::GATED_WORKLOAD),
        ..WORKLOAD
    },
];

static V1ALPHA1: &[Builtin] = &[Builtin {
    version: "v1alpha1",
    decode: native_v1alpha1::decode,
    allows_unconditional_update: true,
    set_defaults: native_v1alpha1::set_defaults,
    validate: native_v1alpha1::validate,
    validate_update: native_v1alpha1::validate_update,
    gated: None,
    ..WORKLOAD
}];
