//! The cost that a group declares decides which units of its namespace and priority are evicted, before their size.

use std::sync::Arc;

use muster_engine::model::group::{DisruptionMode, GroupKey, GroupPriority, GroupSpec};
use muster_engine::model::pod::{Membership, Phase, PodName};

use crate::fake_cluster::{FakeCluster, key};
use crate::preemption::{high, new_fake};

/// A group of two-CPU pods, one on each of these nodes, that is evicted whole.
fn group(fake: &mut FakeCluster, namespace: &str, name: &str, cost: i32, priority: i32, nodes: &[&str]) {
    let group = GroupKey { namespace: namespace.into(), ..key(name) };
    fake.put_group(GroupSpec {
        priority: GroupPriority::Own(priority),
        disruption_mode: DisruptionMode::Group,
        preemption_cost: cost,
        ..GroupSpec::gang(group.clone(), nodes.len() as u32)
    });
    for (number, node) in nodes.iter().enumerate() {
        let started = fake.now;
        fake.pod_with(&format!("{name}-{number}"), "", 2, |pod| {
            pod.id = Arc::new(PodName { namespace: namespace.into(), ..(*pod.id).clone() });
            pod.membership = Some(Membership::of(group.clone()));
            pod.priority = priority;
            pod.node = Some((*node).to_owned());
            pod.phase = Phase::Running;
            pod.started_ms = Some(started);
        });
    }
}

/// A pod or a gang of one member that needs two CPUs.
fn preemptor(fake: &mut FakeCluster, alone: bool) {
    if alone {
        fake.pod_with("h", "", 2, |pod| pod.priority = 100);
    } else {
        high(fake, 1, 2);
    }
    fake.decide_all();
}

fn nodes(fake: &mut FakeCluster, count: usize) {
    for number in 0..count {
        fake.node(&format!("n{number}"), 2);
    }
}

#[test]
fn larger_group_that_declares_less_is_evicted() {
    for alone in [false, true] {
        let mut fake = new_fake();
        nodes(&mut fake, 4);
        group(&mut fake, "ns", "small", 10, 0, &["n0"]);
        group(&mut fake, "ns", "large", 9, 0, &["n1", "n2", "n3"]);
        preemptor(&mut fake, alone);
        assert_eq!(fake.evicted(), ["large-0", "large-1", "large-2"], "alone: {alone}");
    }
}

#[test]
fn priority_counts_before_what_is_declared() {
    for alone in [false, true] {
        let mut fake = new_fake();
        nodes(&mut fake, 4);
        group(&mut fake, "ns", "low", 1_000, 0, &["n0"]);
        group(&mut fake, "ns", "middle", -1_000, 1, &["n1", "n2", "n3"]);
        preemptor(&mut fake, alone);
        assert_eq!(fake.evicted(), ["low-0"], "alone: {alone}");
    }
}

#[test]
fn declared_cost_shifts_no_eviction_to_another_namespace() {
    for alone in [false, true] {
        let mut fake = new_fake();
        nodes(&mut fake, 4);
        group(&mut fake, "ns", "dear", i32::MAX, 0, &["n0"]);
        group(&mut fake, "other", "plain", 0, 0, &["n1", "n2", "n3"]);
        preemptor(&mut fake, alone);
        assert_eq!(fake.evicted(), ["dear-0"], "alone: {alone}");
    }
}

#[test]
fn several_groups_that_declare_less_in_total_are_exchanged_for_one() {
    for (each, evicted) in [(4, vec!["a-0", "b-0"]), (5, vec!["dear-0", "dear-1"])] {
        let mut fake = new_fake();
        nodes(&mut fake, 4);
        group(&mut fake, "ns", "dear", 10, 0, &["n0", "n1"]);
        group(&mut fake, "ns", "a", each, 0, &["n2"]);
        group(&mut fake, "ns", "b", each, 0, &["n3"]);
        high(&mut fake, 2, 2);
        fake.decide_all();
        assert_eq!(fake.evicted(), evicted, "{each} each");
    }
}

#[test]
fn group_on_the_same_node_that_declares_more_stays() {
    for alone in [false, true] {
        let mut fake = new_fake();
        fake.node("n0", 4);
        fake.node("n1", 2);
        group(&mut fake, "ns", "dear", 10, 0, &["n0"]);
        group(&mut fake, "ns", "cheap", 0, 0, &["n0", "n1"]);
        preemptor(&mut fake, alone);
        assert_eq!(fake.evicted(), ["cheap-0", "cheap-1"], "alone: {alone}");
    }
}
