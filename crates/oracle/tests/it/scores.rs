//! Single pods: the engine must choose the same node as kube-scheduler, or report the right reasons why there is none.

use std::sync::Arc;

use muster_engine::diagnosis::Rejection;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::PodSpec;
use muster_engine::model::taint::{Effect, Taint};
use muster_engine::{
    BindOutcome, Command, Config, Diagnosis, Engine, Observation, Profile, Report, Scoring, ShapePoint, Strategy,
    Subject, Weighted,
};
use muster_oracle::naive::Naive;
use muster_oracle::random::Random;

use crate::engine_run::{decide, engine, observe, pod, recount};
use crate::instance::{self, GPU};
use muster_oracle::seeds::for_each_seed;

const CASES: u64 = 6000;
const PODS_EACH: usize = 12;

#[test]
fn every_choice_and_every_rejection_matches_the_naive_scheduler() {
    let (mut placed, mut refused) = (0, 0);
    for_each_seed(CASES, |seed| {
        let mut run = Run::new(&mut Random::new(seed));
        for number in 0..PODS_EACH {
            if run.one_pod(number) { placed += 1 } else { refused += 1 }
        }
    });
    println!("scores: {placed} pods placed, {refused} refused, in {CASES} clusters");
}

#[test]
fn rejection_is_about_the_pod_and_not_about_a_deleted_one() {
    let nodes = [instance::plain_node(0, 1000, 0, 0, 110)];
    let mut engine = engine(&nodes, &[], Config::default());
    for (name, resource, amount) in [("first", "memory", 1), ("second", "cpu", 2000)] {
        let class = Arc::new(instance::plain_class([(resource.to_owned(), amount)].into()));
        observe(&mut engine, Observation::PodSeen(PodSpec { ours: true, ..pod(name, &class) }));
        let commands = decide(&mut engine);
        let [Command::Report(report)] = &commands[..] else { panic!("not a report: {commands:?}") };
        let Diagnosis::PodUnschedulable { fit, .. } = &report.diagnosis else { panic!("not a refusal: {report:?}") };
        assert_eq!(fit.rejections, [(Rejection::Insufficient { resource: resource.to_owned() }, 1)], "{name}");
        observe(&mut engine, Observation::PodGone { uid: name.to_owned() });
    }
}

#[test]
fn node_may_get_more_soft_taints_than_any_had_before() {
    let mut nodes = [instance::plain_node(0, 4000, 0, 0, 110), instance::plain_node(1, 4000, 0, 0, 110)];
    let soft = |key: &str| Taint { key: key.into(), value: String::new(), effect: Effect::PreferNoSchedule };
    nodes[0].taints = vec![soft("one")];
    let mut engine = engine(&nodes, &[], Config::default());
    let class = Arc::new(instance::plain_class([("cpu".to_owned(), 1000)].into()));
    for name in ["first", "second"] {
        observe(&mut engine, Observation::PodSeen(PodSpec { ours: true, ..pod(name, &class) }));
        let commands = decide(&mut engine);
        assert!(matches!(&commands[..], [Command::Bind { node, .. }] if **node == *"n1"), "{commands:?}");
        nodes[0].taints = vec![soft("one"), soft("two"), soft("three")];
        observe(&mut engine, Observation::NodeSeen(nodes[0].clone()));
    }
}

/// One cluster, used by both schedulers.
struct Run {
    random: Random,
    nodes: Vec<NodeSpec>,
    occupied: Vec<(usize, ClassSpec)>,
    classes: Vec<Arc<ClassSpec>>,
    scoring: Scoring,
    naive: Naive,
    engine: Engine,
    /// Pods that the engine placed: name, node and class.
    placed: Vec<(String, usize, Arc<ClassSpec>)>,
}

impl Run {
    fn new(random: &mut Random) -> Self {
        let count = 1 + random.below(9);
        let nodes: Vec<NodeSpec> = (0..count).map(|number| instance::node(random, number)).collect();
        let occupied = instance::occupied(random, count);
        let scoring = scoring(random);
        let naive = Naive::new(&nodes, &scoring);
        let engine = engine(
            &nodes,
            &occupied,
            Config { profiles: vec![Profile { scoring: scoring.clone(), ..Profile::default() }], ..Config::default() },
        );
        let classes: Vec<_> = (0..3).map(|_| small_class(random, count)).collect();
        let mut run =
            Self { random: random.clone(), nodes, occupied, classes, scoring, naive, engine, placed: Vec::new() };
        run.rebuild_naive();
        run
    }

    /// The naive scheduler does not support node changes: it is rebuilt.
    fn rebuild_naive(&mut self) {
        self.naive = Naive::new(&self.nodes, &self.scoring);
        for (node, class) in &self.occupied {
            self.naive.occupy(*node, class);
        }
        for (_, node, class) in &self.placed {
            self.naive.occupy(*node, class);
        }
    }

