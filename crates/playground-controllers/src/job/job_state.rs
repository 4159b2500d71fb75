//! The state of a Job in one sync: its settings, its classified pods, and what has succeeded and failed so far.
//!
//! Invariant: a pod with the finalizer counts once, either here as newly terminated or in the status.
//! Must not depend on what is done about it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{Job, JobStatus};

use super::indexes::Indexes;
use super::pod::{self, JobPod};
use super::policy::{self, FailureAction};

/// The settings of a Job, with defaults.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobSettings {
    /// How many pods must succeed; if absent, one success is enough.
    pub(super) completions: Option<u32>,
    pub(super) parallelism: u32,
    pub(super) backoff_limit: i32,
    pub(super) backoff_limit_per_index: Option<i32>,
    pub(super) max_failed_indexes: Option<i32>,
    pub(super) is_indexed: bool,
    pub(super) is_suspended: bool,
    /// Whether a deleted pod is replaced only after it has terminated (`podReplacementPolicy: Failed`).
    pub(super) replace_when_failed: bool,
}

impl JobSettings {
    fn of(job: &Job) -> Self {
        let spec = job.spec.as_ref();
        let count = |number: Option<i32>| number.map(|number| u32::try_from(number).unwrap_or(0));
        let is = |field: Option<&String>, value: &str| field.is_some_and(|field| field == value);
        Self {
            completions: count(spec.and_then(|spec| spec.completions)),
            parallelism: count(spec.and_then(|spec| spec.parallelism)).unwrap_or(1),
            backoff_limit: spec.and_then(|spec| spec.backoff_limit).unwrap_or(6),
            backoff_limit_per_index: spec.and_then(|spec| spec.backoff_limit_per_index),
            max_failed_indexes: spec.and_then(|spec| spec.max_failed_indexes),
            is_indexed: is(spec.and_then(|spec| spec.completion_mode.as_ref()), "Indexed"),
            is_suspended: spec.and_then(|spec| spec.suspend) == Some(true),
            replace_when_failed: is(spec.and_then(|spec| spec.pod_replacement_policy.as_ref()), "Failed"),
        }
    }

    /// The number of indexes.
    pub(super) fn index_end(&self) -> u32 {
        self.completions.unwrap_or(0)
    }

    /// The index of a pod, if it is in range.
    pub(super) fn index(&self, pod: &JobPod) -> Option<u32> {
        pod::index(pod).filter(|index| *index < self.index_end())
    }
}

/// A Job and its pods.
#[derive(Debug)]
pub(super) struct JobState<'a> {
    pub(super) job: &'a Job,
    pub(super) settings: JobSettings,
    pub(super) pods: &'a [&'a JobPod],
    pub(super) active: Vec<&'a JobPod>,
    pub(super) terminating: usize,
    pub(super) newly_succeeded: Vec<&'a JobPod>,
    pub(super) newly_failed: Vec<&'a JobPod>,
    /// The total of successes, or of succeeded indexes.
    pub(super) succeeded: usize,
    /// The total of failures that count.
    pub(super) failed: i32,
    /// The succeeded indexes according to the status.
    pub(super) counted_indexes: Indexes,
    pub(super) succeeded_indexes: Indexes,
    /// Present if each index has its own backoff limit.
    pub(super) failed_indexes: Option<Indexes>,
    /// Failed pods that stay until their replacement exists, which continues their failure count; by index.
    pub(super) kept: BTreeMap<u32, &'a JobPod>,
}

