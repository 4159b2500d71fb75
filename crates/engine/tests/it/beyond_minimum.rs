//! Preemption for members beyond the minimum of their gang: only below everything that the minimum needed, or never.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::diagnosis::{Diagnosis, Preemption};
use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::group::{DisruptionMode, GroupPriority, GroupSpec, Policy, Subset};
use muster_engine::model::labels::{LabelOperator, Requirement};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Membership, Phase};
use muster_engine::{Config, Observation, PreemptionRules};

use crate::fake_cluster::{FakeCluster, key};
use crate::preemption::{gang, new_fake};

/// A node for one pod, with a running pod of this priority.
fn occupied(fake: &mut FakeCluster, priorities: &[i32]) {
    for (number, priority) in priorities.iter().enumerate() {
        let node = format!("n{number}");
        fake.node(&node, 2);
        let started = fake.now;
        fake.pod_with(&format!("v{number}"), "", 2, |pod| {
            pod.priority = *priority;
            pod.node = Some(node);
            pod.phase = Phase::Running;
            pod.started_ms = Some(started);
        });
    }
}

/// The bound members of the gang.
fn placed(fake: &FakeCluster) -> Vec<String> {
    fake.bound().into_iter().filter(|name| name.starts_with("h-")).collect()
}

fn change_node(fake: &mut FakeCluster, name: &str, change: impl FnOnce(&mut NodeSpec)) {
    let mut spec = fake.nodes[name].clone();
    change(&mut spec);
    fake.put_node(spec);
}

fn members(fake: &mut FakeCluster, minimum: u32, count: usize) {
    gang(fake, "high", minimum, 100, DisruptionMode::Pod);
    fake.pods_of("h", "high", count, 2);
}

fn without_surplus() -> Config {
    Config { preemption: PreemptionRules { beyond_minimum: false, ..PreemptionRules::default() }, ..Config::default() }
}

#[test]
fn surplus_members_preempt_only_below_the_victims_of_the_minimum() {
    let mut fake = new_fake();
    occupied(&mut fake, &[10, 10, 10]);
    members(&mut fake, 1, 3);
    fake.advance(600_000);
    assert_eq!(fake.evicted().len(), 1, "the others are as important as the victim of the minimum");
    assert_eq!(placed(&fake), ["h-0"], "also after the start");
}

#[test]
fn surplus_members_preempt_units_below_the_victims_of_the_minimum() {
    let mut fake = new_fake();
    // The first subset needs a node that has the most important pod.
    occupied(&mut fake, &[5, 5, 10, 5]);
    change_node(&mut fake, "n2", |node| _ = node.labels.insert("zone".into(), "a".into()));
    let subset = |name: &str| Subset { name: name.into(), min_member: 1 };
    fake.put_group(GroupSpec {
        priority: GroupPriority::Own(100),
        ..GroupSpec::with_policy(key("high"), Policy::Subsets(vec![subset("first"), subset("rest")]))
    });
    fake.node("free", 2);
    for (name, subset) in [("h-0", "first"), ("h-1", "rest"), ("h-2", "rest"), ("h-3", "rest")] {
        fake.pod_with(name, "high", 2, |pod| {
            pod.membership = Some(Membership { group: key("high"), subset: subset.into(), attempt: None });
            if subset == "first" {
                let mut class = (*pod.class).clone();
                class.node_selector.insert("zone".into(), "a".into());
                pod.class = Arc::new(class);
            }
        });
    }
    fake.decide_all();
    let evicted = fake.evicted();
    assert!(evicted.len() == 3 && evicted.contains(&"v2".to_owned()), "{evicted:?}");
    fake.advance(60_000);
    assert_eq!(placed(&fake), ["h-0", "h-1", "h-2", "h-3"]);
}

#[test]
fn surplus_members_use_the_room_that_the_victims_of_the_minimum_leave() {
    let mut fake = new_fake();
    fake.node("n0", 4);
    fake.pod_with("v", "", 4, |pod| {
        pod.node = Some("n0".into());
        pod.phase = Phase::Running;
    });
    members(&mut fake, 1, 3);
    fake.advance(60_000);
    assert_eq!((fake.evicted(), placed(&fake)), (vec!["v".to_owned()], vec!["h-0".to_owned(), "h-1".to_owned()]));
}

#[test]
fn no_budget_is_violated_for_surplus_members() {
    let mut fake = new_fake();
    occupied(&mut fake, &[5, 10]);
    change_node(&mut fake, "n0", |node| node.unschedulable = true);
    fake.observe(Observation::BudgetSeen(BudgetSpec {
        namespace: "ns".into(),
        name: "b".into(),
        selector: Some(vec![Requirement { key: "app".into(), operator: LabelOperator::DoesNotExist }]),
        allowed: 0,
        disrupted: BTreeSet::new(),
    }));
    members(&mut fake, 1, 2);
    fake.decide_all();
    assert_eq!(fake.evicted(), ["v1"], "the minimum may violate it if there is no other way");
    change_node(&mut fake, "n0", |node| node.unschedulable = false);
    fake.advance(600_000);
    assert_eq!(fake.evicted(), ["v1"]);
}

#[test]
fn with_the_setting_only_the_minimum_preempts() {
    let mut fake = FakeCluster::with(without_surplus());
    occupied(&mut fake, &[10, 5, 5]);
    change_node(&mut fake, "n1", |node| node.unschedulable = true);
    change_node(&mut fake, "n2", |node| node.unschedulable = true);
    members(&mut fake, 1, 3);
    fake.advance(60_000);
    assert_eq!((fake.evicted(), placed(&fake)), (vec!["v0".to_owned()], vec!["h-0".to_owned()]));
    change_node(&mut fake, "n1", |node| node.unschedulable = false);
    change_node(&mut fake, "n2", |node| node.unschedulable = false);
    fake.advance(600_000);
    assert_eq!(fake.evicted(), ["v0"]);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("high") else { panic!("unschedulable") };
    assert_eq!(shortfall.preemption, Preemption::BeyondMinimum);
    // The pods of a basic group have no minimum to be beyond of.
    let mut fake = FakeCluster::with(without_surplus());
    occupied(&mut fake, &[10]);
    fake.put_group(GroupSpec {
        priority: GroupPriority::Own(100),
        ..GroupSpec::with_policy(key("basic"), Policy::Basic { desired_count: None })
    });
    fake.pods_of("b", "basic", 1, 2);
    fake.decide_all();
    assert_eq!(fake.evicted(), ["v0"]);
}

#[test]
fn without_the_setting_a_started_gang_preempts_for_surplus_members() {
    let mut fake = new_fake();
    fake.node("free", 2);
    members(&mut fake, 1, 1);
    fake.advance(60_000);
    occupied(&mut fake, &[10]);
    fake.pods_of("late", "high", 1, 2);
    fake.decide_all();
    assert_eq!(fake.evicted(), ["v0"], "the minimum needed no victim");
}
