//! Nodes that are kept free, for whom, and until when.

use std::sync::Arc;

use muster_engine::model::group::{GroupPriority, GroupSpec};
use muster_engine::model::pod::PodSpec;
use muster_engine::{BindOutcome, Command, Observation};

use crate::world::{World, cpus, key};

const HOUR_MS: u64 = 3_600_000;

fn nominated(node: &str) -> impl FnOnce(&mut PodSpec) {
    move |pod| {
        pod.ours = false;
        pod.nominated = Some(node.to_owned());
    }
}

#[test]
fn a_pod_takes_the_place_that_is_kept_free_for_it() {
    let mut world = World::new();
    world.node("n0", 8);
    world.node("n1", 4);
    world.pod_with("p", "", 1, |pod| pod.nominated = Some("n1".into()));
    world.settle();
    assert_eq!(world.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn a_nomination_does_not_hide_room_from_its_own_pod() {
    let mut world = World::new();
    world.node("n0", 1);
    world.pod("old", "", 1);
    world.settle();
    world.pod("new", "", 1);
    world.settle();
    let uid = world.uid("new");
    world.change(&uid, |pod| pod.nominated = Some("n0".into()));
    world.pass(60_000);
    world.remove("old");
    world.pass(HOUR_MS);
    assert_eq!(world.node_of("new").as_deref(), Some("n0"));
}

#[test]
fn a_nomination_without_a_plan_is_cleared() {
    // Below its quorum the group may not be tried, so nothing stands behind the nomination.
    let mut world = World::new();
    world.node("n0", 1);
    world.gang("g", 2);
    world.pod_with("a", "g", 1, |pod| pod.nominated = Some("n0".into()));
    world.pod("single", "", 1);
    world.pass(HOUR_MS);
    assert_eq!(world.node_of("single").as_deref(), Some("n0"));
    assert!(world.acts.iter().any(|act| matches!(act, Command::ClearNomination { pod } if pod.name == "a")));
}

#[test]
fn whoever_was_held_back_is_woken_when_a_nomination_counts_for_less() {
    // Its group's priority falls.
    let mut world = World::new();
    world.node("n0", 1);
    let group = |priority| GroupSpec { priority: GroupPriority::Own(priority), ..GroupSpec::gang(key("g"), 2) };
    world.put_group(group(10));
    world.pod_with("other", "g", 1, nominated("n0"));
    world.pod_with("single", "", 1, |pod| pod.priority = 5);
    world.settle();
    assert_eq!(world.node_of("single"), None);
    world.put_group(group(0));
    world.pass(HOUR_MS);
    assert_eq!(world.node_of("single").as_deref(), Some("n0"));

    // The nominated pod becomes smaller.
    let mut world = World::new();
    world.node("n0", 2);
    world.pod_with("other", "", 2, nominated("n0"));
    world.pod("single", "", 1);
    world.settle();
    assert_eq!(world.node_of("single"), None);
    let uid = world.uid("other");
    world.change(&uid, |pod| pod.class = Arc::new(cpus(1)));
    world.pass(HOUR_MS);
    assert_eq!(world.node_of("single").as_deref(), Some("n0"));
}

#[test]
fn a_start_that_is_given_up_leaves_no_nomination_behind() {
    let mut world = World::new();
    world.node("n0", 2);
    let mut spec = GroupSpec::gang(key("g"), 2);
    spec.schedule_timeout_ms = Some(10_000);
    world.put_group(spec);
    let uid = world.pod("a", "g", 1);
    world.pod("b", "g", 1);
    world.decide_all();
    // Somebody nominates it while its bind is on its way.
    world.change(&uid, |pod| pod.nominated = Some("n0".into()));
    assert_eq!(world.in_flight.len(), 2);
    while world.now < 10_000 {
        for command in std::mem::take(&mut world.in_flight) {
            let Command::Bind { pod, node } = command else { panic!("{command:?}") };
            let outcome = BindOutcome::Transient { message: "busy".into() };
            world.show(Observation::BindDone { pod, node, outcome });
        }
        world.now = world.engine.engine().next_wakeup().expect("a bind is to be sent again");
        world.decide();
    }
    assert_eq!(world.pods[&uid].nominated, None, "the bind that would have cleared it never came");
}

#[test]
fn a_nomination_is_news_after_one_was_cleared_while_the_bind_was_on_its_way() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    // Below the quorum nothing stands behind it; with the quorum both are bound in the same decision.
    let uid = world.pod_with("a", "g", 1, |pod| pod.nominated = Some("n0".into()));
    world.pod("b", "g", 1);
    world.decide_all();
    world.node("n0", 0);
    for command in std::mem::take(&mut world.in_flight) {
        let Command::Bind { pod, node } = command else { panic!("{command:?}") };
        world.show(Observation::BindDone { pod, node, outcome: BindOutcome::Refused { message: "no".into() } });
    }
    world.change(&uid, |pod| pod.nominated = Some("n0".into()));
    world.pass(HOUR_MS);
    assert_eq!(world.pods[&uid].nominated, None);
}
