//! Small pods that take every bit of room must not starve a gang for ever, nor be held back for nothing.

use muster_engine::model::Millis;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::{Config, PreemptionRules};

use crate::world::World;

const MINUTE: Millis = 60_000;

/// Four nodes full of small pods; each runs for two minutes and is followed by another, with more waiting in line.
/// A gang that needs two whole nodes comes in between. Says when it started, within so many minutes.
fn gang_among_small_pods(config: Config, minutes: u64) -> (Option<u64>, usize) {
    let mut world = World::with(config);
    for node in 0..4 {
        world.node(&format!("n{node}"), 4);
    }
    let mut names = 0;
    let mut finished = 0;
    world.gang("g", 8);
    world.pods_of("early", "", 16, 1);
    world.settle();
    world.pods_of("g", "g", 8, 1);
    for minute in 0..minutes {
        // An eighth of the small pods end at a time, and as many others come: never all at once.
        for slice in 0..4 {
            world.pass(MINUTE / 4);
            let bound: Vec<String> = world.bound().into_iter().filter(|name| !name.starts_with('g')).collect();
            for name in bound.into_iter().skip(slice % 2).step_by(8) {
                world.remove(&name);
                finished += 1;
            }
            while world.pods.values().filter(|pod| pod.membership.is_none()).count() < 24 {
                names += 1;
                world.pod(&format!("small-{names}"), "", 1);
            }
            world.settle();
            if world.bound_count("g") == 8 {
                return (Some(minute), finished);
            }
        }
    }
    (None, finished)
}

#[test]
fn a_gang_gets_its_turn_although_small_pods_never_stop_coming() {
    let never = Config { starving_after_ms: u64::MAX, ..Config::default() };
    let (start, _) = gang_among_small_pods(never, 120);
    assert_eq!(start, None, "without claims it starves: else this test shows nothing");
    let (start, finished) = gang_among_small_pods(Config::default(), 120);
    let start = start.expect("with claims it starts");
    assert!((10..60).contains(&start), "it started in minute {start}");
    assert!(finished > 20, "and the small ones went on meanwhile: {finished}");
}

#[test]
fn whoever_may_not_use_a_claimed_node_is_told_so_and_the_more_important_may() {
    let config = Config { starving_after_ms: MINUTE, ..Config::default() };
    let mut world = World::with(config);
    world.node("n0", 2);
    world.pods_of("old", "", 2, 1);
    world.settle();
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 1);
    world.pass(2 * MINUTE);
    world.remove("old-0");
    world.pod("small", "", 1);
    world.pass(MINUTE);
    assert!(world.node_of("small").is_none());
    let text = world.why_pod("small").to_string();
    assert!(
        text.starts_with("0/1 nodes are available: 1 node(s) were claimed for a group that has waited too long."),
        "{text}"
    );
    world.pod_with("important", "", 1, |pod| pod.priority = 1);
    world.settle();
    assert!(world.node_of("important").is_some(), "a claim does not stop a higher priority");
    world.remove("important");
    world.remove("old-1");
    world.pass(MINUTE);
    assert_eq!(world.bound_count("g"), 2);
}

#[test]
fn nodes_that_do_not_drain_are_given_back() {
    let config = Config { starving_after_ms: MINUTE, claim_ms_max: 10 * MINUTE, ..Config::default() };
    let mut world = World::with(config);
    world.node("n0", 2);
    world.pods_of("old", "", 2, 1);
    world.settle();
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 1);
    world.pass(2 * MINUTE);
    world.remove("old-0");
    world.pod("small", "", 1);
    world.pass(MINUTE);
    assert!(world.node_of("small").is_none(), "the node is claimed");
    world.pass(10 * MINUTE);
    assert!(world.node_of("small").is_some(), "the other pod never left: the claim ended");
}

#[test]
fn a_gang_that_goes_away_takes_its_claim_along() {
    let config = Config { starving_after_ms: MINUTE, ..Config::default() };
    for how in 0..3 {
        let mut world = World::with(config.clone());
        world.node("n0", 2);
        world.pods_of("old", "", 2, 1);
        world.settle();
        world.gang("g", 2);
        world.pods_of("g", "g", 2, 1);
        world.pass(2 * MINUTE);
        world.remove("old-0");
        world.pod("small", "", 1);
        world.pass(MINUTE);
        assert!(world.node_of("small").is_none(), "the node is claimed");
        match how {
            0 => world.remove("g-0"),
            1 => world.remove_group("g"),
            _ => {
                world.remove("g-0");
                world.remove("g-1");
                world.remove_group("g");
            }
        }
        world.pass(MINUTE);
        assert!(world.node_of("small").is_some(), "way {how}");
    }
}

/// The names of the nodes that are claimed, ordered.
fn claimed(world: &World) -> Vec<String> {
    let nodes = world.engine.engine().cluster().nodes();
    let mut names: Vec<String> =
        nodes.filter(|(_, node)| node.claimed_at.is_some()).map(|(_, node)| node.name.to_string()).collect();
    names.sort_unstable();
    names
}

