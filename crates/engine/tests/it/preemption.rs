//! Preemption as it is executed: which victims it evicts, when it waits, and that no pod is evicted unnecessarily.

use std::sync::Arc;

use muster_engine::diagnosis::{Diagnosis, Preemption};
use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::group::{DisruptionMode, GroupPriority, GroupSpec, PreemptionPolicy};
use muster_engine::model::labels::{LabelOperator, Requirement};
use muster_engine::model::pod::{OwnerAttempt, Phase};
use muster_engine::{Command, Config, DeleteOutcome, Observation, PreemptionRules};

use crate::fake_cluster::{FakeCluster, key};

fn config() -> Config {
    Config::default()
}

pub(crate) fn new_fake() -> FakeCluster {
    FakeCluster::with(config())
}

/// Creates a gang with its own priority.
pub(crate) fn gang(fake: &mut FakeCluster, name: &str, minimum: u32, priority: i32, mode: DisruptionMode) {
    let mut spec = GroupSpec::gang(key(name), minimum);
    spec.priority = GroupPriority::Own(priority);
    spec.disruption_mode = mode;
    fake.put_group(spec);
}

/// Creates running pods on a node.
pub(crate) fn running(fake: &mut FakeCluster, name: &str, group: &str, count: usize, cpu: i64, node: &str) {
    for number in 0..count {
        let node = node.to_owned();
        let started = fake.now;
        fake.pod_with(&format!("{name}-{number}"), group, cpu, |pod| {
            pod.node = Some(node);
            pod.phase = Phase::Running;
            pod.started_ms = Some(started);
        });
    }
}

/// The names of nominated pods, with their nodes.
pub(crate) fn nominated(fake: &FakeCluster) -> Vec<(String, String)> {
    let mut names: Vec<_> =
        fake.pods.values().filter_map(|pod| Some((pod.id.name.clone(), pod.nominated.clone()?))).collect();
    names.sort();
    names
}

pub(crate) fn high(fake: &mut FakeCluster, count: usize, cpu: i64) {
    gang(fake, "high", count as u32, 100, DisruptionMode::Pod);
    fake.pods_of("h", "high", count, cpu);
}

#[test]
fn gang_preempts_lower_priority_pods_and_is_bound_when_they_are_gone() {
    let mut fake = new_fake();
    fake.node("n0", 4);
    running(&mut fake, "low", "", 4, 1, "n0");
    high(&mut fake, 2, 2);
    fake.decide_all();
    assert_eq!(fake.evicted().len(), 4);
    assert_eq!(nominated(&fake).len(), 2);
    assert!(matches!(fake.group_diagnosis("high"), Diagnosis::WaitingForVictims(_)));
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["h-0", "h-1"]);
    assert_eq!(fake.evicted().len(), 4, "no other pod");
}

#[test]
fn insufficient_victims_are_not_evicted() {
    let mut fake = new_fake();
    fake.node("n0", 4);
    running(&mut fake, "low", "", 4, 1, "n0");
    high(&mut fake, 3, 2);
    fake.advance(60_000);
    assert_eq!(fake.evicted(), Vec::<String>::new());
    assert_eq!(nominated(&fake), []);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("high") else {
        panic!("{}", fake.group_diagnosis("high"))
    };
    assert_eq!(shortfall.preemption, Preemption::NotEnough);
}

#[test]
fn group_with_mode_group_is_evicted_whole_for_a_gang_and_for_a_pod() {
    for alone in [false, true] {
        let mut fake = new_fake();
        fake.node("n0", 4);
        fake.node("n1", 4);
        gang(&mut fake, "low", 4, 0, DisruptionMode::Group);
        running(&mut fake, "a", "low", 2, 2, "n0");
        running(&mut fake, "b", "low", 2, 2, "n1");
        if alone {
            fake.pod_with("h", "", 1, |pod| pod.priority = 100);
        } else {
            high(&mut fake, 1, 1);
        }
        fake.decide_all();
        assert_eq!(fake.evicted().len(), 4, "one would be enough");
    }
}

#[test]
fn members_of_other_groups_are_evicted_one_by_one_surplus_first() {
    let mut fake = new_fake();
    fake.node("n0", 4);
    running(&mut fake, "single", "", 1, 1, "n0");
    gang(&mut fake, "low", 2, 0, DisruptionMode::Pod);
    running(&mut fake, "a", "low", 2, 1, "n0");
    fake.now += 1_000;
    running(&mut fake, "young", "low", 1, 1, "n0");
    high(&mut fake, 1, 1);
    fake.decide_all();
    assert_eq!(fake.evicted(), ["young-0"], "it is a surplus member");
}

