//! Random hostile tenants: whatever they create, the pods of others are placed soon, at their usual cost, and stay.
//!
//! Left out is what Kubernetes gives every tenant: required anti-affinity to the pods of all namespaces keeps others from
//! a node.

use std::sync::Arc;

use muster_engine::model::Millis;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupKey, GroupSpec};
use muster_engine::model::inter_pod::{InterPodConstraints, PodSelector, PodTerm, PreferredPodTerm, SpreadTerm};
use muster_engine::model::labels::{LabelOperator, Requirement};
use muster_engine::model::pod::{Lifetime, Membership, PodName, PodSpec};
use muster_engine::{Command, Config, Observation, PreemptionRules};
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;

use crate::fake_cluster::{FakeCluster, key};
use crate::inter_pod_affinity::{HOST, ZONE, labels, node};

const NODES: usize = 24;
const NODE_CPUS: i64 = 8;
const TENANTS: usize = 3;
const MINUTE: Millis = 60_000;
/// An attempt with more steps makes its namespace wait.
const CHEAP_STEPS_MAX: u64 = 1000;
/// What the attempt of an innocent pod may cost.
const INNOCENT_STEPS_MAX: u64 = 10 * NODES as u64;
const SEARCH_STEPS_MAX: u64 = 20_000;
const PREEMPTION_STEPS_MAX: u64 = 500;
/// What any attempt may cost: the searches have limits, each step of which looks at all nodes at most.
const STEPS_MAX: u64 = (SEARCH_STEPS_MAX + PREEMPTION_STEPS_MAX) * NODES as u64;

