//! Gangs of identical pods: the engine's verdict must always be exact.

use muster_engine::diagnosis::{Proof, Shortfall};
use muster_engine::model::class::ClassSpec;
use muster_oracle::brute::Lot;
use muster_oracle::naive::Naive;
use muster_oracle::random::Random;

use crate::engine_run::{Gang, Outcome, recount};
use crate::instance;
use muster_oracle::seeds::{for_each_seed, one_seed_only};

const CASES: u64 = 8000;

#[test]
fn verdict_is_exact_and_surplus_members_are_placed_too() {
    let (mut placed, mut refused, mut never) = (0, 0, 0);
    for_each_seed(CASES, |seed| {
        let gang = identical_gang(&mut Random::new(seed));
        let class = &gang.lots[0].class;
        let (mut full, room) = filled(gang.naive(), gang.nodes.len(), class);
        let most = room.min(gang.pods());
        let possible = gang.placeable();
        match gang.run() {
            Outcome::Placed(bound) => {
                assert!(possible, "placed what cannot be placed: {gang:#?}");
                gang.check_placed(&bound);
                assert_eq!(bound.len() as u32, most, "not as many as fit: {gang:#?}");
                placed += 1;
            }
            Outcome::Refused(shortfall) => {
                assert!(!possible, "refused what can be placed: {gang:#?}");
                check_refused(&gang, &shortfall, most, &mut full);
                refused += 1;
                never += u32::from(shortfall.proof == Proof::NeverFits);
            }
        }
    });
    println!("identical pods: {placed} placed, {refused} refused, {never} of them permanently");
    let seen = placed.min(refused).min(never);
    assert!(one_seed_only() || seen > 500, "every outcome must occur often");
}

/// A negative verdict must be a proof, say whether it is permanent, and count right.
fn check_refused(gang: &Gang, shortfall: &Shortfall, most: u32, full: &mut Naive) {
    let ever = gang.placeable_when_empty();
    let proof = if ever { Proof::Impossible } else { Proof::NeverFits };
    assert_eq!(shortfall.proof, proof, "{gang:#?}");
    let held = gang.held.len() as u32;
    let reported = (shortfall.minimum, shortfall.held, shortfall.waiting, shortfall.would_fit);
    assert_eq!(reported, (gang.needs.iter().sum::<u32>() + held, held, gang.pods(), most), "{gang:#?}");
    for kind in &shortfall.kinds {
        assert_eq!(kind.fit, recount(full, gang.nodes.len(), &gang.lots[0].class), "{gang:#?}");
    }
    let left: u32 = shortfall.kinds.iter().map(|kind| kind.pods).sum();
    assert_eq!(left, gang.pods() - most, "{gang:#?}");
}

fn identical_gang(random: &mut Random) -> Gang {
    let count = 1 + random.below(5);
    let nodes = (0..count).map(|number| instance::node(random, number)).collect();
    let occupied = if random.chance(80) { instance::occupied(random, count) } else { Vec::new() };
    let class = instance::class(random, count, 5);
    let subsets = if random.chance(30) { 2 } else { 1 };
    let (mut lots, mut needs) = (Vec::new(), Vec::new());
    for subset in 0..subsets {
        let pods = 1 + random.below(9 / subsets) as u32;
        lots.push(Lot { class: class.clone(), subset, count: pods });
        needs.push(random.between(1, i64::from(pods)) as u32);
    }
    let members_there = if random.chance(25) { 1 + random.below(2) } else { 0 };
    let held = (0..members_there).map(|_| (random.below(count), random.below(subsets))).collect();
    Gang { nodes, occupied, held, lots, needs }
}

/// The cluster with as many pods of the class as fit, and their number: what fits on one node does not depend on the
/// others.
fn filled(mut naive: Naive, nodes: usize, class: &ClassSpec) -> (Naive, u32) {
    let mut room = 0;
    for node in 0..nodes {
        // No gang here has as many pods; a class without requests would go on up to the limit of pods.
        while room < 1000 && naive.feasible(node, class) {
            naive.occupy(node, class);
            room += 1;
        }
    }
    (naive, room)
}
