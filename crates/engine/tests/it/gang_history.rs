//! The history of each gang as the API saw it: what was decided, what was confirmed, and what others did to it. The
//! checker compares the engine with it, and takes "the minimum at commit" literally.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::model::Millis;
use muster_engine::model::group::{GroupKey, GroupSpec, Policy, RecordedStart};
use muster_engine::model::pod::{Phase, PodSpec};

/// A minimum for each subset; a gang without subsets has one without a name.
pub(crate) type Minimums = BTreeMap<String, usize>;

/// The history of one gang.
#[derive(Clone, Debug, Default)]
pub(crate) struct GangHistory {
    /// The minimums that members were last bound for.
    decided: Option<Minimums>,
    /// The minimums that the object specifies now: a lowered minimum need not be reached.
    specified: Minimums,
    /// The minimums that were reached after they were decided.
    confirmed: Option<Minimums>,
    /// The minimums that were reached before those.
    confirmed_before: Option<Minimums>,
    /// The pods that were bound then, and those that the same start had placed.
    founders: BTreeSet<String>,
    /// The pods placed by the start that is not confirmed yet.
    placed: BTreeSet<String>,
    /// The minimums at the time when each pod was placed.
    commits: BTreeMap<String, Minimums>,
    /// The engine read from the API that the gang had started, and cannot know the founders.
    restarted: bool,
    /// Members were removed by others after the start was confirmed.
    lost: bool,
    /// The engine may not know of the confirmed start: it was restarted, or a kubelet rejected a founder.
    reopened: bool,
    /// A delete was refused: some pods had to stay.
    delete_refused: bool,
    /// The last start was given up.
    given_up: bool,
    /// Its subsets were renamed after it was confirmed: what it was confirmed for is unknown now.
    renamed: bool,
    /// The deadline for its confirmation.
    deadline: Millis,
    /// The engine was restarted while there was no object: its start minimums are those of the next object.
    forgotten: bool,
}

impl GangHistory {
    /// The decided minimums, or lower ones if the object specifies less now.
    fn needed_now(&self) -> Option<Minimums> {
        let specified = |subset: &String| self.specified.get(subset).copied().unwrap_or(usize::MAX);
        let lower = |(subset, decided): (&String, &usize)| (subset.clone(), *decided.min(&specified(subset)));
        self.decided.as_ref().map(|decided| decided.iter().map(lower).collect())
    }

    /// Whether these minimums were confirmed before.
    fn covers(&self, minimums: &Minimums) -> bool {
        self.confirmed.as_ref().is_some_and(|confirmed| {
            minimums.iter().all(|(subset, minimum)| confirmed.get(subset).is_some_and(|reached| reached >= minimum))
        })
    }
}

/// Requests whose outcome is not known yet.
pub(crate) struct Outstanding {
    /// The groups with binds in flight.
    pub(crate) binds: BTreeSet<GroupKey>,
    /// The pods that are being evicted.
    pub(crate) evictions: BTreeSet<String>,
    /// The groups that were just reported as scheduled: a withdrawn eviction may be repeated at once.
    pub(crate) scheduled: BTreeSet<GroupKey>,
}

/// The histories of all gangs.
#[derive(Clone, Debug, Default)]
pub(crate) struct GangHistories {
    by_key: BTreeMap<GroupKey, GangHistory>,
    /// Pods whose deletion was requested: they no longer count.
    delete_requested: BTreeSet<String>,
    /// Pods bound while their group had no minimum: they may always stay.
    placed_without_minimum: BTreeSet<String>,
}

impl GangHistories {
    /// Binds were sent for a gang with these minimums.
    pub(crate) fn decided(&mut self, key: &GroupKey, uid: &str, minimums: Minimums, deadline: Millis) {
        if without_minimum(&minimums) {
            self.placed_without_minimum.insert(uid.to_owned());
        } else {
            self.placed_without_minimum.remove(uid);
        }
        let gang = self.by_key.entry(key.clone()).or_default();
        gang.commits.insert(uid.to_owned(), minimums.clone());
        // A pod that is placed again was not bound by the earlier start.
        gang.founders.remove(uid);
        if !gang.covers(&minimums) {
            gang.placed.insert(uid.to_owned());
            gang.restarted = false;
            gang.decided = Some(minimums);
            gang.given_up = false;
            gang.deadline = deadline;
        }
    }

