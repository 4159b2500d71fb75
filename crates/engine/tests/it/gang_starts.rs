//! The start of a gang and its end: what is rolled back, and what is never touched.

use std::sync::Arc;

use muster_engine::model::group::{GroupSpec, Policy, RecordedStart, Subset};
use muster_engine::model::pod::Phase;
use muster_engine::{BindOutcome, Command, Observation};

use crate::fake_cluster::{FakeCluster, key};

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;

fn answer(fake: &mut FakeCluster, command: &Command, outcome: BindOutcome) {
    let Command::Bind { pod, node, .. } = command else { panic!("{command:?} is not a bind") };
    fake.observe(Observation::BindDone { pod: pod.clone(), node: node.clone(), outcome });
}

/// Refuses a bind and removes the node, so that it is not used again.
fn refuse_for_good(fake: &mut FakeCluster, command: &Command) {
    let Command::Bind { node, .. } = command else { panic!("{command:?} is not a bind") };
    fake.remove_node(&node.clone());
    answer(fake, command, BindOutcome::Refused { message: "no".into() });
}

fn rolled_back(fake: &FakeCluster) -> Vec<String> {
    let names = fake.issued.iter().filter_map(|act| match act {
        Command::RollBack { pod } => Some(pod.name.clone()),
        _ => None,
    });
    names.collect()
}

fn nodes_of_one(fake: &mut FakeCluster, count: usize) {
    for node in 0..count {
        fake.node(&format!("n{node}"), 1);
    }
}

/// A gang of three that has run for a day.
fn running_gang() -> FakeCluster {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    for number in 0..3 {
        fake.phase(&format!("a-{number}"), Phase::Running);
    }
    fake.advance(DAY_MS);
    fake
}

#[test]
fn rejected_replacement_does_not_affect_other_members() {
    let mut fake = running_gang();
    let node = fake.node_of("a-2").unwrap();
    fake.remove("a-2");
    fake.pod("a-3", "g", 1);
    fake.settle();
    fake.remove_node(&node);
    fake.phase("a-3", Phase::Rejected);
    fake.pod("a-4", "g", 1);
    fake.advance(HOUR_MS);
    assert!(rolled_back(&fake).is_empty(), "the others have run for a day");
}

#[test]
fn old_rejection_does_not_matter_after_a_restart() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    fake.phase("a-2", Phase::Rejected);
    fake.pod("a-3", "g", 1);
    fake.settle();
    for name in ["a-0", "a-1", "a-3"] {
        fake.phase(name, Phase::Running);
    }
    fake.advance(DAY_MS);
    let node = fake.node_of("a-3").unwrap();
    fake.remove_node(&node);
    fake.remove("a-3");
    fake.pod("a-5", "g", 1);
    fake.restart();
    fake.advance(HOUR_MS);
    assert!(rolled_back(&fake).is_empty(), "two of three keep running");
}

#[test]
fn failed_raise_rolls_back_only_its_own_members() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 6);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.pod("late", "g", 1);
    fake.settle();
    fake.advance(DAY_MS);
    fake.gang("g", 5);
    fake.pods_of("b", "g", 2, 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    fake.execute(sent[0].clone());
    fake.in_flight = vec![sent[1].clone()];
    while rolled_back(&fake).is_empty() {
        for command in std::mem::take(&mut fake.in_flight) {
            answer(&mut fake, &command, BindOutcome::Transient { message: "busy".into() });
        }
        fake.now = fake.engine.engine().next_wakeup().expect("there is a deadline");
        fake.decide_all();
    }
    assert_eq!(rolled_back(&fake), ["b-0"]);
}

#[test]
fn late_bind_of_a_failed_raise_is_rolled_back_too() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 5);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.gang("g", 5);
    fake.pods_of("b", "g", 3, 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    fake.execute(sent[0].clone());
    fake.execute(sent[1].clone());
    fake.now += 400_000;
    fake.settle();
    assert_eq!(rolled_back(&fake).len(), 2);
    fake.execute(sent[2].clone());
    fake.advance(HOUR_MS);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (2, 0));
}

#[test]
fn minimum_raised_during_a_start_applies_to_all_of_it() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 5);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.decide_all();
    let first = std::mem::take(&mut fake.in_flight);
    fake.gang("g", 5);
    fake.pods_of("b", "g", 3, 1);
    fake.decide_all();
    let second = std::mem::take(&mut fake.in_flight);
    assert_eq!((first.len(), second.len()), (2, 3));
    for command in first.iter().chain(&second[..2]) {
        fake.execute(command.clone());
    }
    refuse_for_good(&mut fake, &second[2]);
    fake.advance(HOUR_MS);
    assert_eq!(fake.bound_count("b"), 0, "three were decided together, two do not stay");
}

