//! The end of a wait for victims: a group does not keep room for longer than its start may take, and evicts nothing for
//! nothing after that.

use muster_engine::diagnosis::{Diagnosis, Preemption};
use muster_engine::model::Millis;
use muster_engine::model::group::{GroupPriority, GroupSpec, Policy};
use muster_engine::model::pod::Phase;
use muster_engine::{Command, Config, DeleteOutcome, Observation, PreemptionRules};

use crate::fake_cluster::{FakeCluster, key};
use crate::preemption::{nominated, running};

const MINUTE_MS: Millis = 60_000;
const HOUR_MS: Millis = 60 * MINUTE_MS;

fn spec(minimum: u32, timeout_ms: Option<Millis>) -> GroupSpec {
    let priority = GroupPriority::Own(100);
    GroupSpec { priority, schedule_timeout_ms: timeout_ms, ..GroupSpec::gang(key("high"), minimum) }
}

/// Full nodes, one pod each, of priorities that increase by the node's number; and a gang of one that preempts.
fn preempting(nodes: usize, grace_ms: Millis, timeout_ms: Option<Millis>) -> FakeCluster {
    let mut fake = FakeCluster::new();
    preempting_in(&mut fake, nodes, grace_ms, timeout_ms);
    fake
}

fn preempting_in(fake: &mut FakeCluster, nodes: usize, grace_ms: Millis, timeout_ms: Option<Millis>) {
    fake.grace_ms = grace_ms;
    for number in 0..nodes {
        fake.node(&format!("n{number}"), 1);
        low(fake, number, number as i32);
    }
    fake.put_group(spec(1, timeout_ms));
    fake.pod("h", "high", 1);
    fake.advance(1_000);
    assert_eq!((fake.evicted(), nominated(fake).len()), (vec!["low0-0".to_owned()], 1));
}

/// A running pod that fills a node.
fn low(fake: &mut FakeCluster, number: usize, priority: i32) {
    let started = fake.now;
    fake.pod_with(&format!("low{number}-0"), "", 1, |pod| {
        pod.node = Some(format!("n{number}"));
        pod.priority = priority;
        pod.phase = Phase::Running;
        pod.started_ms = Some(started);
    });
}

fn timeouts(fake: &FakeCluster) -> usize {
    fake.reasons("high").iter().filter(|reason| **reason == "ScheduleTimeout").count()
}

#[test]
fn places_are_given_up_after_the_timeout_of_the_group_and_nothing_is_evicted_twice() {
    let mut fake = preempting(2, 5 * MINUTE_MS, Some(MINUTE_MS));
    fake.advance(MINUTE_MS - 1_500);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (1, 0));
    fake.issued.clear();
    fake.advance(1_000);
    let clears = |act: &Command| matches!(act, Command::ClearNomination { pod } if pod.name == "h");
    assert_eq!((fake.issued.iter().any(clears), timeouts(&fake)), (true, 1));
    let told = fake.reports.iter().map(|report| report.diagnosis.to_string());
    assert_eq!(told.filter(|text| text.contains("no place is kept free any more")).count(), 1);
    // The victim has its time to leave, and is counted on again.
    fake.advance(MINUTE_MS / 2);
    assert_eq!((fake.evicted(), nominated(&fake).len()), (vec![], 1));
    fake.advance(3 * MINUTE_MS);
    fake.remove("low0-0");
    fake.advance(10_000);
    assert_eq!((fake.node_of("h").as_deref(), fake.evicted()), (Some("n0"), vec![]));
}

#[test]
fn without_a_timeout_of_its_own_a_group_waits_until_its_victims_should_be_gone() {
    let mut fake = preempting(2, 30 * MINUTE_MS, None);
    fake.advance(34 * MINUTE_MS);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (1, 0), "five minutes after the end of the grace period");
    fake.advance(2 * MINUTE_MS);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (0, 1));
}

#[test]
fn victims_without_an_end_do_not_hold_room_forever() {
    let mut fake = preempting(1, 1_000_000 * HOUR_MS, None);
    fake.advance(HOUR_MS);
    assert_eq!(nominated(&fake).len(), 1);
    fake.advance(6 * MINUTE_MS);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (0, 1));
    fake.advance(100 * HOUR_MS);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (0, 1), "it does not leave soon");
    fake.remove("low0-0");
    fake.advance(MINUTE_MS);
    assert_eq!(fake.node_of("h").as_deref(), Some("n0"));
}

