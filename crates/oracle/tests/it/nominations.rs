//! Nominations: room nominated for pods of the same or a higher priority is not used by others.

use std::sync::Arc;

use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupKey, GroupSpec};
use muster_engine::model::pod::{Membership, PodSpec};
use muster_engine::{Command, Config, Observation, PreemptionRules};
use muster_oracle::brute::{Lot, placeable};
use muster_oracle::random::Random;

use crate::engine_run::{Gang, Outcome, decide, engine, observe, pod};
use crate::instance;
use muster_oracle::seeds::{for_each_seed, one_seed_only};

const CASES: u64 = 2000;

/// Preemption is off: only the current room counts.
fn without_preemption() -> Config {
    Config { preemption: PreemptionRules { on: false, ..PreemptionRules::default() }, ..Config::default() }
}

fn cpu(milli: i64) -> Arc<ClassSpec> {
    Arc::new(instance::plain_class([("cpu".to_owned(), milli)].into()))
}

/// Whether a pod of priority 5 gets the only node, which is nominated for a pod of this priority.
fn gets_the_node(nominated_priority: i32) -> bool {
    let nodes = [instance::plain_node(0, 1000, 1, 0, 110)];
    let mut engine = engine(&nodes, &[], without_preemption());
    let other = PodSpec { priority: nominated_priority, nominated: Some("n0".into()), ..pod("other", &cpu(600)) };
    observe(&mut engine, Observation::PodSeen(other));
    observe(&mut engine, Observation::PodSeen(PodSpec { priority: 5, ours: true, ..pod("own", &cpu(600)) }));
    decide(&mut engine).iter().any(|command| matches!(command, Command::Bind { .. }))
}

#[test]
fn single_pod_respects_nominations_of_the_same_or_a_higher_priority() {
    assert!(!gets_the_node(6));
    assert!(!gets_the_node(5));
    assert!(gets_the_node(4));
}

#[test]
fn gang_treats_nominations_as_placed_pods() {
    let (mut placed, mut refused, mut changed) = (0, 0, 0);
    for_each_seed(CASES, |seed| {
        let random = &mut Random::new(seed);
        let (gang, nominations) = contested(random);
        let counting = nominations.iter().filter(|(priority, ..)| *priority >= 5);
        let mut kept: Vec<(usize, ClassSpec)> = gang.occupied.clone();
        kept.extend(counting.map(|(_, node, class)| (*node, class.clone())));
        let possible = placeable(&gang.nodes, &kept, &gang.lots, &gang.needs);
        changed += u32::from(possible != gang.placeable());
        match gang.outcome(commands(&gang, &nominations)) {
            Outcome::Placed(bound) => {
                assert!(possible, "used nominated room: {gang:#?} {nominations:#?}");
                Gang { occupied: kept, ..gang }.check_placed(&bound);
                placed += 1;
            }
            Outcome::Refused(_) => {
                assert!(!possible, "refused for a nomination that does not count: {gang:#?} {nominations:#?}");
                refused += 1;
            }
        }
    });
    println!("nominations: {placed} placed, {refused} refused, decided by nominations: {changed}");
    assert!(one_seed_only() || placed.min(refused).min(changed) > 100, "every outcome must occur often");
}

/// A gang of identical pods, and nominations: priority, node and class.
fn contested(random: &mut Random) -> (Gang, Vec<(i32, usize, ClassSpec)>) {
    let count = 1 + random.below(4);
    let nodes = (0..count).map(|number| instance::node(random, number)).collect();
    let occupied = if random.chance(30) { instance::occupied(random, count) } else { Vec::new() };
    let pods = 1 + random.below(5) as u32;
    let lots = vec![Lot { class: instance::class(random, count, 5), subset: 0, count: pods }];
    let needs = vec![random.between(1, i64::from(pods)) as u32];
    let mut nomination = || (random.between(4, 6) as i32, random.below(count), instance::class(random, count, 5));
    let nominations = (0..4).map(|_| nomination()).collect();
    (Gang { nodes, occupied, lots, needs, ..Gang::default() }, nominations)
}

fn commands(gang: &Gang, nominations: &[(i32, usize, ClassSpec)]) -> Vec<Command> {
    let mut engine = engine(&gang.nodes, &gang.occupied, without_preemption());
    for (number, (priority, node, class)) in nominations.iter().enumerate() {
        let waits = pod(&format!("waits-{number}"), &Arc::new(class.clone()));
        let nominated = Some(gang.nodes[*node].name.clone());
        observe(&mut engine, Observation::PodSeen(PodSpec { priority: *priority, nominated, ..waits }));
    }
    let key = GroupKey { namespace: "ml".into(), name: "gang".into(), ..GroupKey::default() };
    observe(&mut engine, Observation::GroupSeen(GroupSpec::gang(key.clone(), gang.needs[0])));
    let class = Arc::new(gang.lots[0].class.clone());
    for number in 0..gang.pods() {
        let membership = Some(Membership::of(key.clone()));
        let member =
            PodSpec { membership, priority: 5, ours: true, controlled: true, ..pod(&format!("0-{number}"), &class) };
        observe(&mut engine, Observation::PodSeen(member));
    }
    decide(&mut engine)
}
