//! The measurement of one shape: the engine's decisions, the naive scheduler for comparison, and memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupKey, GroupSpec, Policy};
use muster_engine::model::inter_pod::{InterPodConstraints, PodSelector, PodTerm, PreferredPodTerm, SpreadTerm};
use muster_engine::model::labels::{LabelOperator, Labels, Requirement};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Membership, PodName, PodSpec};
use muster_engine::model::topology::{DomainChoice, GroupTopology};
use muster_engine::{Command, Config, Engine, Observation, Scoring};
use muster_oracle::naive::Naive;

use super::memory::peak_rss_mib;
use super::report::Row;
use super::shapes::{self, Domains, Kind, Shape, Size};
use super::{ranks, volumes};

pub(super) const HOST: &str = "kubernetes.io/hostname";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BLOCK: &str = "example.com/block";
const RACK: &str = "example.com/rack";
pub(super) const NODES_PER_BLOCK: usize = 1000;
pub(super) const NODES_PER_RACK: usize = 100;

/// The naive scheduler is measured for so many evaluations of a node, and scaled up for the rest.
const NAIVE_EVALUATIONS_MAX: usize = 25_000_000;
/// Each shape runs so often; the fastest counts, because a shared machine only makes it slower.
const ROUNDS: usize = 3;
/// A small difference between two shapes needs more rounds, taken in turns.
const ROUNDS_TO_COMPARE: usize = 15;

/// Late enough for every backoff to be over, early enough that no gang is starving.
const RETRIED_AT_MS: u64 = 100_000;

/// Measures one shape.
pub(crate) fn measure(shape: &Shape) -> Row {
    let without = Shape { nominated: 0, ..shape.clone() };
    let compares = shape.nominated > 0;
    let rounds = if compares {
        ROUNDS_TO_COMPARE
    } else if shape.bound > 0 {
        1
    } else {
        ROUNDS
    };
    let mut best = decide(shape);
    let mut best_without = Duration::MAX;
    for _ in 1..rounds {
        if compares {
            best_without = best_without.min(decide(&without).decide);
        }
        let round = decide(shape);
        if round.decide < best.decide {
            best = round;
        }
    }
    let Round { decide, observe, bound, rank_ratio } = best;
    let overhead_percent = compares.then(|| (decide.as_secs_f64() / best_without.as_secs_f64() - 1.0) * 100.0);
    // Before the naive scheduler runs: its memory must not count.
    let peak_rss_mib = peak_rss_mib();
    let naive = naive(shape);
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    Row {
        shape: shape.name.clone(),
        nodes: shape.nodes,
        pods: shape.pods,
        bound,
        observe_ms: ms(observe),
        decide_ms: ms(decide),
        pods_per_s: shape.pods as f64 / decide.as_secs_f64(),
        peak_rss_mib,
        naive_ms: ms(naive),
        naive_ratio: naive.as_secs_f64() / decide.as_secs_f64(),
        overhead_percent,
        rank_ratio,
    }
}

/// The result of one run.
struct Round {
    decide: Duration,
    observe: Duration,
    bound: usize,
    rank_ratio: Option<f64>,
}

/// Passes all observations to a new engine, then lets it decide.
fn decide(shape: &Shape) -> Round {
    let mut engine = Engine::new(Config::default()).expect("the defaults are valid");
    let mut observe = Duration::ZERO;
    // One at a time, as from a watch: observations are not kept here.
    show(shape, &mut |observation| {
        let begin = Instant::now();
        engine.observe(0, observation).expect("the shape is valid");
        observe += begin.elapsed();
    });
    let mut now = 0;
    if shape.retries {
        settle(&mut engine, now);
        now = RETRIED_AT_MS;
        let uid = uid(0);
        engine.observe(now, Observation::PodGone { uid }).expect("a pod may go");
    }
    let begin = Instant::now();
    let mut commands = settle(&mut engine, now);
    let mut decide = begin.elapsed();
    let answers: Vec<Observation> = commands.iter().flat_map(volumes::answers).collect();
    if !answers.is_empty() {
        let begin = Instant::now();
        for answer in answers {
            engine.observe(now, answer).expect("the answers are valid");
        }
        observe += begin.elapsed();
        let begin = Instant::now();
        commands.extend(settle(&mut engine, now));
        decide += begin.elapsed();
    }
    let bound = commands.iter().filter(|command| matches!(command, Command::Bind { .. })).count();
    let rank_ratio = has_ranks(shape).then(|| ranks::distance_over_random(&commands)).flatten();
    Round { decide, observe, bound, rank_ratio }
}