#[test]
fn overdue_victim_is_not_counted_on_again() {
    // Both pods have to leave, and one of them never does.
    let mut fake = FakeCluster::new();
    fake.grace_ms = 2_000;
    for number in 0..2 {
        fake.node(&format!("n{number}"), 1);
        low(&mut fake, number, 0);
    }
    fake.put_group(spec(2, Some(MINUTE_MS)));
    fake.pods_of("h", "high", 2, 1);
    fake.advance(5_000);
    assert_eq!((fake.evicted().len(), nominated(&fake).len()), (2, 2));
    fake.remove("low1-0");
    fake.advance(MINUTE_MS);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (0, 1));
    // Its former place is free for others, which are not evicted beside the victim that stays.
    fake.pod("other", "", 1);
    fake.advance(10_000);
    assert_eq!(fake.node_of("other").as_deref(), Some("n1"));
    fake.advance(100 * HOUR_MS);
    assert_eq!((fake.evicted().len(), timeouts(&fake), nominated(&fake).len()), (2, 1, 0));
    fake.remove("low0-0");
    fake.advance(MINUTE_MS);
    assert_eq!(fake.evicted().last().map(String::as_str), Some("other"), "now it helps");
    fake.remove("other");
    fake.advance(MINUTE_MS);
    assert_eq!(fake.bound_count("h"), 2);
}

#[test]
fn other_victims_follow_after_pauses_that_double() {
    let mut fake = preempting(5, 2_000, Some(MINUTE_MS));
    let mut evicted_at = vec![0];
    for second in 0..3600 {
        fake.advance(1_000);
        if fake.evicted().len() > evicted_at.len() {
            evicted_at.push((second + 30) / 60);
        }
    }
    // Each of them waits for the timeout, and then for the pause.
    assert_eq!(evicted_at, [0, 2, 5, 10, 19]);
    assert_eq!(nominated(&fake).len(), 0);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("high") else { panic!("it waits") };
    assert_eq!(shortfall.preemption, Preemption::NoLowerPriority);
    // What leaves at last is used at once.
    fake.remove("low3-0");
    fake.advance(MINUTE_MS);
    assert_eq!(fake.node_of("h").as_deref(), Some("n3"));
}

#[test]
fn message_says_that_no_more_pods_are_evicted_for_now() {
    let mut fake = preempting(2, 2_000, Some(MINUTE_MS));
    fake.advance(MINUTE_MS + 10_000);
    let text = fake.group_diagnosis("high").to_string();
    assert!(
        text.ends_with(
            "No more pods are evicted for it for 60 s: others that had to leave for it did not leave in time."
        ),
        "{text}"
    );
    let told = fake.reports.iter().map(|report| report.diagnosis.to_string());
    assert_eq!(told.filter(|text| text.ends_with("They should be gone and are not: ns/low0-0.")).count(), 2);
}

#[test]
fn placed_group_has_its_full_time_again() {
    let mut fake = preempting(2, 2_000, Some(MINUTE_MS));
    fake.advance(MINUTE_MS + 10_000);
    fake.remove("low0-0");
    fake.advance(MINUTE_MS);
    assert_eq!(fake.node_of("h").as_deref(), Some("n0"));
    fake.remove("h");
    low(&mut fake, 0, 0);
    fake.pod("again", "high", 1);
    fake.advance(10_000);
    assert_eq!(fake.evicted(), ["low0-0", "low0-0"], "there is no pause");
}

#[test]
fn group_that_is_placed_in_part_has_no_pause_either() {
    let mut fake = preempting(1, 2_000, Some(MINUTE_MS));
    fake.pod("more", "high", 1);
    fake.advance(MINUTE_MS + 10_000);
    fake.remove("low0-0");
    fake.advance(10_000);
    assert_eq!((fake.bound_count("h"), fake.bound_count("more"), timeouts(&fake)), (1, 0, 1));
    fake.node("n1", 1);
    low(&mut fake, 1, -1);
    fake.advance(10_000);
    assert_eq!(fake.evicted(), ["low0-0", "low1-0"]);
}