fn bound_to(world: &mut World, name: &str, node: &str, cpu: i64, ours: bool) {
    world.pod_with(name, "", cpu, |pod| {
        pod.ours = ours;
        pod.node = Some(node.into());
    });
}

/// One node that is full of old pods, and a gang that wants all of it and has claimed it.
fn starving_gang(claim_ms_max: Millis) -> World {
    // Nobody is evicted, so that waiting is all there is.
    let preemption = PreemptionRules { on: false, ..PreemptionRules::default() };
    let mut world = World::with(Config { starving_after_ms: MINUTE, claim_ms_max, preemption, ..Config::default() });
    world.node("n0", 2);
    bound_to(&mut world, "old-0", "n0", 1, true);
    bound_to(&mut world, "old-1", "n0", 1, true);
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 1);
    world.pass(MINUTE);
    assert_eq!(claimed(&world), ["n0"]);
    world
}

#[test]
fn the_node_that_needs_the_least_to_empty_is_claimed() {
    let mut world = World::with(Config { starving_after_ms: MINUTE, ..Config::default() });
    world.node("n0", 3);
    world.node("n1", 3);
    bound_to(&mut world, "three", "n0", 3, true);
    bound_to(&mut world, "one", "n1", 1, true);
    world.gang("g", 3);
    world.pods_of("g", "g", 3, 1);
    world.pass(MINUTE);
    assert_eq!(claimed(&world), ["n1"]);
}

#[test]
fn a_node_that_is_full_of_pods_of_others_is_not_claimed() {
    let mut world = World::with(Config { starving_after_ms: MINUTE, ..Config::default() });
    world.node("n0", 2);
    world.node("n1", 2);
    bound_to(&mut world, "daemon", "n0", 2, false);
    bound_to(&mut world, "old", "n1", 2, true);
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 1);
    world.pass(MINUTE);
    assert_eq!(claimed(&world), ["n1"], "daemons stay, so the first node would never drain");
}

#[test]
fn a_gang_that_could_never_fit_claims_nothing() {
    let mut world = World::with(Config { starving_after_ms: MINUTE, ..Config::default() });
    world.node("n0", 2);
    bound_to(&mut world, "old", "n0", 1, true);
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 2);
    world.pass(10 * MINUTE);
    assert_eq!(claimed(&world).len(), 0);
}

#[test]
fn a_more_important_gang_takes_the_claim_over() {
    let mut world = starving_gang(60 * MINUTE);
    world.gang("h", 2);
    for name in ["h-0", "h-1"] {
        world.pod_with(name, "h", 1, |pod| pod.priority = 5);
    }
    world.pass(2 * MINUTE);
    let priority = |world: &World| world.engine.engine().cluster().nodes().find_map(|(_, node)| node.claimed_at);
    assert_eq!(priority(&world), Some(5));
    world.remove("old-0");
    world.remove("old-1");
    world.pass(MINUTE);
    assert_eq!((world.bound_count("h"), world.bound_count("g")), (2, 0));
    assert_eq!(priority(&world), Some(0), "the claim ended with the start, and the next starving gang claims");
}

#[test]
fn claims_in_vain_are_repeated_ever_less_often() {
    let mut world = starving_gang(10 * MINUTE);
    world.remove("old-0");
    let mut seen = Vec::new();
    for _ in 0..9 {
        world.pass(5 * MINUTE);
        seen.push(!claimed(&world).is_empty());
        world.pass(5 * MINUTE);
    }
    // Ten minutes each; pauses of ten, twenty and forty minutes between them.
    assert_eq!(seen, [true, false, true, false, false, true, false, false, false]);
}

#[test]
fn the_end_of_an_earlier_claim_does_not_end_a_later_one() {
    let mut world = starving_gang(10 * MINUTE);
    world.gang("h", 2);
    world.pods_of("h", "h", 2, 1);
    world.pass(2 * MINUTE);
    world.remove("old-0");
    world.remove("g-0");
    world.remove("g-1");
    world.pass(MINUTE);
    assert_eq!(claimed(&world), ["n0"], "now for the other gang");
    // The first claim would have ended by now.
    world.pass(8 * MINUTE);
    assert_eq!(claimed(&world), ["n0"]);
}

fn is_claimed(world: &World) -> bool {
    world.engine.engine().cluster().nodes().any(|(_, node)| node.claimed_at.is_some())
}

#[test]
fn a_claim_that_was_in_vain_is_repeated() {
    let mut world = World::new();
    for node in 0..2 {
        world.node(&format!("n{node}"), 4);
    }
    world.pods_of("s", "", 8, 1);
    world.settle();
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 4);
    let (mut claims, mut had) = (0, false);
    for _ in 0..48 * 12 {
        world.pass(5 * MINUTE);
        let has = is_claimed(&world);
        claims += usize::from(has && !had);
        had = has;
    }
    assert!((2..10).contains(&claims), "{claims} claims in two days");
}