    /// The start was given up; its late binds are checked against the minimums of that time.
    pub(crate) fn given_up(&mut self, key: &GroupKey, minimums: Minimums, pods: &BTreeMap<String, PodSpec>) {
        let gang = self.by_key.entry(key.clone()).or_default();
        gang.placed.clear();
        gang.commits.retain(|uid, _| pods.get(uid).is_some_and(|pod| pod.node.is_some()));
        if !gang.covers(&minimums) {
            gang.decided = Some(minimums);
            gang.given_up = true;
        }
    }

    /// The object specifies other minimums now. Renamed subsets are checked separately.
    pub(crate) fn set_specified(&mut self, key: &GroupKey, minimums: &Minimums) {
        let gang = self.by_key.entry(key.clone()).or_default();
        let settled = gang.needed_now().is_some_and(|needed| gang.covers(&needed));
        gang.specified = minimums.clone();
        if std::mem::take(&mut gang.forgotten) {
            gang.decided = Some(minimums.clone());
        }
        if without_minimum(minimums) && gang.decided.is_some() {
            // Without a minimum, all bound pods have started and may stay.
            (gang.decided, gang.confirmed) = (Some(minimums.clone()), Some(minimums.clone()));
            return;
        }
        let carried = |old: &Minimums, unknown: Option<usize>| -> Minimums {
            // A new subset must reach the minimum that is specified when it is checked.
            let carry = |subset: &String| old.get(subset).copied().or(unknown).unwrap_or(usize::MAX);
            minimums.keys().map(|subset| (subset.clone(), carry(subset))).collect()
        };
        let renamed = gang.decided.as_ref().is_some_and(|decided| !decided.keys().eq(minimums.keys()));
        // Whether the engine knew the confirmation of the old start by then is unknown.
        gang.reopened |= renamed;
        gang.renamed |= renamed && settled;
        // A start that was given up must meet the minimums specified when its pods are bound.
        let given_up = gang.given_up;
        gang.decided = gang.decided.take().map(|decided| {
            if given_up { minimums.clone() } else { carried(&decided, without_minimum(&decided).then_some(0)) }
        });
        gang.confirmed = gang.confirmed.take().map(|confirmed| carried(&confirmed, Some(0)));
    }

    /// Updates the histories from the current state. A pod whose eviction is requested may stay, so its group has not
    /// ended; but a start cannot rely on it.
    pub(crate) fn update(&mut self, pods: &BTreeMap<String, PodSpec>, now: Millis, outstanding: &Outstanding) {
        for (key, gang) in &mut self.by_key {
            let mut bound = bound(pods, key);
            bound.retain(|pod| !self.delete_requested.contains(&pod.id.uid));
            if bound.is_empty() && succeeded(pods, key).is_empty() {
                // No member is left, unless more are in flight: members that are still bound are checked against the
                // minimums of that time.
                if !outstanding.binds.contains(key) {
                    let (specified, deadline) = (std::mem::take(&mut gang.specified), gang.deadline);
                    let decided = gang.decided.take().map(|_| specified.clone());
                    *gang = GangHistory { decided, specified, given_up: true, deadline, ..GangHistory::default() };
                }
                continue;
            }
            bound.retain(|pod| outstanding.scheduled.contains(key) || !outstanding.evictions.contains(&pod.id.uid));
            // The first member that is bound late begins a start of its own, under the current minimums.
            gang.given_up = false;
            let Some(decided) = gang.needed_now().filter(|decided| meets(&bound, pods, key, decided)) else {
                continue;
            };
            if !gang.covers(&decided) {
                gang.confirmed_before = gang.confirmed.replace(decided);
                gang.founders = std::mem::take(&mut gang.placed);
                gang.founders.extend(bound.iter().map(|pod| pod.id.uid.clone()));
                // Confirmations after the deadline may have been given up by then.
                gang.reopened = now >= gang.deadline;
            }
        }
    }