#[test]
fn eviction_that_keeps_failing_is_cancelled() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    low(&mut fake, 0, 0);
    fake.put_group(spec(1, Some(MINUTE_MS)));
    fake.pod("h", "high", 1);
    let begin = fake.now;
    while fake.now < begin + 10 * MINUTE_MS {
        fake.decide_all();
        for command in std::mem::take(&mut fake.in_flight) {
            let Command::Evict { pods, .. } = command else { panic!("{command:?}") };
            let outcome = DeleteOutcome::Transient { message: "busy".into() };
            fake.observe(Observation::EvictDone { pod: pods[0].clone(), outcome });
        }
        fake.now = fake.engine.engine().next_wakeup().expect("it is tried again");
    }
    // Tried for a minute each, with pauses of one, two and four.
    assert_eq!(timeouts(&fake), 3);
    let text = fake.reports.iter().map(|report| report.diagnosis.to_string());
    assert_eq!(text.filter(|text| text.ends_with("An eviction failed: ns/low0-0: busy.")).count(), 3);
}

#[test]
fn groups_without_a_minimum_and_later_members_give_up_their_places_too() {
    for is_basic in [true, false] {
        let mut fake = FakeCluster::new();
        fake.grace_ms = 2_000;
        for number in 0..3 {
            fake.node(&format!("n{number}"), 1);
        }
        low(&mut fake, 1, 0);
        low(&mut fake, 2, 1);
        let policy = if is_basic { Policy::Basic { desired_count: None } } else { Policy::Gang { min_count: 1 } };
        fake.put_group(GroupSpec { policy, ..spec(1, Some(MINUTE_MS)) });
        fake.pods_of("first", "high", 1, 1);
        fake.advance(1_000);
        fake.pods_of("h", "high", 1, 1);
        fake.advance(10_000);
        assert_eq!((fake.bound_count("first"), nominated(&fake).len()), (1, 1));
        fake.advance(MINUTE_MS);
        assert_eq!((nominated(&fake).len(), timeouts(&fake)), (0, 0), "the group stays scheduled");
        assert_eq!(fake.evicted().len(), 1);
        fake.advance(MINUTE_MS);
        assert_eq!(fake.evicted().len(), 2);
    }
}

#[test]
fn pods_that_preempt_for_themselves_give_up_their_places_too() {
    let preemption = PreemptionRules { delayed: false, ..PreemptionRules::default() };
    let mut fake = FakeCluster::with(Config { preemption, ..Config::default() });
    preempting_in(&mut fake, 2, 2_000, Some(MINUTE_MS));
    fake.advance(MINUTE_MS + 10_000);
    assert_eq!((fake.evicted().len(), nominated(&fake).len(), timeouts(&fake)), (1, 0, 1));
    fake.advance(MINUTE_MS);
    assert_eq!((fake.evicted().len(), nominated(&fake).len()), (2, 1));
    fake.remove("low1-0");
    fake.advance(10_000);
    assert_eq!(fake.node_of("h").as_deref(), Some("n1"));
}

#[test]
fn new_process_waits_for_the_full_time_and_finds_other_victims_when_they_are_long_overdue() {
    let mut fake = preempting(2, 2_000, Some(MINUTE_MS));
    fake.advance(MINUTE_MS / 2);
    fake.restart();
    fake.advance(MINUTE_MS - 1_000);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (1, 0));
    fake.advance(2_000);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (0, 1));
    // The next one does not know of the timeout: a victim that has been overdue for that long is not counted on.
    fake.restart();
    fake.advance(10_000);
    assert_eq!(fake.evicted(), ["low0-0", "low1-0"]);
}

#[test]
fn single_pods_have_no_timeout() {
    let mut fake = FakeCluster::new();
    fake.grace_ms = 2_000;
    fake.node("n0", 1);
    fake.node("n1", 1);
    low(&mut fake, 0, 0);
    running(&mut fake, "low1", "", 1, 1, "n1");
    fake.pod_with("h", "", 1, |pod| pod.priority = 100);
    fake.advance(10 * HOUR_MS);
    assert_eq!((fake.evicted().len(), nominated(&fake).len()), (1, 1));
}

#[test]
fn what_a_group_does_not_count_on_is_not_concluded_for_other_pods() {
    let mut fake = preempting(1, 2_000, Some(MINUTE_MS));
    fake.advance(MINUTE_MS + 10_000);
    assert_eq!((nominated(&fake).len(), timeouts(&fake)), (0, 1));
    fake.pod_with("single", "", 1, |pod| pod.priority = 100);
    fake.advance(1_000);
    assert_eq!(nominated(&fake), [("single".to_owned(), "n0".to_owned())]);
}
