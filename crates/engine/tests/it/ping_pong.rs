//! No ping-pong: evicted pods are recreated at once and compete for room again, and still the cluster settles. No
//! workload evicts the same workload repeatedly, and no more pods are evicted than with the algorithm of KEP-5710.
//!
//! The cluster is filled before preemption is enabled, so that both algorithms begin with the same state.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use muster_engine::model::Millis;
use muster_engine::model::group::{DisruptionMode, GroupPriority, GroupSpec};
use muster_engine::model::pod::{Phase, PodSpec};
use muster_engine::{Command, Config, PreemptionRules, Subject};
use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};

use crate::fake_cluster::{FakeCluster, key};

const CASES: u64 = 1_500;
const HOUR_MS: Millis = 3_600_000;
const NODE_CPUS: i64 = 8;

/// Pods of a controller that recreates them.
#[derive(Clone, Debug)]
struct Workload {
    name: String,
    pods: usize,
    cpus: i64,
    priority: i32,
    /// The disruption mode, if it is a gang.
    gang: Option<DisruptionMode>,
}

/// A preemptor and its victim.
type Pair = (String, String);

struct Run {
    fake: FakeCluster,
    /// Terminating pods, by the time when they are gone.
    leaving: BTreeSet<(Millis, String)>,
    names: usize,
    evicted: usize,
    /// The number of decisions that evicted pods of a workload for another workload, or for one of its pods.
    occasions: BTreeMap<Pair, u32>,
    /// The number of evicted pods by workload.
    lost: BTreeMap<String, u32>,
    /// A description of every eviction.
    evictions: Vec<String>,
}

impl Run {
    fn new(case: &Case) -> Self {
        let mut fake = FakeCluster::with(Config::default());
        fake.grace_ms = case.grace_ms;
        for number in 0..case.nodes {
            fake.node(&format!("n{number}"), NODE_CPUS);
        }
        Self {
            fake,
            leaving: BTreeSet::new(),
            names: 0,
            evicted: 0,
            occasions: BTreeMap::new(),
            lost: BTreeMap::new(),
            evictions: Vec::new(),
        }
    }

    fn arrive(&mut self, workload: &Workload) {
        if let Some(mode) = workload.gang {
            let mut spec = GroupSpec::gang(key(&workload.name), workload.pods as u32);
            spec.priority = GroupPriority::Own(workload.priority);
            spec.disruption_mode = mode;
            self.fake.put_group(spec);
        }
        for _ in 0..workload.pods {
            let group = workload.gang.map_or("", |_| &workload.name);
            let name = self.pod_name(&workload.name);
            self.fake.pod_with(&name, group, workload.cpus, |pod| pod.priority = workload.priority);
        }
    }

    fn pod_name(&mut self, workload: &str) -> String {
        self.names += 1;
        format!("{workload}-{}", self.names)
    }

    /// Advances the time; evicted pods leave in time and are recreated at once.
    fn advance(&mut self, span_ms: Millis) {
        let end = self.fake.now + span_ms;
        loop {
            self.decide_all();
            if let Some(command) = self.fake.in_flight.pop() {
                self.execute(command);
                continue;
            }
            let gone = self.leaving.first().map(|(due, _)| *due);
            let due = self.fake.engine.engine().next_wakeup().into_iter().chain(gone).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.fake.now = self.fake.now.max(due);
            while let Some((_, uid)) = self.leaving.first().filter(|(due, _)| *due <= self.fake.now).cloned() {
                self.leaving.pop_first();
                self.fake.remove_pod(&uid);
            }
        }
        self.fake.now = end;
        self.start_bound_pods();
    }

    fn decide_all(&mut self) {
        while self.fake.engine.engine().next_wakeup().is_some_and(|due| due <= self.fake.now) {
            let evictions = self.fake.issued.len();
            self.fake.decide();
            self.count(evictions);
        }
    }

    /// Counts the evictions of one decision.
    fn count(&mut self, evictions: usize) {
        let mut seen: BTreeSet<Pair> = BTreeSet::new();
        for act in &self.fake.issued[evictions..] {
            let Command::Evict { pods, by, .. } = act else { continue };
            self.evicted += pods.len();
            let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
            self.evictions.push(format!("{} evicts {names:?}", preemptor_name(by)));
            for pod in pods {
                *self.lost.entry(workload_of(&pod.name)).or_default() += 1;
                seen.insert((preemptor_name(by), workload_of(&pod.name)));
            }
        }
        for pair in seen {
            *self.occasions.entry(pair).or_default() += 1;
        }
    }

    fn execute(&mut self, command: Command) {
        let Command::Evict { pods, .. } = &command else { return self.fake.execute(command) };
        let gone: Vec<PodSpec> = pods.iter().filter_map(|pod| self.fake.pods.get(&pod.uid).cloned()).collect();
        self.fake.execute(command);
        for pod in gone {
            if self.fake.pods.contains_key(&pod.id.uid) {
                self.leaving.insert((self.fake.now + self.fake.grace_ms, pod.id.uid.clone()));
            }
            let name = self.pod_name(&workload_of(&pod.id.name));
            self.fake.pod_with(&name, "", 1, |again| {
                again.class = pod.class;
                again.membership = pod.membership;
                again.priority = pod.priority;
            });
        }
    }

    fn start_bound_pods(&mut self) {
        let starts = |pod: &PodSpec| pod.node.is_some() && pod.phase == Phase::Pending && !pod.terminating;
        let uids: Vec<String> =
            self.fake.pods.iter().filter(|(_, pod)| starts(pod)).map(|(uid, _)| uid.clone()).collect();
        let now = self.fake.now;
        for uid in uids {
            self.fake.change(&uid, |pod| (pod.phase, pod.started_ms) = (Phase::Running, Some(now)));
        }
    }

