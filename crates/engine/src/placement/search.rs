//! A search for mixed groups: deterministic, exact if it comes to its end, and limited in steps.
//!
//! Depth first over the lots, hardest first; the units of a lot go to nodes in an order that is fixed when the
//! lot begins, tightest first, never backwards (like pods are interchangeable) unless they can make places for each
//! other, and of nodes that are alike only the first is tried. A branch ends as soon as what is left cannot meet the needs. Where the needs are
//! fewer than the pods, the rest of a lot may be left out.

use std::collections::BTreeSet;

use super::cache::Cache;
use super::{Verdict, Want, near};
use crate::cluster::trial::Trial;
use crate::filter;
use crate::model::ids::{NodeId, ResourceId};
use crate::model::port::HostPort;

/// Deeper than this a search has no hope of ending, and the stack has limits.
const UNITS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Found,
    /// Nothing below this branch.
    Exhausted,
    OutOfSteps,
}

/// Searches for a placement that meets the needs; the trial holds it if there is one.
pub(super) fn search(
    trial: &mut Trial<'_>,
    cache: &mut Cache,
    want: &Want,
    order: &[usize],
    steps_max: u64,
) -> Verdict {
    let units: usize = want.lots.iter().map(super::Lot::len).sum();
    if units > UNITS_MAX {
        return Verdict::NotFound { steps: 0 };
    }
    let eligible = want
        .lots
        .iter()
        .map(|lot| {
            let candidates = cache.candidates(trial.cluster(), lot.class, want.priority);
            candidates.nodes_that_would_do().filter(|node| !lot.avoid.contains(node)).collect()
        })
        .collect();
    let mut resources: Vec<ResourceId> = want
        .lots
        .iter()
        .flat_map(|lot| trial.cluster().class(lot.class).requests.iter().map(|(resource, _)| resource))
        .collect();
    resources.sort_unstable();
    resources.dedup();
    let minds_others = want.lots.iter().any(|lot| trial.cluster().class(lot.class).has_demands());
    let mut search = Search {
        minds_others,
        trial,
        want,
        order,
        eligible,
        resources,
        missing: want.needs.iter().map(|need| i64::from(*need)).collect(),
        steps_left: steps_max,
    };
    let mark = search.trial.mark();
    let outcome = search.begin_lot(0);
    let steps = steps_max - search.steps_left;
    match outcome {
        Outcome::Found => Verdict::Placed,
        Outcome::Exhausted if !want.avoids() && near::only_takes_places(trial.cluster(), want) => Verdict::Impossible,
        Outcome::Exhausted | Outcome::OutOfSteps => {
            trial.undo_to(mark);
            Verdict::NotFound { steps }
        }
    }
}

struct Search<'s, 'c> {
    trial: &'s mut Trial<'c>,
    want: &'s Want,
    order: &'s [usize],
    /// The nodes that would do, by lot.
    eligible: Vec<Vec<NodeId>>,
    /// The resources that any lot asks for.
    resources: Vec<ResourceId>,
    /// What each subset still needs; at most zero when it has enough.
    missing: Vec<i64>,
    /// Whether it matters to some of them who is near.
    minds_others: bool,
    steps_left: u64,
}

impl Search<'_, '_> {
    /// Goes on with the lot at this place in the order.
    fn begin_lot(&mut self, at: usize) -> Outcome {
        if self.missing.iter().all(|missing| *missing <= 0) {
            return Outcome::Found;
        }
        let Some(lot) = self.order.get(at).copied() else { return Outcome::Exhausted };
        let mut nodes: Vec<(i64, NodeId)> = self.eligible[lot].iter().map(|node| (self.slack(*node), *node)).collect();
        if !self.spend(nodes.len()) {
            return Outcome::OutOfSteps;
        }
        nodes.sort_unstable();
        let nodes: Vec<NodeId> = nodes.into_iter().map(|(_, node)| node).collect();
        self.next_unit(at, 0, &nodes, 0)
    }

