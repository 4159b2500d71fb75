//! Groups that are evicted whole: nobody of them is left behind, nobody goes if one may not, and nobody joins meanwhile.

use std::sync::Arc;

use muster_engine::model::group::DisruptionMode;
use muster_engine::model::pod::PodName;
use muster_engine::{BindOutcome, Command, Observation, TakeBackOutcome};

use crate::preemption::{gang, high, nominated, running, world};
use crate::world::World;

fn busy() -> TakeBackOutcome {
    TakeBackOutcome::Transient { message: "busy".into() }
}

/// A gang of two that goes whole is evicted for a pod that needs the room of one.
fn one_unit_goes() -> (World, Vec<Arc<PodName>>) {
    let mut world = world();
    world.node("n0", 2);
    world.node("n1", 2);
    gang(&mut world, "whole", 2, 0, DisruptionMode::Group);
    running(&mut world, "w0", "whole", 1, 2, "n0");
    running(&mut world, "w1", "whole", 1, 2, "n1");
    world.decide_all();
    high(&mut world, 1, 2);
    world.decide_all();
    let [Command::Evict { pods, .. }] = &std::mem::take(&mut world.in_flight)[..] else { panic!("one unit goes") };
    let pods = pods.clone();
    (world, pods)
}

#[test]
fn who_counted_on_a_group_that_stays_keeps_no_place() {
    let mut world = world();
    world.node("n0", 2);
    world.node("n1", 2);
    gang(&mut world, "whole", 2, 0, DisruptionMode::Group);
    running(&mut world, "w0", "whole", 1, 2, "n0");
    running(&mut world, "w1", "whole", 1, 2, "n1");
    // Each may go to one node only, so that room for the one does not wake the other.
    for (name, node) in [("a", "n0"), ("b", "n1")] {
        world.pod_with(name, "", 2, |pod| {
            pod.priority = 100;
            Arc::make_mut(&mut pod.class).node_name = Some(node.to_owned());
        });
    }
    world.decide_all();
    assert_eq!(nominated(&world).len(), 2, "the second waits for those who leave for the first");
    for command in std::mem::take(&mut world.in_flight) {
        let Command::Evict { pods, .. } = command else { panic!("{command:?}") };
        for pod in pods {
            world.show(Observation::EvictDone { pod, outcome: TakeBackOutcome::Refused { message: "no".into() } });
        }
    }
    world.pass(3_000);
    assert_eq!(nominated(&world), [], "neither whom they were evicted for nor who came after");
    world.pass(17_000);
    assert_eq!((world.evicted().len(), nominated(&world)), (2, vec![]), "and nobody is asked again so soon");
}

#[test]
fn the_rest_of_a_group_goes_although_one_was_gone_before_the_answer_came() {
    let (mut world, pods) = one_unit_goes();
    world.remove("w0-0");
    for pod in pods {
        let outcome = if pod.name == "w0-0" { TakeBackOutcome::Deleted } else { busy() };
        world.show(Observation::EvictDone { pod: pod.clone(), outcome });
    }
    world.pass(20_000);
    assert_eq!(world.evicted(), ["w0-0", "w1-0", "w1-0"], "the second is asked for again");
}

#[test]
fn the_rest_of_a_group_goes_although_the_others_are_gone_and_nobody_needs_it() {
    let (mut world, pods) = one_unit_goes();
    let is_going = |pod: &str| if pod == "w0-0" { TakeBackOutcome::Deleted } else { busy() };
    for pod in pods {
        world.show(Observation::EvictDone { pod: pod.clone(), outcome: is_going(&pod.name) });
    }
    world.remove("w0-0");
    world.pass(20_000);
    assert_eq!(world.evicted(), ["w0-0", "w1-0", "w1-0"], "the second is asked for again");
    assert_eq!(world.bound(), ["h-0"]);
}

#[test]
fn of_a_group_that_goes_whole_nobody_goes_if_one_may_not() {
    let mut world = world();
    world.node("n0", 2);
    world.node("n1", 2);
    gang(&mut world, "whole", 2, 10, DisruptionMode::Group);
    running(&mut world, "a", "whole", 1, 2, "n0");
    running(&mut world, "b", "whole", 1, 2, "n1");
    high(&mut world, 1, 2);
    world.decide_all();
    let [Command::Evict { pods, .. }] = &world.in_flight[..] else { panic!("{:?}", world.in_flight) };
    let pods = pods.clone();
    world.in_flight.clear();
    // The one that may not go is not in the way of whoever wants the room of the other.
    let place = nominated(&world)[0].1.clone();
    for pod in pods {
        let outcome = if world.node_of(&pod.name).as_deref() == Some(&*place) {
            busy()
        } else {
            TakeBackOutcome::Refused { message: "forbidden".into() }
        };
        world.show(Observation::EvictDone { pod, outcome });
    }
    world.pass(30_000);
    assert_eq!(world.bound(), ["a-0", "b-0"]);
    assert_eq!((world.evicted().len(), nominated(&world)), (2, vec![]), "once, and not in part");
}

