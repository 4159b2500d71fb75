//! Preemption plans for groups of identical pods: whether there is one is exact, and its cost is compared with the
//! lowest possible cost and with the algorithm of KEP-5710.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{DisruptionMode, GroupKey, GroupPriority, GroupSpec, Policy};
use muster_engine::model::labels::{LabelOperator, Requirement};
use muster_engine::model::pod::{Membership, Phase, PodName, PodSpec};
use muster_engine::preemption::{Cost, NoPlan, PlanSummary};
use muster_engine::{Config, Engine, Observation, PreemptionRules, Subject};
use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};
use muster_oracle::victims::{Group, PlacedPod, PreemptionCase};

use crate::instance::{self, GPU};

const CASES: u64 = 3000;
const NOW: u64 = 1_000_000;
/// Enough to enumerate all sets of victims.
const STEPS_MAX: u64 = 20_000;
/// With more units than this there are too many sets.
const UNITS_MAX: usize = 9;

/// How often plans were optimal.
#[derive(Debug, Default)]
struct Totals {
    plans: u32,
    with_victims: u32,
    none: u32,
    /// Pods were evicted for pods beyond the minimum.
    beyond: u32,
    /// PDB violations and highest priority are minimal.
    first_two_least: u32,
    /// The whole cost is minimal.
    all_least: u32,
    cheaper_than_kep_5710: u32,
    proven: u32,
}

#[test]
fn plans_are_found_whenever_possible_and_are_nearly_optimal() {
    // With the enumeration of all sets as far as it gets, and without it, as with too many units.
    for steps_max in [STEPS_MAX, 0] {
        let mut totals = Totals::default();
        for_each_seed(CASES, |seed| compare(&case(&mut Random::new(seed)), steps_max, &mut totals));
        println!("plans for groups, {steps_max} steps: {totals:?}");
        if !one_seed_only() {
            let Totals { plans, with_victims, beyond, none, first_two_least, all_least, cheaper_than_kep_5710, .. } =
                totals;
            let often = with_victims > 500 && beyond > 50 && none > 200 && cheaper_than_kep_5710 > 50;
            assert!(often, "every outcome must occur often");
            assert!(first_two_least * 100 >= plans * 98, "budgets and the highest priority must be least in 98 of 100");
            assert!(all_least * 100 >= plans * 90, "the whole cost must be least in 90 of 100");
        }
    }
}

/// Compares the engine's plan with the cheapest one and with that of KEP-5710.
fn compare(case: &PreemptionCase, steps_max: u64, totals: &mut Totals) {
    let (least, plan) = match (case.cheapest(), plan(case, steps_max)) {
        (Some(least), Ok(plan)) => (least, plan),
        (None, Err(NoPlan::NotEnough | NoPlan::NoVictims)) => {
            totals.none += 1;
            return;
        }
        (least, plan) => panic!("the lowest cost is {least:?}, the plan {plan:?}: {case:#?}"),
    };
    let gone = check(case, &plan);
    let for_minimum = case.for_minimum(&gone);
    let cost = case.cost(&for_minimum);
    let kep_5710 = case.cost(&case.kep_5710().expect("there is a plan"));
    assert!(cost <= kep_5710, "KEP-5710 costs {kep_5710:?}, not {cost:?}: {case:#?}");
    assert!(!plan.proven || cost == least, "proven, but the lowest cost is {least:?}: {plan:?}, {case:#?}");
    let parts = |cost: &Cost| (cost.pdb_violations, cost.highest);
    totals.plans += 1;
    totals.with_victims += u32::from(!gone.is_empty());
    totals.beyond += u32::from(gone != for_minimum);
    totals.first_two_least += u32::from(parts(&cost) == parts(&least));
    totals.all_least += u32::from(cost == least && check_beyond(case, &plan, &gone, &for_minimum));
    totals.cheaper_than_kep_5710 += u32::from(cost < kep_5710);
    totals.proven += u32::from(plan.proven);
}

/// Whether the victims for pods beyond the minimum are the cheapest that make room for as many of them as possible,
/// without a further violation of a budget. What is proven must be so.
fn check_beyond(
    case: &PreemptionCase,
    plan: &PlanSummary,
    gone: &BTreeSet<usize>,
    for_minimum: &BTreeSet<usize>,
) -> bool {
    let with = |unit: &[usize]| case.cost(&unit.iter().chain(for_minimum).copied().collect()).pdb_violations;
    let units: Vec<_> = case.units_beyond(for_minimum).into_iter().filter(|unit| with(unit) == with(&[])).collect();
    let all = units.iter().flatten().chain(for_minimum).copied().collect();
    let least = case.cheapest_with(for_minimum, &units, case.room(&all)).expect("all units are enough");
    let cost = case.cost(for_minimum);
    let expected = if least.pdb_violations > cost.pdb_violations { cost } else { least };
    assert!(
        case.cost(gone).pdb_violations == case.cost(for_minimum).pdb_violations,
        "a budget is violated for pods beyond the minimum: {plan:?}, {case:#?}"
    );
    let is_least = case.cost(gone) == expected;
    assert!(!plan.proven || is_least, "proven, but the lowest cost is {expected:?}: {plan:?}, {case:#?}");
    is_least
}

