//! Which placed pods wait for which claims, and how far the writes for each claim are.
//!
//! A write belongs to its claim, not to the pod that had it sent: pods that share a claim may leave while it is under
//! way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::Millis;
use crate::model::ids::{ClaimId, GroupId, PodId};
use crate::model::storage::ClaimName;

/// Everything that is known of placed pods that wait for volumes.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct VolumeBindings {
    /// The pods that wait, by their group.
    waiting: BTreeMap<Option<GroupId>, Waiting>,
    /// The claims that they wait for.
    claims: BTreeMap<ClaimId, OpenClaim>,
    /// Pods for which something has changed since the last decision, and groups of such pods.
    pub(super) changed_pods: BTreeSet<PodId>,
    pub(super) changed_groups: BTreeSet<GroupId>,
}

/// The pods of a group that wait for volumes; also all of those that have no group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::scheduler) struct Waiting {
    /// Pods with claims that are not bound yet.
    pub(super) open: BTreeSet<PodId>,
    /// Pods that only wait for others of their group.
    pub(super) done: BTreeSet<PodId>,
    /// The claims that are not bound yet, with the number of pods that wait for each.
    pub(super) claims: BTreeMap<ClaimId, u32>,
    /// Claims of a group for which a write may have to be sent.
    pub(super) unwritten: BTreeSet<ClaimId>,
}

impl Waiting {
    /// All pods that wait.
    pub(in crate::scheduler) fn pods(&self) -> impl Iterator<Item = PodId> {
        self.open.iter().chain(&self.done).copied()
    }
}

/// A claim that pods wait for.
#[derive(Clone, Debug, Default, PartialEq)]
struct OpenClaim {
    /// Which object it is: another one may get its name.
    name: Arc<ClaimName>,
    /// How many pods wait for it.
    pods: u32,
    /// How often a write was sent.
    tries: u32,
    write: Write,
}

/// How far the write for a claim is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Write {
    /// Not sent yet, or to be sent again.
    #[default]
    Unsent,
    /// It was sent; `base` is the version of the object that it changes.
    Sent { base: String },
    /// It failed and is sent again at this time.
    Retry { due: Millis, message: String },
    /// It succeeded: any other version of the object than `base` is a later one. Without `base` the object showed it
    /// already.
    Written { base: Option<String> },
}

impl VolumeBindings {
    /// Whether a decision has to follow changes.
    pub(in crate::scheduler) fn has_changes(&self) -> bool {
        !self.changed_pods.is_empty() || !self.changed_groups.is_empty()
    }

    /// The pods that wait, by their group.
    pub(in crate::scheduler) fn all(&self) -> &BTreeMap<Option<GroupId>, Waiting> {
        &self.waiting
    }

    /// The pods of a group that wait.
    pub(super) fn of(&self, group: Option<GroupId>) -> Option<&Waiting> {
        self.waiting.get(&group)
    }

    /// Forgets which claims of a group have been written for.
    pub(super) fn prune_unwritten(&mut self, group: GroupId) {
        let claims = &self.claims;
        if let Some(waiting) = self.waiting.get_mut(&Some(group)) {
            waiting.unwritten.retain(|claim| claims.get(claim).is_some_and(|open| open.write == Write::Unsent));
        }
    }

    /// A pod waits for these claims from now on.
    pub(super) fn add(&mut self, group: Option<GroupId>, pod: PodId, claims: &[(ClaimId, Arc<ClaimName>)]) {
        let waiting = self.waiting.entry(group).or_default();
        let pods = if claims.is_empty() { &mut waiting.done } else { &mut waiting.open };
        pods.insert(pod);
        for (claim, name) in claims {
            *waiting.claims.entry(*claim).or_default() += 1;
            waiting.unwritten.extend(group.map(|_| *claim));
            let new = || OpenClaim { name: name.clone(), ..OpenClaim::default() };
            self.claims.entry(*claim).or_insert_with(new).pods += 1;
        }
    }

