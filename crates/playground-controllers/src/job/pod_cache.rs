//! A cache of the pods that belong to Jobs, indexed by Job.
//!
//! Other pods are not kept. Must not depend on what Jobs do with their pods.

use std::sync::Arc;

use muster_reflector::{Cache, Delta, Key};

use super::pod::{self, JobPod};
use super::pod_expectations::PodExpectations;

/// The pods of Jobs.
#[derive(Debug)]
pub(super) struct PodCache(Cache<JobPod>);

impl Default for PodCache {
    fn default() -> Self {
        Self(Cache::indexed_by(|pod| pod::job_key(pod).map(|(_, job)| job).into_iter().collect()))
    }
}

impl PodCache {
    /// Applies an event. Returns the Jobs it concerns.
    pub(super) fn apply(&mut self, event: Delta<JobPod>, expectations: &mut PodExpectations) -> Vec<Key> {
        let ends_list = matches!(event, Delta::ListDone);
        if matches!(event, Delta::ListStarted) {
            expectations.on_list_started();
        }
        let mut concerned = Vec::new();
        // A pod that no longer belongs to a Job counts as deleted.
        for change in self.0.apply_filtered(event, |pod| pod::job_key(pod).is_some()) {
            let is_gone = change.new.is_none();
            concerned.extend(change.old.as_deref().and_then(pod::job_key));
            concerned.extend(change.new.as_deref().and_then(pod::job_key));
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

    pub(super) fn has_synced(&self) -> bool {
        self.0.has_synced()
    }

    /// The pods that name a Job of this key, regardless of its UID.
    pub(super) fn of(&self, (namespace, job): &Key) -> Vec<Arc<JobPod>> {
        self.0.by_index(namespace, job).cloned().collect()
    }
}
