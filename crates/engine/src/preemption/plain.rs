//! The document's algorithm, step by step: everybody of a lower priority goes, the group is placed, and whoever still
//! fits beside it comes back, the most important first.
//!
//! The group stays where it was placed first. What it finds is never better than what the rest of this module may find,
//! and nothing that is carried out is ever worse.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::unit::{self, Unit};
use crate::cluster::trial::Trial;
use crate::filter::{self, View};
use crate::model::ids::{ClassId, NodeId, PodId};
use crate::placement::cache::Cache;
use crate::placement::{self, Verdict, Want};

/// One run of the algorithm. The trial is given back as it was.
pub(crate) struct Plain<'p, 'c> {
    pub(crate) trial: &'p mut Trial<'c>,
    pub(crate) cache: &'p mut Cache,
    pub(crate) want: &'p Want,
    /// Most important first.
    pub(crate) units: &'p [Unit],
    /// The units that are taken against a budget, if all are taken.
    pub(crate) breaking: &'p [bool],
    pub(crate) steps_max: u64,
}

impl Plain<'_, '_> {
    /// The units to take; `None` if no placement was found although all were away.
    pub(crate) fn run(&mut self) -> Option<Vec<usize>> {
        let (breaking, others): (Vec<usize>, Vec<usize>) = (0..self.units.len()).partition(|unit| self.breaking[*unit]);
        let all: Vec<usize> = (0..self.units.len()).collect();
        let mut taken = if breaking.is_empty() { Vec::new() } else { self.reprieve(&all, &breaking)? };
        let priority = self.lowest_priority(&taken, &others)?;
        let touched: Vec<usize> =
            others.into_iter().filter(|unit| i64::from(self.units[*unit].priority) <= priority).collect();
        let away: Vec<usize> = taken.iter().chain(&touched).copied().collect();
        taken.extend(self.reprieve(&away, &touched)?);
        taken.sort_unstable();
        Some(taken)
    }

    /// Takes all of `away`, places the group, and lets those of `candidates` come back that fit beside it. Answers those
    /// that do not.
    fn reprieve(&mut self, away: &[usize], candidates: &[usize]) -> Option<Vec<usize>> {
        let mark = self.trial.mark();
        self.take(away);
        let answer = self.place().then(|| {
            let placed = self.placed();
            let mut taken = Vec::new();
            for unit in candidates {
                if !self.comes_back(&placed, *unit) {
                    taken.push(*unit);
                }
            }
            taken
        });
        self.trial.undo_to(mark);
        answer
    }

    /// The lowest priority that has to be touched beside those that are taken already, or one below all of them. With
    /// all of them away there is room: that was found out before.
    fn lowest_priority(&mut self, taken: &[usize], others: &[usize]) -> Option<i64> {
        let mut steps: Vec<i64> = others.iter().map(|unit| i64::from(self.units[*unit].priority)).collect();
        steps.push(i64::MIN);
        steps.sort_unstable();
        steps.dedup();
        let (mut low, mut high) = (0, steps.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            let touched = others.iter().copied().filter(|unit| i64::from(self.units[*unit].priority) <= steps[middle]);
            let away: Vec<usize> = taken.iter().copied().chain(touched).collect();
            let mark = self.trial.mark();
            self.take(&away);
            let fits = self.place();
            self.trial.undo_to(mark);
            if fits {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        steps.get(low).copied()
    }

    fn take(&mut self, away: &[usize]) {
        unit::remove_all(self.trial, away.iter().map(|unit| &self.units[*unit]));
    }

    fn place(&mut self) -> bool {
        placement::place(self.trial, self.cache, self.want, self.steps_max) == Verdict::Placed
    }

    /// Which kinds of the group's pods were placed where.
    fn placed(&self) -> BTreeMap<NodeId, Vec<ClassId>> {
        let mut placed: BTreeMap<NodeId, Vec<ClassId>> = BTreeMap::new();
        for (pod, node) in self.trial.placed() {
            let classes = placed.entry(node).or_default();
            let class = self.trial.cluster().pod(pod).class;
            if !classes.contains(&class) {
                classes.push(class);
            }
        }
        placed
    }

    /// Puts a unit back if the group still fits beside it, where it is.
    fn comes_back(&mut self, placed: &BTreeMap<NodeId, Vec<ClassId>>, unit: usize) -> bool {
        let mark = self.trial.mark();
        self.units[unit].come_back(self.trial);
        let nodes = self.units[unit].pods.iter().map(|(_, node)| *node);
        let fits = nodes
            .filter_map(|node| Some((node, placed.get(&node)?)))
            .all(|(node, classes)| classes.iter().all(|class| self.still_fits(node, *class)));
        if !fits || !self.all_are_still_welcome() {
            self.trial.undo_to(mark);
            return false;
        }
        true
    }

    /// Whether nobody who is near, wherever he is, keeps any of the group from where it is.
    fn all_are_still_welcome(&mut self) -> bool {
        let cluster = self.trial.cluster();
        let minds = |pod: &PodId| cluster.class(cluster.pod(*pod).class).has_demands();
        let placed: Vec<(PodId, NodeId)> = self.trial.placed().filter(|(pod, _)| minds(pod)).collect();
        placed.into_iter().all(|(pod, node)| {
            let mark = self.trial.mark();
            self.trial.remove(pod);
            let cluster = self.trial.cluster();
            let (class, view) =
                (cluster.class(cluster.pod(pod).class), filter::view(cluster, node, self.want.priority));
            let welcome = filter::is_welcome(class, cluster.node(node), &view);
            self.trial.undo_to(mark);
            welcome
        })
    }

    /// Whether a node may hold a pod of the group that it holds.
    fn still_fits(&self, node: NodeId, class: ClassId) -> bool {
        let cluster = self.trial.cluster();
        let View { load, claimed, .. } = filter::view(cluster, node, self.want.priority);
        let mut load = load.into_owned();
        load.sub(cluster.class(class));
        let view = View { load: Cow::Owned(load), claimed, near: None };
        filter::has_room_alone(cluster.class(class), cluster.node(node), &view)
    }
}
