//! Preemption as it is carried out: whom it takes, when it waits, and that it never takes anybody for nothing.

use std::sync::Arc;

use muster_engine::diagnosis::{Diagnosis, Preemption};
use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::group::{DisruptionMode, GroupPriority, GroupSpec, PreemptionPolicy};
use muster_engine::model::labels::{Demand, Requirement};
use muster_engine::model::pod::Phase;
use muster_engine::{Command, Config, Observation, PreemptionRules, TakeBackOutcome};

use crate::world::{World, key};

fn config() -> Config {
    Config::default()
}

pub(crate) fn world() -> World {
    World::with(config())
}

/// A gang of its own priority.
pub(crate) fn gang(world: &mut World, name: &str, minimum: u32, priority: i32, mode: DisruptionMode) {
    let mut spec = GroupSpec::gang(key(name), minimum);
    spec.priority = GroupPriority::Own(priority);
    spec.disruption_mode = mode;
    world.put_group(spec);
}

/// Pods that run on a node.
pub(crate) fn running(world: &mut World, name: &str, group: &str, count: usize, cpu: i64, node: &str) {
    for number in 0..count {
        let node = node.to_owned();
        let started = world.now;
        world.pod_with(&format!("{name}-{number}"), group, cpu, |pod| {
            pod.node = Some(node);
            pod.phase = Phase::Running;
            pod.started_ms = Some(started);
        });
    }
}

/// The names of pods that are nominated, with their nodes.
pub(crate) fn nominated(world: &World) -> Vec<(String, String)> {
    let mut names: Vec<_> =
        world.pods.values().filter_map(|pod| Some((pod.id.name.clone(), pod.nominated.clone()?))).collect();
    names.sort();
    names
}

pub(crate) fn high(world: &mut World, count: usize, cpu: i64) {
    gang(world, "high", count as u32, 100, DisruptionMode::Pod);
    world.pods_of("h", "high", count, cpu);
}

#[test]
fn a_gang_takes_the_room_of_pods_below_it_and_is_bound_when_they_are_gone() {
    let mut world = world();
    world.node("n0", 4);
    running(&mut world, "low", "", 4, 1, "n0");
    high(&mut world, 2, 2);
    world.decide_all();
    assert_eq!(world.evicted().len(), 4);
    assert_eq!(nominated(&world).len(), 2);
    assert!(matches!(world.why_group("high"), Diagnosis::WaitingForVictims(_)));
    world.pass(60_000);
    assert_eq!(world.bound(), ["h-0", "h-1"]);
    assert_eq!(world.evicted().len(), 4, "nobody else");
}

#[test]
fn what_would_not_be_enough_is_not_touched() {
    let mut world = world();
    world.node("n0", 4);
    running(&mut world, "low", "", 4, 1, "n0");
    high(&mut world, 3, 2);
    world.pass(60_000);
    assert_eq!(world.evicted(), Vec::<String>::new());
    assert_eq!(nominated(&world), []);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("high") else {
        panic!("{}", world.why_group("high"))
    };
    assert_eq!(shortfall.preemption, Preemption::NotEnough);
}

#[test]
fn a_group_that_goes_whole_goes_whole_for_a_gang_and_for_a_pod() {
    for alone in [false, true] {
        let mut world = world();
        world.node("n0", 4);
        world.node("n1", 4);
        gang(&mut world, "low", 4, 0, DisruptionMode::Group);
        running(&mut world, "a", "low", 2, 2, "n0");
        running(&mut world, "b", "low", 2, 2, "n1");
        if alone {
            world.pod_with("h", "", 1, |pod| pod.priority = 100);
        } else {
            high(&mut world, 1, 1);
        }
        world.decide_all();
        assert_eq!(world.evicted().len(), 4, "one would be enough");
    }
}

#[test]
fn members_of_other_groups_go_one_by_one_the_surplus_first() {
    let mut world = world();
    world.node("n0", 4);
    running(&mut world, "single", "", 1, 1, "n0");
    gang(&mut world, "low", 2, 0, DisruptionMode::Pod);
    running(&mut world, "a", "low", 2, 1, "n0");
    world.now += 1_000;
    running(&mut world, "young", "low", 1, 1, "n0");
    high(&mut world, 1, 1);
    world.decide_all();
    assert_eq!(world.evicted(), ["young-0"], "the gang has it beyond its minimum");
}

