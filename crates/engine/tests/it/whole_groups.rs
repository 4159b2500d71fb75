//! Groups that are evicted whole: no member is left behind, none is evicted if one may not be, and none joins
//! meanwhile.

use std::sync::Arc;

use muster_engine::model::group::DisruptionMode;
use muster_engine::model::pod::PodName;
use muster_engine::{BindOutcome, Command, DeleteOutcome, Observation};

use crate::fake_cluster::FakeCluster;
use crate::preemption::{gang, high, new_fake, nominated, running};

fn transient() -> DeleteOutcome {
    DeleteOutcome::Transient { message: "busy".into() }
}

/// A gang of two with disruption mode `Group` is evicted for a pod that needs the room of one.
fn one_unit_evicted() -> (FakeCluster, Vec<Arc<PodName>>) {
    let mut fake = new_fake();
    fake.node("n0", 2);
    fake.node("n1", 2);
    gang(&mut fake, "whole", 2, 0, DisruptionMode::Group);
    running(&mut fake, "w0", "whole", 1, 2, "n0");
    running(&mut fake, "w1", "whole", 1, 2, "n1");
    fake.decide_all();
    high(&mut fake, 1, 2);
    fake.decide_all();
    let [Command::Evict { pods, .. }] = &std::mem::take(&mut fake.in_flight)[..] else { panic!("one unit is evicted") };
    let pods = pods.clone();
    (fake, pods)
}

#[test]
fn pods_that_relied_on_a_group_that_stays_lose_their_nominations() {
    let mut fake = new_fake();
    fake.node("n0", 2);
    fake.node("n1", 2);
    gang(&mut fake, "whole", 2, 0, DisruptionMode::Group);
    running(&mut fake, "w0", "whole", 1, 2, "n0");
    running(&mut fake, "w1", "whole", 1, 2, "n1");
    // Each fits only one node, so that room for one does not activate the other.
    for (name, node) in [("a", "n0"), ("b", "n1")] {
        fake.pod_with(name, "", 2, |pod| {
            pod.priority = 100;
            Arc::make_mut(&mut pod.class).node_name = Some(node.to_owned());
        });
    }
    fake.decide_all();
    assert_eq!(nominated(&fake).len(), 2, "the second waits for the victims of the first");
    for command in std::mem::take(&mut fake.in_flight) {
        let Command::Evict { pods, .. } = command else { panic!("{command:?}") };
        for pod in pods {
            fake.observe(Observation::EvictDone { pod, outcome: DeleteOutcome::Refused { message: "no".into() } });
        }
    }
    fake.advance(3_000);
    assert_eq!(nominated(&fake), [], "neither the preemptor nor the pod behind it");
    fake.advance(17_000);
    assert_eq!((fake.evicted().len(), nominated(&fake)), (2, vec![]), "and no eviction is retried so soon");
}

#[test]
fn rest_of_a_group_is_evicted_although_one_pod_was_gone_before_the_result() {
    let (mut fake, pods) = one_unit_evicted();
    fake.remove("w0-0");
    for pod in pods {
        let outcome = if pod.name == "w0-0" { DeleteOutcome::Deleted } else { transient() };
        fake.observe(Observation::EvictDone { pod: pod.clone(), outcome });
    }
    fake.advance(20_000);
    assert_eq!(fake.evicted(), ["w0-0", "w1-0", "w1-0"], "the eviction of the second is retried");
}

#[test]
fn rest_of_a_group_is_evicted_although_its_room_is_not_needed_any_more() {
    let (mut fake, pods) = one_unit_evicted();
    let is_going = |pod: &str| if pod == "w0-0" { DeleteOutcome::Deleted } else { transient() };
    for pod in pods {
        fake.observe(Observation::EvictDone { pod: pod.clone(), outcome: is_going(&pod.name) });
    }
    fake.remove("w0-0");
    fake.advance(20_000);
    assert_eq!(fake.evicted(), ["w0-0", "w1-0", "w1-0"], "the eviction of the second is retried");
    assert_eq!(fake.bound(), ["h-0"]);
}

#[test]
fn no_pod_of_a_whole_group_is_evicted_if_one_may_not_be() {
    let mut fake = new_fake();
    fake.node("n0", 2);
    fake.node("n1", 2);
    gang(&mut fake, "whole", 2, 10, DisruptionMode::Group);
    running(&mut fake, "a", "whole", 1, 2, "n0");
    running(&mut fake, "b", "whole", 1, 2, "n1");
    high(&mut fake, 1, 2);
    fake.decide_all();
    let [Command::Evict { pods, .. }] = &fake.in_flight[..] else { panic!("{:?}", fake.in_flight) };
    let pods = pods.clone();
    fake.in_flight.clear();
    // The protected pod is not on the node that the preemptor needs.
    let place = nominated(&fake)[0].1.clone();
    for pod in pods {
        let outcome = if fake.node_of(&pod.name).as_deref() == Some(&*place) {
            transient()
        } else {
            DeleteOutcome::Refused { message: "forbidden".into() }
        };
        fake.observe(Observation::EvictDone { pod, outcome });
    }
    fake.advance(30_000);
    assert_eq!(fake.bound(), ["a-0", "b-0"]);
    assert_eq!((fake.evicted().len(), nominated(&fake)), (2, vec![]), "once, and not partly");
}

