//! Compares the brute force with a full enumeration of all assignments, without memory.

use muster_oracle::brute::Lot;
use muster_oracle::random::Random;

use crate::engine_run::Gang;
use crate::instance;
use muster_oracle::seeds::for_each_seed;

const CASES: u64 = 4000;

#[test]
fn brute_force_agrees_with_full_enumeration() {
    let (mut yes, mut no) = (0, 0);
    for_each_seed(CASES, |seed| {
        let gang = small_gang(&mut Random::new(seed));
        let answer = gang.placeable();
        assert_eq!(answer, placeable_by_enumeration(&gang), "{gang:#?}");
        *(if answer { &mut yes } else { &mut no }) += 1;
    });
    println!("enumeration: {yes} placeable, {no} not");
}

fn small_gang(random: &mut Random) -> Gang {
    let count = 1 + random.below(3);
    let nodes = (0..count).map(|number| instance::node(random, number)).collect();
    let occupied = if random.chance(50) { instance::occupied(random, count) } else { Vec::new() };
    let subsets = 1 + random.below(2);
    let mut lots = Vec::new();
    let mut pods_left = 4;
    while pods_left > 0 && (lots.is_empty() || random.chance(70)) {
        let size = 1 + random.below(pods_left);
        pods_left -= size;
        let class = instance::class(random, count, 15);
        lots.push(Lot { class, subset: random.below(subsets), count: size as u32 });
    }
    let needs = (0..subsets).map(|_| random.below(3) as u32).collect();
    Gang { nodes, occupied, lots, needs, ..Gang::default() }
}

fn placeable_by_enumeration(gang: &Gang) -> bool {
    let pods: Vec<usize> = (0..gang.lots.len()).flat_map(|lot| (0..gang.lots[lot].count).map(move |_| lot)).collect();
    // One choice more than nodes: a pod may stay unplaced.
    let choices = gang.nodes.len() + 1;
    (0..choices.pow(pods.len() as u32)).any(|number| {
        let mut rest = number;
        let mut naive = gang.naive();
        let mut placed = vec![0; gang.needs.len()];
        for lot in &pods {
            let (choice, Lot { class, subset, .. }) = (rest % choices, &gang.lots[*lot]);
            rest /= choices;
            if choice == gang.nodes.len() {
                continue;
            }
            if !naive.feasible(choice, class) {
                return false;
            }
            naive.occupy(choice, class);
            placed[*subset] += 1;
        }
        placed.iter().zip(&gang.needs).all(|(placed, need)| placed >= need)
    })
}