    /// A bound pod was removed by others.
    pub(crate) fn lost(&mut self, pod: &PodSpec) {
        if let Some(gang) = self.of(pod).filter(|gang| gang.confirmed.is_some()) {
            gang.lost = true;
        }
    }

    /// A kubelet rejected a pod before it ran.
    pub(crate) fn refused(&mut self, pod: &PodSpec, any_member_ran: bool) {
        if pod.terminating {
            // It was lost when it was deleted.
            return;
        }
        let without_minimum = self.placed_without_minimum.contains(&pod.id.uid);
        let Some(gang) = self.of(pod).filter(|gang| gang.founders.contains(&pod.id.uid)) else { return };
        if without_minimum || (gang.restarted && any_member_ran) {
            // A pod bound without a minimum is not part of a start; and once a member has run, a restarted engine
            // cannot distinguish a founder from a later member. Then it is a loss.
            gang.lost |= gang.confirmed.is_some();
            return;
        }
        gang.reopened = true;
        // Unless more was decided since, it must reach again what it was confirmed for.
        let raised = gang.decided.as_ref().is_some_and(|decided| !gang.covers(decided));
        let confirmed = std::mem::replace(&mut gang.confirmed, gang.confirmed_before.take());
        if !raised {
            gang.decided = confirmed;
        }
    }

    /// A delete was requested.
    pub(crate) fn delete_requested(&mut self, uid: &str) {
        self.delete_requested.insert(uid.to_owned());
    }

    /// A delete was refused.
    pub(crate) fn delete_was_refused(&mut self, pod: &PodSpec) {
        self.delete_requested.remove(&pod.id.uid);
        if let Some(gang) = self.of(pod) {
            gang.delete_refused = true;
        }
    }

    /// The engine only knows what the API shows: a start that was not recorded is checked against the current minimums.
    pub(crate) fn restarted(&mut self, groups: &BTreeMap<GroupKey, GroupSpec>, pods: &BTreeMap<String, PodSpec>) {
        self.delete_requested.clear();
        // That a pod was bound without a minimum is only visible while its group has none.
        let group = |uid: &String| groups.get(&pods.get(uid)?.membership.as_ref()?.group);
        self.placed_without_minimum
            .retain(|uid| group(uid).is_some_and(|group| matches!(group.policy, Policy::Basic { .. })));
        for (key, gang) in &mut self.by_key {
            // A rejection before the restart cannot be distinguished from any other loss.
            gang.lost |= gang.reopened;
            gang.reopened = true;
            gang.placed.clear();
            match groups.get(key) {
                Some(group) if group.recorded != RecordedStart::None => gang.restarted = true,
                group => {
                    gang.confirmed = None;
                    gang.commits.clear();
                    gang.decided = group.map(minimums);
                    gang.forgotten = group.is_none();
                }
            }
        }
    }

    /// Whether a group has fewer members left than its minimums.
    pub(crate) fn is_below(&self, key: &GroupKey, group: &GroupSpec, pods: &BTreeMap<String, PodSpec>) -> bool {
        let mut bound = bound(pods, key);
        bound.retain(|pod| !self.delete_requested.contains(&pod.id.uid));
        !meets(&bound, pods, key, &minimums(group))
    }

    /// A pod may only be rolled back if its start was not confirmed. `may_stay`: the API shows that it was.
    pub(crate) fn check_rollback(&self, pod: &PodSpec, may_stay: bool) {
        let Some(gang) = pod.membership.as_ref().and_then(|membership| self.by_key.get(&membership.group)) else {
            return;
        };
        assert!(!may_stay, "{} belongs to no start that failed: {:?}", pod.id, pod.start);
        let settled = gang.confirmed.is_some() && gang.founders.contains(&pod.id.uid);
        assert!(!settled || gang.reopened, "{} belongs to a start that was confirmed: {gang:?}", pod.id);
    }

