//! Random runs that disturb preemption plans: each eviction of a unit has its own outcome, victims leave late, the
//! preemptor or the nominated node is deleted, the engine restarts while evictions are in flight.

use std::sync::Arc;

use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodName, PodSpec};
use muster_engine::{DeleteOutcome, Observation};
use muster_oracle::seeds::{for_each_seed, one_seed_only};

use crate::random_runs::{Coverage, Run, one_run};

impl Run {
    /// Disturbs a plan: a victim is gone at last, or the preemptor or the nominated node is deleted.
    pub(crate) fn disturb_plan(&mut self) {
        let nominated = |pod: &PodSpec| pod.ours && pod.nominated.is_some() && pod.node.is_none() && !pod.terminating;
        match self.random.below(10) {
            0..=6 => {
                if let Some(uid) = self.pick_pod(|pod| pod.terminating && pod.grace_period_ends_ms.is_some()) {
                    self.coverage.late_exits += 1;
                    self.fake.remove_pod(&uid);
                }
            }
            7..=8 => {
                if let Some(uid) = self.pick_pod(nominated) {
                    self.coverage.preemptors_gone += 1;
                    self.fake.remove_pod(&uid);
                }
            }
            _ => {
                let node = self.pick_pod(nominated).and_then(|uid| self.fake.pods[&uid].nominated.clone());
                if let Some(node) = node.filter(|node| self.fake.nodes.contains_key(node)) {
                    self.coverage.nominated_nodes_gone += 1;
                    self.fake.remove_node(&node);
                }
            }
        }
    }

    /// The API answers separately for each pod of a unit; successful evictions are observed before failed ones.
    pub(crate) fn answer_eviction_per_pod(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        let (go, stay): (Vec<_>, Vec<_>) =
            pods.iter().map(|pod| (pod, self.random.below(10))).partition(|(_, roll)| *roll > 4);
        if !go.is_empty() {
            self.fake.begin_unit(pods, group);
        }
        for (pod, _) in go {
            self.evict_in_api(pod);
        }
        for (pod, roll) in stay {
            let outcome = match roll {
                0..=1 => DeleteOutcome::Refused { message: "forbidden".into() },
                _ => DeleteOutcome::Transient { message: "later".into() },
            };
            self.coverage.failed_evictions += 1;
            self.fake.observe(Observation::EvictDone { pod: pod.clone(), outcome });
        }
    }

    /// Some pods of a unit are deleted, and the engine restarts before it observes that.
    pub(crate) fn evict_unseen(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        self.coverage.restarts_in_plans += 1;
        let deleted: Vec<&Arc<PodName>> = pods.iter().filter(|_| self.random.chance(50)).collect();
        if !deleted.is_empty() {
            self.fake.begin_unit_unseen(pods, group);
        }
        for pod in deleted {
            if let Some(actual) = self.fake.pods.get_mut(&pod.uid) {
                actual.terminating = true;
                actual.grace_period_ends_ms = Some(self.fake.now + 30_000);
                self.fake.histories.lost(&actual.clone());
            }
        }
    }
}

#[test]
fn invariants_hold_while_plans_are_disturbed() {
    const RUNS: u64 = 2_000;
    let mut total = Coverage::default();
    for_each_seed(RUNS, |seed| one_run(seed, true, &mut total));
    println!("{total:?}");
    if !one_seed_only() {
        let counts = [
            total.failed_evictions,
            total.late_exits,
            total.preemptors_gone,
            total.nominated_nodes_gone,
            total.restarts_in_plans,
        ];
        assert!(
            counts.iter().all(|count| *count > RUNS as usize / 200),
            "the runs must cover all disturbances: {total:?}"
        );
    }
}
