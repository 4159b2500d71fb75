//! Placement: a place for each of a set of pods, or the proof that there is none.
//!
//! The control flow is here, the parts are below: `candidates` keeps the nodes of a class best first,
//! `greedy` fills them, `bounds` proves that there cannot be enough room, and `search` looks further for
//! mixed groups within a budget of steps. The answer is always one of three: placed, impossible, or not
//! found within the budget.
//!
//! For like pods (`likeness`) the first greedy pass is exact: what fits on one node does not depend on the others, so it
//! places as many as anybody could. Where they mind who is near, `near` says whether that still holds.

mod alone;
mod bounds;
pub(crate) mod cache;
mod candidates;
mod cells;
mod greedy;
mod likeness;
mod near;
mod search;
mod tournament;

use crate::cluster::trial::Trial;
use crate::model::ids::{ClassId, NodeId, PodId};
use cache::Cache;
pub(crate) use near::may_gain_places;

/// Like pods of one subset.
#[derive(Clone, Debug)]
pub(crate) struct Lot {
    pub(crate) class: ClassId,
    pub(crate) subset: usize,
    /// The pods, in the order in which they are placed.
    pub(crate) pods: Vec<PodId>,
    /// So many more of them are expected; room for them is looked for, behind the pods.
    pub(crate) expected: usize,
    /// Nodes that refused these pods.
    pub(crate) avoid: Vec<NodeId>,
}

impl Lot {
    pub(crate) fn len(&self) -> usize {
        self.pods.len() + self.expected
    }

    /// Places the unit with this number: a pod, or the room for one that is expected.
    fn place(&self, unit: usize, node: NodeId, trial: &mut Trial<'_>) {
        match self.pods.get(unit) {
            Some(pod) => trial.place(*pod, node),
            None => trial.occupy(self.class, node),
        }
    }
}

/// Pods that want a place.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) lots: Vec<Lot>,
    /// How many of each subset must be placed, or none is.
    pub(crate) needs: Vec<u32>,
    /// The priority of whoever asks.
    pub(crate) priority: i32,
}

impl Want {
    /// Whether one class does for all, so that the first pass is exact.
    pub(crate) fn is_like(&self) -> bool {
        self.lots.windows(2).all(|pair| pair[0].class == pair[1].class) && !self.avoids()
    }

    /// Whether some nodes are left out by our own wish: then nothing is proven by a "no".
    pub(crate) fn avoids(&self) -> bool {
        self.lots.iter().any(|lot| !lot.avoid.is_empty())
    }

    /// Whether there are too few pods to meet the needs, whatever room there is.
    fn is_short(&self) -> bool {
        let there = |subset| self.lots.iter().filter(|lot| lot.subset == subset).map(Lot::len).sum::<usize>();
        self.needs.iter().enumerate().any(|(subset, need)| there(subset) < *need as usize)
    }

    pub(crate) fn needs_total(&self) -> u64 {
        self.needs.iter().map(|need| u64::from(*need)).sum()
    }
}

/// The answer. If it is `Placed`, the trial holds the placement; else the trial is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The needs are met, and what else fits is placed too.
    Placed,
    /// There is no placement.
    Impossible,
    /// None was found; there may be one.
    NotFound {
        /// The steps that the search took.
        steps: u64,
    },
}

/// Places at least what is needed and whatever else fits. Without needs it is for the caller to see whether anything
/// was placed; if nothing was, nothing can be.
pub(crate) fn place(trial: &mut Trial<'_>, cache: &mut Cache, want: &Want, steps_max: u64) -> Verdict {
    if want.is_short() {
        return Verdict::Impossible;
    }
    let order = bounds::hardest_first(trial, cache, want);
    if greedy::place(trial, cache, want, &order) || near::place_together(trial, cache, want, &order) {
        return Verdict::Placed;
    }
    let alike = !want.avoids() && likeness::all_demand_the_same(trial.cluster(), want);
    if (alike && near::greedy_is_exact(trial.cluster(), want)) || bounds::too_little_room(trial, cache, want) {
        return Verdict::Impossible;
    }
    let easiest_first: Vec<usize> = order.iter().rev().copied().collect();
    if greedy::place(trial, cache, want, &easiest_first) || near::place_together(trial, cache, want, &easiest_first) {
        return Verdict::Placed;
    }
    let outcome = search::search(trial, cache, want, &order, steps_max);
    if outcome == Verdict::Placed {
        greedy::fill(trial, cache, want, &order);
    }
    outcome
}

/// Places as many as fit without regard to needs, to see how far it would go. Says in which order: hardest first.
pub(crate) fn place_what_fits(trial: &mut Trial<'_>, cache: &mut Cache, want: &Want) -> Vec<usize> {
    let order = bounds::hardest_first(trial, cache, want);
    greedy::fill(trial, cache, want, &order);
    order
}

/// How many pods of a class would fit, counted up to `enough`.
pub(crate) fn room_for(trial: &Trial<'_>, cache: &mut Cache, class: ClassId, priority: i32, enough: i64) -> i64 {
    bounds::room_for(trial.cluster(), cache, class, priority, &[], enough)
}