#[test]
fn while_a_plan_stands_nobody_else_is_taken_and_nobody_else_gets_the_room() {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 4);
    world.node("n1", 4);
    running(&mut world, "low", "", 4, 1, "n0");
    running(&mut world, "low2", "", 4, 1, "n1");
    high(&mut world, 2, 2);
    world.pass(5_000);
    let first = world.evicted();
    assert_eq!(first.len(), 4);
    // One after the other they leave; somebody of a low priority would like the room.
    for name in &first[..2] {
        world.remove(name);
    }
    world.pod("late", "", 1);
    world.pass(20_000);
    assert_eq!(world.evicted(), first);
    assert_eq!(world.node_of("late"), None);
    for name in &first[2..] {
        world.remove(name);
    }
    world.pass(20_000);
    assert_eq!(world.bound_count("h-"), 2);
    assert_eq!(world.evicted(), first);
}

#[test]
fn room_that_needs_no_eviction_is_taken_while_victims_are_leaving() {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 2);
    running(&mut world, "low", "", 2, 1, "n0");
    high(&mut world, 1, 2);
    world.pass(1_000);
    assert_eq!(nominated(&world), [("h-0".into(), "n0".into())]);
    world.node("n1", 2);
    world.pass(20_000);
    assert_eq!(world.node_of("h-0").as_deref(), Some("n1"));
}

#[test]
fn a_plan_that_no_longer_stands_is_made_anew_with_the_leaving_counted_as_gone() {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 4);
    world.node("n1", 4);
    running(&mut world, "low", "", 4, 1, "n0");
    running(&mut world, "low2", "", 4, 1, "n1");
    high(&mut world, 2, 2);
    world.pass(1_000);
    let first = world.evicted();
    // Somebody important takes half of the room that is kept free.
    let node = nominated(&world)[0].1.clone();
    world.pod_with("boss", "", 2, |pod| {
        pod.priority = 1_000;
        pod.ours = false;
        pod.node = Some(node.clone());
    });
    world.pass(20_000);
    let more = world.evicted().len() - first.len();
    assert_eq!(more, 2, "two of those on the other node, beside the room that is left: {:?}", world.evicted());
    for name in world.evicted() {
        world.remove(&name);
    }
    world.pass(20_000);
    assert_eq!(world.bound_count("h-"), 2);
}

#[test]
fn who_may_not_preempt_waits() {
    let mut world = world();
    world.node("n0", 1);
    running(&mut world, "low", "", 1, 1, "n0");
    let mut spec = GroupSpec::gang(key("polite"), 1);
    spec.priority = GroupPriority::Own(100);
    spec.preemption_policy = PreemptionPolicy::Never;
    world.put_group(spec);
    world.pod("p", "polite", 1);
    world.pod_with("q", "", 1, |pod| (pod.priority, pod.never_preempts) = (50, true));
    world.pass(60_000);
    assert_eq!(world.evicted(), Vec::<String>::new());
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("polite") else { panic!("it waits for room") };
    assert_eq!(shortfall.preemption, Preemption::Never);
    assert!(matches!(world.why_pod("q"), Diagnosis::PodUnschedulable { preemption: Preemption::Never, .. }));
}

#[test]
fn an_eviction_that_is_refused_spares_the_pod_and_another_plan_is_made() {
    let mut world = world();
    world.node("n0", 1);
    world.node("n1", 1);
    running(&mut world, "a", "", 1, 1, "n0");
    world.now += 1_000;
    running(&mut world, "b", "", 1, 1, "n1");
    high(&mut world, 1, 1);
    world.decide_all();
    let [Command::Evict { pods, .. }] = &world.in_flight[..] else { panic!("{:?}", world.in_flight) };
    let (pod, name) = (pods[0].clone(), pods[0].name.clone());
    world.in_flight.clear();
    let outcome = TakeBackOutcome::Refused { message: "forbidden".into() };
    world.show(Observation::EvictDone { pod, outcome });
    world.pass(30_000);
    assert_eq!(world.bound_count("h-"), 1);
    assert!(world.pods.values().any(|pod| pod.id.name == name), "{name} is left alone");
}

#[test]
fn an_eviction_that_fails_in_passing_is_sent_again_and_not_after_it_succeeded() {
    let mut world = world();
    world.node("n0", 1);
    running(&mut world, "a", "", 1, 1, "n0");
    high(&mut world, 1, 1);
    world.decide_all();
    let [Command::Evict { pods, .. }] = &world.in_flight[..] else { panic!("{:?}", world.in_flight) };
    let pod = pods[0].clone();
    world.in_flight.clear();
    world.show(Observation::EvictDone { pod, outcome: TakeBackOutcome::Transient { message: "busy".into() } });
    world.grace_ms = 30_000;
    world.pass(120_000);
    assert_eq!(world.evicted().len(), 2, "once more, and never again");
    world.remove("a-0");
    world.pass(20_000);
    assert_eq!(world.bound_count("h-"), 1);
}