    /// Fills the cluster, adds workloads and waits until it settles.
    fn run(&mut self, case: &Case, cheaper: bool) {
        for workload in &case.there {
            self.arrive(workload);
            self.advance(90_000);
        }
        self.fake.config.preemption = PreemptionRules { on: true, cheaper, ..PreemptionRules::default() };
        self.fake.restart();
        self.advance(90_000);
        for workload in &case.come {
            self.arrive(workload);
            self.advance(case.apart_ms);
        }
        self.advance(2 * HOUR_MS);
        let issued = self.fake.issued.len();
        self.advance(2 * HOUR_MS);
        assert_eq!(self.fake.issued.len(), issued, "the cluster settles");
    }

    /// No workloads evict each other, and if only one was added, a workload without losses evicts another at most once.
    fn check(&self, case: &Case) {
        for ((by, victim), times) in &self.occasions {
            let back = self.occasions.get(&(victim.clone(), workload_of(by))).copied().unwrap_or(0);
            assert_eq!(back, 0, "{by} and {victim} evict each other");
            // Members that are recreated one by one preempt one by one. One of several may lose its nominated node to
            // another, and then looks for a new one.
            let own_losses = self.lost.get(by).copied().unwrap_or(0);
            assert!(
                case.come.len() > 1 || *times <= 1 + own_losses,
                "{by} evicts {victim} {times} times, with {own_losses} losses of its own"
            );
        }
    }
}

/// The workload of a pod.
fn workload_of(pod: &str) -> String {
    pod.split('-').next().unwrap_or(pod).to_owned()
}

/// The name of the preemptor: a gang or a single pod.
fn preemptor_name(by: &Subject) -> String {
    match by {
        Subject::Pod(pod) => pod.name.clone(),
        Subject::Group(key) => key.name.clone(),
    }
}

/// A cluster, its initial workloads, and those that are added.
#[derive(Debug)]
struct Case {
    nodes: usize,
    grace_ms: Millis,
    there: Vec<Workload>,
    come: Vec<Workload>,
    /// The time between added workloads.
    apart_ms: Millis,
}

fn case(random: &mut Random, added: usize) -> Case {
    let (nodes, grace_ms) = (2 + random.below(5), if random.chance(50) { 30_000 } else { 0 });
    let mut there: Vec<Workload> =
        (0..4 + random.below(8)).map(|number| workload(number, random, &[0, 0, 10, 20])).collect();
    // Highest priority first: no pod waits for room that one of lower priority has.
    there.sort_by_key(|workload| Reverse(workload.priority));
    let come = (0..added).map(|number| workload(100 + number, random, &[10, 20, 30])).collect();
    Case { nodes, grace_ms, there, come, apart_ms: if random.chance(50) { 90_000 } else { 0 } }
}

fn workload(number: usize, random: &mut Random, priorities: &[i32]) -> Workload {
    let modes = [DisruptionMode::Group, DisruptionMode::Group, DisruptionMode::Pod];
    let gang = random.chance(75).then(|| *random.pick(&modes));
    let (pods, cpus) = (1 + random.below(5), random.between(1, 4));
    Workload { name: format!("w{number}"), pods, cpus, priority: *random.pick(priorities), gang }
}

/// The totals over all cases.
#[derive(Debug, Default)]
struct Totals {
    cases: u64,
    evicted: usize,
    evicted_by_kep_5710: usize,
    fewer: u64,
    more: u64,
}

/// Runs all cases with our plans and with those of KEP-5710.
fn run_all(cases: u64, added: usize) -> Totals {
    let mut totals = Totals::default();
    for_each_seed(cases, |seed| {
        let case = case(&mut Random::new(seed), added);
        let [ours, kep_5710] = [true, false].map(|cheaper| {
            let mut run = Run::new(&case);
            run.run(&case, cheaper);
            run.check(&case);
            run
        });
        totals.cases += 1;
        totals.evicted += ours.evicted;
        totals.evicted_by_kep_5710 += kep_5710.evicted;
        totals.fewer += u64::from(ours.evicted < kep_5710.evicted);
        totals.more += u64::from(ours.evicted > kep_5710.evicted);
        if ours.evicted > kep_5710.evicted && one_seed_only() {
            println!("seed {seed}: {case:#?}\n{:#?}\nby KEP-5710: {:#?}", ours.evictions, kep_5710.evictions);
        }
    });
    println!("{added} added: {totals:?}");
    assert!(one_seed_only() || totals.evicted_by_kep_5710 > cases as usize, "the cases must cause evictions");
    totals
}

#[test]
fn recreated_victims_do_not_cause_eviction_cycles() {
    let Totals { cases, more, .. } = run_all(CASES, 1);
    assert!(one_seed_only() || more * 100 <= cases, "more than by KEP-5710 in {more} of {cases} cases");
}

/// Evicting more than needed may by chance make room for the next workload, so a smaller plan can cost more in the end.
/// That stays rare, and in total less is evicted.
#[test]
fn several_added_workloads_do_not_cause_eviction_cycles() {
    for added in [2, 3] {
        let totals = run_all(CASES / 3, added);
        assert!(one_seed_only() || totals.more * 20 <= totals.cases, "{totals:?}");
        assert!(one_seed_only() || totals.evicted < totals.evicted_by_kep_5710, "{totals:?}");
    }
}
