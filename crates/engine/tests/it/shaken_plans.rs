//! Random runs in which plans for preemption meet all kinds of trouble: each eviction of a unit has an outcome of its own,
//! victims leave late, whoever preempts is deleted, a node goes that is kept free, the engine restarts while evictions
//! are on their way.

use std::sync::Arc;

use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodName, PodSpec};
use muster_engine::{Observation, TakeBackOutcome};
use muster_oracle::seeds::{for_each_seed, one_seed_only};

use crate::random_runs::{Run, Seen, one_run};

impl Run {
    /// Something happens in the middle of a plan: a victim is gone at last, whoever preempts is deleted, or the node goes
    /// that is kept free.
    pub(crate) fn shake_a_plan(&mut self) {
        let nominated = |pod: &PodSpec| pod.ours && pod.nominated.is_some() && pod.node.is_none() && !pod.terminating;
        match self.random.below(10) {
            0..=6 => {
                if let Some(uid) = self.a_pod(|pod| pod.terminating && pod.gone_by_ms.is_some()) {
                    self.seen.late_deaths += 1;
                    self.world.remove_pod(&uid);
                }
            }
            7..=8 => {
                if let Some(uid) = self.a_pod(nominated) {
                    self.seen.preemptors_gone += 1;
                    self.world.remove_pod(&uid);
                }
            }
            _ => {
                let node = self.a_pod(nominated).and_then(|uid| self.world.pods[&uid].nominated.clone());
                if let Some(node) = node.filter(|node| self.world.nodes.contains_key(node)) {
                    self.seen.kept_nodes_gone += 1;
                    self.world.remove_node(&node);
                }
            }
        }
    }

    /// The API answers for each pod of a unit on its own; those that go are told before those that do not.
    pub(crate) fn evict_one_by_one(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        let (go, stay): (Vec<_>, Vec<_>) =
            pods.iter().map(|pod| (pod, self.random.below(10))).partition(|(_, luck)| *luck > 4);
        if !go.is_empty() {
            self.world.unit_begins(pods, group);
        }
        for (pod, _) in go {
            self.evict_in_truth(pod);
        }
        for (pod, luck) in stay {
            let outcome = match luck {
                0..=1 => TakeBackOutcome::Refused { message: "forbidden".into() },
                _ => TakeBackOutcome::Transient { message: "later".into() },
            };
            self.seen.failed_evictions += 1;
            self.world.show(Observation::EvictDone { pod: pod.clone(), outcome });
        }
    }

    /// Some of a unit is deleted by an engine that does not live to see it.
    pub(crate) fn evict_unseen(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        self.seen.restarts_in_plans += 1;
        let deleted: Vec<&Arc<PodName>> = pods.iter().filter(|_| self.random.chance(50)).collect();
        if !deleted.is_empty() {
            self.world.unit_begins_unseen(pods, group);
        }
        for pod in deleted {
            if let Some(truth) = self.world.pods.get_mut(&pod.uid) {
                truth.terminating = true;
                truth.gone_by_ms = Some(self.world.now + 30_000);
                self.world.stories.lost(&truth.clone());
            }
        }
    }
}

#[test]
fn invariants_hold_while_plans_are_shaken() {
    const RUNS: u64 = 2_000;
    let mut total = Seen::default();
    for_each_seed(RUNS, |seed| one_run(seed, true, &mut total));
    println!("{total:?}");
    if !one_seed_only() {
        let counts = [
            total.failed_evictions,
            total.late_deaths,
            total.preemptors_gone,
            total.kept_nodes_gone,
            total.restarts_in_plans,
        ];
        assert!(counts.iter().all(|count| *count > RUNS as usize / 200), "the runs must see trouble: {total:?}");
    }
}
