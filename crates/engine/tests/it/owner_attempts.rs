//! Owners that start all of their pods again: the pods of a new attempt are a new start, in whatever order the old ones
//! leave.

use muster_engine::model::group::{GroupSpec, RecordedStart};
use muster_engine::model::pod::{OwnerAttempt, Phase};
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;

use crate::fake_cluster::{FakeCluster, key};

/// Creates a member of an attempt that takes a whole node.
fn member(fake: &mut FakeCluster, name: &str, owner: &str, number: u32) -> String {
    fake.pod_with(name, "g", 1, |pod| {
        let membership = pod.membership.as_mut().expect("it names a group");
        membership.attempt = Some(OwnerAttempt { owner: owner.to_owned(), number });
    })
}

/// A gang of four runs on four of five nodes.
fn running_gang() -> FakeCluster {
    let mut fake = FakeCluster::new();
    for number in 0..5 {
        fake.node(&format!("n{number}"), 1);
    }
    fake.gang("g", 4);
    for number in 0..4 {
        member(&mut fake, &format!("a-{number}"), "set", 0);
    }
    fake.settle();
    assert_eq!(fake.bound_count("a"), 4);
    for number in 0..4 {
        fake.phase(&format!("a-{number}"), Phase::Running);
    }
    fake
}

#[test]
fn pods_of_a_new_attempt_do_not_join_the_old_start() {
    let mut fake = running_gang();
    // One of the old pods is gone, one new pod is there, and a node is free.
    fake.remove("a-0");
    member(&mut fake, "b-0", "set", 1);
    fake.settle();
    assert_eq!(fake.bound_count("b"), 0);
    for number in 1..4 {
        member(&mut fake, &format!("b-{number}"), "set", 1);
    }
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b"), 0, "two nodes are free, and four are needed");
    assert_eq!(fake.bound_count("a"), 3, "what is left of the old attempt is not touched");
    for number in 1..4 {
        fake.remove(&format!("a-{number}"));
    }
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b"), 4);
}

/// Creates single pods that are placed before the gang.
fn block_nodes(fake: &mut FakeCluster, count: usize) {
    for number in 0..count {
        fake.pod_with(&format!("x-{number}"), "", 1, |pod| {
            pod.priority = 10;
            pod.never_preempts = true;
        });
    }
}

#[test]
fn a_new_attempt_that_does_not_fit_stays_out_as_a_whole() {
    let mut fake = running_gang();
    block_nodes(&mut fake, 2);
    for number in 0..4 {
        fake.remove(&format!("a-{number}"));
        member(&mut fake, &format!("b-{number}"), "set", 1);
        fake.settle();
    }
    fake.advance(600_000);
    assert_eq!((fake.bound_count("x"), fake.bound_count("b")), (2, 0), "three nodes for four pods");
    fake.remove("x-0");
    fake.advance(600_000);
    assert_eq!(fake.bound_count("b"), 4);
}

#[test]
fn a_late_pod_of_an_earlier_attempt_is_left_out() {
    let mut fake = running_gang();
    for number in 0..4 {
        fake.remove(&format!("a-{number}"));
        member(&mut fake, &format!("b-{number}"), "set", 1);
    }
    fake.settle();
    assert_eq!(fake.bound_count("b"), 4);
    member(&mut fake, "late", "set", 0);
    fake.advance(60_000);
    assert_eq!(fake.node_of("late"), None);
    assert!(fake.pod_diagnosis("late").to_string().contains("earlier start"), "{}", fake.pod_diagnosis("late"));
}

#[test]
fn attempts_of_different_owners_are_not_compared() {
    let mut fake = FakeCluster::new();
    for number in 0..2 {
        fake.node(&format!("n{number}"), 1);
    }
    fake.gang("g", 2);
    member(&mut fake, "a", "first", 7);
    member(&mut fake, "b", "second", 0);
    fake.settle();
    assert_eq!(fake.bound().len(), 2);
    // An owner of the same name that is created again counts from zero.
    fake.remove("a");
    fake.remove("b");
    member(&mut fake, "c", "third", 0);
    member(&mut fake, "d", "third", 0);
    fake.settle();
    assert_eq!((fake.node_of("c").is_some(), fake.node_of("d").is_some()), (true, true));
}

