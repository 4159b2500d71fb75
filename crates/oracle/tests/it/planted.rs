//! Planted groups: how many are placed at the first try, and within ten virtual minutes; and that no proof is wrong.

use muster_engine::diagnosis::Proof;
use muster_oracle::by_counts;
use muster_oracle::planted::{Cut, Planted, Size, planted};
use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};

use crate::engine_run::{Gang, Outcome};

const CUTS: [Cut; 3] = [Cut::None, Cut::Two, Cut::All];
const TEN_MINUTES_MS: u64 = 600_000;

const SMALL: Size = Size { kinds: (3, 8), nodes: (6, 14), pods: 60 };
const MEDIUM: Size = Size { kinds: (3, 12), nodes: (6, 40), pods: 100 };
const LARGE: Size = Size { kinds: (3, 12), nodes: (100, 200), pods: 1000 };

impl From<Planted> for Gang {
    fn from(Planted { nodes, occupied, lots, needs }: Planted) -> Self {
        Self { nodes, occupied, lots, needs, ..Self::default() }
    }
}

/// How many groups were placed at once, and how many in time.
fn shares(size: Size, cut: Cut, seeds: u64) -> (u32, u32, u32) {
    let (mut first, mut in_time, mut all) = (0, 0, 0);
    for_each_seed(seeds, |seed| {
        let random = &mut Random::new(seed);
        let mut gang = Gang::from(planted(random, size, cut));
        if random.chance(20) {
            gang.split_a_lot(random);
        }
        all += 1;
        match gang.run_until(TEN_MINUTES_MS) {
            Some((at, bound)) => {
                gang.check_placed(&bound);
                first += u32::from(at == 0);
                in_time += 1;
            }
            None => println!("{size:?}, {cut:?}: seed {seed} was not placed"),
        }
    });
    println!("{size:?}, {cut:?}: {first} of {all} at the first try, {in_time} in time");
    (first, in_time, all)
}

fn check(size: Size, seeds: u64) {
    let (mut first, mut in_time, mut all) = (0, 0, 0);
    for cut in CUTS {
        let (of_first, of_in_time, of_all) = shares(size, cut, seeds);
        (first, in_time, all) = (first + of_first, in_time + of_in_time, all + of_all);
        assert!(one_seed_only() || of_first * 100 >= of_all * 95, "{cut:?}: {of_first} of {of_all} at the first try");
    }
    assert!(one_seed_only() || in_time * 1000 >= all * 995, "{in_time} of {all} in time, {first} at the first try");
}

#[test]
fn planted_groups_are_placed_at_the_first_try() {
    check(SMALL, 200);
    check(MEDIUM, 200);
}

#[test]
fn large_planted_groups_are_placed_at_the_first_try() {
    for cut in CUTS {
        let (first, _, all) = shares(LARGE, cut, 20);
        assert!(one_seed_only() || first * 100 >= all * 95, "{cut:?}: {first} of {all}");
    }
}

/// Planted groups with a unit too few: mostly impossible, which must be proven only where it is true.
#[test]
fn proofs_about_planted_groups_are_true() {
    let size = Size { kinds: (2, 5), nodes: (2, 6), pods: 24 };
    let (mut proven, mut possible, mut impossible) = (0, 0, 0);
    for_each_seed(2000, |seed| {
        let random = &mut Random::new(seed);
        let cut = *random.pick(&CUTS);
        let mut planted = planted(random, size, cut);
        for _ in 0..random.between(1, 3) {
            planted.take_one_unit(random);
        }
        let Planted { nodes, occupied, lots, needs } = &planted;
        let Some(fits) = by_counts::placeable(nodes, occupied, lots, needs, 300_000) else { return };
        *(if fits { &mut possible } else { &mut impossible }) += 1;
        let mut gang = Gang::from(planted);
        if random.chance(50) {
            gang.split_a_lot(random);
        }
        match gang.run() {
            Outcome::Placed(bound) => {
                assert!(fits, "placed what cannot be placed");
                gang.check_placed(&bound);
            }
            Outcome::Refused(shortfall) => match shortfall.proof {
                Proof::Impossible | Proof::NeverFits => {
                    assert!(!fits, "proved what is not true: {gang:#?}");
                    proven += 1;
                }
                Proof::NotFound { .. } => assert!(!fits, "not found: {gang:#?}"),
                Proof::NodesLeftOut => panic!("no node was avoided"),
            },
        }
    });
    println!("of planted groups with less room, {possible} fit, and {proven} of {impossible} others are proven");
    assert!(one_seed_only() || proven * 10 >= impossible * 9, "{proven} of {impossible} proven");
}