#[test]
fn subsets_may_change_their_order_during_the_start() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 5);
    fake.subsets("g", &[("ps", 1), ("worker", 4)]);
    fake.pod_with("ps", "g", 1, |pod| pod.membership.as_mut().unwrap().subset = "ps".into());
    for number in 0..4 {
        fake.pod_with(&format!("w-{number}"), "g", 1, |pod| {
            pod.membership.as_mut().unwrap().subset = "worker".into();
        });
    }
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    fake.subsets("g", &[("worker", 4), ("ps", 1)]);
    for command in &sent {
        let Command::Bind { pod, .. } = command else { panic!() };
        if matches!(pod.name.as_str(), "ps" | "w-0" | "w-1") {
            fake.execute(command.clone());
        } else {
            refuse_for_good(&mut fake, command);
        }
    }
    fake.advance(HOUR_MS);
    assert_eq!(fake.bound().len(), 0, "minimums of one and two are not one and four");
}

#[test]
fn pods_of_other_schedulers_are_neither_counted_nor_rolled_back() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 3);
    fake.pod_with("foreign", "g", 1, |pod| {
        pod.ours = false;
        pod.node = Some("n0".into());
    });
    fake.pods_of("a", "g", 2, 1);
    fake.advance(HOUR_MS);
    assert_eq!((fake.bound_count("a"), rolled_back(&fake).len()), (0, 0));
}

#[test]
fn basic_group_that_becomes_a_gang_has_started() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.basic("g", None);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.advance(DAY_MS);
    fake.gang("g", 3);
    fake.advance(HOUR_MS);
    assert!(rolled_back(&fake).is_empty());
}

#[test]
fn gang_started_under_another_minimum_needs_the_rest_at_once_after_a_restart() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 3);
    fake.put_group(GroupSpec {
        recorded: RecordedStart::Confirmed { minimum: None, decided_ms: None },
        ..GroupSpec::gang(key("g"), 4)
    });
    fake.pod_with("leader", "g", 1, |pod| pod.node = Some("n0".into()));
    fake.pods_of("worker", "g", 3, 1);
    fake.advance(HOUR_MS);
    assert_eq!((fake.bound_count("leader"), fake.bound_count("worker")), (1, 0), "two would fit, three are needed");
    fake.node("n3", 1);
    fake.advance(HOUR_MS);
    assert_eq!(fake.bound_count("worker"), 3);
}

#[test]
fn minimums_may_be_as_large_as_the_api_allows() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    let subset = |name: &str| Subset { name: name.into(), min_member: i32::MAX as u32 };
    let subsets = vec![subset("a"), subset("b"), subset("c")];
    let policy = Policy::Subsets(subsets.clone());
    fake.put_group(GroupSpec {
        recorded: RecordedStart::Confirmed { minimum: Some(subsets.clone()), decided_ms: None },
        ..GroupSpec::with_policy(key("g"), policy)
    });
    fake.pod_with("p", "g", 1, |pod| {
        pod.node = Some("n0".into());
        pod.membership.as_mut().unwrap().subset = "a".into();
    });
    fake.advance(HOUR_MS);
    assert!(fake.group_diagnosis("g").to_string().contains("1 of the 4294967295 it needs"));
}

#[test]
fn refused_binds_are_not_retried_without_backoff() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 50);
    fake.put_group(GroupSpec { schedule_timeout_ms: Some(DAY_MS), ..GroupSpec::gang(key("g"), 2) });
    fake.pods_of("a", "g", 2, 1);
    let mut rounds = Vec::new();
    while fake.now < HOUR_MS {
        fake.decide_all();
        let sent = std::mem::take(&mut fake.in_flight);
        if !sent.is_empty() {
            rounds.push(fake.now);
        }
        for command in sent {
            answer(&mut fake, &command, BindOutcome::Refused { message: "no".into() });
        }
        fake.decide_all();
        let due = fake.engine.engine().next_wakeup().expect("it will be retried");
        if fake.in_flight.is_empty() {
            fake.now = fake.now.max(due);
        }
    }
    assert!(rounds.iter().filter(|time| **time == 0).count() <= 2, "once, and one repair at once");
    assert!((10..40).contains(&rounds.len()), "{} rounds in an hour", rounds.len());
}

