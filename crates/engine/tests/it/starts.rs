//! The start of a gang and its end: what is taken back, and what is never touched.

use muster_engine::model::group::{GroupSpec, History, Policy, Subset};
use muster_engine::model::pod::Phase;
use muster_engine::{BindOutcome, Command, Observation};

use crate::world::{World, key};

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;

fn answer(world: &mut World, command: &Command, outcome: BindOutcome) {
    let Command::Bind { pod, node } = command else { panic!("{command:?} is no bind") };
    world.show(Observation::BindDone { pod: pod.clone(), node: node.clone(), outcome });
}

/// Answers a bind with no, and takes the node away so that nobody goes there again.
fn refuse_for_good(world: &mut World, command: &Command) {
    let Command::Bind { node, .. } = command else { panic!("{command:?} is no bind") };
    world.remove_node(&node.clone());
    answer(world, command, BindOutcome::Refused { message: "no".into() });
}

fn taken_back(world: &World) -> Vec<String> {
    let names = world.acts.iter().filter_map(|act| match act {
        Command::TakeBack { pod } => Some(pod.name.clone()),
        _ => None,
    });
    names.collect()
}

fn nodes_of_one(world: &mut World, count: usize) {
    for node in 0..count {
        world.node(&format!("n{node}"), 1);
    }
}