#[test]
fn plan_for_a_single_pod_is_that_of_kube_scheduler() {
    let (mut planned, mut none, mut free) = (0_u32, 0_u32, 0_u32);
    for_each_seed(CASES, |seed| {
        let case = case(&mut Random::new(seed));
        match (case.for_single_pod(), plan_for_single_pod(&case)) {
            (Some((node, gone, cost)), Ok(plan)) => {
                let mut victims: Vec<&str> =
                    plan.victims.iter().flat_map(|victim| &victim.pods).map(|pod| pod.name.as_str()).collect();
                victims.sort_unstable();
                let mut expected: Vec<&str> = gone.iter().map(|number| case.pods[*number].name.as_str()).collect();
                expected.sort_unstable();
                assert_eq!(*plan.places[0].1, *instance::node_name(node), "{plan:?}, {cost:?}, {case:#?}");
                assert_eq!((victims, &plan.cost), (expected, &cost), "{case:#?}");
                planned += 1;
                free += u32::from(gone.is_empty());
            }
            (None, Err(NoPlan::NotEnough | NoPlan::NoVictims)) => none += 1,
            (expected, plan) => panic!("{expected:?} is right, not {plan:?}: {case:#?}"),
        }
    });
    println!("plans for one pod: {planned}, {free} of them without a victim, {none} cases have none");
    assert!(one_seed_only() || (planned - free).min(free).min(none) > 200, "every outcome must occur often");
}

/// A plan evicts whole units of a lower priority, none of them unnecessarily, makes room for the minimum, places all
/// pods that have room, and states the right cost. Returns the evicted pods.
fn check(case: &PreemptionCase, plan: &PlanSummary) -> BTreeSet<usize> {
    let number = |pod: &PodName| case.pods.iter().position(|placed| placed.name == pod.name);
    let gone: BTreeSet<usize> =
        plan.victims.iter().flat_map(|victim| &victim.pods).map(|pod| number(pod).expect("a victim exists")).collect();
    let units = case.units();
    for unit in &units {
        let taken = unit.iter().filter(|pod| gone.contains(pod)).count();
        assert!(taken == 0 || taken == unit.len(), "a unit is evicted partly: {unit:?}, {plan:?}");
    }
    assert!(gone.iter().all(|pod| units.iter().flatten().any(|one| one == pod)), "a victim is in no unit: {plan:?}");
    assert_eq!(case.cost(&gone), plan.cost, "{plan:?}, {case:#?}");
    assert!(plan.places.len() >= case.target().expect("there is a plan"), "{plan:?}, {case:#?}");
    assert_eq!(case.room(&gone), plan.places.len(), "{plan:?}, {case:#?}");
    let for_minimum = case.for_minimum(&gone);
    for victim in &plan.victims {
        // Without this one the others are not enough for the minimum, or for the pods beyond it.
        let spared: BTreeSet<usize> = victim.pods.iter().filter_map(|pod| number(pod)).collect();
        let (all, enough) = if spared.is_subset(&for_minimum) {
            (&for_minimum, case.minimum.max(1))
        } else {
            (&gone, plan.places.len())
        };
        let fewer: BTreeSet<usize> = all.difference(&spared).copied().collect();
        assert!(case.room(&fewer) < enough, "{victim:?} is evicted unnecessarily: {plan:?}, {case:#?}");
    }
    gone
}

fn case(random: &mut Random) -> PreemptionCase {
    loop {
        let case = any_case(random);
        if case.units().len() <= UNITS_MAX {
            return case;
        }
    }
}

fn any_case(random: &mut Random) -> PreemptionCase {
    let count = 1 + random.below(4);
    let nodes: Vec<_> = (0..count).map(|number| instance::plain_node(number, 4000, 64 << 30, 4, 110)).collect();
    let groups: Vec<Group> =
        (0..random.below(4)).map(|_| Group { whole: random.chance(60), minimum: 1 + random.below(3) }).collect();
    let group_priorities: Vec<i32> = groups.iter().map(|_| *random.pick(&[0, 5, 10, 30])).collect();
    let allowed: Vec<i64> = (0..random.below(3)).map(|_| random.between(0, 2)).collect();
    let mut pods: Vec<PlacedPod> = Vec::new();
    for (node, _) in nodes.iter().enumerate() {
        let (mut cpu, mut gpus) = (4, 4);
        while cpu > 0 && gpus > 0 && random.chance(85) {
            let (pod_cpu, pod_gpus) = (random.between(1, 2).min(cpu), random.between(0, 3).min(gpus));
            cpu -= pod_cpu;
            gpus -= pod_gpus;
            let group = (!groups.is_empty() && random.chance(60)).then(|| random.below(groups.len()));
            let own = *random.pick(&[-5, 0, 5, 10, 30]);
            pods.push(PlacedPod {
                name: format!("v{}", pods.len()),
                node,
                class: class(pod_cpu, pod_gpus),
                priority: group.map_or(own, |group| group_priorities[group]),
                group,
                started_ms: NOW - random.between(1, 5) as u64 * 1000,
                cost: if random.chance(20) { random.between(1, 9) as i32 } else { 0 },
                budgets: (0..allowed.len()).find(|_| random.chance(40)).into_iter().collect(),
                terminating: random.chance(8),
            });
        }
    }
    let count = 1 + random.below(4);
    let minimum = 1 + random.below(count);
    let class = class(random.between(1, 4), random.between(0, 4));
    PreemptionCase {
        nodes,
        pods,
        groups,
        allowed,
        class,
        count,
        minimum,
        priority: *random.pick(&[7, 20, 20]),
        now: NOW,
    }
}

