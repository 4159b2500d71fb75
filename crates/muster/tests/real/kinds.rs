//! The kinds of clusters that scenarios run on: one without Kubernetes' own groups, and those that serve them, each
//! version with its own carrier.
//!
//! Must not depend on how control planes are started, nor on the set of scenarios.

use muster_controlplane::{Profile, Version};
use muster_sim::scenario::{Carrier, Scenario};

/// One kind of cluster, and the carriers that run on it.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Its name in `MUSTER_KINDS`.
    pub(crate) id: &'static str,
    pub(crate) version: Version,
    pub(crate) profile: Profile,
    /// The versions of Kubernetes' own groups that it serves.
    pub(crate) served: &'static [&'static str],
    /// The profile of the control plane.
    pub(crate) arguments: &'static [&'static str],
    pub(crate) carriers: &'static [Carrier],
    /// Whether it runs JobSet and LeaderWorkerSet with their own managers, for scenarios that use them.
    pub(crate) managers: bool,
    /// Scenario files that such a cluster cannot run with any scheduler.
    pub(crate) left_out: &'static [&'static str],
}

const STOCK: Kind = Kind {
    id: "stock",
    version: Version::V1_37,
    profile: Profile::Stock,
    served: &[],
    arguments: &[],
    carriers: &[Carrier::Muster, Carrier::MusterWorkload, Carrier::SchedulerPlugins, Carrier::Volcano],
    managers: false,
    left_out: &[],
};
const MANAGERS: Kind = Kind { carriers: &[Carrier::Muster], ..with_managers("stock-managers", STOCK) };
const NATIVE: Kind = Kind {
    id: "native",
    version: Version::V1_37,
    profile: Profile::Gates,
    served: &["scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3"],
    arguments: &["--gates", "TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"],
    carriers: &[Carrier::V1beta1],
    managers: false,
    left_out: &[],
};
/// Gangs of JobSets and LeaderWorkerSets are Kubernetes' own objects.
const NATIVE_MANAGERS: Kind = with_managers("native-managers", NATIVE);
/// Where both versions are served, Muster reads the newer one.
const ALPHA: Kind = Kind {
    id: "alpha",
    served: &["scheduling.k8s.io/v1alpha3"],
    arguments: &[
        "--gates",
        "TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
        "--flag",
        "kube-apiserver=--runtime-config=scheduling.k8s.io/v1alpha3=true",
    ],
    carriers: &[Carrier::V1alpha3],
    // The finalizer of deleted groups is removed by Kubernetes' own controller, which uses v1beta1 only: here they
    // stay.
    left_out: &["native-group-recreated.yaml"],
    ..NATIVE
};
const V1_36: Kind = Kind {
    id: "1.36",
    version: Version::V1_36,
    arguments: &[],
    served: &["scheduling.k8s.io/v1alpha2"],
    carriers: &[Carrier::V1alpha2],
    ..NATIVE
};
const V1_35: Kind = Kind {
    id: "1.35",
    version: Version::V1_35,
    arguments: &[],
    served: &["scheduling.k8s.io/v1alpha1"],
    carriers: &[Carrier::V1alpha1],
    ..NATIVE
};

/// The short tier: the newest version in both profiles, and with the managers of JobSet and LeaderWorkerSet.
pub(crate) const SHORT: [Kind; 3] = [STOCK, NATIVE, MANAGERS];
/// All kinds.
pub(crate) const ALL: [Kind; 9] = [
    STOCK,
    NATIVE,
    ALPHA,
    MANAGERS,
    NATIVE_MANAGERS,
    V1_36,
    with_managers("1.36-managers", V1_36),
    V1_35,
    with_managers("1.35-managers", V1_35),
];

/// The same with the managers of JobSet and LeaderWorkerSet.
const fn with_managers(id: &'static str, kind: Kind) -> Kind {
    Kind { id, arguments: &["--with", "jobset,lws"], managers: true, ..kind }
}

impl Kind {
    pub(crate) fn name(&self) -> String {
        let managers = if self.managers { "; with JobSet and LeaderWorkerSet" } else { "" };
        format!("Kubernetes {} ({}; {}{managers})", self.version, self.profile.name(), self.served.join(", "))
    }

    /// Whether a scenario does not apply to such a cluster.
    pub(crate) fn excludes(&self, scenario: &Scenario) -> bool {
        let is_stock = self.served.is_empty();
        let named = scenario.native_version();
        (scenario.config.stock && !is_stock) || named.is_some_and(|version| !self.served.contains(&version))
    }
}
