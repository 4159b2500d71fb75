//! Disruptive actions on the sets: deletions of their objects, suspensions, and crashes of Muster.

use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use muster_playground::random::Random;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::sets::{JOB_SET, PAIRS, SET, Set};
use super::{Host, Problem, Rounds, api, names};

/// Poll interval while a deleted set still exists.
const POLL_EVERY: Duration = Duration::from_millis(50);
const POD: (&str, &str) = ("v1", "Pod");
const JOB: (&str, &str) = ("batch/v1", "Job");
const LEADERS: &str = "leaderworkerset.sigs.k8s.io/worker-index=0";
const JOBS_OF_SETS: &str = "jobset.sigs.k8s.io/jobset-name";

/// One action.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    DeletePod,
    DeleteJob,
    DeleteLeader,
    /// A set is deleted and recreated with the same name.
    Recreate {
        /// Whether deletion is foreground: all that it owns is deleted first.
        foreground: bool,
    },
    /// A JobSet is suspended and resumed.
    Suspend,
    Restart,
}

impl Action {
    pub(super) fn of(random: &mut Random) -> Self {
        match random.below(12) {
            0 | 1 => Action::DeletePod,
            2 | 3 => Action::DeleteJob,
            4 | 5 => Action::DeleteLeader,
            6 | 7 => Action::Recreate { foreground: false },
            8 => Action::Recreate { foreground: true },
            9 | 10 => Action::Suspend,
            _ => Action::Restart,
        }
    }
}

impl<H: Host> Rounds<'_, H> {
    /// Performs the action and returns a description of it.
    pub(super) async fn perform(&mut self, action: Action) -> Result<String, Problem> {
        match action {
            Action::DeletePod => self.delete_one(POD, SET).await,
            Action::DeleteJob => self.delete_one(JOB, JOBS_OF_SETS).await,
            Action::DeleteLeader => self.delete_one(POD, LEADERS).await,
            Action::Recreate { foreground } => {
                let set = self.random_set();
                self.delete(&set, foreground).await?;
                self.await_end(&set).await?;
                self.create(&set).await?;
                let how = if foreground { "in the foreground" } else { "in the background" };
                Ok(format!("{} deleted {how} and recreated", set.name()))
            }
            Action::Suspend => {
                let set = loop {
                    let set = self.random_set();
                    if set.startup.kind() == JOB_SET {
                        break set;
                    }
                };
                self.suspend(&set, true).await?;
                self.pause().await;
                self.suspend(&set, false).await?;
                Ok(format!("{} suspended and resumed", set.name()))
            }
            Action::Restart => {
                self.host.restart();
                Ok("Muster crashed".to_owned())
            }
        }
    }

    fn random_set(&mut self) -> Set {
        let startup = PAIRS[self.pick(PAIRS.len())];
        Set::new(startup, if self.random.below(2) == 0 { "a" } else { "b" })
    }

    async fn delete_one(&mut self, kind: (&str, &str), labels: &str) -> Result<String, Problem> {
        let api = api(&self.client, kind);
        let listed = api.list(&ListParams::default().labels(labels)).await?;
        let mut names = names(&listed.items);
        if names.is_empty() {
            return Ok(format!("there is no {} to delete", kind.1));
        }
        let name = names.swap_remove(self.pick(names.len()));
        // As kubectl does: with the default propagation, Jobs would orphan their pods.
        ignore_not_found(api.delete(&name, &DeleteParams::background()).await.map(drop))?;
        Ok(format!("{} {name} deleted", kind.1))
    }

    pub(super) async fn create(&mut self, set: &Set) -> Result<(), Problem> {
        let object: DynamicObject = serde_json::from_value(set.object()).expect("an object");
        let made = api(&self.client, set.startup.kind()).create(&PostParams::default(), &object).await;
        made.map(drop).map_err(|error| Problem::Request { attempt: format!("create {}", set.name()), error })
    }

    pub(super) async fn delete(&mut self, set: &Set, foreground: bool) -> Result<(), Problem> {
        let how = if foreground { DeleteParams::foreground() } else { DeleteParams::background() };
        ignore_not_found(api(&self.client, set.startup.kind()).delete(&set.name(), &how).await.map(drop))
    }

    async fn await_end(&mut self, set: &Set) -> Result<(), Problem> {
        let api = api(&self.client, set.startup.kind());
        let until = Instant::now() + self.within;
        while api.get_opt(&set.name()).await?.is_some() {
            if Instant::now() > until {
                return Err(Problem::Violation(format!("{} was deleted and still exists", set.name())));
            }
            sleep(POLL_EVERY).await;
            self.host.check_processes();
        }
        Ok(())
    }

    async fn suspend(&mut self, set: &Set, suspend: bool) -> Result<(), Problem> {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        let patched = api(&self.client, JOB_SET).patch(&set.name(), &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| Problem::Request { attempt: format!("suspend {}", set.name()), error })
    }
}

/// An object that is already gone need not be deleted.
fn ignore_not_found(outcome: kube::Result<()>) -> Result<(), Problem> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => Ok(outcome?),
    }
}