#[test]
fn whole_group_is_preemptible_once_no_bind_is_in_flight() {
    for refused in [true, false] {
        let mut fake = new_fake();
        fake.node("n0", 2);
        fake.node("n1", 1);
        gang(&mut fake, "whole", 1, 0, DisruptionMode::Group);
        running(&mut fake, "w", "whole", 1, 2, "n0");
        fake.pods_of("late", "whole", 1, 1);
        fake.decide_all();
        let [bind @ Command::Bind { pod, node, .. }] = &std::mem::take(&mut fake.in_flight)[..] else {
            panic!("one binds")
        };
        high(&mut fake, 1, 2);
        fake.advance(1_000);
        assert_eq!(fake.evicted(), Vec::<String>::new(), "the bind cannot be cancelled");
        if refused {
            fake.remove_node("n1");
            let outcome = BindOutcome::Refused { message: "no".into() };
            fake.observe(Observation::BindDone { pod: pod.clone(), node: node.clone(), outcome });
        } else {
            fake.execute(bind.clone());
        }
        fake.advance(20_000);
        assert_eq!(fake.node_of("h-0").as_deref(), Some("n0"), "refused: {refused}");
    }
}

#[test]
fn no_member_joins_a_gang_that_is_evicted_whole() {
    for answered in [false, true] {
        let mut fake = new_fake();
        fake.grace_ms = 30_000;
        fake.node("n0", 2);
        gang(&mut fake, "whole", 2, 0, DisruptionMode::Group);
        running(&mut fake, "w", "whole", 2, 1, "n0");
        fake.pods_of("later", "whole", 1, 1);
        fake.decide_all();
        high(&mut fake, 1, 2);
        fake.decide_all();
        let evictions = std::mem::take(&mut fake.in_flight);
        assert_eq!(evictions.len(), 1);
        if answered {
            for eviction in evictions {
                fake.execute(eviction);
            }
        }
        // There is room for one more now, but the others are being evicted.
        fake.node("n1", 1);
        fake.advance(10_000);
        assert_eq!(fake.node_of("later-0"), None, "answered: {answered}");
    }
}

#[test]
fn failed_evictions_are_reported_and_no_member_counts_as_lost() {
    let (mut fake, pods) = one_unit_evicted();
    for _ in 0..20 {
        for pod in &pods {
            fake.observe(Observation::EvictDone { pod: pod.clone(), outcome: transient() });
        }
        fake.now += 3_000;
        fake.decide_all();
        fake.in_flight.clear();
    }
    assert_eq!(fake.reasons("whole"), ["Scheduled"], "all members are where they were");
    let text = fake.group_diagnosis("high").to_string();
    assert!(text.contains("Evictions fail and are retried, for example that of ns/w0-0: busy."), "{text}");
}

#[test]
fn preemptor_is_bound_as_soon_as_the_last_victim_is_gone() {
    let mut fake = new_fake();
    fake.node("n0", 4);
    for number in 0..4 {
        running(&mut fake, &format!("low{number}"), "", 1, 1, "n0");
    }
    fake.grace_ms = 30_000;
    gang(&mut fake, "high", 2, 100, DisruptionMode::Pod);
    fake.pods_of("h", "high", 2, 2);
    fake.settle();
    assert_eq!(fake.evicted().len(), 4);
    for number in 0..4 {
        fake.remove(&format!("low{number}-0"));
        fake.settle();
        assert_eq!(fake.bound_count("h-"), if number == 3 { 2 } else { 0 }, "neither earlier nor later");
    }
}

#[test]
fn refusal_holds_although_a_user_deleted_one_pod_of_the_unit() {
    let (mut fake, pods) = one_unit_evicted();
    fake.remove("w0-0");
    for pod in pods {
        let outcome = DeleteOutcome::Refused { message: "forbidden".into() };
        fake.observe(Observation::EvictDone { pod, outcome });
    }
    fake.advance(30_000);
    assert_eq!(fake.evicted(), ["w0-0", "w1-0"], "no eviction is retried");
    assert_eq!(fake.node_of("w1-0").as_deref(), Some("n1"));
}
