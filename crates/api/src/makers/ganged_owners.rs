//! Of which owners' pods some become gangs by themselves: what scheduler and controllers have to agree on.

use serde::{Deserialize, Serialize};

use super::job::Unasked;

/// Owners whose pods get references from our controllers. Without these controllers nobody should wait for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GangedOwners {
    /// JobSets that ask for gangs, and in whose words; `None` if none is.
    pub job_sets: Option<Carrier>,
    /// Jobs that do, and those that need not ask; `None` if no Job is a gang.
    pub jobs: Option<Unasked>,
    /// All LeaderWorkerSets that are not switched off, and in whose words; `None` if none is.
    pub leader_worker_sets: Option<ProviderName>,
}

impl GangedOwners {
    /// Whether some are written in Kubernetes' own objects.
    pub fn are_native(&self) -> bool {
        self.job_sets == Some(Carrier::Native) || self.leader_worker_sets == Some(ProviderName::Native)
    }

    /// All of them, in our own words.
    pub fn all() -> Self {
        Self {
            job_sets: Some(Carrier::Muster),
            jobs: Some(Unasked::None),
            leader_worker_sets: Some(ProviderName::Muster),
        }
    }
}

/// In which objects the gangs of JobSets are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carrier {
    /// Muster's own Workload.
    #[default]
    Muster,
    /// Kubernetes' own Workload and PodGroups, in the version that the cluster serves.
    Native,
}

/// In whose words the group of a replica is written.
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
