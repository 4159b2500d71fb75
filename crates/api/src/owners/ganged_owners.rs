//! The owner kinds whose pods become gangs automatically: the settings that scheduler and controllers share.

use serde::{Deserialize, Serialize};

use super::job::ImplicitGangs;

/// The owner kinds whose pods get group references from our controllers. Without these controllers the scheduler must
/// not wait for references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GangedOwners {
    /// The API in which groups of JobSets are written; `None` if JobSets do not become gangs.
    pub job_sets: Option<GroupApi>,
    /// Which Jobs are gangs without an annotation; `None` if Jobs do not become gangs.
    pub jobs: Option<ImplicitGangs>,
    /// The provider for LeaderWorkerSets; `None` if they do not become gangs.
    pub leader_worker_sets: Option<ProviderName>,
}

impl GangedOwners {
    /// Whether any groups are written in the native API.
    pub fn are_native(&self) -> bool {
        self.job_sets == Some(GroupApi::Native) || self.leader_worker_sets == Some(ProviderName::Native)
    }

    /// All owner kinds, in Muster's own API.
    pub fn all() -> Self {
        Self {
            job_sets: Some(GroupApi::Muster),
            jobs: Some(ImplicitGangs::None),
            leader_worker_sets: Some(ProviderName::Muster),
        }
    }
}

/// The API in which groups of JobSets are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupApi {
    /// Muster's own Workload.
    #[default]
    Muster,
    /// Kubernetes' own Workload and PodGroups, in the version that the cluster serves.
    Native,
}

/// The scheduler whose API represents the group of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProviderName {
    /// Muster's own PodGroup.
    #[default]
    Muster,
    /// Kubernetes' own PodGroup, in the version that the cluster serves; in 1.35 a Workload.
    Native,
    /// Volcano's PodGroup.
    Volcano,
    /// The PodGroup of scheduler-plugins.
    SchedulerPlugins,
    /// YuniKorn's annotations; there is no object, and Muster does not read them.
    YuniKorn,
}