#[test]
fn standing_plan_evicts_no_more_pods_and_protects_its_room() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 4);
    fake.node("n1", 4);
    running(&mut fake, "low", "", 4, 1, "n0");
    running(&mut fake, "low2", "", 4, 1, "n1");
    high(&mut fake, 2, 2);
    fake.advance(5_000);
    let first = fake.evicted();
    assert_eq!(first.len(), 4);
    // They leave one by one; a pod of low priority would fit in that room.
    for name in &first[..2] {
        fake.remove(name);
    }
    fake.pod("late", "", 1);
    fake.advance(20_000);
    assert_eq!(fake.evicted(), first);
    assert_eq!(fake.node_of("late"), None);
    for name in &first[2..] {
        fake.remove(name);
    }
    fake.advance(20_000);
    assert_eq!(fake.bound_count("h-"), 2);
    assert_eq!(fake.evicted(), first);
}

#[test]
fn free_room_is_used_while_victims_are_terminating() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 2);
    running(&mut fake, "low", "", 2, 1, "n0");
    high(&mut fake, 1, 2);
    fake.advance(1_000);
    assert_eq!(nominated(&fake), [("h-0".into(), "n0".into())]);
    fake.node("n1", 2);
    fake.advance(20_000);
    assert_eq!(fake.node_of("h-0").as_deref(), Some("n1"));
}

#[test]
fn invalid_plan_is_replaced_counting_terminating_pods_as_gone() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 4);
    fake.node("n1", 4);
    running(&mut fake, "low", "", 4, 1, "n0");
    running(&mut fake, "low2", "", 4, 1, "n1");
    high(&mut fake, 2, 2);
    fake.advance(1_000);
    let first = fake.evicted();
    // A pod of higher priority takes half of the nominated room.
    let node = nominated(&fake)[0].1.clone();
    fake.pod_with("boss", "", 2, |pod| {
        pod.priority = 1_000;
        pod.ours = false;
        pod.node = Some(node.clone());
    });
    fake.advance(20_000);
    let more = fake.evicted().len() - first.len();
    assert_eq!(more, 2, "two of those on the other node, in addition to the remaining room: {:?}", fake.evicted());
    for name in fake.evicted() {
        fake.remove(&name);
    }
    fake.advance(20_000);
    assert_eq!(fake.bound_count("h-"), 2);
}

#[test]
fn pods_and_groups_that_never_preempt_stay_pending() {
    let mut fake = new_fake();
    fake.node("n0", 1);
    running(&mut fake, "low", "", 1, 1, "n0");
    let mut spec = GroupSpec::gang(key("never"), 1);
    spec.priority = GroupPriority::Own(100);
    spec.preemption_policy = PreemptionPolicy::Never;
    fake.put_group(spec);
    fake.pod("p", "never", 1);
    fake.pod_with("q", "", 1, |pod| (pod.priority, pod.never_preempts) = (50, true));
    fake.advance(60_000);
    assert_eq!(fake.evicted(), Vec::<String>::new());
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("never") else {
        panic!("it is pending for room")
    };
    assert_eq!(shortfall.preemption, Preemption::Never);
    assert!(matches!(fake.pod_diagnosis("q"), Diagnosis::PodUnschedulable { preemption: Preemption::Never, .. }));
}

#[test]
fn refused_eviction_excludes_the_pod_and_leads_to_another_plan() {
    let mut fake = new_fake();
    fake.node("n0", 1);
    fake.node("n1", 1);
    running(&mut fake, "a", "", 1, 1, "n0");
    fake.now += 1_000;
    running(&mut fake, "b", "", 1, 1, "n1");
    high(&mut fake, 1, 1);
    fake.decide_all();
    let [Command::Evict { pods, .. }] = &fake.in_flight[..] else { panic!("{:?}", fake.in_flight) };
    let (pod, name) = (pods[0].clone(), pods[0].name.clone());
    fake.in_flight.clear();
    let outcome = DeleteOutcome::Refused { message: "forbidden".into() };
    fake.observe(Observation::EvictDone { pod, outcome });
    fake.advance(30_000);
    assert_eq!(fake.bound_count("h-"), 1);
    assert!(fake.pods.values().any(|pod| pod.id.name == name), "{name} is not evicted");
}