fn has_ranks(shape: &Shape) -> bool {
    shape.domains == Domains::Levels
}

/// Decides as long as there is something to decide now.
fn settle(engine: &mut Engine, now: u64) -> Vec<Command> {
    let mut commands = Vec::new();
    while engine.next_wakeup().is_some_and(|due| due <= now) {
        commands.extend(engine.decide(now));
    }
    commands
}

fn naive(shape: &Shape) -> Duration {
    let nodes: Vec<NodeSpec> = (0..shape.nodes).map(|number| node(shape, number)).collect();
    let mut naive = Naive::new(&nodes, &Scoring::default());
    let class = naive.prepare(&class(shape.size));
    for number in 0..shape.full_nodes {
        naive.occupy(number, &filler(shape.size));
    }
    let pods = shape.pods.min((NAIVE_EVALUATIONS_MAX / shape.nodes).max(1));
    let begin = Instant::now();
    for _ in 0..pods {
        std::hint::black_box(naive.place_prepared(&class));
    }
    begin.elapsed().mul_f64(shape.pods as f64 / pods as f64)
}

fn show(shape: &Shape, observe: &mut dyn FnMut(Observation)) {
    for number in 0..shape.nodes {
        observe(Observation::NodeSeen(node(shape, number)));
    }
    let constraints = Some(Arc::new(inter_pod(shape.inter_pod))).filter(|constraints| !constraints.is_empty());
    let (class, filler) =
        (Arc::new(ClassSpec { inter_pod: constraints, ..class(shape.size) }), Arc::new(filler(shape.size)));
    let labels = Arc::new(Labels::from([("app".to_owned(), "x".to_owned())]));
    let mut uids = 0..;
    let mut pod = |prefix: &str, class: &Arc<ClassSpec>| {
        let number: usize = uids.next().expect("endless");
        let (name, uid) = (format!("{prefix}-{number}"), uid(number));
        let id = Arc::new(PodName { namespace: "default".into(), name, uid });
        PodSpec { id, class: class.clone(), controlled: true, labels: labels.clone(), ..PodSpec::default() }
    };
    for number in 0..shape.full_nodes {
        let node = Some(node_name(number));
        observe(Observation::PodSeen(PodSpec { node, ..pod("full", &filler) }));
    }
    for number in 0..shape.bound {
        let node = Some(node_name(number % shape.nodes));
        observe(Observation::PodSeen(PodSpec { node, ours: true, ..pod("held", &class) }));
    }
    for number in 0..shape.nominated {
        let nominated = Some(node_name(number % shape.nodes));
        observe(Observation::PodSeen(PodSpec { nominated, priority: 100, ..pod("nominated", &class) }));
    }
    volumes::show(shape.volumes, shape.nodes, shape.pods, observe);
    for number in 0..shape.pods {
        let member = match shape.kind {
            Kind::Plain => None,
            Kind::Gangs { size } | Kind::Basic { size } => Some(number / size),
        };
        if let Some(group) = member.filter(|_| starts_group(shape.kind, number)) {
            let topology = topology(shape.domains).map(Arc::new);
            observe(Observation::GroupSeen(GroupSpec { topology, ..group_spec(shape.kind, group) }));
        }
        let membership = member.map(|group| Membership::of(group_key(group)));
        let rank = has_ranks(shape).then_some(number as u64);
        let mut pod = PodSpec { membership, rank, ours: true, ..pod("pod", &class) };
        volumes::give_claim(shape.volumes, number, &mut pod);
        observe(Observation::PodSeen(pod));
    }
}

fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn starts_group(kind: Kind, number: usize) -> bool {
    match kind {
        Kind::Plain => false,
        Kind::Gangs { size } | Kind::Basic { size } => number.is_multiple_of(size),
    }
}

fn group_key(number: usize) -> GroupKey {
    let (origin, namespace) = ("muster.dev/PodGroup".to_owned(), "default".to_owned());
    GroupKey { origin, namespace, name: format!("group-{number}"), replica: String::new() }
}

