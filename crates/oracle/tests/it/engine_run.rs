//! Runs the engine on an instance and records its commands.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::diagnosis::{FitError, Rejection, Shortfall};
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupKey, GroupSpec, Policy, Subset};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Membership, PodName, PodSpec};
use muster_engine::{Command, Config, Diagnosis, Engine, MemberVerdict, Observation, Report, Scoring, invariants};
use muster_oracle::brute::{Lot, placeable};
use muster_oracle::naive::{FailureReason, Naive};
use muster_oracle::random::Random;

/// A pending gang and its cluster.
#[derive(Debug, Default)]
pub(crate) struct Gang {
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) occupied: Vec<(usize, ClassSpec)>,
    /// Members that are already bound: the node and the lot of each. They are not counted in the lots or the needs.
    pub(crate) held: Vec<(usize, usize)>,
    /// The pending members.
    pub(crate) lots: Vec<Lot>,
    /// How many more of each subset are needed; a single subset is a plain minimum.
    pub(crate) needs: Vec<u32>,
}

/// The outcome for a gang.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The lot and the node of each pod that was bound.
    Placed(Vec<(usize, usize)>),
    Refused(Shortfall),
}

impl Gang {
    pub(crate) fn pods(&self) -> u32 {
        self.lots.iter().map(|lot| lot.count).sum()
    }

    /// Makes two lots of one: the pods of the second have an image, which requires nothing.
    pub(crate) fn split_a_lot(&mut self, random: &mut Random) {
        let at = random.below(self.lots.len());
        if self.lots[at].count > 1 {
            let count = random.between(1, i64::from(self.lots[at].count) - 1) as u32;
            self.lots[at].count -= count;
            let mut class = self.lots[at].class.clone();
            class.images = vec!["image".into()];
            self.lots.push(Lot { class, subset: self.lots[at].subset, count });
        }
    }

    /// All pods on nodes.
    pub(crate) fn placed_pods(&self) -> Vec<(usize, ClassSpec)> {
        let held = self.held.iter().map(|(node, lot)| (*node, self.lots[*lot].class.clone()));
        self.occupied.iter().cloned().chain(held).collect()
    }

    /// Whether the pending members can be placed.
    pub(crate) fn placeable(&self) -> bool {
        placeable(&self.nodes, &self.placed_pods(), &self.lots, &self.needs)
    }

    /// Whether the pending members could be placed on an empty cluster.
    pub(crate) fn placeable_when_empty(&self) -> bool {
        placeable(&self.nodes, &[], &self.lots, &self.needs)
    }

    /// The cluster with the existing pods.
    pub(crate) fn naive(&self) -> Naive {
        let mut naive = Naive::new(&self.nodes, &Scoring::default());
        for (node, class) in self.placed_pods() {
            naive.occupy(node, &class);
        }
        naive
    }

    fn key() -> GroupKey {
        GroupKey { namespace: "ml".into(), name: "gang".into(), ..GroupKey::default() }
    }

    fn spec(&self) -> GroupSpec {
        let mut minimums = self.needs.clone();
        for (_, lot) in &self.held {
            minimums[self.lots[*lot].subset] += 1;
        }
        if let [min_count] = minimums[..] {
            return GroupSpec::gang(Self::key(), min_count);
        }
        let subsets = minimums.into_iter().enumerate();
        let subsets = subsets.map(|(number, min_member)| Subset { name: subset_name(number), min_member });
        GroupSpec::with_policy(Self::key(), Policy::Subsets(subsets.collect()))
    }

    fn members(&self) -> Vec<PodSpec> {
        let held = self.held.iter().enumerate().map(|(number, (node, lot))| PodSpec {
            node: Some(self.nodes[*node].name.clone()),
            ..self.member(*lot, &format!("held-{number}"))
        });
        let waiting = self.lots.iter().enumerate();
        let waiting =
            waiting.flat_map(|(lot, Lot { count, .. })| (0..*count).map(move |pod| (lot, format!("{lot}-{pod}"))));
        held.chain(waiting.map(|(lot, name)| self.member(lot, &name))).collect()
    }

    fn member(&self, lot: usize, name: &str) -> PodSpec {
        let Lot { class, subset, .. } = &self.lots[lot];
        let subset = if self.needs.len() == 1 { String::new() } else { subset_name(*subset) };
        let membership = Some(Membership { group: Self::key(), subset, attempt: None });
        PodSpec { membership, ours: true, controlled: true, ..pod(name, &Arc::new(class.clone())) }
    }

    /// Runs a new engine on the whole instance.
    pub(crate) fn run(&self) -> Outcome {
        let mut engine = engine(&self.nodes, &self.occupied, Config::default());
        observe(&mut engine, Observation::GroupSeen(self.spec()));
        for member in self.members() {
            observe(&mut engine, Observation::PodSeen(member));
        }
        self.outcome(decide(&mut engine))
    }

    /// Runs a new engine until the gang is placed, at most for so long. Returns when it was, and what was bound.
    pub(crate) fn run_until(&self, end: u64) -> Option<(u64, Vec<(usize, usize)>)> {
        let mut engine = engine(&self.nodes, &self.occupied, Config::default());
        observe(&mut engine, Observation::GroupSeen(self.spec()));
        for member in self.members() {
            observe(&mut engine, Observation::PodSeen(member));
        }
        while let Some(now) = engine.next_wakeup().filter(|now| *now <= end) {
            let commands = engine.decide(now);
            if commands.iter().any(|command| matches!(command, Command::Bind { .. }))
                && let Outcome::Placed(bound) = self.outcome(commands)
            {
                return Some((now, bound));
            }
        }
        None
    }