    /// Places this unit of the lot somewhere in `nodes[from..]`, or leaves the rest of the lot out.
    fn next_unit(&mut self, at: usize, unit: usize, nodes: &[NodeId], from: usize) -> Outcome {
        let position = self.order[at];
        let lot = &self.want.lots[position];
        if self.missing.iter().all(|missing| *missing <= 0) {
            return Outcome::Found;
        }
        if unit == lot.len() || self.missing[lot.subset] <= 0 {
            return self.begin_lot(at + 1);
        }
        match self.within_reach(at, unit) {
            Some(true) => {}
            Some(false) => return Outcome::Exhausted,
            None => return Outcome::OutOfSteps,
        }
        let mut tried: BTreeSet<Likeness> = BTreeSet::new();
        for (place, node) in nodes.iter().enumerate().skip(from) {
            if !self.spend(1) {
                return Outcome::OutOfSteps;
            }
            if self.copies_max(position, *node) < 1 {
                continue;
            }
            if !tried.insert(self.likeness(*node)) {
                continue;
            }
            let mark = self.trial.mark();
            lot.place(unit, *node, self.trial);
            self.missing[lot.subset] -= 1;
            // Where who is placed makes places elsewhere, the way may lead back.
            let next = if near::may_gain_places(self.trial.cluster(), lot.class) { 0 } else { place };
            let outcome = self.next_unit(at, unit + 1, nodes, next);
            if outcome == Outcome::Found {
                return outcome;
            }
            self.missing[lot.subset] += 1;
            self.trial.undo_to(mark);
            if outcome == Outcome::OutOfSteps {
                return outcome;
            }
        }
        // Leave the rest of the lot out: others may meet the needs.
        self.begin_lot(at + 1)
    }

    /// Whether what is left could still meet the needs if every lot were alone; `None` if the steps ran out.
    fn within_reach(&mut self, at: usize, unit: usize) -> Option<bool> {
        let mut missing = self.missing.clone();
        for (later, position) in self.order.iter().copied().enumerate().skip(at) {
            let lot = &self.want.lots[position];
            let units = if later == at { lot.len() - unit } else { lot.len() } as i64;
            if missing[lot.subset] <= 0 {
                continue;
            }
            let mut room = 0;
            for index in 0..self.eligible[position].len() {
                if room >= units {
                    break;
                }
                if !self.spend(1) {
                    return None;
                }
                room += self.room_to_hope_for(position, self.eligible[position][index]);
            }
            missing[lot.subset] -= room.min(units);
        }
        Some(missing.iter().all(|missing| *missing <= 0))
    }

    fn copies_max(&self, lot: usize, node: NodeId) -> i64 {
        let cluster = self.trial.cluster();
        let view = filter::view(cluster, node, self.want.priority);
        filter::copies_max(cluster.class(self.want.lots[lot].class), cluster.node(node), &view)
    }

    /// How many could go to a node at best, whoever else is placed.
    fn room_to_hope_for(&self, lot: usize, node: NodeId) -> i64 {
        let (cluster, class) = (self.trial.cluster(), self.want.lots[lot].class);
        if !near::may_gain_places(cluster, class) {
            return self.copies_max(lot, node);
        }
        let view = filter::view(cluster, node, self.want.priority);
        filter::copies_max_alone(cluster.class(class), cluster.node(node), &view)
    }

    /// How much of what the group asks for would be left unused, in thousandths: less is tighter.
    fn slack(&self, id: NodeId) -> i64 {
        let node = self.trial.cluster().node(id);
        self.resources
            .iter()
            .map(|resource| {
                let (all, used) = (node.allocatable.get(*resource), node.load.used.get(*resource));
                if all == 0 { 0 } else { (i128::from(all.saturating_sub(used).max(0)) * 1000 / i128::from(all)) as i64 }
            })
            .sum()
    }

    /// Everything about a node that matters to the rest of the search.
    fn likeness(&self, id: NodeId) -> Likeness {
        let cluster = self.trial.cluster();
        let (node, view) = (cluster.node(id), filter::view(cluster, id, self.want.priority));
        let load = &view.load;
        let free = self
            .resources
            .iter()
            .map(|resource| node.allocatable.get(*resource).saturating_sub(load.used.get(*resource)));
        let mut numbers: Vec<i64> = free.collect();
        numbers.push(node.pods_max - load.pods as i64);
        numbers.push(i64::from(view.claimed));
        if self.minds_others {
            // Who is near may be all the difference.
            numbers.push(i64::from(id.0));
        }
        numbers.extend(self.eligible.iter().map(|nodes| i64::from(nodes.binary_search(&id).is_ok())));
        Likeness { numbers, ports: load.ports.clone() }
    }

    fn spend(&mut self, steps: usize) -> bool {
        let steps = steps as u64;
        if self.steps_left < steps {
            self.steps_left = 0;
            return false;
        }
        self.steps_left -= steps;
        true
    }
}

/// Two nodes with equal likenesses are interchangeable for what is left of the search.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    numbers: Vec<i64>,
    ports: Vec<HostPort>,
}