struct Run {
    fake: FakeCluster,
    random: Random,
    names: usize,
    /// The names of what hostile tenants have created.
    hostile_pods: Vec<String>,
    hostile_groups: Vec<GroupKey>,
    /// The CPUs that hostile pods can take in all.
    hostile_cpus: i64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let preemption = PreemptionRules { steps_max: PREEMPTION_STEPS_MAX, ..PreemptionRules::default() };
        let config = Config {
            search_steps_initial: SEARCH_STEPS_MAX / 4,
            search_steps_max: SEARCH_STEPS_MAX,
            preemption,
            ..Config::default()
        };
        let mut fake = FakeCluster::with(config);
        for number in 0..NODES {
            node(&mut fake, &format!("n{number:02}"), &format!("z{}", number % 3), NODE_CPUS);
        }
        for tenant in 0..TENANTS {
            fake.put_namespace(&format!("hostile-{tenant}"), labels(&[("team", &format!("t{tenant}"))]));
        }
        fake.pod("first", "", 1);
        fake.settle();
        let random = Random::new(seed);
        Self { fake, random, names: 0, hostile_pods: Vec::new(), hostile_groups: Vec::new(), hostile_cpus: 0 }
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}-{}", self.names)
    }

    /// Creates a pod of a hostile tenant that requests a thousandth of these CPUs.
    fn hostile_pod(
        &mut self,
        namespace: &str,
        group: Option<&GroupKey>,
        cpu_milli: i64,
        change: impl FnOnce(&mut PodSpec),
    ) {
        let name = self.name("h");
        let own = labels(&[("own", &name), ("app", ["web", "h"][self.random.below(2)])]);
        self.fake.pod_with(&name, "", 0, |pod| {
            pod.id = Arc::new(PodName { namespace: namespace.into(), ..(*pod.id).clone() });
            pod.membership = group.map(|group| Membership::of(group.clone()));
            pod.class = Arc::new(ClassSpec {
                requests: [("cpu".to_owned(), cpu_milli)].into(),
                scoring_cpu_milli: cpu_milli,
                ..ClassSpec::default()
            });
            pod.labels = Arc::new(own);
            pod.lifetime = Lifetime::ToCompletion;
            change(pod);
        });
        self.hostile_pods.push(name);
    }

    fn hostile_group(&mut self, namespace: &str, min_count: u32, change: impl FnOnce(&mut GroupSpec)) -> GroupKey {
        let key = GroupKey { namespace: namespace.into(), ..key(&self.name("g")) };
        let mut spec = GroupSpec::gang(key.clone(), min_count);
        change(&mut spec);
        self.fake.put_group(spec);
        self.hostile_groups.push(key.clone());
        key
    }

    fn selector(&mut self, namespace: &str) -> PodSelector {
        let number = self.random.below(1000).to_string();
        let requirement = |key: &str, operator| vec![Requirement { key: key.to_owned(), operator }];
        let requirements = match self.random.below(5) {
            0 => Vec::new(),
            1 => requirement("own", LabelOperator::NotIn(vec![number])),
            2 => requirement("own", LabelOperator::Exists),
            3 => requirement("app", LabelOperator::In(vec!["web".to_owned(), number])),
            _ => requirement(&format!("k{number}"), LabelOperator::DoesNotExist),
        };
        let everywhere = self.random.chance(70).then(Vec::new);
        let namespaces = if everywhere.is_some() { [].into() } else { [namespace.to_owned()].into() };
        PodSelector { namespaces, namespace_selector: everywhere, labels: requirements }
    }

    fn constraints(&mut self, namespace: &str) -> InterPodConstraints {
        let mut inter_pod = InterPodConstraints::default();
        for _ in 0..=self.random.below(4) {
            let topology_key = match self.random.below(4) {
                0 => ZONE.to_owned(),
                1 => format!("key-{}", self.random.below(1000)),
                _ => HOST.to_owned(),
            };
            let mut term = PodTerm { pods: self.selector(namespace), topology_key };
            match self.random.below(6) {
                0 => inter_pod.required_affinity.push(term),
                1 => {
                    (term.pods.namespaces, term.pods.namespace_selector) = ([namespace.to_owned()].into(), None);
                    inter_pod.required_anti_affinity.push(term);
                }
                2 | 3 => {
                    let weight = [-1, 1][self.random.below(2)] * self.random.between(1, 100) as i32;
                    inter_pod.preferred.push(PreferredPodTerm { weight, term });
                }
                kind => {
                    let spread = SpreadTerm {
                        pods: term.pods,
                        topology_key: term.topology_key,
                        max_skew: 1 + self.random.below(3) as u32,
                        min_domains: 1 + self.random.below(4) as u32,
                        honors_node_affinity: self.random.chance(50),
                        honors_node_taints: self.random.chance(50),
                    };
                    let spreads = &mut inter_pod.spread;
                    if kind == 4 { spreads.do_not_schedule.push(spread) } else { spreads.schedule_anyway.push(spread) }
                }
            }
        }
        inter_pod
    }

    /// A hostile tenant creates or deletes something.
    fn attack(&mut self) {
        let namespace = format!("hostile-{}", self.random.below(TENANTS));
        match self.random.below(10) {
            0..=3 => {
                let inter_pod = Some(Arc::new(self.constraints(&namespace)));
                let preemption_cost = self.random.between(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
                self.hostile_pod(&namespace, None, 1, |pod| {
                    pod.class = Arc::new(ClassSpec { inter_pod, ..(*pod.class).clone() });
                    pod.preemption_cost = preemption_cost;
                });
            }
            4 => {
                let names: Vec<String> = (0..=self.random.below(64)).map(|_| self.name("example.com/r")).collect();
                self.hostile_pod(&namespace, None, 1, |pod| {
                    let mut class = (*pod.class).clone();
                    class.requests.extend(names.into_iter().take(63).map(|name| (name, 1)));
                    pod.class = Arc::new(class);
                });
            }
            5 => self.mixed_gang(&namespace),
            6 => {
                // It starts with a small pod and keeps room for a large rest.
                let amount = 1000 * self.random.between(1, 1 << 20);
                let group = self.hostile_group(&namespace, 1, |spec| {
                    spec.min_resources = [("cpu".to_owned(), amount)].into();
                });
                self.hostile_pod(&namespace, Some(&group), 1, |_| {});
            }
            7 => {
                // It needs more whole nodes than there are without pods, and starves.
                let count = NODES as u32;
                let group = self.hostile_group(&namespace, count, |_| {});
                for _ in 0..count {
                    self.hostile_pod(&namespace, Some(&group), 1000 * NODE_CPUS, |_| {});
                }
            }
            8 if !self.hostile_pods.is_empty() => {
                let name = self.hostile_pods.swap_remove(self.random.below(self.hostile_pods.len()));
                if self.fake.pods.values().any(|pod| pod.id.name == name) {
                    self.fake.remove(&name);
                }
            }
            9 if !self.hostile_groups.is_empty() && self.random.chance(30) => {
                let key = self.hostile_groups.swap_remove(self.random.below(self.hostile_groups.len()));
                self.fake.groups.remove(&key);
                self.fake.observe(Observation::GroupGone { key });
            }
            _ => {
                let span_ms = self.random.below(5) as Millis * MINUTE;
                self.fake.advance(span_ms);
            }
        }
    }

    /// A gang whose members all differ, so that its placement is searched for.
    fn mixed_gang(&mut self, namespace: &str) {
        let count = 2 + self.random.below(8);
        let group = self.hostile_group(namespace, count as u32, |_| {});
        let sizes: Vec<i64> = (0..count).map(|_| self.random.between(1, 3000)).collect();
        // So much that innocent pods always fit beside it.
        let fits = self.hostile_cpus + sizes.iter().sum::<i64>() < 30_000;
        self.hostile_cpus += if fits { sizes.iter().sum::<i64>() } else { 0 };
        for size in sizes {
            let inter_pod = self.constraints(namespace);
            let size = if fits { size } else { size + 1000 * NODE_CPUS };
            self.hostile_pod(namespace, Some(&group), size, |pod| {
                pod.class = Arc::new(ClassSpec { inter_pod: Some(Arc::new(inter_pod)), ..(*pod.class).clone() });
            });
        }
    }

    /// An innocent pod is bound at once, after at most one expensive attempt of each tenant, at its usual cost.
    fn innocent_is_bound(&mut self) {
        let name = self.name("innocent");
        let uid = self.fake.pod_with(&name, "", 1, |pod| pod.labels = Arc::new(labels(&[("app", "web")])));
        let mut expensive = 0;
        loop {
            let due = self.fake.engine.engine().next_wakeup().is_some_and(|due| due <= self.fake.now);
            assert!(due, "{name} is not bound: {:?}", self.fake.pod_diagnosis(&name));
            self.decide();
            let steps = self.fake.engine.engine().last_attempt().map_or(0, |attempt| attempt.steps);
            let is_bind = |command: &Command| matches!(command, Command::Bind { pod, .. } if pod.uid == uid);
            if self.fake.in_flight.iter().any(is_bind) {
                assert!(steps <= INNOCENT_STEPS_MAX, "{name}: {steps} steps");
                break;
            }
            expensive += usize::from(steps > CHEAP_STEPS_MAX);
        }
        assert!(expensive <= TENANTS, "{name} waited for {expensive} expensive attempts");
    }

    fn decide(&mut self) {
        self.fake.decide();
        let steps = self.fake.engine.engine().last_attempt().map_or(0, |attempt| attempt.steps);
        assert!(steps <= STEPS_MAX, "an attempt of {steps} steps");
    }
}

#[test]
fn innocent_pods_are_placed_soon_and_stay() {
    for_each_seed(50, |seed| {
        let mut run = Run::new(seed);
        for _ in 0..12 {
            for _ in 0..run.random.below(8) {
                run.attack();
            }
            if run.random.chance(50) {
                run.innocent_is_bound();
            }
            if run.random.chance(30) {
                run.fake.settle();
            }
        }
        run.innocent_is_bound();
        run.fake.settle();
        assert_eq!(run.fake.evicted(), [""; 0]);
    });
}
