//! Nominations: which pods a node is held for, and until when.

use std::sync::Arc;

use muster_engine::model::group::{GroupPriority, GroupSpec};
use muster_engine::model::pod::PodSpec;
use muster_engine::{BindOutcome, Command, Observation};

use crate::fake_cluster::{FakeCluster, cpus, key};

const HOUR_MS: u64 = 3_600_000;

fn nominated(node: &str) -> impl FnOnce(&mut PodSpec) {
    move |pod| {
        pod.ours = false;
        pod.nominated = Some(node.to_owned());
    }
}

#[test]
fn pod_is_bound_to_its_nominated_node() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    fake.node("n1", 4);
    fake.pod_with("p", "", 1, |pod| pod.nominated = Some("n1".into()));
    fake.settle();
    assert_eq!(fake.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn nomination_does_not_hide_room_from_its_own_pod() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pod("old", "", 1);
    fake.settle();
    fake.pod("new", "", 1);
    fake.settle();
    let uid = fake.uid("new");
    fake.change(&uid, |pod| pod.nominated = Some("n0".into()));
    fake.advance(60_000);
    fake.remove("old");
    fake.advance(HOUR_MS);
    assert_eq!(fake.node_of("new").as_deref(), Some("n0"));
}

#[test]
fn nomination_without_a_plan_is_cleared() {
    // Below its quorum the group is not scheduled, so there is no plan behind the nomination.
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.gang("g", 2);
    fake.pod_with("a", "g", 1, |pod| pod.nominated = Some("n0".into()));
    fake.pod("single", "", 1);
    fake.advance(HOUR_MS);
    assert_eq!(fake.node_of("single").as_deref(), Some("n0"));
    assert!(fake.issued.iter().any(|act| matches!(act, Command::ClearNomination { pod } if pod.name == "a")));
}

#[test]
fn weaker_nomination_activates_blocked_pods() {
    // Its group's priority falls.
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    let group = |priority| GroupSpec { priority: GroupPriority::Own(priority), ..GroupSpec::gang(key("g"), 2) };
    fake.put_group(group(10));
    fake.pod_with("other", "g", 1, nominated("n0"));
    fake.pod_with("single", "", 1, |pod| pod.priority = 5);
    fake.settle();
    assert_eq!(fake.node_of("single"), None);
    fake.put_group(group(0));
    fake.advance(HOUR_MS);
    assert_eq!(fake.node_of("single").as_deref(), Some("n0"));

    // The nominated pod becomes smaller.
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.pod_with("other", "", 2, nominated("n0"));
    fake.pod("single", "", 1);
    fake.settle();
    assert_eq!(fake.node_of("single"), None);
    let uid = fake.uid("other");
    fake.change(&uid, |pod| pod.class = Arc::new(cpus(1)));
    fake.advance(HOUR_MS);
    assert_eq!(fake.node_of("single").as_deref(), Some("n0"));
}

#[test]
fn abandoned_start_leaves_no_nomination_behind() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    let mut spec = GroupSpec::gang(key("g"), 2);
    spec.schedule_timeout_ms = Some(10_000);
    fake.put_group(spec);
    let uid = fake.pod("a", "g", 1);
    fake.pod("b", "g", 1);
    fake.decide_all();
    // It is nominated while its bind is in flight.
    fake.change(&uid, |pod| pod.nominated = Some("n0".into()));
    assert_eq!(fake.in_flight.len(), 2);
    while fake.now < 10_000 {
        for command in std::mem::take(&mut fake.in_flight) {
            let Command::Bind { pod, node, .. } = command else { panic!("{command:?}") };
            let outcome = BindOutcome::Transient { message: "busy".into() };
            fake.observe(Observation::BindDone { pod, node, outcome });
        }
        fake.now = fake.engine.engine().next_wakeup().expect("a bind is to be retried");
        fake.decide();
    }
    assert_eq!(fake.pods[&uid].nominated, None, "the bind that would have cleared it never came");
}

#[test]
fn nomination_is_seen_again_after_one_was_cleared_during_a_bind() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    // Below the quorum there is no plan behind it; with the quorum both are bound in the same decision.
    let uid = fake.pod_with("a", "g", 1, |pod| pod.nominated = Some("n0".into()));
    fake.pod("b", "g", 1);
    fake.decide_all();
    fake.node("n0", 0);
    for command in std::mem::take(&mut fake.in_flight) {
        let Command::Bind { pod, node, .. } = command else { panic!("{command:?}") };
        fake.observe(Observation::BindDone { pod, node, outcome: BindOutcome::Refused { message: "no".into() } });
    }
    fake.change(&uid, |pod| pod.nominated = Some("n0".into()));
    fake.advance(HOUR_MS);
    assert_eq!(fake.pods[&uid].nominated, None);
}