#[test]
fn joining_members_do_not_wait_for_each_others_binds() {
    for gang in [false, true] {
        let mut fake = FakeCluster::new();
        fake.node("n0", 8);
        if gang {
            fake.gang("g", 1);
        } else {
            fake.basic("g", None);
        }
        fake.pod("first", "g", 1);
        fake.settle();
        fake.pod("slow", "g", 1);
        fake.decide_all();
        fake.pod("next", "g", 1);
        fake.decide_all();
        assert_eq!(fake.in_flight.len(), 2);
    }
}

#[test]
fn gated_new_member_does_not_block_a_started_gang() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.pod_with("gated", "g", 1, |pod| pod.gated = true);
    fake.remove("a-0");
    fake.pod("replacement", "g", 1);
    fake.settle();
    assert_eq!(fake.bound(), ["a-1", "replacement"]);
}

#[test]
fn members_found_bound_after_a_restart_are_all_part_of_the_start() {
    for group_first in [true, false] {
        let mut fake = FakeCluster::new();
        nodes_of_one(&mut fake, 3);
        fake.gang("g", 3);
        let stamp = Some(Arc::new(fake.stamp("g", 0)));
        let group = fake.groups[&key("g")].clone();
        if !group_first {
            fake.remove_group("g");
        }
        for number in 0..2 {
            fake.pod_with(&format!("p-{number}"), "g", 1, |pod| {
                (pod.node, pod.start) = (Some(format!("n{number}")), stamp.clone());
            });
        }
        if !group_first {
            fake.put_group(group);
        }
        fake.pod("p-2", "g", 1);
        fake.settle();
        assert_eq!(fake.bound().len(), 3);
        let node = fake.node_of("p-2").unwrap();
        fake.phase("p-2", Phase::Rejected);
        fake.remove_node(&node);
        fake.advance(HOUR_MS);
        assert_eq!(rolled_back(&fake), ["p-0", "p-1"]);
    }
}

#[test]
fn renamed_subset_keeps_its_start_minimum() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    fake.subsets("g", &[("all", 3)]);
    let node = fake.node_of("a-2").unwrap();
    fake.phase("a-2", Phase::Rejected);
    fake.remove_node(&node);
    fake.advance(HOUR_MS);
    assert_eq!(rolled_back(&fake).len(), 2, "a start of three does not become one of none");
}

#[test]
fn start_under_a_lowered_minimum_is_not_held_to_a_higher_one_later() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.node("n1", 4);
    fake.gang("g", 4);
    fake.pods_of("a", "g", 4, 1);
    fake.decide_all();
    fake.gang("g", 3);
    let named = |act: &Command, names: &[&str]| matches!(act, Command::Bind { pod, .. } if names.contains(&&*pod.name));
    let (refused, sent) = std::mem::take(&mut fake.in_flight).into_iter().partition(|act| named(act, &["a-1", "a-2"]));
    let refused: Vec<Command> = refused;
    fake.in_flight = sent;
    for command in refused {
        answer(&mut fake, &command, BindOutcome::Refused { message: "no".into() });
    }
    fake.decide_all();
    assert_eq!(fake.in_flight.len(), 4, "two are placed again, for a minimum of three");
    fake.gang("g", 4);
    fake.in_flight.retain(|act| !named(act, &["a-3"]));
    fake.remove("a-3");
    fake.advance(HOUR_MS);
    assert_eq!(fake.bound(), ["a-0", "a-1", "a-2"]);
}

#[test]
fn reopened_start_keeps_its_minimum_despite_a_lower_one_meanwhile() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.decide_all();
    fake.gang("g", 1);
    let mut binds = std::mem::take(&mut fake.in_flight);
    let bind_of = |binds: &mut Vec<Command>, name: &str| {
        let at = binds.iter().position(|act| matches!(act, Command::Bind { pod, .. } if pod.name == name));
        binds.remove(at.expect("all three are bound"))
    };
    let first = bind_of(&mut binds, "a-0");
    fake.execute(first);
    fake.decide_all();
    assert_eq!(fake.reasons("g").last(), Some(&"Scheduled"));
    let refused_by = fake.node_of("a-0").expect("it is bound");
    fake.phase("a-0", Phase::Rejected);
    fake.remove_node(&refused_by);
    fake.gang("g", 2);
    let third = bind_of(&mut binds, "a-2");
    let Command::Bind { node, .. } = &third else { panic!("{third:?}") };
    fake.remove_node(&node.clone());
    answer(&mut fake, &third, BindOutcome::Refused { message: "no".into() });
    let second = bind_of(&mut binds, "a-1");
    fake.execute(second);
    fake.advance(HOUR_MS);
    assert_eq!(rolled_back(&fake), ["a-1"]);
}