    /// Lets both schedulers place the next pod and compares the results; returns whether it was placed.
    fn one_pod(&mut self, number: usize) -> bool {
        let class = self.random.pick(&self.classes).clone();
        let name = format!("p{number}");
        let totals = self.naive.totals(&class);
        let before = self.naive.clone();
        let chosen = self.naive.place(&class);
        observe(&mut self.engine, Observation::PodSeen(PodSpec { ours: true, ..pod(&name, &class) }));
        let mut commands = decide(&mut self.engine);
        assert_eq!(commands.len(), 1, "{commands:?}");
        match (commands.remove(0), chosen) {
            (Command::Bind { pod, node, .. }, Some(chosen)) => {
                let context = || format!("{totals:?} of {class:#?} on {:#?} with {:#?}", self.nodes, self.scoring);
                assert_eq!(*node, *self.nodes[chosen].name, "another node: {}", context());
                if self.random.chance(50) {
                    observe(&mut self.engine, Observation::BindDone { pod, node, outcome: BindOutcome::Bound });
                }
                self.placed.push((name, chosen, class));
            }
            (Command::Report(report), None) => self.check_refused(&before, &class, &name, &report),
            (command, chosen) => panic!("{command:?}, but the naive choice is {chosen:?} of {totals:?} for {class:#?}"),
        }
        if self.random.chance(15) {
            self.remove_a_pod();
        }
        if self.random.chance(15) {
            self.change_a_node();
        }
        chosen.is_some()
    }

    fn check_refused(&mut self, before: &Naive, class: &ClassSpec, name: &str, report: &Report) {
        let (Subject::Pod(id), Diagnosis::PodUnschedulable { fit, never, .. }) = (&report.subject, &report.diagnosis)
        else {
            panic!("not a refusal of a pod: {report:?}");
        };
        assert_eq!(id.uid, name);
        assert_eq!(*fit, recount(before, self.nodes.len(), class), "{class:#?} on {:#?}", self.nodes);
        let empty = Naive::new(&self.nodes, &self.scoring);
        let nowhere = (0..self.nodes.len()).all(|node| !empty.feasible(node, class));
        assert_eq!(*never, nowhere, "{class:#?} on {:#?}", self.nodes);
        // A pending pod is retried first when there is room again, so identical pods behind it would not be evaluated.
        observe(&mut self.engine, Observation::PodGone { uid: name.to_owned() });
    }

    fn change_a_node(&mut self) {
        let number = self.random.below(self.nodes.len());
        self.nodes[number] = instance::node(&mut self.random, number);
        observe(&mut self.engine, Observation::NodeSeen(self.nodes[number].clone()));
        self.rebuild_naive();
    }

    fn remove_a_pod(&mut self) {
        if self.placed.is_empty() {
            return;
        }
        let (uid, node, class) = self.placed.swap_remove(self.random.below(self.placed.len()));
        self.naive.release(node, &class);
        observe(&mut self.engine, Observation::PodGone { uid });
    }
}

/// A class of which a node holds several, with preferences.
fn small_class(random: &mut Random, nodes: usize) -> Arc<ClassSpec> {
    let mut class = instance::class(random, nodes, 8);
    for (name, amount) in &mut class.requests {
        if name != GPU && random.chance(80) {
            *amount = *amount / 3 + 1;
        }
    }
    let sized = instance::plain_class(class.requests.clone());
    (class.scoring_cpu_milli, class.scoring_memory_bytes) = (sized.scoring_cpu_milli, sized.scoring_memory_bytes);
    instance::add_preferences(random, nodes, &mut class);
    Arc::new(class)
}

fn scoring(random: &mut Random) -> Scoring {
    let mut scoring = Scoring { strategy: strategy(random), ..Scoring::default() };
    for resource in [GPU, "ephemeral-storage"] {
        if random.chance(30) {
            scoring.fit_resources.push(Weighted { name: resource.to_owned(), weight: random.between(1, 5) });
        }
        if random.chance(30) {
            scoring.balanced_resources.push(resource.to_owned());
        }
    }
    if random.chance(20) {
        scoring.fit_resources[0].weight = random.between(1, 100);
        scoring.fit_resources.swap_remove(1);
    }
    if random.chance(20) {
        scoring.weight_taints = random.between(0, 10);
        scoring.weight_node_affinity = random.between(0, 10);
        scoring.weight_fit = random.between(0, 10);
        scoring.weight_balanced = random.between(0, 10);
    }
    scoring
}

fn strategy(random: &mut Random) -> Strategy {
    match random.below(3) {
        0 => Strategy::LeastAllocated,
        1 => Strategy::MostAllocated,
        _ => {
            let mut utilizations: Vec<i64> = (0..=random.below(3)).map(|_| random.between(0, 100)).collect();
            utilizations.sort_unstable();
            utilizations.dedup();
            let mut point = |utilization| ShapePoint { utilization, score: random.between(0, 10) };
            Strategy::RequestedToCapacityRatio { shape: utilizations.into_iter().map(&mut point).collect() }
        }
    }
}