/// A gang of three that has run for a day.
fn running_gang() -> World {
    let mut world = World::new();
    nodes_of_one(&mut world, 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    for number in 0..3 {
        world.phase(&format!("a-{number}"), Phase::Running);
    }
    world.pass(DAY_MS);
    world
}

#[test]
fn a_replacement_that_a_kubelet_refuses_costs_nobody_else() {
    let mut world = running_gang();
    let node = world.node_of("a-2").unwrap();
    world.remove("a-2");
    world.pod("a-3", "g", 1);
    world.settle();
    world.remove_node(&node);
    world.phase("a-3", Phase::Refused);
    world.pod("a-4", "g", 1);
    world.pass(HOUR_MS);
    assert!(taken_back(&world).is_empty(), "the others have run for a day");
}

#[test]
fn a_pod_that_was_refused_long_ago_means_nothing_after_a_restart() {
    let mut world = World::new();
    nodes_of_one(&mut world, 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    world.phase("a-2", Phase::Refused);
    world.pod("a-3", "g", 1);
    world.settle();
    for name in ["a-0", "a-1", "a-3"] {
        world.phase(name, Phase::Running);
    }
    world.pass(DAY_MS);
    let node = world.node_of("a-3").unwrap();
    world.remove_node(&node);
    world.remove("a-3");
    world.pod("a-5", "g", 1);
    world.restart();
    world.pass(HOUR_MS);
    assert!(taken_back(&world).is_empty(), "two of three run on");
}

#[test]
fn a_raise_that_fails_takes_back_only_what_it_brought() {
    let mut world = World::new();
    nodes_of_one(&mut world, 6);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.pod("late", "g", 1);
    world.settle();
    world.pass(DAY_MS);
    world.gang("g", 5);
    world.pods_of("b", "g", 2, 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    world.carry_out(sent[0].clone());
    world.in_flight = vec![sent[1].clone()];
    while taken_back(&world).is_empty() {
        for command in std::mem::take(&mut world.in_flight) {
            answer(&mut world, &command, BindOutcome::Transient { message: "busy".into() });
        }
        world.now = world.engine.engine().next_wakeup().expect("there is a deadline");
        world.decide_all();
    }
    assert_eq!(taken_back(&world), ["b-0"]);
}

#[test]
fn a_bind_that_succeeds_after_the_raise_was_given_up_is_taken_back_too() {
    let mut world = World::new();
    nodes_of_one(&mut world, 5);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.gang("g", 5);
    world.pods_of("b", "g", 3, 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    world.carry_out(sent[0].clone());
    world.carry_out(sent[1].clone());
    world.now += 400_000;
    world.settle();
    assert_eq!(taken_back(&world).len(), 2);
    world.carry_out(sent[2].clone());
    world.pass(HOUR_MS);
    assert_eq!((world.bound_count("a"), world.bound_count("b")), (2, 0));
}

#[test]
fn a_minimum_raised_during_the_start_holds_for_the_whole_of_it() {
    let mut world = World::new();
    nodes_of_one(&mut world, 5);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.decide_all();
    let first = std::mem::take(&mut world.in_flight);
    world.gang("g", 5);
    world.pods_of("b", "g", 3, 1);
    world.decide_all();
    let second = std::mem::take(&mut world.in_flight);
    assert_eq!((first.len(), second.len()), (2, 3));
    for command in first.iter().chain(&second[..2]) {
        world.carry_out(command.clone());
    }
    refuse_for_good(&mut world, &second[2]);
    world.pass(HOUR_MS);
    assert_eq!(world.bound_count("b"), 0, "three were decided together, two do not stay");
}

#[test]
fn subsets_may_change_their_order_during_the_start() {
    let mut world = World::new();
    nodes_of_one(&mut world, 5);
    world.subsets("g", &[("ps", 1), ("worker", 4)]);
    world.pod_with("ps", "g", 1, |pod| pod.membership.as_mut().unwrap().subset = "ps".into());
    for number in 0..4 {
        world.pod_with(&format!("w-{number}"), "g", 1, |pod| {
            pod.membership.as_mut().unwrap().subset = "worker".into();
        });
    }
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    world.subsets("g", &[("worker", 4), ("ps", 1)]);
    for command in &sent {
        let Command::Bind { pod, .. } = command else { panic!() };
        if matches!(pod.name.as_str(), "ps" | "w-0" | "w-1") {
            world.carry_out(command.clone());
        } else {
            refuse_for_good(&mut world, command);
        }
    }
    world.pass(HOUR_MS);
    assert_eq!(world.bound().len(), 0, "one and two are not one and four");
}

#[test]
fn pods_of_other_schedulers_are_neither_counted_nor_taken_back() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 3);
    world.pod_with("foreign", "g", 1, |pod| {
        pod.ours = false;
        pod.node = Some("n0".into());
    });
    world.pods_of("a", "g", 2, 1);
    world.pass(HOUR_MS);
    assert_eq!((world.bound_count("a"), taken_back(&world).len()), (0, 0));
}

#[test]
fn a_basic_group_that_becomes_a_gang_has_started() {
    let mut world = World::new();
    world.node("n0", 2);
    world.basic("g", None);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.pass(DAY_MS);
    world.gang("g", 3);
    world.pass(HOUR_MS);
    assert!(taken_back(&world).is_empty());
}

#[test]
fn a_gang_that_started_under_another_minimum_needs_the_rest_at_once_after_a_restart() {
    let mut world = World::new();
    nodes_of_one(&mut world, 3);
    world.put_group(GroupSpec { history: History::StartedOtherwise, ..GroupSpec::gang(key("g"), 4) });
    world.pod_with("leader", "g", 1, |pod| pod.node = Some("n0".into()));
    world.pods_of("worker", "g", 3, 1);
    world.pass(HOUR_MS);
    assert_eq!((world.bound_count("leader"), world.bound_count("worker")), (1, 0), "two would fit, three are needed");
    world.node("n3", 1);
    world.pass(HOUR_MS);
    assert_eq!(world.bound_count("worker"), 3);
}

#[test]
fn minimums_may_be_as_large_as_the_api_can_carry() {
    let mut world = World::new();
    world.node("n0", 4);
    let subset = |name: &str| Subset { name: name.into(), min_member: i32::MAX as u32 };
    let policy = Policy::Subsets(vec![subset("a"), subset("b"), subset("c")]);
    world.put_group(GroupSpec { history: History::Started, ..GroupSpec::with_policy(key("g"), policy) });
    world.pod_with("p", "g", 1, |pod| {
        pod.node = Some("n0".into());
        pod.membership.as_mut().unwrap().subset = "a".into();
    });
    world.pass(HOUR_MS);
    assert!(world.why_group("g").to_string().contains("1 of the 4294967295 it needs"));
}

#[test]
fn refused_binds_are_not_repeated_without_a_pause() {
    let mut world = World::new();
    nodes_of_one(&mut world, 50);
    world.put_group(GroupSpec { schedule_timeout_ms: Some(DAY_MS), ..GroupSpec::gang(key("g"), 2) });
    world.pods_of("a", "g", 2, 1);
    let mut rounds = Vec::new();
    while world.now < HOUR_MS {
        world.decide_all();
        let sent = std::mem::take(&mut world.in_flight);
        if !sent.is_empty() {
            rounds.push(world.now);
        }
        for command in sent {
            answer(&mut world, &command, BindOutcome::Refused { message: "no".into() });
        }
        world.decide_all();
        let due = world.engine.engine().next_wakeup().expect("it will be tried again");
        if world.in_flight.is_empty() {
            world.now = world.now.max(due);
        }
    }
    assert!(rounds.iter().filter(|time| **time == 0).count() <= 2, "once, and one repair at once");
    assert!((10..40).contains(&rounds.len()), "{} rounds in an hour", rounds.len());
}

#[test]
fn members_that_join_do_not_wait_for_each_others_binds() {
    for gang in [false, true] {
        let mut world = World::new();
        world.node("n0", 8);
        if gang {
            world.gang("g", 1);
        } else {
            world.basic("g", None);
        }
        world.pod("first", "g", 1);
        world.settle();
        world.pod("slow", "g", 1);
        world.decide_all();
        world.pod("next", "g", 1);
        world.decide_all();
        assert_eq!(world.in_flight.len(), 2);
    }
}

#[test]
fn a_gated_newcomer_does_not_stop_a_gang_that_has_started() {
    let mut world = World::new();
    world.node("n0", 8);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.pod_with("gated", "g", 1, |pod| pod.gated = true);
    world.remove("a-0");
    world.pod("replacement", "g", 1);
    world.settle();
    assert_eq!(world.bound(), ["a-1", "replacement"]);
}

#[test]
fn members_found_bound_after_a_restart_are_all_part_of_the_start() {
    for group_first in [true, false] {
        let mut world = World::new();
        nodes_of_one(&mut world, 3);
        if group_first {
            world.gang("g", 3);
        }
        for number in 0..2 {
            world.pod_with(&format!("p-{number}"), "g", 1, |pod| pod.node = Some(format!("n{number}")));
        }
        if !group_first {
            world.gang("g", 3);
        }
        world.pod("p-2", "g", 1);
        world.settle();
        assert_eq!(world.bound().len(), 3);
        let node = world.node_of("p-2").unwrap();
        world.phase("p-2", Phase::Refused);
        world.remove_node(&node);
        world.pass(HOUR_MS);
        assert_eq!(taken_back(&world), ["p-0", "p-1"]);
    }
}

#[test]
fn a_subset_that_is_renamed_keeps_what_it_was_started_for() {
    let mut world = World::new();
    nodes_of_one(&mut world, 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    world.subsets("g", &[("all", 3)]);
    let node = world.node_of("a-2").unwrap();
    world.phase("a-2", Phase::Refused);
    world.remove_node(&node);
    world.pass(HOUR_MS);
    assert_eq!(taken_back(&world).len(), 2, "a start of three does not become one of none");
}

#[test]
fn what_was_decided_under_a_lowered_minimum_is_not_held_to_a_higher_one_later() {
    let mut world = World::new();
    world.node("n0", 4);
    world.node("n1", 4);
    world.gang("g", 4);
    world.pods_of("a", "g", 4, 1);
    world.decide_all();
    world.gang("g", 3);
    let named = |act: &Command, names: &[&str]| matches!(act, Command::Bind { pod, .. } if names.contains(&&*pod.name));
    let (refused, sent) = std::mem::take(&mut world.in_flight).into_iter().partition(|act| named(act, &["a-1", "a-2"]));
    let refused: Vec<Command> = refused;
    world.in_flight = sent;
    for command in refused {
        answer(&mut world, &command, BindOutcome::Refused { message: "no".into() });
    }
    world.decide_all();
    assert_eq!(world.in_flight.len(), 4, "two are placed again, for a minimum of three");
    world.gang("g", 4);
    world.in_flight.retain(|act| !named(act, &["a-3"]));
    world.remove("a-3");
    world.pass(HOUR_MS);
    assert_eq!(world.bound(), ["a-0", "a-1", "a-2"]);
}

#[test]
fn a_start_that_is_opened_again_is_for_what_it_was_decided_for_and_not_for_a_minimum_that_was_lower_meanwhile() {
    let mut world = World::new();
    nodes_of_one(&mut world, 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.decide_all();
    world.gang("g", 1);
    let mut binds = std::mem::take(&mut world.in_flight);
    let bind_of = |binds: &mut Vec<Command>, name: &str| {
        let at = binds.iter().position(|act| matches!(act, Command::Bind { pod, .. } if pod.name == name));
        binds.remove(at.expect("all three are bound"))
    };
    let first = bind_of(&mut binds, "a-0");
    world.carry_out(first);
    world.decide_all();
    assert_eq!(world.reasons("g").last(), Some(&"Scheduled"));
    let refused_by = world.node_of("a-0").expect("it is bound");
    world.phase("a-0", Phase::Refused);
    world.remove_node(&refused_by);
    world.gang("g", 2);
    let third = bind_of(&mut binds, "a-2");
    let Command::Bind { node, .. } = &third else { panic!("{third:?}") };
    world.remove_node(&node.clone());
    answer(&mut world, &third, BindOutcome::Refused { message: "no".into() });
    let second = bind_of(&mut binds, "a-1");
    world.carry_out(second);
    world.pass(HOUR_MS);
    assert_eq!(taken_back(&world), ["a-1"]);
}

#[test]
fn a_kubelet_that_refuses_a_pod_of_another_scheduler_opens_nothing() {
    let mut world = World::new();
    nodes_of_one(&mut world, 4);
    world.gang("g", 2);
    world.pods_of("w", "g", 2, 1);
    world.decide_all();
    // It comes while the start is under way.
    world.pod_with("other", "g", 1, |pod| (pod.ours, pod.node) = (false, Some("n3".into())));
    world.settle();
    assert_eq!(world.reasons("g").last(), Some(&"Scheduled"));
    world.remove("w-0");
    world.phase("other", Phase::Refused);
    world.pass(HOUR_MS);
    assert_eq!(taken_back(&world), Vec::<String>::new());
}

#[test]
fn a_kubelet_that_refuses_a_founder_that_was_leaving_opens_nothing() {
    let mut world = World::new();
    nodes_of_one(&mut world, 3);
    world.gang("g", 2);
    world.pods_of("w", "g", 3, 1);
    world.settle();
    assert_eq!(world.bound_count("w-"), 3);
    // A user deletes two of them: the gang is degraded, and that is all.
    let uid = world.uid("w-2");
    world.change(&uid, |pod| pod.terminating = true);
    world.remove("w-1");
    world.phase("w-2", Phase::Refused);
    world.pass(HOUR_MS);
    assert_eq!(taken_back(&world), Vec::<String>::new());
}

/// Three members of a gang of two run nowhere yet; an engine that begins now is shown them before or after their group.
fn found_bound(pods_first: bool) -> World {
    let mut world = World::new();
    nodes_of_one(&mut world, 3);
    let gang = GroupSpec::gang(key("g"), 2);
    if !pods_first {
        world.put_group(gang.clone());
    }
    for number in 0..3 {
        let node = format!("n{number}");
        world.pod_with(&format!("p-{number}"), "g", 1, |pod| pod.node = Some(node));
    }
    if pods_first {
        world.put_group(gang);
    }
    world.settle();
    world
}

#[test]
fn a_start_that_is_found_complete_is_opened_again_by_kubelets_that_refuse_it() {
    for pods_first in [false, true] {
        for stays in 0..3 {
            let mut world = found_bound(pods_first);
            for number in (0..3).filter(|number| *number != stays) {
                world.phase(&format!("p-{number}"), Phase::Refused);
                world.remove_node(&format!("n{number}"));
            }
            world.pass(HOUR_MS);
            assert_eq!(taken_back(&world), [format!("p-{stays}")], "pods first: {pods_first}");
        }
    }
}

#[test]
fn a_start_that_is_found_complete_and_loses_members_otherwise_is_degraded() {
    for pods_first in [false, true] {
        let mut world = found_bound(pods_first);
        world.remove("p-0");
        world.remove("p-1");
        world.pass(HOUR_MS);
        assert_eq!((taken_back(&world), world.reasons("g").last()), (vec![], Some(&"Degraded")));
    }
}