#[test]
fn transient_eviction_failure_is_retried_until_it_succeeds() {
    let mut fake = new_fake();
    fake.node("n0", 1);
    running(&mut fake, "a", "", 1, 1, "n0");
    high(&mut fake, 1, 1);
    fake.decide_all();
    let [Command::Evict { pods, .. }] = &fake.in_flight[..] else { panic!("{:?}", fake.in_flight) };
    let pod = pods[0].clone();
    fake.in_flight.clear();
    fake.observe(Observation::EvictDone { pod, outcome: DeleteOutcome::Transient { message: "busy".into() } });
    fake.grace_ms = 30_000;
    fake.advance(120_000);
    assert_eq!(fake.evicted().len(), 2, "retried once, and not again");
    fake.remove("a-0");
    fake.advance(20_000);
    assert_eq!(fake.bound_count("h-"), 1);
}

#[test]
fn plan_survives_a_restart() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 4);
    fake.node("n1", 4);
    running(&mut fake, "low", "", 4, 1, "n0");
    running(&mut fake, "low2", "", 4, 1, "n1");
    high(&mut fake, 2, 2);
    fake.advance(1_000);
    let (first, places) = (fake.evicted(), nominated(&fake));
    fake.restart();
    fake.advance(60_000);
    assert_eq!((fake.evicted(), nominated(&fake)), (first.clone(), places));
    for name in first {
        fake.remove(&name);
    }
    fake.advance(20_000);
    assert_eq!(fake.bound_count("h-"), 2);
}

#[test]
fn delay_gives_other_pods_time_to_free_room() {
    let mut config = config();
    config.preemption.delay_ms = 30_000;
    let mut fake = FakeCluster::with(config);
    fake.node("n0", 1);
    running(&mut fake, "a", "", 1, 1, "n0");
    high(&mut fake, 1, 1);
    fake.advance(29_000);
    assert_eq!(fake.evicted(), Vec::<String>::new());
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("high") else {
        panic!("it is pending for room")
    };
    assert_eq!(shortfall.preemption, Preemption::Delayed { delay_ms: 30_000 });
    fake.advance(11_000);
    assert_eq!(fake.evicted(), ["a-0"]);
    assert_eq!(fake.bound_count("h-"), 1);
}

#[test]
fn pods_are_evicted_one_by_one_without_whole_groups() {
    let mut config = config();
    config.preemption.whole_groups = false;
    let mut fake = FakeCluster::with(config);
    fake.node("n0", 4);
    gang(&mut fake, "low", 4, 0, DisruptionMode::Group);
    running(&mut fake, "a", "low", 4, 1, "n0");
    high(&mut fake, 1, 1);
    fake.decide_all();
    assert_eq!(fake.evicted().len(), 1);
}

#[test]
fn pods_covered_by_a_budget_are_avoided_if_possible() {
    let mut fake = new_fake();
    fake.node("n0", 3);
    running(&mut fake, "low", "", 3, 1, "n0");
    let labels = Arc::new([("app".to_owned(), "db".to_owned())].into());
    for name in ["low-0", "low-1"] {
        let uid = fake.uid(name);
        let labels = Arc::clone(&labels);
        fake.change(&uid, |pod| pod.labels = labels);
    }
    let selector = Requirement { key: "app".into(), operator: LabelOperator::Exists };
    let budget = BudgetSpec {
        namespace: "ns".into(),
        name: "db".into(),
        selector: Some(vec![selector]),
        ..BudgetSpec::default()
    };
    fake.observe(Observation::BudgetSeen(budget));
    high(&mut fake, 1, 1);
    fake.decide_all();
    assert_eq!(fake.evicted(), ["low-2"]);
}

#[test]
fn higher_priority_pod_takes_the_nominated_room_of_a_lower_one() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 2);
    running(&mut fake, "low", "", 2, 1, "n0");
    gang(&mut fake, "middle", 1, 50, DisruptionMode::Pod);
    fake.pod("m", "middle", 2);
    fake.advance(1_000);
    assert_eq!(nominated(&fake), [("m".into(), "n0".into())]);
    high(&mut fake, 1, 2);
    fake.advance(20_000);
    assert_eq!(nominated(&fake), [("h-0".into(), "n0".into())]);
    for name in ["low-0", "low-1"] {
        fake.remove(name);
    }
    fake.advance(20_000);
    assert_eq!(fake.bound(), ["h-0"]);
    assert_eq!(fake.evicted().len(), 2);
}

