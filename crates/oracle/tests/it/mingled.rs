//! Preemption of mingled gangs: each node holds pods of several gangs that are evicted whole, so which gangs meet on
//! which nodes decides how many must go.

use std::sync::Arc;
use std::time::Instant;

use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{DisruptionMode, GroupKey, GroupPriority, GroupSpec};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Membership, PodSpec};
use muster_engine::{Command, Config, Engine, Observation};
use muster_oracle::random::Random;

use crate::engine_run::{observe, pod};
use crate::instance::{self, GPU};

const GANG: usize = 10;
const ON_A_NODE: usize = 4;

fn key(name: &str) -> GroupKey {
    GroupKey { namespace: "ml".into(), name: name.into(), ..GroupKey::default() }
}

fn gang(name: &str, minimum: u32, priority: i32) -> GroupSpec {
    let mut spec = GroupSpec::gang(key(name), minimum);
    spec.priority = GroupPriority::Own(priority);
    spec.disruption_mode = DisruptionMode::Group;
    spec
}

fn member(name: &str, group: &str, class: &Arc<ClassSpec>) -> PodSpec {
    PodSpec { membership: Some(Membership::of(key(group))), ours: true, controlled: true, ..pod(name, class) }
}

/// Nodes of 8 GPUs, each with four pods of 2 GPUs of any gangs of ten.
fn full_cluster(seed: u64, nodes: usize) -> Engine {
    let mut engine = Engine::new(Config::default()).expect("a valid configuration");
    let specs: Vec<NodeSpec> = (0..nodes).map(|node| instance::plain_node(node, 96_000, 1 << 40, 8, 110)).collect();
    for node in &specs {
        observe(&mut engine, Observation::NodeSeen(node.clone()));
    }
    let mut seats: Vec<usize> = (0..nodes * ON_A_NODE).map(|seat| seat % nodes).collect();
    Random::new(seed).shuffle(&mut seats);
    let small = Arc::new(instance::plain_class([("cpu".to_owned(), 8000), (GPU.to_owned(), 2)].into()));
    for (number, seats) in seats.chunks(GANG).enumerate() {
        let name = format!("low-{number}");
        observe(&mut engine, Observation::GroupSeen(gang(&name, GANG as u32, 0)));
        for (index, seat) in seats.iter().enumerate() {
            let node = Some(specs[*seat].name.clone());
            let placed = PodSpec { node, ..member(&format!("{name}-{index}"), &name, &small) };
            observe(&mut engine, Observation::PodSeen(placed));
        }
    }
    engine
}

/// How many gangs are evicted for one that needs so many nodes empty, and has so many small pods besides.
fn evicted(seed: u64, nodes: usize, (large, small): (usize, usize)) -> usize {
    let mut engine = full_cluster(seed, nodes);
    observe(&mut engine, Observation::GroupSeen(gang("high", (large + small) as u32, 100)));
    let whole = Arc::new(instance::plain_class([("cpu".to_owned(), 32_000), (GPU.to_owned(), 8)].into()));
    let little = Arc::new(instance::plain_class([("cpu".to_owned(), 2000)].into()));
    let classes = std::iter::repeat_n(&whole, large).chain(std::iter::repeat_n(&little, small));
    for (number, class) in classes.enumerate() {
        let member = member(&format!("high-{number}"), "high", class);
        observe(&mut engine, Observation::PodSeen(PodSpec { priority: 100, ..member }));
    }
    let (mut commands, begin) = (Vec::new(), Instant::now());
    while engine.next_wakeup().is_some_and(|due| due == 0) {
        commands.extend(engine.decide(0));
    }
    println!("{nodes} nodes, seed {seed}: planned in {} ms", begin.elapsed().as_millis());
    let nominated = commands.iter().filter(|command| matches!(command, Command::Nominate { .. })).count();
    assert_eq!(nominated, large + small, "seed {seed}: not all pods are nominated");
    commands.iter().filter(|command| matches!(command, Command::Evict { group: Some(_), .. })).count()
}

fn mean_in_tenths(seeds: u64, nodes: usize) -> usize {
    let counts: Vec<usize> = (0..seeds).map(|seed| evicted(seed, nodes, (nodes / 10, 0))).collect();
    println!("mingled gangs evicted on {nodes} nodes: {counts:?}");
    counts.iter().sum::<usize>() * 10 / counts.len()
}

#[test]
fn few_mingled_gangs_are_evicted() {
    let mean = mean_in_tenths(10, 500);
    assert!(mean <= 630, "the mean is {mean} tenths");
}

#[test]
fn few_of_many_mingled_gangs_are_evicted() {
    let mean = mean_in_tenths(2, 5000);
    assert!(mean <= 6250, "the mean is {mean} tenths");
}

/// A driver beside the workers changes nothing about which gangs are in the way.
#[test]
fn mixed_gangs_evict_as_few() {
    for seed in 0..3 {
        let (like, mixed) = (evicted(seed, 150, (15, 0)), evicted(seed, 150, (15, 4)));
        println!("mingled gangs evicted on 150 nodes: {like}, and {mixed} for a mixed gang");
        assert!(mixed <= like + 1, "seed {seed}: {mixed} instead of {like}");
    }
}