#[test]
fn the_next_starving_gang_claims_when_the_first_is_gone() {
    let mut world = World::new();
    world.node("n0", 4);
    world.pods_of("s", "", 4, 1);
    world.settle();
    for name in ["g", "h"] {
        world.gang(name, 1);
        world.pods_of(name, name, 1, 4);
    }
    world.pass(15 * MINUTE);
    assert!(is_claimed(&world));
    world.remove("g-0");
    world.remove_group("g");
    world.pass(MINUTE);
    assert!(is_claimed(&world), "the other one has starved as long");
}

#[test]
fn waiting_for_members_is_not_starving() {
    let mut world = World::new();
    world.node("n0", 4);
    world.pods_of("s", "", 4, 1);
    world.settle();
    world.gang("g", 2);
    world.pod("g-0", "g", 2);
    world.pass(15 * MINUTE);
    world.pod("g-1", "g", 2);
    world.pass(1_000);
    assert!(!is_claimed(&world), "it has asked for room for one second");
}

#[test]
fn a_hopeless_gang_does_not_shut_out_the_others() {
    let config = Config { starving_after_ms: MINUTE, claim_ms_max: 10 * MINUTE, ..Config::default() };
    let mut world = World::with(config);
    let kind = |name: &str| [("kind".to_owned(), name.to_owned())].into();
    for name in ["stuck", "drains"] {
        let allocatable = [("cpu".to_owned(), 2000), ("pods".to_owned(), 110)].into();
        world.put_node(NodeSpec { name: name.into(), labels: kind(name), allocatable, ..NodeSpec::default() });
    }
    world.pods_of("old", "", 4, 1);
    world.settle();
    // The first in the queue can only go where nobody ever leaves.
    for (name, node) in [("hopeless", "stuck"), ("other", "drains")] {
        world.now += 1;
        world.gang(name, 1);
        world.pod_with(name, name, 2, |pod| {
            pod.class = std::sync::Arc::new(ClassSpec { node_selector: kind(node), ..(*pod.class).clone() });
        });
    }
    world.pass(2 * MINUTE);
    let claims = |world: &World, node: &str| {
        let cluster = world.engine.engine().cluster();
        cluster.node_id(node).is_some_and(|id| cluster.node(id).claimed_at.is_some())
    };
    assert!(claims(&world, "stuck"));
    let mut other_had_its_turn = false;
    for _ in 0..60 {
        world.pass(MINUTE);
        other_had_its_turn |= claims(&world, "drains");
    }
    assert!(other_had_its_turn, "after a claim in vain the next one is somebody else's");
}

#[test]
fn a_mixed_gang_claims_a_node_that_would_hold_all_of_it_and_a_resize_keeps_its_wait() {
    let mut world = World::with(Config { starving_after_ms: 10 * MINUTE, ..Config::default() });
    world.node("n0", 2);
    world.pods_of("old", "", 2, 1);
    world.settle();
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 1);
    let uid = world.uid("g-0");
    for number in 0..3 {
        world.change(&uid, |pod| {
            let scoring_cpu_milli = number;
            pod.class = std::sync::Arc::new(ClassSpec { scoring_cpu_milli, ..(*pod.class).clone() });
        });
        world.pass(5 * MINUTE);
    }
    assert!(is_claimed(&world));
}

#[test]
fn a_gang_that_claimed_in_vain_does_not_wait_for_those_that_never_could() {
    let mut world = World::with(Config { starving_after_ms: MINUTE, claim_ms_max: 10 * MINUTE, ..Config::default() });
    world.node("n0", 2);
    world.pods_of("old", "", 2, 1);
    world.settle();
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 1);
    world.gang("never", 1);
    world.pod("never", "never", 9);
    world.basic("basic", None);
    world.pod("basic", "basic", 1);
    let (mut claims, mut had) = (0, false);
    for _ in 0..24 * 12 {
        world.pass(5 * MINUTE);
        let has = is_claimed(&world);
        claims += usize::from(has && !had);
        had = has;
    }
    assert!(claims > 1, "{claims} claims in a day");
}

#[test]
fn a_gang_with_nothing_to_drain_does_not_break_anothers_claim() {
    let mut world = World::with(Config { starving_after_ms: MINUTE, claim_ms_max: 600 * MINUTE, ..Config::default() });
    world.node("n0", 2);
    world.pods_of("old", "", 2, 1);
    world.settle();
    world.gang("g", 2);
    world.pods_of("g", "g", 2, 1);
    world.pass(5 * MINUTE);
    assert!(is_claimed(&world));
    // More important, but only daemons stand in its way, and they do not leave.
    let place = [("kind".to_owned(), "other".to_owned())];
    let allocatable = [("cpu".to_owned(), 2000), ("pods".to_owned(), 110)].into();
    let labels = place.clone().into();
    world.put_node(NodeSpec { name: "n1".into(), labels, allocatable, ..NodeSpec::default() });
    bound_to(&mut world, "daemon", "n1", 1, false);
    world.gang("h", 1);
    world.pod_with("h", "h", 2, |pod| {
        pod.priority = 5;
        pod.class = std::sync::Arc::new(ClassSpec { node_selector: place.into(), ..(*pod.class).clone() });
    });
    for _ in 0..10 {
        world.pass(MINUTE);
        assert_eq!(claimed(&world), ["n0"]);
    }
}
