//! Whom to evict, answered slowly: the cheapest set of victims by trying every set, and the document's own algorithm.
//!
//! Both are for a group of like pods. What a set costs is written here again from the rules.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::Scoring;
use muster_engine::model::Millis;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::preemption::Cost;

use crate::naive::Naive;

/// A pod on a node that may have to leave.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its name.
    pub name: String,
    /// The number of its node.
    pub node: usize,
    /// What it takes.
    pub class: ClassSpec,
    /// Its group's priority, or its own.
    pub priority: i32,
    /// The number of its group.
    pub group: Option<usize>,
    /// When it began to run.
    pub started_ms: Millis,
    /// What its owner says that its loss would cost.
    pub cost: i32,
    /// The numbers of the budgets that it is under.
    pub budgets: Vec<usize>,
    /// It is being deleted: its room is as good as free, and it cannot be taken.
    pub leaving: bool,
}

/// A group of pods on nodes.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// It is evicted whole or not at all.
    pub whole: bool,
    /// How many members it needs; none if it is no gang.
    pub minimum: usize,
}

/// Like pods that ask for places, and who is in their way.
#[derive(Clone, Debug)]
pub struct Question {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// The pods on them.
    pub pods: Vec<Placed>,
    /// Their groups.
    pub groups: Vec<Group>,
    /// How many pods may go under each budget.
    pub allowed: Vec<i64>,
    /// What each pod that asks takes.
    pub class: ClassSpec,
    /// How many ask.
    pub count: usize,
    /// How many of them must have a place.
    pub minimum: usize,
    /// Their priority.
    pub priority: i32,
    /// The time.
    pub now: Millis,
}

/// The numbers of the pods that go together.
pub type Unit = Vec<usize>;

impl Question {
    /// The pods that are not leaving anyway.
    fn staying(&self) -> impl Iterator<Item = (usize, &Placed)> {
        self.pods.iter().enumerate().filter(|(_, pod)| !pod.leaving)
    }

    /// Everything that can be taken, by the numbers of pods.
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
    fn without(&self, gone: &BTreeSet<usize>) -> Naive {
        let mut naive = Naive::new(&self.nodes, &Scoring::default());
        for (_, pod) in self.staying().filter(|(number, _)| !gone.contains(number)) {
            naive.occupy(pod.node, &pod.class);
        }
        naive
    }

    /// How many of those who ask find a place without these pods.
    pub fn room(&self, gone: &BTreeSet<usize>) -> usize {
        let mut naive = self.without(gone);
        (0..self.count).take_while(|_| naive.place(&self.class).is_some()).count()
    }

    /// How many are to be placed; `None` if the minimum has no room even without everybody below.
    pub fn target(&self) -> Option<usize> {
        let all = self.units().into_iter().flatten().collect();
        Some(self.room(&all)).filter(|room| *room >= self.minimum.max(1))
    }

    /// What it costs to take these pods.
    pub fn cost(&self, gone: &BTreeSet<usize>) -> Cost {
        let pods: Vec<&Placed> = gone.iter().map(|number| &self.pods[*number]).collect();
        let hurt = (0..self.groups.len()).filter(|group| self.is_hurt(*group, gone)).count();
        Cost {
            against_budgets: self.against_budgets(gone),
            highest: pods.iter().map(|pod| pod.priority).max(),
            priorities: pods.iter().map(|pod| i64::from(pod.priority) + (1 << 31)).sum(),
            groups: hurt as u32,
            pods: pods.len() as u32,
            asked: pods.iter().map(|pod| i64::from(pod.cost)).sum(),
            lost_ms: pods.iter().map(|pod| self.now - pod.started_ms).sum(),
        }
    }

    /// With at most one budget for a pod, the order does not matter.
    fn against_budgets(&self, gone: &BTreeSet<usize>) -> u32 {
        let under = |budget: usize| gone.iter().filter(|number| self.pods[**number].budgets.contains(&budget)).count();
        let too_many =
            self.allowed.iter().enumerate().map(|(budget, allowed)| under(budget) as i64 - (*allowed).max(0));
        too_many.map(|too_many| too_many.max(0) as u32).sum()
    }

