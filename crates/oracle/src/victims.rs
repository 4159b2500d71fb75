//! Reference for preemption: the cheapest set of victims by enumeration, and the algorithm of KEP-5710.
//!
//! Both are for a group of identical pods. The cost of a set is implemented again from the rules.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::Scoring;
use muster_engine::model::Millis;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::preemption::Cost;

use crate::naive::Naive;

/// A pod on a node that may be evicted.
#[derive(Clone, Debug)]
pub struct PlacedPod {
    /// Its name.
    pub name: String,
    /// The index of its node.
    pub node: usize,
    /// Its class.
    pub class: ClassSpec,
    /// Its group's priority, or its own.
    pub priority: i32,
    /// The index of its group.
    pub group: Option<usize>,
    /// When it started to run.
    pub started_ms: Millis,
    /// The preemption cost declared by its owner.
    pub cost: i32,
    /// The indices of the budgets that cover it.
    pub budgets: Vec<usize>,
    /// It is being deleted: its room counts as free, and it cannot be evicted.
    pub terminating: bool,
}

/// A group of pods on nodes.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// It is evicted whole or not at all.
    pub whole: bool,
    /// Its minimum; zero if it is not a gang.
    pub minimum: usize,
}

/// Identical pending pods, and the cluster in which they may preempt.
#[derive(Clone, Debug)]
pub struct PreemptionCase {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// The pods on them.
    pub pods: Vec<PlacedPod>,
    /// Their groups.
    pub groups: Vec<Group>,
    /// How many pods may be evicted under each budget.
    pub allowed: Vec<i64>,
    /// The class of the pending pods.
    pub class: ClassSpec,
    /// The number of pending pods.
    pub count: usize,
    /// How many of them must be placed.
    pub minimum: usize,
    /// Their priority.
    pub priority: i32,
    /// The time.
    pub now: Millis,
}

/// The indices of pods that are evicted together.
pub type Unit = Vec<usize>;

impl PreemptionCase {
    /// The pods that are not already terminating.
    fn staying(&self) -> impl Iterator<Item = (usize, &PlacedPod)> {
        self.pods.iter().enumerate().filter(|(_, pod)| !pod.terminating)
    }

    /// All victim units, as indices of pods.
    pub fn units(&self) -> Vec<Unit> {
        let mut units: Vec<Unit> = Vec::new();
        let mut by_group: BTreeMap<usize, usize> = BTreeMap::new();
        for (number, pod) in self.staying().filter(|(_, pod)| pod.priority < self.priority) {
            match pod.group.filter(|group| self.groups[*group].whole) {
                Some(group) => {
                    let unit = *by_group.entry(group).or_insert_with(|| {
                        units.push(Vec::new());
                        units.len() - 1
                    });
                    units[unit].push(number);
                }
                None => units.push(vec![number]),
            }
        }
        units
    }

    /// The cluster without these pods.
    fn without(&self, evicted: &BTreeSet<usize>) -> Naive {
        let mut naive = Naive::new(&self.nodes, &Scoring::default());
        for (_, pod) in self.staying().filter(|(number, _)| !evicted.contains(number)) {
            naive.occupy(pod.node, &pod.class);
        }
        naive
    }

    /// How many pending pods fit without these pods.
    pub fn room(&self, evicted: &BTreeSet<usize>) -> usize {
        let mut naive = self.without(evicted);
        (0..self.count).take_while(|_| naive.place(&self.class).is_some()).count()
    }

    /// How many pods must be placed; `None` if they do not fit even without all possible victims.
    pub fn target(&self) -> Option<usize> {
        let all = self.units().into_iter().flatten().collect();
        Some(self.minimum.max(1)).filter(|minimum| self.room(&all) >= *minimum)
    }

    /// The victims of the highest priorities that make room for the minimum.
    pub fn for_minimum(&self, evicted: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut priorities: Vec<Option<i32>> =
            evicted.iter().map(|number| Some(self.pods[*number].priority)).chain([None]).collect();
        priorities.sort_unstable_by(|one, two| two.cmp(one));
        let above = |lowest: Option<i32>| -> BTreeSet<usize> {
            let is_above = |number: &usize| lowest.is_some_and(|lowest| self.pods[*number].priority >= lowest);
            evicted.iter().copied().filter(is_above).collect()
        };
        let none = BTreeSet::new();
        if self.room(&none) >= self.minimum.max(1) {
            return none;
        }
        let enough = |lowest: &Option<i32>| self.room(&above(*lowest)) >= self.minimum.max(1);
        priorities.into_iter().find(enough).map_or_else(|| evicted.clone(), above)
    }