#[test]
fn kubelet_rejection_of_another_schedulers_pod_reopens_nothing() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 4);
    fake.gang("g", 2);
    fake.pods_of("w", "g", 2, 1);
    fake.decide_all();
    // It arrives during the start.
    fake.pod_with("other", "g", 1, |pod| (pod.ours, pod.node) = (false, Some("n3".into())));
    fake.settle();
    assert_eq!(fake.reasons("g").last(), Some(&"Scheduled"));
    fake.remove("w-0");
    fake.phase("other", Phase::Rejected);
    fake.advance(HOUR_MS);
    assert_eq!(rolled_back(&fake), Vec::<String>::new());
}

#[test]
fn kubelet_rejection_of_a_terminating_founder_reopens_nothing() {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 3);
    fake.gang("g", 2);
    fake.pods_of("w", "g", 3, 1);
    fake.settle();
    assert_eq!(fake.bound_count("w-"), 3);
    // A user deletes two of them: the gang is degraded, nothing else.
    let uid = fake.uid("w-2");
    fake.change(&uid, |pod| pod.terminating = true);
    fake.remove("w-1");
    fake.phase("w-2", Phase::Rejected);
    fake.advance(HOUR_MS);
    assert_eq!(rolled_back(&fake), Vec::<String>::new());
}

/// Three bound members of a gang of two, none running yet; a new engine observes them before or after their group.
fn found_bound(pods_first: bool) -> FakeCluster {
    let mut fake = FakeCluster::new();
    nodes_of_one(&mut fake, 3);
    fake.gang("g", 2);
    let stamp = Some(Arc::new(fake.stamp("g", 0)));
    let group = fake.groups[&key("g")].clone();
    if pods_first {
        fake.remove_group("g");
    }
    for number in 0..3 {
        let node = format!("n{number}");
        fake.pod_with(&format!("p-{number}"), "g", 1, |pod| (pod.node, pod.start) = (Some(node), stamp.clone()));
    }
    if pods_first {
        fake.put_group(group);
    }
    fake.settle();
    fake
}

#[test]
fn start_found_complete_is_reopened_by_kubelet_rejections() {
    for pods_first in [false, true] {
        for stays in 0..3 {
            let mut fake = found_bound(pods_first);
            for number in (0..3).filter(|number| *number != stays) {
                fake.phase(&format!("p-{number}"), Phase::Rejected);
                fake.remove_node(&format!("n{number}"));
            }
            fake.advance(HOUR_MS);
            assert_eq!(rolled_back(&fake), [format!("p-{stays}")], "pods first: {pods_first}");
        }
    }
}

#[test]
fn start_found_complete_that_loses_members_is_degraded() {
    for pods_first in [false, true] {
        let mut fake = found_bound(pods_first);
        fake.remove("p-0");
        fake.remove("p-1");
        fake.advance(HOUR_MS);
        assert_eq!((rolled_back(&fake), fake.reasons("g").last()), (vec![], Some(&"Degraded")));
    }
}

/// The pods that are rolled back run until their grace period ends, which may be after the next start has begun.
#[test]
fn start_after_a_roll_back_has_all_of_its_time() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 6);
    fake.put_group(GroupSpec { schedule_timeout_ms: Some(10_000), ..GroupSpec::gang(key("g"), 3) });
    fake.pods_of("a", "g", 3, 1);
    let fail_last = |fake: &mut FakeCluster| {
        for command in std::mem::take(&mut fake.in_flight) {
            match &command {
                Command::Bind { pod, .. } if pod.name == "a-2" => {
                    answer(fake, &command, BindOutcome::Transient { message: "later".into() });
                }
                Command::RollBack { pod } => fake.change(&pod.uid.clone(), |pod| pod.terminating = true),
                _ => fake.execute(command),
            }
        }
    };
    fake.decide_all();
    fail_last(&mut fake);
    fake.now += 500;
    for name in ["a-0", "a-1"] {
        fake.phase(name, Phase::Running);
    }
    while rolled_back(&fake).is_empty() {
        fake.now += 100;
        fake.decide_all();
        fail_last(&mut fake);
    }
    assert_eq!(rolled_back(&fake), ["a-0", "a-1"]);
    fake.pods_of("b", "g", 2, 1);
    let begin = fake.now;
    while fake.now < begin + 9_000 {
        fake.decide_all();
        fail_last(&mut fake);
        fake.now += 100;
    }
    assert_eq!((fake.bound_count("b"), rolled_back(&fake).len()), (2, 2), "{:?}", fake.reasons("g"));
}