    /// Interprets the engine's commands; a gang is either bound or reported as unschedulable.
    pub(crate) fn outcome(&self, commands: Vec<Command>) -> Outcome {
        let (mut bound, mut refused, mut seen) = (Vec::new(), None, BTreeSet::new());
        for command in commands {
            match command {
                Command::Bind { pod, node, .. } => {
                    let (lot, _) = pod.uid.split_once('-').expect("only members are bound");
                    let node = self.nodes.iter().position(|spec| *spec.name == *node).expect("a node that exists");
                    bound.push((lot.parse().expect("a lot's number"), node));
                    assert!(seen.insert(pod.uid.clone()), "{pod} is bound twice");
                }
                Command::Report(report) => refused = Some(shortfall(&report)),
                other => panic!("not expected here: {other:?}"),
            }
        }
        match refused {
            Some(shortfall) if bound.is_empty() => Outcome::Refused(shortfall),
            None if !bound.is_empty() => Outcome::Placed(bound),
            both_or_none => panic!("neither placed nor refused: {bound:?}, {both_or_none:?}"),
        }
    }

    /// Checks pod by pod that the bound pods fit and meet the needs; returns the cluster with all of them.
    pub(crate) fn check_placed(&self, bound: &[(usize, usize)]) -> Naive {
        let mut naive = self.naive();
        let mut placed = vec![0; self.needs.len()];
        for (lot, node) in bound {
            let Lot { class, subset, .. } = &self.lots[*lot];
            assert_eq!(
                naive.failure_reasons(*node, class),
                [],
                "a pod of lot {lot} does not fit on node {node}: {self:?}"
            );
            naive.occupy(*node, class);
            placed[*subset] += 1;
        }
        let enough = placed.iter().zip(&self.needs).all(|(placed, need)| placed >= need);
        assert!(enough, "{placed:?} were bound: {self:?}");
        naive
    }
}

/// The shortfall of a report; the verdicts of the members must add up to it.
fn shortfall(report: &Report) -> Shortfall {
    let Diagnosis::GroupUnschedulable(shortfall) = &report.diagnosis else {
        panic!("not a refusal of a group: {report:?}");
    };
    let would_fit = report.members.iter().filter(|(_, verdict)| *verdict == MemberVerdict::WouldFit).count();
    let reported = (report.members.len() as u32, would_fit as u32);
    assert_eq!(reported, (shortfall.waiting, shortfall.would_fit), "{report:?}");
    shortfall.clone()
}

fn subset_name(number: usize) -> String {
    format!("s{number}")
}

/// A pending pod.
pub(crate) fn pod(name: &str, class: &Arc<ClassSpec>) -> PodSpec {
    let id = PodName { namespace: "ml".into(), name: name.to_owned(), uid: name.to_owned() };
    PodSpec { id: Arc::new(id), class: class.clone(), ..PodSpec::default() }
}

/// An engine that has observed the nodes, in this order, and the pods on them.
pub(crate) fn engine(nodes: &[NodeSpec], occupied: &[(usize, ClassSpec)], config: Config) -> Engine {
    let mut engine = Engine::new(config).expect("a valid configuration");
    for node in nodes {
        observe(&mut engine, Observation::NodeSeen(node.clone()));
    }
    for (number, (node, class)) in occupied.iter().enumerate() {
        let there = pod(&format!("placed-{number}"), &Arc::new(class.clone()));
        let node = Some(nodes[*node].name.clone());
        observe(&mut engine, Observation::PodSeen(PodSpec { node, ..there }));
    }
    engine
}

pub(crate) fn observe(engine: &mut Engine, observation: Observation) {
    engine.observe(0, observation).expect("the instances are valid");
}

/// Runs the engine until nothing is due at time 0.
pub(crate) fn decide(engine: &mut Engine) -> Vec<Command> {
    let mut commands = Vec::new();
    while engine.next_wakeup().is_some_and(|due| due == 0) {
        commands.extend(engine.decide(0));
        invariants::check(engine).unwrap_or_else(|wrong| panic!("an invariant does not hold: {wrong}"));
    }
    commands
}

/// Why no node is feasible, according to the naive scheduler.
pub(crate) fn recount(naive: &Naive, nodes: usize, class: &ClassSpec) -> FitError {
    let mut rejections: Vec<(Rejection, u32)> = Vec::new();
    for failure_reasons in (0..nodes).flat_map(|node| naive.failure_reasons(node, class)) {
        let rejection = match failure_reasons {
            FailureReason::NodeName => Rejection::NodeName,
            FailureReason::Unschedulable => Rejection::Unschedulable,
            FailureReason::Taints => Rejection::Taints,
            FailureReason::NodeAffinity => Rejection::NodeAffinity,
            FailureReason::Ports => Rejection::Ports,
            FailureReason::TooManyPods => Rejection::TooManyPods,
            FailureReason::Insufficient(resource) => Rejection::Insufficient { resource },
        };
        match rejections.iter_mut().find(|(known, _)| *known == rejection) {
            Some((_, count)) => *count += 1,
            None => rejections.push((rejection, 1)),
        }
    }
    rejections.sort_unstable();
    FitError { nodes: nodes as u32, rejections, ..FitError::default() }
}
