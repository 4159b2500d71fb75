//! Preemption with the gate `DelayedPreemption` off: the pods of a group preempt each for itself, and each plan stands or
//! falls alone.

use muster_engine::diagnosis::{Diagnosis, Preemption};
use muster_engine::model::group::DisruptionMode;
use muster_engine::{Command, Config, Observation, PreemptionRules, Subject, TakeBackOutcome};

use crate::preemption::{gang, nominated, running};
use crate::world::World;

fn world() -> World {
    let preemption = PreemptionRules { delayed: false, ..PreemptionRules::default() };
    World::with(Config { preemption, ..Config::default() })
}

/// Two full nodes, and a gang of three of which two could have room by evictions.
fn too_large_a_gang() -> World {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 2);
    world.node("n1", 2);
    running(&mut world, "a", "", 2, 1, "n0");
    running(&mut world, "b", "", 2, 1, "n1");
    gang(&mut world, "high", 3, 100, DisruptionMode::Pod);
    world.pods_of("h", "high", 3, 2);
    world
}

#[test]
fn pods_of_a_gang_preempt_each_for_itself_also_where_the_gang_does_not_fit() {
    let mut world = too_large_a_gang();
    world.pass(1_000);
    assert_eq!(world.evicted().len(), 4, "for two of three, which is not enough");
    assert_eq!(nominated(&world).len(), 2);
    for act in &world.acts {
        let by_pod = |by: &Subject| matches!(by, Subject::Pod(pod) if pod.name.starts_with("h-"));
        assert!(!matches!(act, Command::Evict { by, .. } if !by_pod(by)), "{act:?}");
    }
}

#[test]
fn a_gang_that_does_not_fit_is_not_bound_in_part_and_keeps_nothing_free_in_the_end() {
    let mut world = too_large_a_gang();
    world.pass(1_000);
    for name in world.evicted() {
        world.remove(&name);
    }
    world.pass(60_000);
    assert_eq!((world.bound_count("h-"), nominated(&world)), (0, vec![]));
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("high") else { panic!("it has no place") };
    assert_eq!((shortfall.would_fit, shortfall.preemption), (2, Preemption::NobodyBelow));
}

#[test]
fn a_gang_that_fits_by_it_is_bound_when_all_victims_are_gone() {
    let mut world = too_large_a_gang();
    gang(&mut world, "high", 2, 100, DisruptionMode::Pod);
    world.pass(1_000);
    world.remove("a-0");
    world.remove("a-1");
    world.pass(20_000);
    assert_eq!(world.bound_count("h-"), 0, "one has room, and two are needed");
    assert_eq!(nominated(&world).len(), 1, "whoever has room waits for nobody");
    world.remove("b-0");
    world.remove("b-1");
    world.pass(20_000);
    assert_eq!(world.bound_count("h-"), 2);
    assert_eq!(world.evicted().len(), 4);
}

#[test]
fn while_its_plan_stands_a_pod_makes_no_other_and_those_beside_it_make_theirs() {
    let mut world = world();
    world.grace_ms = 30_000;
    for node in ["n0", "n1", "n2"] {
        world.node(node, 2);
        running(&mut world, node, "", 1, 2, node);
    }
    gang(&mut world, "high", 1, 100, DisruptionMode::Pod);
    world.pod("h-0", "high", 2);
    world.pass(1_000);
    let (first, place) = (world.evicted(), nominated(&world));
    assert_eq!((first.len(), place.len()), (1, 1));
    world.pod("h-1", "high", 2);
    world.pass(20_000);
    assert_eq!(world.evicted().len(), 2);
    assert_eq!(nominated(&world).iter().filter(|kept| place.contains(kept)).count(), 1, "it keeps its place");
    world.pass(20_000);
    assert_eq!(world.evicted().len(), 2);
}

#[test]
fn a_pod_that_fits_as_it_is_takes_nobodys_room_and_leaves_it_to_nobody_of_its_group() {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 2);
    world.node("n1", 2);
    running(&mut world, "low", "", 1, 2, "n1");
    gang(&mut world, "high", 2, 100, DisruptionMode::Pod);
    world.pods_of("h", "high", 2, 2);
    world.pass(20_000);
    assert_eq!(world.evicted(), ["low-0"]);
    assert_eq!(nominated(&world).iter().map(|(_, node)| node.as_str()).collect::<Vec<_>>(), ["n1"]);
    world.remove("low-0");
    world.pass(20_000);
    assert_eq!(world.bound_count("h-"), 2);
}

#[test]
fn where_others_are_leaving_anyway_the_room_is_kept_and_nobody_is_evicted() {
    let mut world = world();
    world.node("n0", 2);
    running(&mut world, "goes", "", 1, 2, "n0");
    let uid = world.uid("goes-0");
    world.change(&uid, |pod| pod.terminating = true);
    gang(&mut world, "high", 1, 100, DisruptionMode::Pod);
    world.pod("h", "high", 2);
    world.pass(1_000);
    assert_eq!(nominated(&world), [("h".into(), "n0".into())]);
    world.remove("goes-0");
    world.pass(20_000);
    assert_eq!((world.bound(), world.evicted()), (vec!["h".into()], vec![]));
}

#[test]
fn an_eviction_that_failed_in_passing_is_not_sent_again_for_a_pod_that_is_gone() {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 2);
    world.node("n1", 2);
    running(&mut world, "a", "", 1, 2, "n0");
    running(&mut world, "b", "", 1, 2, "n1");
    gang(&mut world, "high", 1, 100, DisruptionMode::Pod);
    world.pods_of("h", "high", 2, 2);
    world.decide_all();
    assert_eq!(world.evicted().len(), 2);
    let Command::Evict { pods, by, .. } = world.in_flight.remove(0) else { panic!("{:?}", world.acts) };
    let Subject::Pod(by) = &*by else { panic!("{by:?} preempts") };
    world.show(Observation::EvictDone {
        pod: pods[0].clone(),
        outcome: TakeBackOutcome::Transient { message: "busy".into() },
    });
    world.remove(&by.name);
    world.pass(60_000);
    assert_eq!(world.evicted().len(), 2, "the other one waits for its own victim only");
    assert_eq!(nominated(&world).len(), 1);
}
