//! Packing of GPUs: small pods leave whole nodes free for a gang.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::model::group::{GroupKey, GroupSpec};
use muster_engine::model::pod::{Membership, PodSpec};
use muster_engine::{Command, Config, Engine, Observation, Profile, Scoring, Strategy, Weighted};

use crate::engine_run::{observe, pod};
use crate::instance::{self, GPU};

/// As the preset `packing: gpu` of the configuration.
fn packing() -> Scoring {
    let weighted = |name: &str, weight| Weighted { name: name.to_owned(), weight };
    Scoring {
        strategy: Strategy::MostAllocated,
        fit_resources: vec![weighted(GPU, 50), weighted("cpu", 1), weighted("memory", 1)],
        weight_fit: 5,
        weight_balanced: 0,
        ..Scoring::default()
    }
}

/// The number of nodes that sixteen pods with one GPU use, of sixteen nodes of eight, and of pods of a gang of eight
/// times eight that are bound then.
fn run(scoring: Scoring) -> (usize, usize) {
    let profiles = vec![Profile { scoring, ..Profile::default() }];
    let mut engine = Engine::new(Config { profiles, ..Config::default() }).expect("a valid configuration");
    for node in 0..16 {
        observe(&mut engine, Observation::NodeSeen(instance::plain_node(node, 96_000, 1 << 40, 8, 110)));
    }
    let with_gpus = |gpus: i64| {
        let requests = [("cpu".to_owned(), 4000 * gpus), ("memory".to_owned(), gpus << 33), (GPU.to_owned(), gpus)];
        Arc::new(instance::plain_class(requests.into()))
    };
    for number in 0..16 {
        let single = PodSpec { ours: true, controlled: true, ..pod(&format!("notebook-{number}"), &with_gpus(1)) };
        observe(&mut engine, Observation::PodSeen(single));
    }
    let nodes: BTreeSet<Arc<str>> = bound(&mut engine).into_iter().collect();
    let key = GroupKey { namespace: "ml".into(), name: "gang".into(), ..GroupKey::default() };
    observe(&mut engine, Observation::GroupSeen(GroupSpec::gang(key.clone(), 8)));
    for number in 0..8 {
        let membership = Some(Membership::of(key.clone()));
        let member = pod(&format!("gang-{number}"), &with_gpus(8));
        observe(&mut engine, Observation::PodSeen(PodSpec { membership, ours: true, controlled: true, ..member }));
    }
    (nodes.len(), bound(&mut engine).len())
}

fn bound(engine: &mut Engine) -> Vec<Arc<str>> {
    let mut nodes = Vec::new();
    while engine.next_wakeup().is_some_and(|due| due == 0) {
        nodes.extend(engine.decide(0).into_iter().filter_map(|command| match command {
            Command::Bind { node, .. } => Some(node),
            _ => None,
        }));
    }
    nodes
}

#[test]
fn packed_notebooks_leave_room_for_a_gang() {
    assert_eq!(run(packing()), (2, 8));
    assert_eq!(run(Scoring::default()), (16, 0), "without packing they are spread");
}
