//! What pods of one tenant cost the others: an innocent pod is placed alone and beside pods that are as expensive as
//! their author can make them.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_api::later_pods::{LATER_PARTS_MAX, LATER_PODS_MAX};
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupKey, GroupSpec, LaterPods, Policy};
use muster_engine::model::inter_pod::{InterPodConstraints, PodSelector, PodTerm, PreferredPodTerm, SpreadTerm};
use muster_engine::model::labels::{LabelOperator, Labels, Requirement};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Membership, PodName, PodSpec};
use muster_engine::model::topology::GroupTopology;
use muster_engine::{Command, Config, Engine, Observation};
use serde::{Deserialize, Serialize};

use super::measure::{HOST, ZONE, node_name};
use super::report::Target;

const NODES: usize = 5000;
const NODE_CPU_MILLI: i64 = 8000;
/// Innocent pods that run before the measurement begins.
const BOUND: usize = 5000;
/// Innocent pods that are measured one after the other; the median counts.
const MEASURED: usize = 21;
/// An innocent pod may take so many times its time alone.
const RATIO_MAX: f64 = 10.0;

/// What a hostile pod has.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// A preferred anti-affinity term to nearly every pod of the cluster, different for each.
    BroadPreference,
    /// Three such terms, one of them required, and a topology spread constraint.
    BroadTermsAndSpread,
    /// Required affinity to nearly every pod, different for each, on a key that no node has: it never fits.
    BroadAffinity,
    /// Two such terms, on topology keys that nothing else names and no node has.
    OwnKeys,
    /// Preferred terms to a single innocent pod each.
    NarrowPreference,
    /// Its own size: a class of its own.
    OwnClass,
    /// A topology spread constraint of its own.
    OwnSpread,
    /// A group of three with a default spread over its own labels, as with a Service for each.
    OwnService,
    /// Bound, one pod of a group that needs more.
    MinResources,
    /// The same, and a group beside each that needs more than the cluster has.
    MinResourcesWaiting,
    /// The first pod of a group that is to be followed by as many pods as may be announced, in as many stages.
    LaterPods,
    /// A group of three different pods that fit into no domain, of labels that nothing else names.
    OwnTopology,
}

impl Attack {
    /// Whether its pods are to be placed.
    fn is_queued(self) -> bool {
        !matches!(self, Attack::MinResources)
    }
}

/// One measurement.
pub(crate) struct Shape {
    pub(crate) name: String,
    attack: Attack,
    pods: usize,
}

/// All shapes, in the order in which they are run.
pub(crate) fn all() -> Vec<Shape> {
    let shape = |name: &str, attack, pods| Shape { name: format!("beside-{pods}-{name}"), attack, pods };
    vec![
        shape("broad-preferences", Attack::BroadPreference, 300),
        shape("broad-preferences", Attack::BroadPreference, 2000),
        shape("broad-terms-and-spreads", Attack::BroadTermsAndSpread, 2000),
        shape("broad-affinities", Attack::BroadAffinity, 2000),
        shape("keys", Attack::OwnKeys, 2000),
        shape("narrow-preferences", Attack::NarrowPreference, 2000),
        shape("classes", Attack::OwnClass, 10_000),
        shape("spreads", Attack::OwnSpread, 5000),
        shape("service-groups", Attack::OwnService, 1000),
        shape("min-resources", Attack::MinResources, 6000),
        shape("min-resources-waiting", Attack::MinResourcesWaiting, 3000),
        shape("later-pods", Attack::LaterPods, 200),
        shape("topologies", Attack::OwnTopology, 500),
    ]
}

/// The result of one shape.
#[derive(Deserialize, Serialize)]
pub(crate) struct Row {
    shape: String,
    /// The time of an innocent pod, from its observation to its bind, without hostile pods.
    alone_us: f64,
    /// The same when all hostile pods are placed or parked.
    beside_us: f64,
    /// The same when all hostile pods are queued before it; `None` if they are not to be placed.
    queued_ms: Option<f64>,
    /// Observing and deciding a hostile pod, on average.
    hostile_us: f64,
    ratio: f64,
}

