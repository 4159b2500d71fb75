//! How far apart neighbours in rank are, over the same places in a random order.

use std::collections::BTreeMap;

use muster_engine::Command;
use muster_playground::random::Random;

use super::measure::{NODES_PER_BLOCK, NODES_PER_RACK};

/// The levels between neighbours in rank, over those in a random order; `None` if fewer than two pods were bound.
pub(super) fn distance_over_random(commands: &[Command]) -> Option<f64> {
    let number = |text: &str| text.rsplit('-').next().and_then(|digits| digits.parse::<usize>().ok());
    let place = |command: &Command| match command {
        Command::Bind { pod, node, .. } => Some((number(&pod.uid)?, number(node)?)),
        _ => None,
    };
    // The rank of a pod is its number.
    let places: BTreeMap<usize, usize> = commands.iter().filter_map(place).collect();
    let mut nodes: Vec<usize> = places.into_values().collect();
    let ordered = distance(&nodes);
    shuffle(&mut nodes);
    (nodes.len() > 1).then(|| ordered as f64 / distance(&nodes) as f64)
}

fn distance(nodes: &[usize]) -> u64 {
    nodes.windows(2).map(|pair| levels_between(pair[0], pair[1])).sum()
}

fn levels_between(one: usize, other: usize) -> u64 {
    let widths = [1, NODES_PER_RACK, NODES_PER_BLOCK];
    widths.iter().take_while(|width| one / **width != other / **width).count() as u64
}

fn shuffle(nodes: &mut [usize]) {
    let mut random = Random::new(1);
    for last in (1..nodes.len()).rev() {
        nodes.swap(last, random.below(last as u64 + 1) as usize);
    }
}