    /// The units that may be evicted for pods beyond the minimum, if these are evicted for it.
    pub fn units_beyond(&self, for_minimum: &BTreeSet<usize>) -> Vec<Unit> {
        let lowest = for_minimum.iter().map(|number| self.pods[*number].priority).min();
        let is_below = |unit: &Unit| lowest.is_none_or(|lowest| self.pods[unit[0]].priority < lowest);
        self.units().into_iter().filter(is_below).collect()
    }

    /// The cost of evicting these pods.
    pub fn cost(&self, evicted: &BTreeSet<usize>) -> Cost {
        let pods: Vec<&PlacedPod> = evicted.iter().map(|number| &self.pods[*number]).collect();
        let disrupted = (0..self.groups.len()).filter(|group| self.is_disrupted(*group, evicted)).count();
        Cost {
            pdb_violations: self.pdb_violations(evicted),
            highest: pods.iter().map(|pod| pod.priority).max(),
            priorities: pods.iter().map(|pod| i64::from(pod.priority) + (1 << 31)).sum(),
            groups: disrupted as u32,
            pods: pods.len() as u32,
            preemption_cost: pods.iter().map(|pod| i64::from(pod.cost)).sum(),
            lost_ms: pods.iter().map(|pod| self.now - pod.started_ms).sum(),
        }
    }

    /// With at most one budget for a pod, the order does not matter.
    fn pdb_violations(&self, evicted: &BTreeSet<usize>) -> u32 {
        let covered =
            |budget: usize| evicted.iter().filter(|number| self.pods[**number].budgets.contains(&budget)).count();
        let excess =
            self.allowed.iter().enumerate().map(|(budget, allowed)| covered(budget) as i64 - (*allowed).max(0));
        excess.map(|excess| excess.max(0) as u32).sum()
    }

    fn is_disrupted(&self, group: usize, evicted: &BTreeSet<usize>) -> bool {
        let Group { whole, minimum } = self.groups[group];
        let members = || self.staying().filter(|(_, pod)| pod.group == Some(group));
        let taken = members().filter(|(number, _)| evicted.contains(number)).count();
        let there = members().count();
        if whole { taken > 0 } else { there >= minimum && there - taken < minimum }
    }

    /// The lowest cost for the minimum; `None` if no set of units frees enough room.
    pub fn cheapest(&self) -> Option<Cost> {
        self.cheapest_with(&BTreeSet::new(), &self.units(), self.target()?)
    }