/// Measures one shape.
pub(crate) fn measure(shape: &Shape) -> Row {
    let mut bench = Bench::new();
    let alone = bench.median_innocent();
    let begin = Instant::now();
    for number in 0..shape.pods {
        bench.show_hostile(shape.attack, number);
    }
    let observed = begin.elapsed();
    let (uid, begin) = (bench.show_innocent(), Instant::now());
    let queued = bench.decide_until_bound(&uid).map_or(Duration::MAX, |()| begin.elapsed());
    bench.decide_all();
    let hostile = observed + begin.elapsed();
    let beside = bench.median_innocent();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    Row {
        shape: shape.name.clone(),
        alone_us: us(alone),
        beside_us: us(beside),
        queued_ms: shape.attack.is_queued().then(|| us(queued) / 1000.0),
        hostile_us: us(hostile) / shape.pods as f64,
        ratio: beside.as_secs_f64() / alone.as_secs_f64(),
    }
}

/// A cluster with innocent pods.
struct Bench {
    engine: Engine,
    now: u64,
    innocents: usize,
}

impl Bench {
    fn new() -> Self {
        let engine = Engine::new(Config::default()).expect("the defaults are valid");
        let mut bench = Self { engine, now: 0, innocents: 0 };
        for number in 0..NODES {
            bench.observe(Observation::NodeSeen(node(number)));
        }
        for number in 0..BOUND {
            let pod = bench.innocent();
            bench.observe(Observation::PodSeen(PodSpec { node: Some(node_name(number % NODES)), ..pod }));
        }
        bench
    }

    fn observe(&mut self, observation: Observation) {
        self.engine.observe(self.now, observation).expect("the shape is valid");
    }

    fn innocent(&mut self) -> PodSpec {
        self.innocents += 1;
        let labels = [("app".to_owned(), "web".to_owned()), ("index".to_owned(), self.innocents.to_string())];
        let id = name("innocent", "web", self.innocents);
        PodSpec { id, class: Arc::new(class(100)), labels: Arc::new(labels.into()), ours: true, ..PodSpec::default() }
    }

    fn show_innocent(&mut self) -> String {
        let pod = self.innocent();
        let uid = pod.id.uid.clone();
        self.observe(Observation::PodSeen(pod));
        uid
    }