#[test]
fn after_a_restart_the_plan_still_stands() {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 4);
    world.node("n1", 4);
    running(&mut world, "low", "", 4, 1, "n0");
    running(&mut world, "low2", "", 4, 1, "n1");
    high(&mut world, 2, 2);
    world.pass(1_000);
    let (first, places) = (world.evicted(), nominated(&world));
    world.restart();
    world.pass(60_000);
    assert_eq!((world.evicted(), nominated(&world)), (first.clone(), places));
    for name in first {
        world.remove(&name);
    }
    world.pass(20_000);
    assert_eq!(world.bound_count("h-"), 2);
}

#[test]
fn a_delay_gives_others_time_to_make_room() {
    let mut config = config();
    config.preemption.delay_ms = 30_000;
    let mut world = World::with(config);
    world.node("n0", 1);
    running(&mut world, "a", "", 1, 1, "n0");
    high(&mut world, 1, 1);
    world.pass(29_000);
    assert_eq!(world.evicted(), Vec::<String>::new());
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("high") else { panic!("it waits for room") };
    assert_eq!(shortfall.preemption, Preemption::Delayed { delay_ms: 30_000 });
    world.pass(11_000);
    assert_eq!(world.evicted(), ["a-0"]);
    assert_eq!(world.bound_count("h-"), 1);
}

#[test]
fn without_whole_groups_pods_are_taken_one_by_one() {
    let mut config = config();
    config.preemption.whole_groups = false;
    let mut world = World::with(config);
    world.node("n0", 4);
    gang(&mut world, "low", 4, 0, DisruptionMode::Group);
    running(&mut world, "a", "low", 4, 1, "n0");
    high(&mut world, 1, 1);
    world.decide_all();
    assert_eq!(world.evicted().len(), 1);
}

#[test]
fn whom_a_budget_covers_is_spared_if_others_will_do() {
    let mut world = world();
    world.node("n0", 3);
    running(&mut world, "low", "", 3, 1, "n0");
    let labels = Arc::new([("app".to_owned(), "db".to_owned())].into());
    for name in ["low-0", "low-1"] {
        let uid = world.uid(name);
        let labels = Arc::clone(&labels);
        world.change(&uid, |pod| pod.labels = labels);
    }
    let selector = Requirement { key: "app".into(), demand: Demand::Exists };
    let budget = BudgetSpec {
        namespace: "ns".into(),
        name: "db".into(),
        selector: Some(vec![selector]),
        ..BudgetSpec::default()
    };
    world.show(Observation::BudgetSeen(budget));
    high(&mut world, 1, 1);
    world.decide_all();
    assert_eq!(world.evicted(), ["low-2"]);
}

#[test]
fn a_higher_one_takes_the_place_that_a_lower_one_hoped_for() {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 2);
    running(&mut world, "low", "", 2, 1, "n0");
    gang(&mut world, "middle", 1, 50, DisruptionMode::Pod);
    world.pod("m", "middle", 2);
    world.pass(1_000);
    assert_eq!(nominated(&world), [("m".into(), "n0".into())]);
    high(&mut world, 1, 2);
    world.pass(20_000);
    assert_eq!(nominated(&world), [("h-0".into(), "n0".into())]);
    for name in ["low-0", "low-1"] {
        world.remove(name);
    }
    world.pass(20_000);
    assert_eq!(world.bound(), ["h-0"]);
    assert_eq!(world.evicted().len(), 2);
}

#[test]
fn what_must_be_there_without_the_api_is_never_taken() {
    let mut world = world();
    world.node("n0", 1);
    world.pod_with("static", "", 1, |pod| {
        pod.node = Some("n0".into());
        pod.is_static = true;
    });
    high(&mut world, 1, 1);
    world.pass(60_000);
    assert_eq!(world.evicted(), Vec::<String>::new());
}

#[test]
fn a_victim_that_does_not_leave_in_time_is_told_of() {
    let mut world = world();
    world.grace_ms = 30_000;
    world.node("n0", 1);
    running(&mut world, "stubborn", "", 1, 1, "n0");
    high(&mut world, 1, 1);
    world.pass(10_000);
    let Diagnosis::WaitingForVictims(victims) = world.why_group("high") else { panic!("it waits for its victim") };
    assert!(victims.within_ms.is_some_and(|within| within > 20_000) && victims.overdue.is_empty(), "{victims:?}");
    world.pass(60_000);
    let Diagnosis::WaitingForVictims(victims) = world.why_group("high") else { panic!("it waits for its victim") };
    assert_eq!(victims.overdue, ["ns/stubborn-0"]);
    assert_eq!(world.evicted().len(), 1, "still nobody else");
}