fn class(cpu: i64, gpus: i64) -> ClassSpec {
    instance::plain_class([("cpu".to_owned(), cpu * 1000), (GPU.to_owned(), gpus)].into())
}

fn key(name: &str) -> GroupKey {
    GroupKey { origin: "test".into(), namespace: "ns".into(), name: name.into(), replica: String::new() }
}

/// The engine's plan for the group.
fn plan(case: &PreemptionCase, steps_max: u64) -> Result<PlanSummary, NoPlan> {
    let mut engine = engine(case, steps_max);
    let mut spec = GroupSpec::gang(key("pending"), case.minimum as u32);
    spec.priority = GroupPriority::Own(case.priority);
    engine.observe(NOW, Observation::GroupSeen(spec)).expect("a valid observation");
    for number in 0..case.count {
        let membership = Some(Membership::of(key("pending")));
        let pod = PodSpec { membership, ..pending_pod(case, number) };
        engine.observe(NOW, Observation::PodSeen(pod)).expect("a valid observation");
    }
    engine.preemption_outlook(&Subject::Group(key("pending"))).expect("the group is pending")
}

/// The engine's plan for a single pod.
fn plan_for_single_pod(case: &PreemptionCase) -> Result<PlanSummary, NoPlan> {
    let mut engine = engine(case, STEPS_MAX);
    let pod = PodSpec { priority: case.priority, ..pending_pod(case, 0) };
    let id = pod.id.clone();
    engine.observe(NOW, Observation::PodSeen(pod)).expect("a valid observation");
    engine.preemption_outlook(&Subject::Pod(id)).expect("the pod is pending")
}

fn pending_pod(case: &PreemptionCase, number: usize) -> PodSpec {
    let name = PodName { namespace: "ns".into(), name: format!("a{number}"), uid: format!("a{number}") };
    PodSpec { id: Arc::new(name), class: Arc::new(case.class.clone()), ours: true, ..PodSpec::default() }
}

/// An engine that has observed everything except the pending pods.
fn engine(case: &PreemptionCase, steps_max: u64) -> Engine {
    let preemption = PreemptionRules { steps_max, ..PreemptionRules::default() };
    let mut engine = Engine::new(Config { preemption, ..Config::default() }).expect("a valid configuration");
    let mut observe = |observation| engine.observe(NOW, observation).expect("a valid observation");
    for node in &case.nodes {
        observe(Observation::NodeSeen(node.clone()));
    }
    for (number, allowed) in case.allowed.iter().enumerate() {
        let selector = Requirement { key: "budget".into(), operator: LabelOperator::In(vec![number.to_string()]) };
        observe(Observation::BudgetSeen(BudgetSpec {
            namespace: "ns".into(),
            name: format!("b{number}"),
            selector: Some(vec![selector]),
            allowed: *allowed as i32,
            disrupted: BTreeSet::new(),
        }));
    }
    for (number, group) in case.groups.iter().enumerate() {
        let policy = Policy::Gang { min_count: group.minimum as u32 };
        let mut spec = GroupSpec::with_policy(key(&format!("g{number}")), policy);
        let first = case.pods.iter().find(|pod| pod.group == Some(number));
        spec.priority = GroupPriority::Own(first.map_or(0, |pod| pod.priority));
        spec.disruption_mode = if group.whole { DisruptionMode::Group } else { DisruptionMode::Pod };
        observe(Observation::GroupSeen(spec));
    }
    for pod in &case.pods {
        let name = PodName { namespace: "ns".into(), name: pod.name.clone(), uid: pod.name.clone() };
        let group = |group: usize| Membership::of(key(&format!("g{group}")));
        observe(Observation::PodSeen(PodSpec {
            id: Arc::new(name),
            class: Arc::new(pod.class.clone()),
            priority: pod.priority,
            membership: pod.group.map(group),
            ours: true,
            node: Some(instance::node_name(pod.node)),
            phase: Phase::Running,
            terminating: pod.terminating,
            created_ms: pod.started_ms,
            started_ms: Some(pod.started_ms),
            preemption_cost: pod.cost,
            labels: Arc::new(pod.budgets.iter().map(|budget| ("budget".to_owned(), budget.to_string())).collect()),
            ..PodSpec::default()
        }));
    }
    engine
}