    /// The time of an innocent pod, from its observation to its bind.
    fn median_innocent(&mut self) -> Duration {
        let mut times: Vec<Duration> = (0..MEASURED)
            .map(|_| {
                let begin = Instant::now();
                let uid = self.show_innocent();
                self.decide_until_bound(&uid).expect("there is room for an innocent pod");
                begin.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[MEASURED / 2]
    }

    fn decide_until_bound(&mut self, uid: &str) -> Option<()> {
        while self.engine.next_wakeup().is_some_and(|due| due <= self.now) {
            let commands = self.engine.decide(self.now);
            if commands.iter().any(|command| matches!(command, Command::Bind { pod, .. } if pod.uid == *uid)) {
                return Some(());
            }
        }
        None
    }

    fn decide_all(&mut self) {
        while self.engine.next_wakeup().is_some_and(|due| due <= self.now) {
            self.engine.decide(self.now);
        }
    }

    /// A gang whose minimum is one.
    fn show_gang(&mut self, number: usize, change: impl FnOnce(&mut GroupSpec)) -> Membership {
        let mut group = GroupSpec::gang(key(number), 1);
        change(&mut group);
        self.observe(Observation::GroupSeen(group));
        Membership::of(key(number))
    }

    fn show_hostile(&mut self, attack: Attack, number: usize) {
        let labels = Arc::new(Labels::from([("v".to_owned(), number.to_string())]));
        let pod = |class: ClassSpec, index: usize| PodSpec {
            id: name("hostile", "h", number * 3 + index),
            class: Arc::new(class),
            labels: labels.clone(),
            ours: true,
            ..PodSpec::default()
        };
        let constrained = |constraints| ClassSpec { inter_pod: Some(Arc::new(constraints)), ..class(1) };
        match attack {
            Attack::OwnClass => {
                let mut class = class(1);
                class.requests.insert("memory".to_owned(), 1 + number as i64);
                self.observe(Observation::PodSeen(pod(class, 0)));
            }
            Attack::OwnService => {
                self.observe(Observation::GroupSeen(GroupSpec::with_policy(
                    key(number),
                    Policy::Gang { min_count: 3 },
                )));
                for index in 0..3 {
                    let membership = Some(Membership::of(key(number)));
                    let class = constrained(default_spread(number));
                    self.observe(Observation::PodSeen(PodSpec { membership, ..pod(class, index) }));
                }
            }
            Attack::MinResources | Attack::MinResourcesWaiting => {
                let membership = Some(self.show_gang(2 * number, |group| group.min_resources = cpus(2)));
                let node = Some(node_name(number % NODES));
                self.observe(Observation::PodSeen(PodSpec { membership, node, ..pod(class(1), 0) }));
                if attack.is_queued() {
                    let more = cpus(NODE_CPU_MILLI * NODES as i64);
                    let membership = Some(self.show_gang(2 * number + 1, |group| group.min_resources = more));
                    self.observe(Observation::PodSeen(PodSpec { membership, ..pod(class(1), 1) }));
                }
            }
            Attack::OwnTopology => {
                let membership = self.show_gang(number, |group| {
                    group.policy = Policy::Gang { min_count: 3 };
                    group.topology = own_topology(number);
                });
                for index in 0..3 {
                    // Each fits on any node, two on none.
                    let class = class(NODE_CPU_MILLI / 2 + 1 + index as i64);
                    self.observe(Observation::PodSeen(PodSpec {
                        membership: Some(membership.clone()),
                        ..pod(class, index)
                    }));
                }
            }
            Attack::LaterPods => {
                let membership = Some(self.show_gang(number, |group| group.later = later(&group.key)));
                self.observe(Observation::PodSeen(PodSpec { membership, ..pod(class(1), 0) }));
            }
            _ => self.observe(Observation::PodSeen(pod(constrained(constraints(attack, number)), 0))),
        }
    }
}

fn constraints(attack: Attack, number: usize) -> InterPodConstraints {
    let mut constraints = InterPodConstraints::default();
    let broad = |part: usize, key: &str| PodTerm { pods: broad(number, part), topology_key: key.to_owned() };
    let preferred = |term| PreferredPodTerm { weight: -1 - (number % 100) as i32, term };
    match attack {
        Attack::BroadPreference => constraints.preferred.push(preferred(broad(0, HOST))),
        Attack::BroadTermsAndSpread => {
            constraints.preferred = vec![preferred(broad(0, HOST)), preferred(broad(1, ZONE))];
            constraints.required_anti_affinity.push(broad(2, "nowhere"));
            constraints.spread.do_not_schedule.push(spread(own_labels(number, false), ZONE, 100_000));
        }
        Attack::BroadAffinity => constraints.required_affinity.push(broad(0, "nowhere")),
        Attack::OwnKeys => {
            let keys = [0, 1].map(|part| preferred(broad(part, &format!("key-{number}-{part}"))));
            constraints.preferred = keys.into();
        }
        Attack::NarrowPreference => {
            let values = vec![number.to_string()];
            let labels = vec![Requirement { key: "index".to_owned(), operator: LabelOperator::In(values) }];
            let pods = PodSelector { namespace_selector: Some(Vec::new()), labels, ..PodSelector::default() };
            constraints.preferred.push(preferred(PodTerm { pods, topology_key: HOST.to_owned() }));
        }
        Attack::OwnSpread => {
            constraints.spread.do_not_schedule.push(spread(own_labels(number, true), ZONE, 1));
        }
        Attack::OwnClass
        | Attack::OwnService
        | Attack::MinResources
        | Attack::MinResourcesWaiting
        | Attack::LaterPods
        | Attack::OwnTopology => {}
    }
    constraints
}

/// Selects every pod of the cluster but those with one value of a label.
fn broad(number: usize, part: usize) -> PodSelector {
    let operator = LabelOperator::NotIn(vec![format!("{number}-{part}")]);
    let labels = vec![Requirement { key: "v".to_owned(), operator }];
    PodSelector { namespace_selector: Some(Vec::new()), labels, ..PodSelector::default() }
}

/// Selects the pods of the own namespace with the own label, or all others.
fn own_labels(number: usize, with: bool) -> PodSelector {
    let values = vec![number.to_string()];
    let operator = if with { LabelOperator::In(values) } else { LabelOperator::NotIn(values) };
    let labels = vec![Requirement { key: "v".to_owned(), operator }];
    PodSelector { namespaces: ["hostile".to_owned()].into(), namespace_selector: None, labels }
}

fn spread(pods: PodSelector, key: &str, max_skew: u32) -> SpreadTerm {
    SpreadTerm {
        pods,
        topology_key: key.to_owned(),
        max_skew,
        min_domains: 1,
        honors_node_affinity: true,
        honors_node_taints: false,
    }
}

fn default_spread(number: usize) -> InterPodConstraints {
    let mut constraints = InterPodConstraints::default();
    let term = |key, max_skew| spread(own_labels(number, true), key, max_skew);
    constraints.spread.schedule_anyway = vec![term(HOST, 3), term(ZONE, 5)];
    constraints.spread.scores_nodes_without_keys = true;
    constraints
}

/// One node has to hold the group.
fn own_topology(number: usize) -> Option<Arc<GroupTopology>> {
    let levels = [(HOST.to_owned(), true), (format!("key-{number}"), false)];
    GroupTopology::of(levels).map(Arc::new)
}

/// As many pods and stages as one group may announce, each stage with a size of its own.
fn later(group: &GroupKey) -> Vec<Vec<LaterPods>> {
    let stage = |number: i64| {
        let class = Arc::new(class(1 + number));
        vec![LaterPods { group: group.clone(), count: (LATER_PODS_MAX / LATER_PARTS_MAX as i64) as u32, class }]
    };
    (0..LATER_PARTS_MAX as i64).map(stage).collect()
}

fn cpus(milli: i64) -> BTreeMap<String, i64> {
    [("cpu".to_owned(), milli)].into()
}

fn name(namespace: &str, prefix: &str, number: usize) -> Arc<PodName> {
    let (name, uid) = (format!("{prefix}-{number}"), format!("{namespace}-{number}"));
    Arc::new(PodName { namespace: namespace.into(), name, uid })
}

fn key(number: usize) -> GroupKey {
    let (origin, namespace) = ("muster.dev/PodGroup".to_owned(), "hostile".to_owned());
    GroupKey { origin, namespace, name: format!("group-{number}"), replica: String::new() }
}

fn node(number: usize) -> NodeSpec {
    let name = node_name(number);
    let amount = |name: &str, amount: i64| (name.to_owned(), amount);
    let allocatable = [amount("cpu", NODE_CPU_MILLI), amount("memory", 32 << 30), amount("pods", 110)];
    let labels = [(HOST.to_owned(), name.clone()), (ZONE.to_owned(), format!("zone-{}", number % 3))];
    NodeSpec { name, labels: labels.into(), allocatable: allocatable.into(), ..NodeSpec::default() }
}

fn class(cpu_milli: i64) -> ClassSpec {
    ClassSpec {
        requests: [("cpu".to_owned(), cpu_milli)].into(),
        scoring_cpu_milli: cpu_milli,
        scoring_memory_bytes: 200 << 20,
        ..ClassSpec::default()
    }
}

pub(crate) fn print_head(out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "\n{:<38} {:>10} {:>10} {:>7} {:>12} {:>12}",
        "hostile shape", "alone", "beside", "ratio", "hostile pod", "queued"
    )
}

pub(crate) fn print_row(out: &mut impl Write, row: &Row) -> std::io::Result<()> {
    let Row { shape, alone_us, beside_us, queued_ms, hostile_us, ratio } = row;
    let queued = queued_ms.map_or_else(|| "-   ".to_owned(), |queued| format!("{queued:.0} ms"));
    writeln!(out, "{shape:<38} {alone_us:>7.0} us {beside_us:>7.0} us {ratio:>7.1} {hostile_us:>9.0} us {queued:>12}")
}

/// An innocent pod is not slowed down too much, and waits for one expensive decision at most.
pub(crate) fn targets(rows: &[Row]) -> Vec<Target> {
    let at_most = |what: String, value, bound| Target { what, value, at_least: false, bound };
    let of_row = |row: &Row| {
        let over_one = |queued: f64| queued * 1000.0 / (row.alone_us + row.hostile_us);
        let queued = row.queued_ms.map(|queued| {
            at_most(format!("{}: one queued behind them over one of them", row.shape), over_one(queued), RATIO_MAX)
        });
        let beside = at_most(format!("{}: an innocent pod over one alone", row.shape), row.ratio, RATIO_MAX);
        [beside].into_iter().chain(queued).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row).collect()
}
