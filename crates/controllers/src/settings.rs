//! What the controllers are to do: for whom, and in whose words.

use muster_api::makers::job::Unasked;
use muster_api::makers::{Carrier, GangedOwners, ProviderName};
use muster_api::native::NativeVersion;

use crate::providers::{SchedulerProvider, provider};

/// What the controllers are to do.
#[derive(Clone, Debug)]
pub struct Settings {
    scheduler_names: Vec<String>,
    identity: String,
    ganged: GangedOwners,
    native: Option<NativeVersion>,
}

/// Groups of Kubernetes' own are to be written where there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "controllers.{field}: Native: this cluster serves no Workloads or PodGroups of scheduling.k8s.io (feature gate GenericWorkload and --runtime-config of the API server)"
)]
pub struct NotServed {
    field: &'static str,
}

impl Settings {
    /// For pods that ask for Muster by these names, and for these owners; `identity` writes events, and `native` is the
    /// version of groups that the cluster serves.
    pub fn new(
        scheduler_names: Vec<String>,
        identity: String,
        ganged: GangedOwners,
        native: Option<NativeVersion>,
    ) -> Result<Self, NotServed> {
        let fields = [
            ("jobSets", ganged.job_sets == Some(Carrier::Native)),
            ("leaderWorkerSets", ganged.leader_worker_sets == Some(ProviderName::Native)),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, asks)| *asks && native.is_none()) {
            return Err(NotServed { field });
        }
        Ok(Self { scheduler_names, identity, ganged, native })
    }

    /// The names by which pods ask for Muster.
    pub(crate) fn scheduler_names(&self) -> &[String] {
        &self.scheduler_names
    }

    /// Who writes events.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether JobSets become gangs.
    pub(crate) fn has_job_sets(&self) -> bool {
        self.ganged.job_sets.is_some()
    }

    /// The version in which JobSets are written, if not in our own words.
    pub(crate) fn native_job_sets(&self) -> Option<NativeVersion> {
        self.native.filter(|_| self.ganged.job_sets == Some(Carrier::Native))
    }

    /// Which Jobs are gangs without asking for it; `None` if no Job is.
    pub(crate) fn jobs(&self) -> Option<Unasked> {
        self.ganged.jobs
    }

    /// In whose words replicas of LeaderWorkerSets are written, if at all.
    pub(crate) fn provider(&self) -> Option<Box<dyn SchedulerProvider>> {
        self.ganged.leader_worker_sets.and_then(|name| provider(name, self.native))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler_names: vec![muster_api::keys::SCHEDULER_NAME.to_owned()],
            identity: "muster".to_owned(),
            ganged: GangedOwners::all(),
            native: None,
        }
    }
}
