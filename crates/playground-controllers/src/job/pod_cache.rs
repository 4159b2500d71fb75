//! A cache of the pods that belong to Jobs, indexed by Job.
//!
//! Other pods are not kept. Must not depend on what Jobs do with their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::runtime::watcher;
use muster_playground_client::cache::{Cache, Key, key_of};

use super::pod::{self, JobPod};
use super::pod_expectations::PodExpectations;

/// The pods of Jobs.
#[derive(Debug, Default)]
pub(super) struct PodCache {
    pods: Cache<JobPod>,
    by_job: BTreeMap<Key, BTreeSet<Key>>,
}

impl PodCache {
    /// Applies an event. Returns the Jobs it concerns.
    pub(super) fn apply(&mut self, event: watcher::Event<JobPod>, expectations: &mut PodExpectations) -> Vec<Key> {
        let ends_list = matches!(event, watcher::Event::InitDone);
        if matches!(event, watcher::Event::Init) {
            expectations.on_list_started();
        }
        let Some(event) = self.relevant(event) else { return Vec::new() };
        let mut concerned = Vec::new();
        for change in self.pods.apply(event) {
            let is_gone = change.new.is_none();
            if let Some(old) = &change.old {
                concerned.extend(self.remove_from_index(old));
            }
            if let Some(new) = &change.new {
                concerned.extend(self.add_to_index(new));
            }
            if let Some(pod) = change.new.or(change.old) {
                // For an owner that released the pod, the pod is gone.
                for job in &concerned {
                    expectations.observe(job, &pod, is_gone);
                }
            }
        }
        if ends_list {
            concerned.extend(expectations.on_list_done());
        }
        concerned.sort();
        concerned.dedup();
        concerned
    }

    /// The event, if it is about a pod of a Job; a pod that no longer belongs to one is reported as deleted.
    fn relevant(&self, event: watcher::Event<JobPod>) -> Option<watcher::Event<JobPod>> {
        let is_relevant = |pod: &JobPod| pod::job_key(pod).is_some();
        match event {
            watcher::Event::Apply(pod) if !is_relevant(&pod) => {
                let is_known = self.pods.get(&key_of(&pod)).is_some();
                is_known.then_some(watcher::Event::Delete(pod))
            }
            watcher::Event::InitApply(pod) if !is_relevant(&pod) => None,
            event => Some(event),
        }
    }

    fn add_to_index(&mut self, pod: &JobPod) -> Option<Key> {
        let job = pod::job_key(pod)?;
        self.by_job.entry(job.clone()).or_default().insert(key_of(pod));
        Some(job)
    }

    fn remove_from_index(&mut self, pod: &JobPod) -> Option<Key> {
        let job = pod::job_key(pod)?;
        if let Some(pods) = self.by_job.get_mut(&job) {
            pods.remove(&key_of(pod));
            if pods.is_empty() {
                self.by_job.remove(&job);
            }
        }
        Some(job)
    }

    pub(super) fn has_synced(&self) -> bool {
        self.pods.has_synced()
    }

    /// The pods that name a Job of this key, regardless of its UID.
    pub(super) fn of(&self, job: &Key) -> Vec<Arc<JobPod>> {
        let keys = self.by_job.get(job).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key)).cloned().collect()
    }
}
