//! Which API for groups a server has, and the rows of its kinds.
//!
//! Kubernetes has had three shapes of it, one after the other, and no server has two of them. A stock server has none.
//! It must not know the rules of the kinds.

use super::Builtin;
use super::builtin::{CONTROLLED, PLAIN};
use super::{native_v1alpha1, native_v1alpha2, pod_group};

/// The group of native groups.
pub(crate) const GROUP: &str = "scheduling.k8s.io";

/// The API for groups that a server has, and so the release of Kubernetes that it is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeGroups {
    /// None, as on a stock cluster, with every gate at its default: the group that a pod names is dropped without a word.
    Stock,
    /// `v1alpha1` of 1.35: groups inside Workloads, and `workloadRef` of pods.
    V1alpha1,
    /// `v1alpha2` of 1.36: PodGroups that never change, and `schedulingGroup` of pods.
    V1alpha2,
    /// `v1alpha3` of 1.37, without v1beta1.
    V1alpha3,
    /// `v1beta1` of 1.37, without v1alpha3.
    #[default]
    V1beta1,
}

impl NativeGroups {
    /// The release of Kubernetes that the server is like.
    pub(crate) fn release(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1.35.8",
            Self::V1alpha2 => "v1.36.4",
            Self::Stock | Self::V1alpha3 | Self::V1beta1 => "v1.37.1",
        }
    }

    /// The version of PodGroups, where there are any.
    pub(crate) fn pod_groups(self) -> Option<&'static str> {
        match self {
            Self::Stock | Self::V1alpha1 => None,
            Self::V1alpha2 => Some("v1alpha2"),
            Self::V1alpha3 => Some("v1alpha3"),
            Self::V1beta1 => Some("v1beta1"),
        }
    }

    /// The kinds that come with it.
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

const POD_GROUP: Builtin = Builtin {
    group: GROUP,
    version: "v1beta1",
    kind: "PodGroup",
    plural: "podgroups",
    read: pod_group::read,
    generation: false,
    overwrites: false,
    complete: pod_group::complete,
    on_create: pod_group::on_create,
    on_update: pod_group::on_update,
    on_status: pod_group::on_status,
    check: pod_group::check,
    check_update: pod_group::check_update,
    check_status: pod_group::check_status,
    ..CONTROLLED
};

const WORKLOAD: Builtin = Builtin {
    group: GROUP,
    version: "v1beta1",
    kind: "Workload",
    plural: "workloads",
    read: pod_group::read_workload,
    overwrites: false,
    complete: pod_group::complete_workload,
    on_create: pod_group::create_workload,
    on_update: pod_group::update_workload,
    check: pod_group::check_workload,
    check_update: pod_group::check_workload_update,
    ..PLAIN
};

static V1BETA1: &[Builtin] = &[POD_GROUP, WORKLOAD];

/// The same shapes and rules under another name.
static V1ALPHA3: &[Builtin] =
    &[Builtin { version: "v1alpha3", ..POD_GROUP }, Builtin { version: "v1alpha3", ..WORKLOAD }];

static V1ALPHA2: &[Builtin] = &[
    Builtin {
        version: "v1alpha2",
        read: native_v1alpha2::read,
        overwrites: true,
        complete: native_v1alpha2::complete,
        on_create: native_v1alpha2::on_create,
        on_update: native_v1alpha2::on_update,
        on_status: native_v1alpha2::on_status,
        check: native_v1alpha2::check,
        check_update: native_v1alpha2::check_update,
        check_status: native_v1alpha2::check_status,
        ..POD_GROUP
    },
    Builtin {
        version: "v1alpha2",
        read: native_v1alpha2::read_workload,
        overwrites: true,
        on_create: native_v1alpha2::create_workload,
        on_update: native_v1alpha2::update_workload,
        check: native_v1alpha2::check_workload,
        check_update: native_v1alpha2::check_workload_update,
        ..WORKLOAD
    },
];

static V1ALPHA1: &[Builtin] = &[Builtin {
    version: "v1alpha1",
    read: native_v1alpha1::read,
    overwrites: true,
    complete: native_v1alpha1::complete,
    on_create: |_| {},
    on_update: |_, _| {},
    check: native_v1alpha1::check,
    check_update: native_v1alpha1::check_update,
    ..WORKLOAD
}];