fn budget(allowed: i32) -> Observation {
    let (namespace, name) = ("ns".to_owned(), "all".to_owned());
    Observation::BudgetSeen(BudgetSpec {
        namespace,
        name,
        selector: Some(Vec::new()),
        allowed,
        ..BudgetSpec::default()
    })
}

#[test]
fn where_budgets_are_always_kept_nobody_is_evicted_against_one_until_it_allows_it() {
    let preemption = PreemptionRules { keeps_budgets: true, ..PreemptionRules::default() };
    let mut world = World::with(Config { preemption, ..Config::default() });
    world.node("n0", 4);
    world.node("n1", 4);
    gang(&mut world, "whole", 2, 10, DisruptionMode::Group);
    running(&mut world, "w0", "whole", 1, 4, "n0");
    running(&mut world, "w1", "whole", 1, 4, "n1");
    world.show(budget(1));
    high(&mut world, 1, 4);
    world.pass(60_000);
    assert!(world.evicted().is_empty(), "one may go, and the group goes whole: {:?}", world.evicted());
    world.show(budget(2));
    world.pass(60_000);
    assert_eq!(world.evicted(), ["w0-0", "w1-0"]);
}

#[test]
fn what_an_earlier_process_began_to_evict_whole_is_evicted_whole() {
    let mut world = world();
    world.node("n0", 4);
    gang(&mut world, "whole", 3, 10, DisruptionMode::Group);
    running(&mut world, "w", "whole", 3, 1, "n0");
    // It had marked all of them, and had deleted one.
    for name in ["w-0", "w-1", "w-2"] {
        let uid = world.uid(name);
        world.change(&uid, |pod| pod.marked = true);
    }
    world.decide_all();
    assert!(world.evicted().is_empty(), "nothing has begun");
    world.pass(4_000);
    let uid = world.uid("w-0");
    world.change(&uid, |pod| pod.terminating = true);
    world.restart();
    world.decide_all();
    assert_eq!(world.evicted(), ["w-1", "w-2"]);
}

#[test]
fn a_mark_on_a_pod_that_stays_is_taken_off() {
    let mut world = world();
    world.node("n0", 4);
    running(&mut world, "p", "", 2, 1, "n0");
    let uid = world.uid("p-0");
    world.change(&uid, |pod| pod.marked = true);
    world.pass(10_000);
    assert!(!world.pods[&uid].marked && world.evicted().is_empty());
    assert_eq!(world.acts.iter().filter(|act| matches!(act, Command::Spare { .. })).count(), 1);
}

#[test]
fn who_has_risen_since_is_spared_and_so_are_those_who_were_to_go_with_him() {
    let mut world = world();
    world.node("n0", 2);
    gang(&mut world, "low", 1, 0, DisruptionMode::Pod);
    running(&mut world, "riser", "low", 1, 1, "n0");
    running(&mut world, "other", "", 1, 1, "n0");
    high(&mut world, 1, 2);
    world.decide_all();
    let ordered = world.evicted();
    assert_eq!(ordered.len(), 2);
    for command in std::mem::take(&mut world.in_flight) {
        let Command::Evict { pods, .. } = command else { panic!("{command:?}") };
        let pod = pods[0].clone();
        world.show(Observation::EvictDone { pod, outcome: TakeBackOutcome::Transient { message: "busy".into() } });
    }
    gang(&mut world, "low", 1, 200, DisruptionMode::Pod);
    world.pass(60_000);
    assert_eq!(world.evicted(), ordered, "the plan does not stand any more");
    assert_eq!(nominated(&world), []);
}

#[test]
fn whom_a_budget_keeps_is_not_counted_on_for_members_beyond_the_minimum() {
    let preemption = PreemptionRules { keeps_budgets: true, ..PreemptionRules::default() };
    let mut world = World::with(Config { preemption, ..Config::default() });
    world.node("n0", 2);
    world.node("n1", 2);
    running(&mut world, "free", "", 1, 2, "n0");
    running(&mut world, "kept", "", 1, 2, "n1");
    let kept = world.uid("kept-0");
    world.change(&kept, |pod| pod.labels = Arc::new([("app".to_owned(), "db".to_owned())].into()));
    let selector = Requirement { key: "app".into(), demand: Demand::Exists };
    let (namespace, name) = ("ns".to_owned(), "db".to_owned());
    let budget = BudgetSpec { namespace, name, selector: Some(vec![selector]), ..BudgetSpec::default() };
    world.show(Observation::BudgetSeen(budget));
    gang(&mut world, "high", 1, 100, DisruptionMode::Pod);
    world.pods_of("h", "high", 2, 2);
    world.pass(20_000);
    assert_eq!(world.evicted(), ["free-0"]);
}