    /// A pod does not wait for a claim any more; `left` says whether it waits for others.
    pub(super) fn close(&mut self, group: Option<GroupId>, pod: PodId, claim: ClaimId, left: bool) {
        let waiting = self.waiting.entry(group).or_default();
        if !left && waiting.open.remove(&pod) {
            waiting.done.insert(pod);
        }
        if subtract(&mut waiting.claims, claim) {
            waiting.unwritten.remove(&claim);
        }
        self.release(claim);
    }

    /// A pod does not wait any more, also not for the claims that are not bound yet.
    pub(super) fn remove(&mut self, group: Option<GroupId>, pod: PodId, open: &[ClaimId]) {
        for claim in open {
            self.close(group, pod, *claim, true);
        }
        let waiting = self.waiting.entry(group).or_default();
        waiting.open.remove(&pod);
        waiting.done.remove(&pod);
        if waiting.open.is_empty() && waiting.done.is_empty() {
            self.waiting.remove(&group);
        }
    }

    /// One pod fewer waits for a claim. When none is left, an answer to its write does not matter any more.
    fn release(&mut self, claim: ClaimId) {
        if let Some(open) = self.claims.get_mut(&claim) {
            open.pods -= 1;
            if open.pods == 0 {
                self.claims.remove(&claim);
            }
        }
    }

    /// Whether pods wait for this object, and not for another of its name.
    pub(super) fn is_awaited(&self, claim: ClaimId, name: &ClaimName) -> bool {
        self.claims.get(&claim).is_some_and(|open| open.name.uid == name.uid)
    }

    /// How far the write for a claim is, if a pod waits for it.
    pub(super) fn write(&self, claim: ClaimId) -> Option<&Write> {
        self.claims.get(&claim).map(|open| &open.write)
    }

    /// Sets how far the write for a claim is. Returns how often one was sent.
    pub(super) fn set_write(&mut self, claim: ClaimId, write: Write) -> u32 {
        let Some(open) = self.claims.get_mut(&claim) else { return 0 };
        open.tries += u32::from(matches!(write, Write::Sent { .. }));
        open.write = write;
        open.tries
    }

    /// The write for a claim has to be sent again.
    pub(super) fn unsend(&mut self, claim: ClaimId) {
        self.set_write(claim, Write::Unsent);
        for (group, waiting) in &mut self.waiting {
            if group.is_some() && waiting.claims.contains_key(&claim) {
                waiting.unwritten.insert(claim);
            }
        }
    }

    /// Whether exactly these pods wait, for exactly these claims.
    pub(super) fn audit(&self, pods: impl Iterator<Item = (Option<GroupId>, PodId, Vec<ClaimId>)>) -> bool {
        let mut recount = Self::default();
        for (group, pod, open) in pods {
            let open: Vec<_> = open.into_iter().map(|claim| (claim, Arc::default())).collect();
            recount.add(group, pod, &open);
        }
        let same = |(one, other): (&Waiting, &Waiting)| {
            (&one.open, &one.done, &one.claims) == (&other.open, &other.done, &other.claims)
        };
        let unsent = |claim: &ClaimId| self.write(*claim) == Some(&Write::Unsent);
        // Nothing is forgotten that has to be sent.
        let of_groups = self.waiting.iter().filter(|(group, _)| group.is_some()).map(|(_, waiting)| waiting);
        self.waiting.keys().eq(recount.waiting.keys())
            && self.waiting.values().zip(recount.waiting.values()).all(same)
            && self
                .claims
                .iter()
                .map(|(id, open)| (id, open.pods))
                .eq(recount.claims.iter().map(|(id, open)| (id, open.pods)))
            && of_groups
                .into_iter()
                .all(|one| one.claims.keys().filter(|id| unsent(id)).all(|id| one.unwritten.contains(id)))
    }
}

/// Subtracts one. Returns whether none is left.
fn subtract(counts: &mut BTreeMap<ClaimId, u32>, claim: ClaimId) -> bool {
    let Some(count) = counts.get_mut(&claim) else { return true };
    *count -= 1;
    let none = *count == 0;
    if none {
        counts.remove(&claim);
    }
    none
}