    /// Whether a gang may stay in this state once everything is settled.
    pub(crate) fn check_at_rest(
        &self,
        key: &GroupKey,
        pods: &BTreeMap<String, PodSpec>,
        may_stay: impl Fn(&PodSpec) -> bool,
    ) -> Result<(), String> {
        let Some(gang) = self.by_key.get(key) else { return Ok(()) };
        let Some(needed) = &gang.confirmed.clone().or(gang.needed_now()) else { return Ok(()) };
        if gang.renamed && gang.confirmed.is_none() {
            return Ok(());
        }
        // A pod whose subset the group no longer has is not a member.
        let mut bound = bound(pods, key);
        bound.retain(|pod| needed.keys().any(|subset| is_of(pod, subset, needed)));
        let bound_for_it = bound.iter().any(|pod| !self.placed_without_minimum.contains(&pod.id.uid));
        let bare = bound.iter().any(|pod| !pod.controlled);
        // "The minimum at commit": a pod that was placed under a lower minimum than specified now may stay.
        let meets_commit = |pod: &&PodSpec| {
            let commit = gang.commits.get(&pod.id.uid);
            commit.is_some_and(|minimums| meets(&bound, pods, key, minimums))
        };
        if bound.iter().all(meets_commit) || bound.iter().all(|pod| may_stay(pod)) {
            return Ok(());
        }
        if !bound_for_it || meets(&bound, pods, key, needed) || gang.lost || gang.delete_refused || bare {
            return Ok(());
        }
        Err(format!("gang {key} is settled with {} bound and needs {needed:?}: {gang:?}", bound.len()))
    }

    fn of(&mut self, pod: &PodSpec) -> Option<&mut GangHistory> {
        self.by_key.get_mut(&pod.membership.as_ref()?.group)
    }
}

/// The minimum number of members of each subset.
pub(crate) fn minimums(group: &GroupSpec) -> Minimums {
    match &group.policy {
        Policy::Gang { min_count } => [(String::new(), *min_count as usize)].into(),
        Policy::Subsets(list) => list.iter().map(|subset| (subset.name.clone(), subset.min_member as usize)).collect(),
        // Of a tree, not all leaves have to start: `trees` checks them.
        Policy::Basic { .. } | Policy::Groups { .. } | Policy::Tree(_) => [(String::new(), 0)].into(),
    }
}

/// Whether this many members of each subset are bound or succeeded.
fn meets(bound: &[&PodSpec], pods: &BTreeMap<String, PodSpec>, key: &GroupKey, minimums: &Minimums) -> bool {
    let mut scheduled = bound.to_vec();
    scheduled.extend(succeeded(pods, key));
    minimums
        .iter()
        .all(|(subset, minimum)| scheduled.iter().filter(|pod| is_of(pod, subset, minimums)).count() >= *minimum)
}

/// Whether there is no minimum: a basic group.
fn without_minimum(minimums: &Minimums) -> bool {
    minimums.values().all(|minimum| *minimum == 0)
}

fn is_of(pod: &PodSpec, subset: &str, minimums: &Minimums) -> bool {
    let named = pod.membership.as_ref().map_or("", |membership| &membership.subset);
    named == subset || (named.is_empty() && minimums.len() == 1)
}

pub(crate) fn is_member(pod: &PodSpec, key: &GroupKey) -> bool {
    pod.membership.as_ref().is_some_and(|membership| membership.group == *key)
}

pub(crate) fn is_live(pod: &PodSpec) -> bool {
    !pod.terminating && matches!(pod.phase, Phase::Pending | Phase::Running)
}

fn bound<'a>(pods: &'a BTreeMap<String, PodSpec>, key: &GroupKey) -> Vec<&'a PodSpec> {
    let members = pods.values().filter(|pod| is_member(pod, key) && pod.ours);
    members.filter(|pod| is_live(pod) && pod.node.is_some()).collect()
}

fn succeeded<'a>(pods: &'a BTreeMap<String, PodSpec>, key: &GroupKey) -> Vec<&'a PodSpec> {
    pods.values().filter(|pod| is_member(pod, key) && pod.ours && pod.phase == Phase::Succeeded).collect()
}
