//! Why not: what a refusal says, kept as long as it holds.
//!
//! How many pods of a class would find a place, and what stops the next one, is the same for whoever asks while the
//! cluster is the same. So the first "no" looks at every node and the following ones, of like pods and of gangs of like
//! pods, are free: ten thousand gangs that wait for one kind of node can all be woken by one event.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::cycle::own_view;
use crate::cluster::Cluster;
use crate::command::MemberVerdict;
use crate::diagnosis::{Closest, Diagnosis, FitError, KINDS_MAX, KindShortfall, Preemption, Proof, Shortfall, examine};
use crate::model::ids::{ClassId, GroupId, NodeId};
use crate::model::pod::PodName;
use crate::placement::{self, Verdict, Want};
use crate::preemption::NoPlan;
use crate::queue::Line;

/// What is known of a class for which there is not enough room.
#[derive(Clone, Debug)]
struct No {
    /// So many find a place.
    room: u64,
    /// So many would in a cluster without any pods.
    room_when_empty: u64,
    /// What stops the next one.
    fit: FitError,
    closest: Option<Closest>,
}

/// Every "no" that holds for the present picture of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Noes {
    version: u64,
    by_line: BTreeMap<Line, No>,
    /// How many of a kind could not be given a place even by preemption, and why.
    no_plans: BTreeMap<Line, (u64, NoPlan)>,
}

impl Noes {
    fn get(&self, cluster: &Cluster, line: Line) -> Option<&No> {
        if self.version == cluster.version() { self.by_line.get(&line) } else { None }
    }

    fn put(&mut self, cluster: &Cluster, line: Line, no: No) {
        self.begin(cluster);
        self.by_line.insert(line, no);
    }

    fn begin(&mut self, cluster: &Cluster) {
        if self.version != cluster.version() {
            self.version = cluster.version();
            self.by_line.clear();
            self.no_plans.clear();
        }
    }

    /// Why so many of a kind cannot be given a place by preemption, if that was just found out.
    pub(super) fn no_plan(&self, cluster: &Cluster, line: Line, needed: u64) -> Option<NoPlan> {
        let known = self.no_plans.get(&line).filter(|_| self.version == cluster.version());
        known.filter(|(pods, _)| needed >= *pods).map(|(_, why)| *why)
    }

    /// Remembers that so many of a kind cannot be given a place by preemption.
    pub(super) fn put_no_plan(&mut self, cluster: &Cluster, line: Line, needed: u64, why: NoPlan) {
        self.begin(cluster);
        let known = self.no_plans.entry(line).or_insert((needed, why));
        if needed < known.0 {
            *known = (needed, why);
        }
    }

    /// Somebody can be evicted, or is leaving, who was not: plans may be found where there were none.
    pub(super) fn forget_plans(&mut self) {
        self.no_plans.clear();
    }

    pub(super) fn forget(&mut self, class: ClassId) {
        self.by_line.retain(|line, _| line.0 != class);
        self.no_plans.retain(|line, _| line.0 != class);
    }
}

/// A group that found no place, and how far it would have gone.
pub(super) struct Refused {
    pub(super) shortfall: Shortfall,
    pub(super) members: Vec<(Arc<PodName>, MemberVerdict)>,
}

impl Engine {
    /// Why a single pod of this class has no place. If nodes were left out by our own wish, there may be room all the
    /// same, and nobody else is told this.
    pub(super) fn why_not_pod(
        &mut self,
        class: ClassId,
        priority: i32,
        left_out: &[NodeId],
        preemption: Preemption,
    ) -> Diagnosis {
        let line = (class, priority);
        let sure = left_out.is_empty();
        let known = self.noes.get(&self.cluster, line).filter(|no| sure && no.room == 0).cloned();
        let no = known.unwrap_or_else(|| {
            let (fit, closest) = examine::why_no_place(&self.cluster, class, priority, left_out);
            let room_when_empty = examine::room_when_empty(&self.cluster, class, u64::MAX);
            No { room: 0, room_when_empty, fit, closest }
        });
        let never = no.room_when_empty == 0;
        let (fit, closest) = (no.fit.clone(), no.closest.clone());
        if sure {
            self.noes.put(&self.cluster, line, no);
        }
        Diagnosis::PodUnschedulable { fit, closest, never, preemption }
    }

    /// Whether a group of like pods need not be tried: others of its kind were just told how much room there is.
    pub(super) fn is_known_to_fail(&self, id: GroupId, want: &Want) -> bool {
        self.known_no(id, want).is_some_and(|no| no.room < want.needs_total().max(1))
    }

    fn known_no(&self, id: GroupId, want: &Want) -> Option<&No> {
        let class = want.lots.first()?.class;
        // Its own nominations and its own claim would not be in its way.
        let favoured = want.lots.iter().flat_map(|lot| &lot.pods).any(|pod| self.cluster.pod(*pod).nominated.is_some());
        // How many of those find a place who insist on each other depends on where the first goes.
        if !want.is_like()
            || favoured
            || placement::may_gain_places(&self.cluster, class)
            || !self.claimed_by(id).is_empty()
        {
            return None;
        }
        self.noes.get(&self.cluster, (class, want.priority))
    }

