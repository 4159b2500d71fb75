//! Where a Job stands: its settings, its pods sorted by how they are, and what has succeeded and failed so far.
//!
//! Invariant: a pod that is held counts once, either here as newly ended or in the status, never in both.
//! It must not know what is done about it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{Job, JobStatus};

use super::indexes::Indexes;
use super::pod::{self, JobPod};
use super::policy::{self, Ruling};

/// The settings of a Job, with what the server fills in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How many must succeed; one success is enough if it is left out.
    pub(super) completions: Option<u32>,
    pub(super) parallelism: u32,
    pub(super) backoff_limit: i32,
    pub(super) backoff_limit_per_index: Option<i32>,
    pub(super) max_failed_indexes: Option<i32>,
    pub(super) is_indexed: bool,
    pub(super) is_suspended: bool,
    /// Whether a pod that is deleted is replaced only when it has ended.
    pub(super) ends_first: bool,
}

impl Terms {
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
            ends_first: is(spec.and_then(|spec| spec.pod_replacement_policy.as_ref()), "Failed"),
        }
    }

    /// How many indexes there are.
    pub(super) fn index_end(&self) -> u32 {
        self.completions.unwrap_or(0)
    }

    /// The index of a pod, if there is such an index.
    pub(super) fn index(&self, pod: &JobPod) -> Option<u32> {
        pod::index(pod).filter(|index| *index < self.index_end())
    }
}

/// A Job and its pods.
#[derive(Debug)]
pub(super) struct Census<'a> {
    pub(super) job: &'a Job,
    pub(super) terms: Terms,
    pub(super) pods: &'a [&'a JobPod],
    pub(super) active: Vec<&'a JobPod>,
    pub(super) terminating: usize,
    pub(super) newly_succeeded: Vec<&'a JobPod>,
    pub(super) newly_failed: Vec<&'a JobPod>,
    /// Successes in all, or indexes that have succeeded.
    pub(super) succeeded: usize,
    /// Failures that count, in all.
    pub(super) failed: i32,
    /// What the status says has succeeded.
    pub(super) counted_indexes: Indexes,
    pub(super) succeeded_indexes: Indexes,
    /// Where each index has a limit of its own.
    pub(super) failed_indexes: Option<Indexes>,
    /// Failed pods that stay until their replacement is there, which carries on their count; by index.
    pub(super) kept: BTreeMap<u32, &'a JobPod>,
}

impl<'a> Census<'a> {
    /// Sorts the pods of a Job.
    pub(super) fn take(job: &'a Job, pods: &'a [&'a JobPod]) -> Self {
        let terms = Terms::of(job);
        let empty = JobStatus::default();
        let status = job.status.as_ref().unwrap_or(&empty);
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (done, lost) = (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        let is_new = |pod: &&&JobPod, counting: &[String]| {
            let has_place = !terms.is_indexed || terms.index(pod).is_some();
            pod::is_tracked(pod) && has_place && !counting.iter().any(|uid| uid == pod::uid(pod))
        };
        let of = |counting: &[String], ended: &dyn Fn(&JobPod) -> bool| -> Vec<&'a JobPod> {
            pods.iter().filter(|pod| is_new(pod, counting) && ended(pod)).copied().collect()
        };
        let mut census = Self {
            job,
            terms,
            pods,
            active: pods.iter().filter(|pod| pod::is_active(pod)).copied().collect(),
            terminating: pods.iter().filter(|pod| pod::is_terminating(pod)).count(),
            newly_succeeded: of(&done, &pod::has_succeeded),
            newly_failed: of(&lost, &|pod| pod::has_failed(pod, terms.ends_first)),
            succeeded: status.succeeded.unwrap_or(0).max(0) as usize + done.len(),
            failed: status.failed.unwrap_or(0) + lost.len() as i32,
            counted_indexes: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            kept: BTreeMap::new(),
        };
        census.succeeded += census.newly_succeeded.len();
        census.failed += census.newly_failed.iter().filter(|pod| census.ruling(pod) != Ruling::Ignore).count() as i32;
        if terms.is_indexed {
            census.count_indexes(status);
        }
        census
    }

    /// What the Job's policy says of a failed pod.
    pub(super) fn ruling(&self, pod: &JobPod) -> Ruling {
        policy::ruling(self.job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref()), pod)
    }

    pub(super) fn has_failed(&self, pod: &JobPod) -> bool {
        pod::has_failed(pod, self.terms.ends_first)
    }

    fn count_indexes(&mut self, status: &JobStatus) {
        let end = self.terms.index_end();
        let told = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), end);
        let held = |pod: &&&JobPod| pod::is_tracked(pod);
        self.counted_indexes = told(&status.completed_indexes);
        let succeeded = self.pods.iter().filter(held).filter(|pod| pod::has_succeeded(pod));
        self.succeeded_indexes = self.counted_indexes.with(succeeded.filter_map(|pod| self.terms.index(pod)));
        self.succeeded = self.succeeded_indexes.count();
        if let Some(limit) = self.terms.backoff_limit_per_index {
            let failed = self.pods.iter().filter(held).filter(|pod| self.ends_index(pod, limit));
            self.failed_indexes =
                Some(told(&status.failed_indexes).with(failed.filter_map(|pod| self.terms.index(pod))));
            self.kept = self.last_failures();
        }
    }

    /// Whether its index has failed with this pod.
    fn ends_index(&self, pod: &JobPod, limit: i32) -> bool {
        self.has_failed(pod)
            && match self.ruling(pod) {
                Ruling::FailIndex => true,
                Ruling::Ignore => false,
                Ruling::Count | Ruling::FailJob(_) => pod::earlier_failures(pod).0 >= limit,
            }
    }

    /// The last failed pod of each index that will be tried again.
    fn last_failures(&self) -> BTreeMap<u32, &'a JobPod> {
        let active = self.active_indexes();
        let is_settled = |index: u32| {
            let has_failed = self.failed_indexes.as_ref().is_some_and(|failed| failed.contains(index));
            self.succeeded_indexes.contains(index) || has_failed || active.contains(&index)
        };
        let mut kept: BTreeMap<u32, &JobPod> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| pod::is_tracked(pod) && self.has_failed(pod)) {
            let Some(index) = self.terms.index(pod).filter(|index| !is_settled(*index)) else { continue };
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
        if self.terms.ends_first {
            let terminating = self.pods.iter().filter(|pod| pod::is_terminating(pod));
            taken = taken.with(terminating.filter_map(|pod| pod::index(pod)));
        }
        if let Some(failed) = &self.failed_indexes {
            taken = taken.union(failed);
        }
        taken.first_missing(count, self.terms.index_end())
    }
}