#[test]
fn a_new_attempt_in_any_order_ends_with_all_pods_or_none() {
    for_each_seed(200, |seed| {
        let mut random = Random::new(seed);
        let mut fake = running_gang();
        let blocked = random.below(3);
        block_nodes(&mut fake, blocked);
        let mut steps: Vec<(bool, usize)> = (0..4).flat_map(|number| [(true, number), (false, number)]).collect();
        random.shuffle(&mut steps);
        for (leaves, number) in steps {
            if leaves {
                fake.remove(&format!("a-{number}"));
            } else {
                member(&mut fake, &format!("b-{number}"), "set", 1);
            }
            match random.below(3) {
                0 => fake.settle(),
                1 => fake.advance(30_000),
                _ => {}
            }
            if random.chance(10) {
                fake.restart();
            }
        }
        fake.advance(600_000);
        // The single pods may be in backoff when the nodes come free.
        let bound = fake.bound_count("b");
        assert!(bound == 4 || (bound == 0 && blocked == 2), "{bound} of 4 with {blocked} blocked nodes");
    });
}

#[test]
fn a_restart_in_the_middle_of_a_new_attempt_does_not_bring_the_old_start_back() {
    let mut fake = running_gang();
    let recorded = fake.engine.engine().group_status(&key("g")).start.recorded(&RecordedStart::None);
    fake.groups.get_mut(&key("g")).expect("the group").recorded = recorded;
    fake.advance(60_000);
    for number in 0..3 {
        fake.remove(&format!("a-{number}"));
    }
    for number in 0..4 {
        member(&mut fake, &format!("b-{number}"), "set", 1);
    }
    fake.decide_all();
    // One bind was executed when the process ended, and then two nodes are lost.
    let first = fake.in_flight.remove(0);
    fake.execute(first);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (1, 1));
    let used: Vec<Option<String>> = fake.pods.values().map(|pod| pod.node.clone()).collect();
    let free = fake.nodes.keys().filter(|node| !used.contains(&Some((*node).clone())));
    for node in free.take(2).cloned().collect::<Vec<_>>() {
        fake.remove_node(&node);
    }
    fake.restart();
    fake.settle();
    assert_eq!(fake.bound_count("b"), 1, "one node is free, and three are needed");
}

#[test]
fn pods_of_another_owner_do_not_join_and_its_own_group_is_a_new_start() {
    let mut fake = FakeCluster::new();
    for number in 0..5 {
        fake.node(&format!("n{number}"), 1);
    }
    let object = |owner: &str| GroupSpec {
        owner: Some(owner.to_owned()),
        uid: format!("group-of-{owner}"),
        ..GroupSpec::gang(key("g"), 4)
    };
    fake.put_group(object("first"));
    for number in 0..4 {
        member(&mut fake, &format!("a-{number}"), "first", 0);
    }
    fake.settle();
    assert_eq!(fake.bound_count("a"), 4);
    // The next owner of the name is faster than the deletion of what the former one made.
    for number in 0..4 {
        member(&mut fake, &format!("b-{number}"), "second", 0);
    }
    fake.remove("a-0");
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b"), 0, "the group is that of the former owner, which has started");
    fake.put_group(object("second"));
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (3, 0), "two nodes are free, and four are needed");
    for number in 1..4 {
        fake.remove(&format!("a-{number}"));
    }
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b"), 4);
}

#[test]
fn a_pod_with_a_wrong_number_keeps_its_group_waiting_only_while_it_is_there() {
    let mut fake = running_gang();
    member(&mut fake, "wrong", "set", 7);
    fake.remove("a-0");
    member(&mut fake, "a-4", "set", 0);
    fake.advance(60_000);
    assert_eq!(fake.node_of("a-4"), None, "it is of an earlier attempt");
    fake.remove("wrong");
    fake.advance(60_000);
    assert!(fake.node_of("a-4").is_some(), "{:?}", fake.group_diagnosis("g"));
    assert_eq!(fake.bound_count("a"), 4);
}

#[test]
fn pods_of_an_attempt_before_the_last_one_do_not_count_again_when_others_of_it_go() {
    let mut fake = running_gang();
    for number in 0..2 {
        member(&mut fake, &format!("b-{number}"), "set", 1);
    }
    fake.remove("b-0");
    fake.advance(60_000);
    member(&mut fake, "late", "set", 0);
    fake.advance(60_000);
    assert_eq!((fake.node_of("late"), fake.node_of("b-1")), (None, None));
}
