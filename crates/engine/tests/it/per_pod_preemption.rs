//! Preemption with the feature gate `DelayedPreemption` off: each pod of a group preempts on its own, with its own
//! plan.

use muster_engine::diagnosis::{Diagnosis, Preemption};
use muster_engine::model::group::DisruptionMode;
use muster_engine::{Command, Config, DeleteOutcome, Observation, PreemptionRules, Subject};

use crate::fake_cluster::FakeCluster;
use crate::preemption::{gang, nominated, running};

fn new_fake() -> FakeCluster {
    let preemption = PreemptionRules { delayed: false, ..PreemptionRules::default() };
    FakeCluster::with(Config { preemption, ..Config::default() })
}

/// Two full nodes, and a gang of three of which two could fit by evictions.
fn oversized_gang() -> FakeCluster {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 2);
    fake.node("n1", 2);
    running(&mut fake, "a", "", 2, 1, "n0");
    running(&mut fake, "b", "", 2, 1, "n1");
    gang(&mut fake, "high", 3, 100, DisruptionMode::Pod);
    fake.pods_of("h", "high", 3, 2);
    fake
}

#[test]
fn pods_preempt_individually_even_if_the_gang_does_not_fit() {
    let mut fake = oversized_gang();
    fake.advance(1_000);
    assert_eq!(fake.evicted().len(), 4, "for two of three, which is not enough");
    assert_eq!(nominated(&fake).len(), 2);
    for act in &fake.issued {
        let by_pod = |by: &Subject| matches!(by, Subject::Pod(pod) if pod.name.starts_with("h-"));
        assert!(!matches!(act, Command::Evict { by, .. } if !by_pod(by)), "{act:?}");
    }
}

#[test]
fn gang_that_does_not_fit_is_not_bound_partly_and_holds_no_nominations() {
    let mut fake = oversized_gang();
    fake.advance(1_000);
    for name in fake.evicted() {
        fake.remove(&name);
    }
    fake.advance(60_000);
    assert_eq!((fake.bound_count("h-"), nominated(&fake)), (0, vec![]));
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("high") else { panic!("it does not fit") };
    assert_eq!((shortfall.would_fit, shortfall.preemption), (2, Preemption::NoLowerPriority));
}

#[test]
fn gang_that_fits_is_bound_when_all_victims_are_gone() {
    let mut fake = oversized_gang();
    gang(&mut fake, "high", 2, 100, DisruptionMode::Pod);
    fake.advance(1_000);
    fake.remove("a-0");
    fake.remove("a-1");
    fake.advance(20_000);
    assert_eq!(fake.bound_count("h-"), 0, "one has room, and two are needed");
    assert_eq!(nominated(&fake).len(), 1, "a pod with room waits for no victims");
    fake.remove("b-0");
    fake.remove("b-1");
    fake.advance(20_000);
    assert_eq!(fake.bound_count("h-"), 2);
    assert_eq!(fake.evicted().len(), 4);
}

#[test]
fn pod_with_a_plan_makes_no_other_while_its_group_members_make_theirs() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    for node in ["n0", "n1", "n2"] {
        fake.node(node, 2);
        running(&mut fake, node, "", 1, 2, node);
    }
    gang(&mut fake, "high", 1, 100, DisruptionMode::Pod);
    fake.pod("h-0", "high", 2);
    fake.advance(1_000);
    let (first, place) = (fake.evicted(), nominated(&fake));
    assert_eq!((first.len(), place.len()), (1, 1));
    fake.pod("h-1", "high", 2);
    fake.advance(20_000);
    assert_eq!(fake.evicted().len(), 2);
    assert_eq!(nominated(&fake).iter().filter(|kept| place.contains(kept)).count(), 1, "it keeps its nomination");
    fake.advance(20_000);
    assert_eq!(fake.evicted().len(), 2);
}

#[test]
fn pod_that_fits_evicts_no_pods_and_keeps_its_room() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 2);
    fake.node("n1", 2);
    running(&mut fake, "low", "", 1, 2, "n1");
    gang(&mut fake, "high", 2, 100, DisruptionMode::Pod);
    fake.pods_of("h", "high", 2, 2);
    fake.advance(20_000);
    assert_eq!(fake.evicted(), ["low-0"]);
    assert_eq!(nominated(&fake).iter().map(|(_, node)| node.as_str()).collect::<Vec<_>>(), ["n1"]);
    fake.remove("low-0");
    fake.advance(20_000);
    assert_eq!(fake.bound_count("h-"), 2);
}

#[test]
fn room_of_terminating_pods_is_nominated_without_evictions() {
    let mut fake = new_fake();
    fake.node("n0", 2);
    running(&mut fake, "ends", "", 1, 2, "n0");
    let uid = fake.uid("ends-0");
    fake.change(&uid, |pod| pod.terminating = true);
    gang(&mut fake, "high", 1, 100, DisruptionMode::Pod);
    fake.pod("h", "high", 2);
    fake.advance(1_000);
    assert_eq!(nominated(&fake), [("h".into(), "n0".into())]);
    fake.remove("ends-0");
    fake.advance(20_000);
    assert_eq!((fake.bound(), fake.evicted()), (vec!["h".into()], vec![]));
}

#[test]
fn transient_eviction_failure_is_not_retried_for_a_deleted_preemptor() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 2);
    fake.node("n1", 2);
    running(&mut fake, "a", "", 1, 2, "n0");
    running(&mut fake, "b", "", 1, 2, "n1");
    gang(&mut fake, "high", 1, 100, DisruptionMode::Pod);
    fake.pods_of("h", "high", 2, 2);
    fake.decide_all();
    assert_eq!(fake.evicted().len(), 2);
    let Command::Evict { pods, by, .. } = fake.in_flight.remove(0) else { panic!("{:?}", fake.issued) };
    let Subject::Pod(by) = &*by else { panic!("{by:?} preempts") };
    fake.observe(Observation::EvictDone {
        pod: pods[0].clone(),
        outcome: DeleteOutcome::Transient { message: "busy".into() },
    });
    fake.remove(&by.name);
    fake.advance(60_000);
    assert_eq!(fake.evicted().len(), 2, "the other pod only waits for its own victim");
    assert_eq!(nominated(&fake).len(), 1);
}