fn group_spec(kind: Kind, number: usize) -> GroupSpec {
    let policy = match kind {
        Kind::Gangs { size } => Policy::Gang { min_count: size as u32 },
        Kind::Plain | Kind::Basic { .. } => Policy::Basic { desired_count: None },
    };
    GroupSpec::with_policy(group_key(number), policy)
}

fn topology(domains: Domains) -> Option<GroupTopology> {
    let constraints: &[(&str, bool)] = match domains {
        Domains::None => &[],
        Domains::OneRack | Domains::OneRackByScore => &[(RACK, true)],
        Domains::Levels => &[(REGION, true), (BLOCK, false), (RACK, false)],
    };
    let topology = GroupTopology::of(constraints.iter().map(|(key, required)| ((*key).to_owned(), *required)))?;
    let by_score = domains == Domains::OneRackByScore;
    Some(if by_score { GroupTopology { choice: DomainChoice::MostAllocated, ..topology } } else { topology })
}

pub(super) fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

fn node(shape: &Shape, number: usize) -> NodeSpec {
    let name = node_name(number);
    let amount = |name: &str, amount: i64| (name.to_owned(), amount);
    let allocatable = match shape.size {
        Size::Small => vec![amount("cpu", 4000), amount("memory", 32 << 30), amount("pods", 110)],
        Size::WholeGpuNode => {
            vec![amount("cpu", 96_000), amount("memory", 1 << 40), amount("pods", 110), amount("nvidia.com/gpu", 8)]
        }
    };
    let mut labels = Labels::from([(HOST.to_owned(), name.clone()), (ZONE.to_owned(), format!("zone-{}", number % 3))]);
    if shape.domains != Domains::None {
        let domain = |key: &str, value: usize| (key.to_owned(), value.to_string());
        labels.extend([
            domain(REGION, 0),
            domain(BLOCK, number / NODES_PER_BLOCK),
            domain(RACK, number / NODES_PER_RACK),
        ]);
    }
    NodeSpec { name, labels, allocatable: allocatable.into_iter().collect(), ..NodeSpec::default() }
}

fn class(size: Size) -> ClassSpec {
    let amount = |name: &str, amount: i64| (name.to_owned(), amount);
    let (cpu, memory) = match size {
        Size::Small => (100, 100 << 20),
        Size::WholeGpuNode => (32_000, 256 << 30),
    };
    let mut requests = vec![amount("cpu", cpu), amount("memory", memory)];
    if size == Size::WholeGpuNode {
        requests.push(amount("nvidia.com/gpu", 8));
    }
    ClassSpec {
        requests: requests.into_iter().collect(),
        scoring_cpu_milli: cpu,
        scoring_memory_bytes: memory,
        ..ClassSpec::default()
    }
}

fn inter_pod(kind: shapes::InterPod) -> InterPodConstraints {
    let labels = vec![Requirement { key: "app".to_owned(), operator: LabelOperator::In(vec!["x".to_owned()]) }];
    let pods = PodSelector { namespaces: ["default".to_owned()].into(), namespace_selector: None, labels };
    let near = |key: &str| PodTerm { pods: pods.clone(), topology_key: key.to_owned() };
    let even = |key: &str, max_skew| SpreadTerm {
        pods: pods.clone(),
        topology_key: key.to_owned(),
        max_skew,
        min_domains: 1,
        honors_node_affinity: true,
        honors_node_taints: false,
    };
    let mut constraints = InterPodConstraints::default();
    match kind {
        shapes::InterPod::None => {}
        shapes::InterPod::AntiAffinityByHost => constraints.required_anti_affinity.push(near(HOST)),
        shapes::InterPod::AffinityByZone => constraints.required_affinity.push(near(ZONE)),
        shapes::InterPod::SpreadOverZones => constraints.spread.do_not_schedule.push(even(ZONE, 1)),
        shapes::InterPod::PreferredAffinity => {
            constraints.preferred.push(PreferredPodTerm { weight: 1, term: near(HOST) });
        }
        shapes::InterPod::PreferredSpread => {
            constraints.spread.schedule_anyway = vec![even(HOST, 3), even(ZONE, 5)];
            constraints.spread.scores_nodes_without_keys = true;
        }
    }
    constraints
}

/// A pod of another scheduler that leaves no capacity for a pod of the shape.
fn filler(size: Size) -> ClassSpec {
    let mut class = class(size);
    class.requests.insert("cpu".to_owned(), 1000);
    class
}
