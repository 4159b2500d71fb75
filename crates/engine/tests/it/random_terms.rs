//! Random inter-pod terms and topology constraints for random runs.

use std::sync::Arc;

use muster_engine::model::inter_pod::{InterPodConstraints, PodSelector, PodTerm, PreferredPodTerm, SpreadTerm};
use muster_engine::model::labels::{LabelOperator, Requirement};
use muster_engine::model::topology::{GroupTopology, LevelRule, WhenFull};
use muster_oracle::random::Random;

use crate::inter_pod_affinity;

/// Random constraints with one term.
pub(crate) fn constraints(random: &mut Random) -> InterPodConstraints {
    let mut inter_pod = InterPodConstraints::default();
    let key = if random.chance(60) { "host" } else { "zone" };
    let mut term = inter_pod_affinity::app(["x", "y"][random.below(2)], key);
    if random.chance(30) {
        term.pods = broad_selector(random);
    }
    match random.below(14) {
        0..=5 => inter_pod.required_anti_affinity.push(term),
        6..=7 => inter_pod.required_affinity.push(term),
        8..=10 => inter_pod.spread.do_not_schedule.push(evenly(random, term)),
        11 => inter_pod.spread.schedule_anyway.push(evenly(random, term)),
        _ => {
            let weight = [-30, 30][random.below(2)];
            inter_pod.preferred.push(PreferredPodTerm { weight, term });
        }
    }
    inter_pod
}

/// Selects nearly all pods, in all or in most namespaces.
fn broad_selector(random: &mut Random) -> PodSelector {
    let not = |key: &str, value: &str| Requirement {
        key: key.to_owned(),
        operator: LabelOperator::NotIn(vec![value.to_owned()]),
    };
    let labels = match random.below(3) {
        0 => Vec::new(),
        1 => vec![not("app", ["x", "y"][random.below(2)])],
        _ => vec![Requirement { key: "app".to_owned(), operator: LabelOperator::DoesNotExist }],
    };
    let namespaces = if random.chance(70) { Vec::new() } else { vec![not("team", "a")] };
    PodSelector { namespaces: [].into(), namespace_selector: Some(namespaces), labels }
}

fn evenly(random: &mut Random, PodTerm { pods, topology_key }: PodTerm) -> SpreadTerm {
    SpreadTerm {
        pods,
        topology_key,
        max_skew: 1 + random.below(2) as u32,
        min_domains: 1 + random.below(2) as u32,
        honors_node_affinity: random.chance(80),
        honors_node_taints: random.chance(30),
    }
}

/// A topology constraint on one or two labels, of which some nodes lack one.
pub(crate) fn topology(random: &mut Random) -> Option<Arc<GroupTopology>> {
    let all = LevelRule::Required { exclusive: random.chance(20) };
    let slices = LevelRule::Slices { size: 2, exclusive: random.chance(20) };
    let min = 1 + random.below(2) as u32;
    let spread = LevelRule::Spread { min, max: min + random.below(2) as u32 };
    let rules = match random.below(8) {
        0 => vec![("zone", all)],
        1 => vec![("zone", LevelRule::Preferred)],
        2 => vec![("zone", all), ("host", LevelRule::Preferred)],
        3 => vec![("host", all)],
        4 => vec![("zone", LevelRule::Preferred), ("host", slices)],
        5 => vec![("zone", slices)],
        6 => vec![("host", spread)],
        _ => return None,
    };
    let topology = GroupTopology::of_rules(rules.into_iter().map(|(key, rule)| (key.to_owned(), rule)))?;
    let when_full = if random.chance(20) { WhenFull::Move } else { WhenFull::Wait };
    Some(Arc::new(GroupTopology { when_full, ..topology }))
}