#[test]
fn a_group_that_goes_whole_can_be_taken_once_no_bind_of_it_is_on_its_way() {
    for refused in [true, false] {
        let mut world = world();
        world.node("n0", 2);
        world.node("n1", 1);
        gang(&mut world, "whole", 1, 0, DisruptionMode::Group);
        running(&mut world, "w", "whole", 1, 2, "n0");
        world.pods_of("late", "whole", 1, 1);
        world.decide_all();
        let [bind @ Command::Bind { pod, node }] = &std::mem::take(&mut world.in_flight)[..] else {
            panic!("one binds")
        };
        high(&mut world, 1, 2);
        world.pass(1_000);
        assert_eq!(world.evicted(), Vec::<String>::new(), "the bind cannot be called back");
        if refused {
            world.remove_node("n1");
            let outcome = BindOutcome::Refused { message: "no".into() };
            world.show(Observation::BindDone { pod: pod.clone(), node: node.clone(), outcome });
        } else {
            world.carry_out(bind.clone());
        }
        world.pass(20_000);
        assert_eq!(world.node_of("h-0").as_deref(), Some("n0"), "refused: {refused}");
    }
}

#[test]
fn nobody_joins_a_gang_that_is_sent_away_whole() {
    for answered in [false, true] {
        let mut world = world();
        world.grace_ms = 30_000;
        world.node("n0", 2);
        gang(&mut world, "whole", 2, 0, DisruptionMode::Group);
        running(&mut world, "w", "whole", 2, 1, "n0");
        world.pods_of("later", "whole", 1, 1);
        world.decide_all();
        high(&mut world, 1, 2);
        world.decide_all();
        let evictions = std::mem::take(&mut world.in_flight);
        assert_eq!(evictions.len(), 1);
        if answered {
            for eviction in evictions {
                world.carry_out(eviction);
            }
        }
        // There is room for one more now, but the others are on their way out.
        world.node("n1", 1);
        world.pass(10_000);
        assert_eq!(world.node_of("later-0"), None, "answered: {answered}");
    }
}

#[test]
fn evictions_that_do_not_succeed_are_told_and_nobody_is_called_lost() {
    let (mut world, pods) = one_unit_goes();
    for _ in 0..20 {
        for pod in &pods {
            world.show(Observation::EvictDone { pod: pod.clone(), outcome: busy() });
        }
        world.now += 3_000;
        world.decide_all();
        world.in_flight.clear();
    }
    assert_eq!(world.reasons("whole"), ["Scheduled"], "all of it is where it was");
    let told = world.why_group("high").to_string();
    assert!(told.contains("Evictions fail and are tried again, as that of ns/w0-0: busy."), "{told}");
}

#[test]
fn whoever_waits_is_bound_in_the_moment_when_the_last_has_left() {
    let mut world = world();
    world.node("n0", 4);
    for number in 0..4 {
        running(&mut world, &format!("low{number}"), "", 1, 1, "n0");
    }
    world.grace_ms = 30_000;
    gang(&mut world, "high", 2, 100, DisruptionMode::Pod);
    world.pods_of("h", "high", 2, 2);
    world.settle();
    assert_eq!(world.evicted().len(), 4);
    for number in 0..4 {
        world.remove(&format!("low{number}-0"));
        world.settle();
        assert_eq!(world.bound_count("h-"), if number == 3 { 2 } else { 0 }, "not before, and not a moment later");
    }
}

#[test]
fn a_refusal_stands_although_a_user_deleted_one_of_the_unit_meanwhile() {
    let (mut world, pods) = one_unit_goes();
    world.remove("w0-0");
    for pod in pods {
        let outcome = TakeBackOutcome::Refused { message: "forbidden".into() };
        world.show(Observation::EvictDone { pod, outcome });
    }
    world.pass(30_000);
    assert_eq!(world.evicted(), ["w0-0", "w1-0"], "nobody is asked again");
    assert_eq!(world.node_of("w1-0").as_deref(), Some("n1"));
}
