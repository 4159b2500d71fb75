//! Small pods that take every bit of room must not starve a gang for ever, nor be held back for nothing.

use muster_engine::Config;
use muster_engine::model::Millis;

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
