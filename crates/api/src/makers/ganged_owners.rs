//! Of which owners' pods some become gangs by themselves: what scheduler and controllers have to agree on.

use serde::{Deserialize, Serialize};

use super::job::Unasked;

/// Owners whose pods get references from our controllers. Without these controllers nobody should wait for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GangedOwners {
    /// JobSets that ask for gangs.
    pub job_sets: bool,
    /// Jobs that do, and those that need not ask; `None` if no Job is a gang.
    pub jobs: Option<Unasked>,
    /// All LeaderWorkerSets that are not switched off, and in whose words; `None` if none is.
    pub leader_worker_sets: Option<ProviderName>,
}

impl GangedOwners {
    /// All of them, in our own words.
    pub fn all() -> Self {
        Self { job_sets: true, jobs: Some(Unasked::None), leader_worker_sets: Some(ProviderName::Muster) }
    }
}

/// In whose words the group of a replica is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProviderName {
    /// Muster's own PodGroup.
    #[default]
    Muster,
    /// Volcano's PodGroup.
    Volcano,
    /// The PodGroup of scheduler-plugins.
    SchedulerPlugins,
    /// YuniKorn's annotations; there is no object, and Muster does not read them.
    YuniKorn,
}