    fn is_hurt(&self, group: usize, gone: &BTreeSet<usize>) -> bool {
        let Group { whole, minimum } = self.groups[group];
        let members = || self.staying().filter(|(_, pod)| pod.group == Some(group));
        let taken = members().filter(|(number, _)| gone.contains(number)).count();
        let there = members().count();
        if whole { taken > 0 } else { there >= minimum && there - taken < minimum }
    }

    /// The least that any set of units costs; `None` if there is no set that makes enough room.
    pub fn cheapest(&self) -> Option<Cost> {
        let (units, target) = (self.units(), self.target()?);
        let sets = 0_u32..1 << units.len();
        let gone = |set: u32| -> BTreeSet<usize> {
            units.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0).flat_map(|(_, unit)| unit.clone()).collect()
        };
        let mut best: Option<Cost> = None;
        for set in sets.map(gone) {
            let cost = self.cost(&set);
            if best.as_ref().is_none_or(|best| cost < *best) && self.room(&set) >= target {
                best = Some(cost);
            }
        }
        best
    }

    /// What the document's algorithm takes, step by step.
    pub fn plain(&self) -> Option<BTreeSet<usize>> {
        let target = self.target()?;
        let mut units = self.units();
        units.sort_by_key(|unit| self.unimportance(unit));
        let (breaking, others) = self.split_by_budgets(&units);
        let everybody: BTreeSet<usize> = units.iter().flatten().copied().collect();
        let broken = self.reprieve(&everybody, target, &breaking);
        let lowest = |others: &[&Unit]| {
            let mut priorities: Vec<Option<i32>> =
                others.iter().map(|unit| Some(self.pods[unit[0]].priority)).collect();
            priorities.push(None);
            priorities.sort_unstable();
            let touched = |limit: &Option<i32>| self.touched(&broken, others, *limit);
            priorities.into_iter().find(|limit| self.room(&touched(limit)) >= target)
        };
        let others: Vec<&Unit> = others.iter().collect();
        let limit = lowest(&others)?;
        let away = self.touched(&broken, &others, limit);
        let candidates: Vec<Unit> =
            others.into_iter().filter(|unit| Some(self.pods[unit[0]].priority) <= limit).cloned().collect();
        let mut taken = self.reprieve(&away, target, &candidates);
        taken.extend(&broken);
        Some(taken)
    }

    /// The most important unit has the least of it.
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

    /// What kube-scheduler does for one of the pods that ask, node by node, with groups that go whole taken whole: the
    /// node, who goes, and what it costs by its rules.
    pub fn for_one(&self) -> Option<(usize, BTreeSet<usize>, Cost)> {
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
        let mut gone: BTreeSet<usize> = units.iter().flatten().copied().collect();
        if !self.without(&gone).feasible(node, &self.class) {
            return None;
        }
        let (breaking, others) = self.split_by_budgets(&units);
        for unit in breaking.iter().chain(&others) {
            let fewer: BTreeSet<usize> = gone.iter().copied().filter(|number| !unit.contains(number)).collect();
            if self.without(&fewer).feasible(node, &self.class) {
                gone = fewer;
            }
        }
        Some(gone)
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

    fn touched(&self, broken: &BTreeSet<usize>, others: &[&Unit], limit: Option<i32>) -> BTreeSet<usize> {
        let touched = others.iter().filter(|unit| Some(self.pods[unit[0]].priority) <= limit);
        broken.iter().copied().chain(touched.flat_map(|unit| (*unit).clone())).collect()
    }

    /// Places all without `away` and lets the candidates come back that fit beside them; answers those that do not.
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
                let mut beside = with.clone();
                beside.release(*node, &self.class);
                beside.feasible(*node, &self.class)
            });
            if fits { naive = with } else { taken.extend(unit) }
        }
        taken
    }
}
