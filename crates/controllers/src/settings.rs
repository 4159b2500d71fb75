//! The settings of the controllers: which owner kinds become gangs, and in which group API.

use muster_api::native::NativeVersion;
use muster_api::owners::job::ImplicitGangs;
use muster_api::owners::{GangedOwners, GroupApi, ProviderName};

use crate::providers::{SchedulerProvider, provider};

/// The settings of the controllers.
#[derive(Clone, Debug)]
pub struct Settings {
    scheduler_names: Vec<String>,
    identity: String,
    ganged: GangedOwners,
    native: Option<NativeVersion>,
}

/// Native groups are configured on a cluster that does not serve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "controllers.{field}: Native: this cluster serves no Workloads or PodGroups of scheduling.k8s.io (feature gate GenericWorkload and --runtime-config of the API server)"
)]
pub struct NotServed {
    field: &'static str,
}

impl Settings {
    /// `scheduler_names` are the `schedulerName`s that Muster handles, `identity` is the reporting instance of events,
    /// `ganged` selects the owner kinds, and `native` is the version of native groups that the cluster serves.
    pub fn new(
        scheduler_names: Vec<String>,
        identity: String,
        ganged: GangedOwners,
        native: Option<NativeVersion>,
    ) -> Result<Self, NotServed> {
        let fields = [
            ("jobSets", ganged.job_sets == Some(GroupApi::Native)),
            ("leaderWorkerSets", ganged.leader_worker_sets == Some(ProviderName::Native)),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, asks)| *asks && native.is_none()) {
            return Err(NotServed { field });
        }
        Ok(Self { scheduler_names, identity, ganged, native })
    }

    /// The `schedulerName`s that Muster handles.
    pub(crate) fn scheduler_names(&self) -> &[String] {
        &self.scheduler_names
    }

    /// The reporting instance of events.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether JobSets become gangs.
    pub(crate) fn has_job_sets(&self) -> bool {
        self.ganged.job_sets.is_some()
    }

    /// The native version in which groups of JobSets are written; `None` for Muster's own kinds.
    pub(crate) fn native_job_sets(&self) -> Option<NativeVersion> {
        self.native.filter(|_| self.ganged.job_sets == Some(GroupApi::Native))
    }

    /// Which Jobs are gangs without an annotation; `None` if Jobs never become gangs.
    pub(crate) fn jobs(&self) -> Option<ImplicitGangs> {
        self.ganged.jobs
    }

    /// The provider for replicas of LeaderWorkerSets; `None` if they do not become gangs.
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