#[test]
fn static_pods_are_never_evicted() {
    let mut fake = new_fake();
    fake.node("n0", 1);
    fake.pod_with("static", "", 1, |pod| {
        pod.node = Some("n0".into());
        pod.is_static = true;
    });
    high(&mut fake, 1, 1);
    fake.advance(60_000);
    assert_eq!(fake.evicted(), Vec::<String>::new());
}

#[test]
fn victim_that_exceeds_its_grace_period_is_reported() {
    let mut fake = new_fake();
    fake.grace_ms = 30_000;
    fake.node("n0", 1);
    running(&mut fake, "stubborn", "", 1, 1, "n0");
    high(&mut fake, 1, 1);
    fake.advance(10_000);
    let Diagnosis::WaitingForVictims(victims) = fake.group_diagnosis("high") else { panic!("it waits for its victim") };
    assert!(victims.within_ms.is_some_and(|within| within > 20_000) && victims.overdue.is_empty(), "{victims:?}");
    fake.advance(60_000);
    let Diagnosis::WaitingForVictims(victims) = fake.group_diagnosis("high") else { panic!("it waits for its victim") };
    assert_eq!(victims.overdue, ["ns/stubborn-0"]);
    assert_eq!(fake.evicted().len(), 1, "still no other pod");
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
fn respected_budgets_block_evictions_until_they_allow_them() {
    let preemption = PreemptionRules { respects_budgets: true, ..PreemptionRules::default() };
    let mut fake = FakeCluster::with(Config { preemption, ..Config::default() });
    fake.node("n0", 4);
    fake.node("n1", 4);
    gang(&mut fake, "whole", 2, 10, DisruptionMode::Group);
    running(&mut fake, "w0", "whole", 1, 4, "n0");
    running(&mut fake, "w1", "whole", 1, 4, "n1");
    fake.observe(budget(1));
    high(&mut fake, 1, 4);
    fake.advance(60_000);
    assert!(fake.evicted().is_empty(), "the budget allows one, and the group is evicted whole: {:?}", fake.evicted());
    fake.observe(budget(2));
    fake.advance(60_000);
    assert_eq!(fake.evicted(), ["w0-0", "w1-0"]);
}

#[test]
fn eviction_of_a_whole_group_is_completed_after_a_restart() {
    let mut fake = new_fake();
    fake.node("n0", 4);
    gang(&mut fake, "whole", 3, 10, DisruptionMode::Group);
    running(&mut fake, "w", "whole", 3, 1, "n0");
    // It had marked all of them and deleted one.
    for name in ["w-0", "w-1", "w-2"] {
        let uid = fake.uid(name);
        fake.change(&uid, |pod| pod.marked = true);
    }
    fake.decide_all();
    assert!(fake.evicted().is_empty(), "nothing has begun");
    fake.advance(4_000);
    let uid = fake.uid("w-0");
    fake.change(&uid, |pod| pod.terminating = true);
    fake.restart();
    fake.decide_all();
    assert_eq!(fake.evicted(), ["w-1", "w-2"]);
}

#[test]
fn mark_is_removed_from_a_pod_that_stays() {
    let mut fake = new_fake();
    fake.node("n0", 4);
    running(&mut fake, "p", "", 2, 1, "n0");
    let uid = fake.uid("p-0");
    fake.change(&uid, |pod| pod.marked = true);
    fake.advance(10_000);
    assert!(!fake.pods[&uid].marked && fake.evicted().is_empty());
    assert_eq!(fake.issued.iter().filter(|act| matches!(act, Command::ClearDisruptionMark { .. })).count(), 1);
}

#[test]
fn victims_whose_priority_rose_are_spared_together() {
    let mut fake = new_fake();
    fake.node("n0", 2);
    gang(&mut fake, "low", 1, 0, DisruptionMode::Pod);
    running(&mut fake, "riser", "low", 1, 1, "n0");
    running(&mut fake, "other", "", 1, 1, "n0");
    high(&mut fake, 1, 2);
    fake.decide_all();
    let ordered = fake.evicted();
    assert_eq!(ordered.len(), 2);
    for command in std::mem::take(&mut fake.in_flight) {
        let Command::Evict { pods, .. } = command else { panic!("{command:?}") };
        let pod = pods[0].clone();
        fake.observe(Observation::EvictDone { pod, outcome: DeleteOutcome::Transient { message: "busy".into() } });
    }
    gang(&mut fake, "low", 1, 200, DisruptionMode::Pod);
    fake.advance(60_000);
    assert_eq!(fake.evicted(), ordered, "the plan is invalid now");
    assert_eq!(nominated(&fake), []);
}

#[test]
fn pods_protected_by_a_budget_do_not_count_as_victims_for_surplus_members() {
    let preemption = PreemptionRules { respects_budgets: true, ..PreemptionRules::default() };
    let mut fake = FakeCluster::with(Config { preemption, ..Config::default() });
    fake.node("n0", 2);
    fake.node("n1", 2);
    running(&mut fake, "free", "", 1, 2, "n0");
    running(&mut fake, "kept", "", 1, 2, "n1");
    let kept = fake.uid("kept-0");
    fake.change(&kept, |pod| pod.labels = Arc::new([("app".to_owned(), "db".to_owned())].into()));
    let selector = Requirement { key: "app".into(), operator: LabelOperator::Exists };
    let (namespace, name) = ("ns".to_owned(), "db".to_owned());
    let budget = BudgetSpec { namespace, name, selector: Some(vec![selector]), ..BudgetSpec::default() };
    fake.observe(Observation::BudgetSeen(budget));
    gang(&mut fake, "high", 1, 100, DisruptionMode::Pod);
    fake.pods_of("h", "high", 2, 2);
    fake.advance(20_000);
    assert_eq!(fake.evicted(), ["free-0"]);
}

#[test]
fn capped_priority_of_a_group_is_that_of_its_lowest_member() {
    for (capped, evicted) in [(false, 1), (true, 0)] {
        let mut fake = FakeCluster::with(Config { group_priority_capped: capped, ..config() });
        fake.node("n0", 2);
        fake.pod_with("middle", "", 1, |pod| {
            pod.node = Some("n0".to_owned());
            pod.priority = 50;
        });
        gang(&mut fake, "g", 2, 100, DisruptionMode::Pod);
        for (name, priority) in [("g-0", 70), ("g-1", 0)] {
            fake.pod_with(name, "g", 1, |pod| pod.priority = priority);
        }
        fake.settle();
        assert_eq!(fake.evicted().len(), evicted, "capped: {capped}");
        let status = fake.engine.engine().group_status(&key("g"));
        assert_eq!(status.priority_mismatch.and_then(|mismatch| mismatch.capped), capped.then_some(0));
    }
}

#[test]
fn capped_priority_follows_the_members() {
    let mut fake = FakeCluster::with(Config { group_priority_capped: true, ..config() });
    fake.node("n0", 1);
    fake.pod_with("middle", "", 1, |pod| {
        pod.node = Some("n0".to_owned());
        pod.priority = 50;
    });
    gang(&mut fake, "g", 1, 100, DisruptionMode::Pod);
    for (name, priority) in [("g-0", 70), ("g-1", 0)] {
        fake.pod_with(name, "g", 1, |pod| pod.priority = priority);
    }
    fake.settle();
    assert!(fake.evicted().is_empty());
    fake.remove("g-1");
    fake.advance(60_000);
    assert_eq!((fake.evicted().len(), fake.node_of("g-0").as_deref()), (1, Some("n0")));
}

#[test]
fn finished_and_former_members_do_not_cap_the_priority_of_a_group() {
    for former in [false, true] {
        let mut fake = FakeCluster::with(Config { group_priority_capped: true, ..config() });
        fake.node("n0", 1);
        fake.node("n1", 1);
        gang(&mut fake, "g", 1, 100, DisruptionMode::Pod);
        let attempt = |number: u32| Some(OwnerAttempt { owner: "set".to_owned(), number });
        fake.pod_with("g-0", "g", 1, |pod| {
            pod.membership.as_mut().expect("a member").attempt = attempt(0);
            pod.node = Some("n1".to_owned());
        });
        fake.pod_with("middle", "", 1, |pod| {
            pod.node = Some("n0".to_owned());
            pod.priority = 50;
        });
        fake.pod_with("filler", "", 1, |pod| {
            pod.node = Some("n1".to_owned());
            pod.priority = 1000;
        });
        fake.pod_with("g-1", "g", 1, |pod| {
            pod.membership.as_mut().expect("a member").attempt = attempt(u32::from(former));
            pod.priority = 70;
        });
        fake.advance(60_000);
        assert!(fake.evicted().is_empty(), "a pod of priority 0 runs as a member");
        if former {
            // A pod of an earlier attempt that waits is never placed.
            fake.pod_with("late", "g", 1, |pod| pod.membership.as_mut().expect("a member").attempt = attempt(0));
        }
        fake.phase("g-0", Phase::Succeeded);
        fake.advance(60_000);
        assert_eq!(fake.evicted(), ["middle"], "former: {former}");
    }
}