    /// How far the group would go, and what stops the rest.
    pub(super) fn how_far(&mut self, id: GroupId, want: &Want, verdict: Verdict, preemption: Preemption) -> Refused {
        let (fits, kinds) = match self.known_no(id, want) {
            Some(no) => like_kinds(&self.cluster, id, want, no),
            None => self.look_how_far(id, want),
        };
        let needed = want.needs_total().max(1);
        let known = self.known_no(id, want).map(|no| no.room_when_empty < needed);
        let never = known.unwrap_or_else(|| never_fits(&self.cluster, want));
        let mut members = Vec::new();
        let too_large = too_large(&self.cluster, want);
        let in_vain = needs_one_of(want, &too_large);
        for ((lot, fits), too_large) in want.lots.iter().zip(&fits).zip(&too_large) {
            let verdict = |place| match place < *fits {
                true => MemberVerdict::WouldFit,
                false if in_vain && !too_large => MemberVerdict::InVain,
                false => MemberVerdict::NoRoom,
            };
            let pods = lot.pods.iter().map(|pod| self.cluster.pod(*pod).id.clone());
            members.extend(pods.enumerate().map(|(place, pod)| (pod, verdict(place))));
        }
        members.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        let proof = match verdict {
            Verdict::NotFound { .. } if want.avoids() => Proof::NodesLeftOut,
            Verdict::NotFound { steps } => Proof::NotFound { steps },
            _ if never => Proof::NeverFits,
            _ => Proof::Impossible,
        };
        let group = self.cluster.group(id);
        let shortfall = Shortfall {
            started: group.is_gang() && !group.reached.is_empty(),
            minimum: if want.needs_total() == 0 { 0 } else { u32::try_from(group.min_total()).unwrap_or(u32::MAX) },
            held: group.total().held(),
            waiting: group.waiting.len() as u32,
            would_fit: fits.iter().sum::<usize>() as u32,
            kinds,
            gap: None,
            proof,
            preemption,
        };
        Refused { shortfall, members }
    }

    /// Tries it out: how many of each lot find a place, and what stops the others with those in place.
    fn look_how_far(&mut self, id: GroupId, want: &Want) -> (Vec<usize>, Vec<KindShortfall>) {
        let claimed = self.claimed_by(id);
        let plain = want.is_like() && claimed.is_empty();
        let mut trial = own_view(&mut self.cluster, want, &claimed);
        let plain = plain && trial.is_unchanged();
        let order = placement::place_what_fits(&mut trial, &mut self.cache, want);
        let cluster = trial.cluster();
        let group = cluster.group(id);
        let placed = |pods: &[_]| pods.iter().filter(|pod| cluster.pod(**pod).state.node().is_some()).count();
        let fits: Vec<usize> = want.lots.iter().map(|lot| placed(&lot.pods)).collect();
        let mut kinds = Vec::new();
        let refused = order.iter().map(|at| (&want.lots[*at], fits[*at])).filter(|(lot, fits)| lot.pods.len() > *fits);
        for (lot, fits) in refused.take(KINDS_MAX) {
            let (fit, closest) = examine::why_no_place(cluster, lot.class, want.priority, &lot.avoid);
            let subset = group.rules[lot.subset].name.clone();
            kinds.push(KindShortfall { subset, pods: (lot.pods.len() - fits) as u32, fit, closest });
        }
        drop(trial);
        if let (true, Some(kind), Some(lot)) = (plain, kinds.first(), want.lots.first()) {
            let room_when_empty = examine::room_when_empty(&self.cluster, lot.class, u64::MAX);
            let (fit, closest) = (kind.fit.clone(), kind.closest.clone());
            let no = No { room: fits.iter().sum::<usize>() as u64, room_when_empty, fit, closest };
            self.noes.put(&self.cluster, (lot.class, want.priority), no);
        }
        (fits, kinds)
    }
}

/// What trying it out would show for like pods, from what is known.
fn like_kinds(cluster: &Cluster, id: GroupId, want: &Want, no: &No) -> (Vec<usize>, Vec<KindShortfall>) {
    let mut room = usize::try_from(no.room).unwrap_or(usize::MAX);
    let mut kinds = Vec::new();
    let mut all_fits = Vec::new();
    for lot in &want.lots {
        let fits = room.min(lot.pods.len());
        room -= fits;
        all_fits.push(fits);
        let left = lot.pods.len() - fits;
        if left > 0 && kinds.len() < KINDS_MAX {
            let subset = cluster.group(id).rules[lot.subset].name.clone();
            kinds.push(KindShortfall { subset, pods: left as u32, fit: no.fit.clone(), closest: no.closest.clone() });
        }
    }
    (all_fits, kinds)
}

/// Which lots ask for more than any node has. Pods that are all alike have nobody to compare with.
fn too_large(cluster: &Cluster, want: &Want) -> Vec<bool> {
    let mixed = !want.is_like();
    want.lots.iter().map(|lot| mixed && examine::is_too_large(cluster, lot.class)).collect()
}

/// Whether what is needed cannot be met without pods of one of these lots.
fn needs_one_of(want: &Want, lots: &[bool]) -> bool {
    let mut others = vec![0; want.needs.len()];
    for (lot, _) in want.lots.iter().zip(lots).filter(|(_, is_one)| !**is_one) {
        others[lot.subset] += lot.pods.len();
    }
    others.iter().zip(&want.needs).any(|(others, need)| *others < *need as usize)
}

/// Whether a cluster without any pods could not meet the needs, as far as can be seen lot by lot.
fn never_fits(cluster: &Cluster, want: &Want) -> bool {
    let needed = want.needs_total();
    if needed == 0 {
        return want.lots.iter().all(|lot| examine::room_when_empty(cluster, lot.class, 1) == 0);
    }
    if want.is_like() {
        let class = want.lots.first().map(|lot| lot.class);
        return class.is_some_and(|class| examine::room_when_empty(cluster, class, needed) < needed);
    }
    let mut reachable = vec![0; want.needs.len()];
    for lot in &want.lots {
        let pods = lot.pods.len() as u64;
        reachable[lot.subset] += examine::room_when_empty(cluster, lot.class, pods).min(pods);
    }
    reachable.iter().zip(&want.needs).any(|(room, need)| *room < u64::from(*need))
}