impl<'a> JobState<'a> {
    /// Classifies the pods of a Job.
    pub(super) fn new(job: &'a Job, pods: &'a [&'a JobPod]) -> Self {
        let settings = JobSettings::of(job);
        let empty = JobStatus::default();
        let status = job.status.as_ref().unwrap_or(&empty);
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (succeeded_uids, failed_uids) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        let is_new = |pod: &&&JobPod, counting: &[String]| {
            let is_in_range = !settings.is_indexed || settings.index(pod).is_some();
            pod::is_tracked(pod) && is_in_range && !counting.iter().any(|uid| uid == pod::uid(pod))
        };
        let of = |counting: &[String], ended: &dyn Fn(&JobPod) -> bool| -> Vec<&'a JobPod> {
            pods.iter().filter(|pod| is_new(pod, counting) && ended(pod)).copied().collect()
        };
        let mut state = Self {
            job,
            settings,
            pods,
            active: pods.iter().filter(|pod| pod::is_active(pod)).copied().collect(),
            terminating: pods.iter().filter(|pod| pod::is_terminating(pod)).count(),
            newly_succeeded: of(&succeeded_uids, &pod::has_succeeded),
            newly_failed: of(&failed_uids, &|pod| pod::has_failed(pod, settings.replace_when_failed)),
            succeeded: status.succeeded.unwrap_or(0).max(0) as usize + succeeded_uids.len(),
            failed: status.failed.unwrap_or(0) + failed_uids.len() as i32,
            counted_indexes: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            kept: BTreeMap::new(),
        };
        state.succeeded += state.newly_succeeded.len();
        state.failed +=
            state.newly_failed.iter().filter(|pod| state.failure_action(pod) != FailureAction::Ignore).count() as i32;
        if settings.is_indexed {
            state.count_indexes(status);
        }
        state
    }

    /// What the pod failure policy does with a failed pod.
    pub(super) fn failure_action(&self, pod: &JobPod) -> FailureAction {
        policy::failure_action(self.job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref()), pod)
    }

    pub(super) fn has_failed(&self, pod: &JobPod) -> bool {
        pod::has_failed(pod, self.settings.replace_when_failed)
    }

    fn count_indexes(&mut self, status: &JobStatus) {
        let end = self.settings.index_end();
        let parse = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), end);
        let with_finalizer = |pod: &&&JobPod| pod::is_tracked(pod);
        self.counted_indexes = parse(&status.completed_indexes);
        let succeeded = self.pods.iter().filter(with_finalizer).filter(|pod| pod::has_succeeded(pod));
        self.succeeded_indexes = self.counted_indexes.with(succeeded.filter_map(|pod| self.settings.index(pod)));
        self.succeeded = self.succeeded_indexes.count();
        if let Some(limit) = self.settings.backoff_limit_per_index {
            let failed = self.pods.iter().filter(with_finalizer).filter(|pod| self.ends_index(pod, limit));
            self.failed_indexes =
                Some(parse(&status.failed_indexes).with(failed.filter_map(|pod| self.settings.index(pod))));
            self.kept = self.last_failures();
        }
    }

    /// Whether the pod's index fails with this pod.
    fn ends_index(&self, pod: &JobPod, limit: i32) -> bool {
        self.has_failed(pod)
            && match self.failure_action(pod) {
                FailureAction::FailIndex => true,
                FailureAction::Ignore => false,
                FailureAction::Count | FailureAction::FailJob(_) => pod::earlier_failures(pod).0 >= limit,
            }
    }

    /// The last failed pod of each index that will be retried.
    fn last_failures(&self) -> BTreeMap<u32, &'a JobPod> {
        let active = self.active_indexes();
        let is_settled = |index: u32| {
            let has_failed = self.failed_indexes.as_ref().is_some_and(|failed| failed.contains(index));
            self.succeeded_indexes.contains(index) || has_failed || active.contains(&index)
        };
        let mut kept: BTreeMap<u32, &JobPod> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| pod::is_tracked(pod) && self.has_failed(pod)) {
            let Some(index) = self.settings.index(pod).filter(|index| !is_settled(*index)) else { continue };
            let rank = |pod: &JobPod| {
                let (counted, ignored) = pod::earlier_failures(pod);
                (counted.saturating_add(ignored), pod::ended_at(pod))
            };
            let last = kept.entry(index).or_insert(pod);
            if rank(pod) >= rank(last) {
                *last = pod;
            }
        }
        kept
    }

    fn active_indexes(&self) -> BTreeSet<u32> {
        self.active.iter().filter_map(|pod| pod::index(pod)).collect()
    }

    /// The first indexes that need a pod.
    pub(super) fn pending_indexes(&self, count: usize) -> Vec<u32> {
        let mut taken = self.succeeded_indexes.with(self.active_indexes());
        if self.settings.replace_when_failed {
            let terminating = self.pods.iter().filter(|pod| pod::is_terminating(pod));
            taken = taken.with(terminating.filter_map(|pod| pod::index(pod)));
        }
        if let Some(failed) = &self.failed_indexes {
            taken = taken.union(failed);
        }
        taken.first_missing(count, self.settings.index_end())
    }
}