    /// The lowest cost of evicting these pods and any set of units, if so many pods must fit.
    pub fn cheapest_with(&self, first: &BTreeSet<usize>, units: &[Unit], target: usize) -> Option<Cost> {
        let sets = 0_u32..1 << units.len();
        let evicted = |set: u32| -> BTreeSet<usize> {
            let units =
                units.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0).flat_map(|(_, unit)| unit.clone());
            units.chain(first.iter().copied()).collect()
        };
        let mut best: Option<Cost> = None;
        for set in sets.map(evicted) {
            let cost = self.cost(&set);
            if best.as_ref().is_none_or(|best| cost < *best) && self.room(&set) >= target {
                best = Some(cost);
            }
        }
        best
    }

    /// The victims that the algorithm of KEP-5710 chooses.
    pub fn kep_5710(&self) -> Option<BTreeSet<usize>> {
        let target = self.target()?;
        let mut units = self.units();
        units.sort_by_key(|unit| self.unimportance(unit));
        let (violating, others) = self.split_by_budgets(&units);
        let all_pods: BTreeSet<usize> = units.iter().flatten().copied().collect();
        let violators = self.reprieve(&all_pods, target, &violating);
        let lowest = |others: &[&Unit]| {
            let mut priorities: Vec<Option<i32>> =
                others.iter().map(|unit| Some(self.pods[unit[0]].priority)).collect();
            priorities.push(None);
            priorities.sort_unstable();
            let touched = |limit: &Option<i32>| self.touched(&violators, others, *limit);
            priorities.into_iter().find(|limit| self.room(&touched(limit)) >= target)
        };
        let others: Vec<&Unit> = others.iter().collect();
        let limit = lowest(&others)?;
        let away = self.touched(&violators, &others, limit);
        let candidates: Vec<Unit> =
            others.into_iter().filter(|unit| Some(self.pods[unit[0]].priority) <= limit).cloned().collect();
        let mut taken = self.reprieve(&away, target, &candidates);
        taken.extend(&violators);
        Some(taken)
    }

    /// Sorts the most important unit first.
    fn unimportance(&self, unit: &Unit) -> (i32, u8, usize, Millis, usize) {
        let pod = &self.pods[unit[0]];
        let loss = match pod.group.map(|group| self.groups[group].whole) {
            Some(true) => 0,
            Some(false) if self.is_needed(unit[0]) => 1,
            None => 2,
            Some(false) => 3,
        };
        let started = unit.iter().map(|number| self.pods[*number].started_ms).min().unwrap_or(0);
        (-pod.priority, loss, usize::MAX - unit.len(), started, unit[0])
    }

    /// Whether a pod is one of the oldest members, which make up the minimum of their gang.
    fn is_needed(&self, number: usize) -> bool {
        let Some(group) = self.pods[number].group else { return false };
        let mut members: Vec<(Millis, usize)> = self
            .staying()
            .filter(|(_, pod)| pod.group == Some(group))
            .map(|(number, pod)| (pod.started_ms, number))
            .collect();
        members.sort_unstable();
        members.iter().take(self.groups[group].minimum).any(|(_, member)| *member == number)
    }

    /// The plan of kube-scheduler for a single pod, node by node, with groups evicted whole if required: the node, the
    /// victims, and their cost by its criteria.
    pub fn for_single_pod(&self) -> Option<(usize, BTreeSet<usize>, Cost)> {
        let mut best: Option<(usize, BTreeSet<usize>, Cost)> = None;
        for node in 0..self.nodes.len() {
            let Some(taken) = self.victims_on(node) else { continue };
            let highest = taken.iter().map(|number| self.pods[*number].priority).max();
            let of_highest = taken.iter().map(|number| &self.pods[*number]).filter(|pod| Some(pod.priority) == highest);
            let lost_ms = of_highest.map(|pod| self.now - pod.started_ms).max().unwrap_or(0);
            let cost = Cost { lost_ms, ..self.cost(&taken) };
            if best.as_ref().is_none_or(|(_, _, best)| cost < *best) {
                best = Some((node, taken, cost));
            }
        }
        best
    }

    fn victims_on(&self, node: usize) -> Option<BTreeSet<usize>> {
        let mut units = self.units();
        units.retain(|unit| unit.iter().any(|number| self.pods[*number].node == node));
        units.sort_by_key(|unit| self.unimportance(unit));
        let mut evicted: BTreeSet<usize> = units.iter().flatten().copied().collect();
        if !self.without(&evicted).feasible(node, &self.class) {
            return None;
        }
        let (violating, others) = self.split_by_budgets(&units);
        for unit in violating.iter().chain(&others) {
            let fewer: BTreeSet<usize> = evicted.iter().copied().filter(|number| !unit.contains(number)).collect();
            if self.without(&fewer).feasible(node, &self.class) {
                evicted = fewer;
            }
        }
        Some(evicted)
    }

    fn split_by_budgets(&self, units: &[Unit]) -> (Vec<Unit>, Vec<Unit>) {
        let mut left: Vec<i64> = self.allowed.iter().map(|allowed| (*allowed).max(0)).collect();
        units.iter().cloned().partition(|unit| {
            let mut breaks = false;
            for budget in unit.iter().flat_map(|number| &self.pods[*number].budgets) {
                left[*budget] -= 1;
                breaks |= left[*budget] < 0;
            }
            breaks
        })
    }

    fn touched(&self, violators: &BTreeSet<usize>, others: &[&Unit], limit: Option<i32>) -> BTreeSet<usize> {
        let touched = others.iter().filter(|unit| Some(self.pods[unit[0]].priority) <= limit);
        violators.iter().copied().chain(touched.flat_map(|unit| (*unit).clone())).collect()
    }

    /// Places all pods without `away` and reprieves the candidates that still fit; returns the others.
    fn reprieve(&self, away: &BTreeSet<usize>, target: usize, candidates: &[Unit]) -> BTreeSet<usize> {
        let mut naive = self.without(away);
        let placed: Vec<usize> = (0..target).filter_map(|_| naive.place(&self.class)).collect();
        let mut taken = BTreeSet::new();
        for unit in candidates {
            let mut with = naive.clone();
            for number in unit {
                with.occupy(self.pods[*number].node, &self.pods[*number].class);
            }
            let fits = placed.iter().all(|node| {
                let mut without_own = with.clone();
                without_own.release(*node, &self.class);
                without_own.feasible(*node, &self.class)
            });
            if fits { naive = with } else { taken.extend(unit) }
        }
        taken
    }
}
