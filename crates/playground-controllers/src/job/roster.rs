//! The pods that belong to Jobs, as the watch shows them, by Job.
//!
//! Pods of others are not kept. It must not know what Jobs want.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::runtime::watcher;
use muster_playground_client::mirror::{Key, Mirror, key_of};

use super::ledger::Ledger;
use super::pod::{self, JobPod};

/// The pods of Jobs.
#[derive(Debug, Default)]
pub(super) struct Roster {
    pods: Mirror<JobPod>,
    by_job: BTreeMap<Key, BTreeSet<Key>>,
}

impl Roster {
    /// Takes in an event. Answers which Jobs it concerns.
    pub(super) fn take(&mut self, event: watcher::Event<JobPod>, ledger: &mut Ledger) -> Vec<Key> {
        let ends_list = matches!(event, watcher::Event::InitDone);
        if matches!(event, watcher::Event::Init) {
            ledger.list_begins();
        }
        let Some(event) = self.ours(event) else { return Vec::new() };
        let mut concerned = Vec::new();
        for change in self.pods.take(event) {
            let is_gone = change.new.is_none();
            if let Some(old) = &change.old {
                concerned.extend(self.unfile(old));
            }
            if let Some(new) = &change.new {
                concerned.extend(self.file(new));
            }
            if let Some(pod) = change.new.or(change.old) {
                // An owner that let go of a pod sees it gone.
                for job in &concerned {
                    ledger.see(job, &pod, is_gone);
                }
            }
        }
        if ends_list {
            concerned.extend(ledger.list_ends());
        }
        concerned.sort();
        concerned.dedup();
        concerned
    }

    /// The event, if it is about a pod of a Job; one that is not any more is gone for us.
    fn ours(&self, event: watcher::Event<JobPod>) -> Option<watcher::Event<JobPod>> {
        let is_ours = |pod: &JobPod| pod::job_key(pod).is_some();
        match event {
            watcher::Event::Apply(pod) if !is_ours(&pod) => {
                let is_known = self.pods.get(&key_of(&pod)).is_some();
                is_known.then_some(watcher::Event::Delete(pod))
            }
            watcher::Event::InitApply(pod) if !is_ours(&pod) => None,
            event => Some(event),
        }
    }

    fn file(&mut self, pod: &JobPod) -> Option<Key> {
        let job = pod::job_key(pod)?;
        self.by_job.entry(job.clone()).or_default().insert(key_of(pod));
        Some(job)
    }

    fn unfile(&mut self, pod: &JobPod) -> Option<Key> {
        let job = pod::job_key(pod)?;
        if let Some(pods) = self.by_job.get_mut(&job) {
            pods.remove(&key_of(pod));
            if pods.is_empty() {
                self.by_job.remove(&job);
            }
        }
        Some(job)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.pods.is_complete()
    }

    /// The pods that name a Job of this key, whichever Job of that name it was.
    pub(super) fn of(&self, job: &Key) -> Vec<Arc<JobPod>> {
        let keys = self.by_job.get(job).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key)).cloned().collect()
    }
}
