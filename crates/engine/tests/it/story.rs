//! What became of each gang, as the world saw it: what was decided, what was confirmed, and what others did to it.
//! The judge holds the engine against this, with "the minimum at commit" taken literally.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::model::Millis;
use muster_engine::model::group::{GroupKey, GroupSpec, History, Policy};
use muster_engine::model::pod::{Phase, PodSpec};

/// A minimum for each subset; a gang without subsets has one without a name.
pub(crate) type Minimums = BTreeMap<String, usize>;

/// The story of one gang.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// The minimums that members were last bound for.
    decided: Option<Minimums>,
    /// The minimums that the object asks for now: what is lowered need not be reached.
    asked: Minimums,
    /// The minimums that were really reached after they were decided.
    confirmed: Option<Minimums>,
    /// The minimums that were reached before those.
    confirmed_before: Option<Minimums>,
    /// The pods that were there then, and those that the same start had placed.
    founders: BTreeSet<String>,
    /// The pods that the start placed that is not confirmed yet.
    placed: BTreeSet<String>,
    /// The minimums at the time when each pod was placed.
    commits: BTreeMap<String, Minimums>,
    /// The engine was told by the API that the gang had started, and cannot know who the founders are.
    restarted: bool,
    /// Others took members away after the start was confirmed.
    lost: bool,
    /// The engine may not know of the confirmed start: it was restarted, or a kubelet refused a founder.
    reopened: bool,
    /// A delete was refused: something had to stay.
    kept: bool,
    /// The start that was decided last was given up.
    given_up: bool,
    /// Its subsets got other names after it was confirmed: what it was confirmed for is not known any more.
    renamed: bool,
    /// Until when it had to be confirmed.
    deadline: Millis,
    /// The engine was restarted while there was no object: what it starts with is what the next object asks for.
    forgotten: bool,
}

impl Story {
    /// What was decided, or less where the object asks for less by now.
    fn needed_now(&self) -> Option<Minimums> {
        let asked = |subset: &String| self.asked.get(subset).copied().unwrap_or(usize::MAX);
        let lower = |(subset, decided): (&String, &usize)| (subset.clone(), *decided.min(&asked(subset)));
        self.decided.as_ref().map(|decided| decided.iter().map(lower).collect())
    }

    /// Whether these minimums were confirmed before.
    fn covers(&self, minimums: &Minimums) -> bool {
        self.confirmed.as_ref().is_some_and(|confirmed| {
            minimums.iter().all(|(subset, minimum)| confirmed.get(subset).is_some_and(|reached| reached >= minimum))
        })
    }
}

/// What was ordered and has not come to its end.
pub(crate) struct Orders {
    /// The groups with binds on their way.
    pub(crate) binds: BTreeSet<GroupKey>,
    /// The pods that are to be evicted.
    pub(crate) evictions: BTreeSet<String>,
    /// The groups that were just said to have their minimum: an order that was withdrawn may be given again at once.
    pub(crate) scheduled: BTreeSet<GroupKey>,
}

/// The stories of all gangs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stories {
    by_key: BTreeMap<GroupKey, Story>,
    /// Pods whose deletion was ordered: they no longer count.
    ordered_back: BTreeSet<String>,
    /// Pods that were bound while their group had no minimum: they may stay whatever becomes of it.
    free: BTreeSet<String>,
}

impl Stories {
    /// Binds were sent for a gang with these minimums.
    pub(crate) fn decided(&mut self, key: &GroupKey, uid: &str, minimums: Minimums, deadline: Millis) {
        if without_minimum(&minimums) {
            self.free.insert(uid.to_owned());
        } else {
            self.free.remove(uid);
        }
        let story = self.by_key.entry(key.clone()).or_default();
        story.commits.insert(uid.to_owned(), minimums.clone());
        // Whoever is placed again was not bound by the start that placed it before.
        story.founders.remove(uid);
        if !story.covers(&minimums) {
            story.placed.insert(uid.to_owned());
            story.restarted = false;
            story.decided = Some(minimums);
            story.given_up = false;
            story.deadline = deadline;
        }
    }

    /// The start was given up; what of it is bound later is held against the minimums of that time.
    pub(crate) fn given_up(&mut self, key: &GroupKey, minimums: Minimums, pods: &BTreeMap<String, PodSpec>) {
        let story = self.by_key.entry(key.clone()).or_default();
        story.placed.clear();
        story.commits.retain(|uid, _| pods.get(uid).is_some_and(|pod| pod.node.is_some()));
        if !story.covers(&minimums) {
            story.decided = Some(minimums);
            story.given_up = true;
        }
    }

    /// The object asks for other minimums now. What has other subsets now is another question.
    pub(crate) fn asked(&mut self, key: &GroupKey, minimums: &Minimums) {
        let story = self.by_key.entry(key.clone()).or_default();
        let settled = story.needed_now().is_some_and(|needed| story.covers(&needed));
        story.asked = minimums.clone();
        if std::mem::take(&mut story.forgotten) {
            story.decided = Some(minimums.clone());
        }
        if without_minimum(minimums) && story.decided.is_some() {
            // Without a minimum whatever is bound has started, and may stay.
            (story.decided, story.confirmed) = (Some(minimums.clone()), Some(minimums.clone()));
            return;
        }
        let carried = |old: &Minimums, unknown: Option<usize>| -> Minimums {
            // A subset that is new has to be filled with whatever is asked of it by the time that counts.
            let carry = |subset: &String| old.get(subset).copied().or(unknown).unwrap_or(usize::MAX);
            minimums.keys().map(|subset| (subset.clone(), carry(subset))).collect()
        };
        let renamed = story.decided.as_ref().is_some_and(|decided| !decided.keys().eq(minimums.keys()));
        // Whether the old start had been confirmed to the engine by then cannot be seen from here.
        story.reopened |= renamed;
        story.renamed |= renamed && settled;
        // What was given up has to meet whatever is asked by the time it is bound.
        let given_up = story.given_up;
        story.decided = story.decided.take().map(|decided| {
            if given_up { minimums.clone() } else { carried(&decided, without_minimum(&decided).then_some(0)) }
        });
        story.confirmed = story.confirmed.take().map(|confirmed| carried(&confirmed, Some(0)));
    }

    /// Looks at the truth. A pod whose eviction is ordered may stay yet, so its group is not at its end; but a start
    /// cannot count on it.
    pub(crate) fn look(&mut self, pods: &BTreeMap<String, PodSpec>, now: Millis, orders: &Orders) {
        for (key, story) in &mut self.by_key {
            let mut bound = bound(pods, key);
            bound.retain(|pod| !self.ordered_back.contains(&pod.id.uid));
            if bound.is_empty() && succeeded(pods, key).is_empty() {
                // Nothing of it is left, unless more is on its way: what is bound after all is held against what is
                // asked by then.
                if !orders.binds.contains(key) {
                    let (asked, deadline) = (std::mem::take(&mut story.asked), story.deadline);
                    let decided = story.decided.take().map(|_| asked.clone());
                    *story = Story { decided, asked, given_up: true, deadline, ..Story::default() };
                }
                continue;
            }
            bound.retain(|pod| orders.scheduled.contains(key) || !orders.evictions.contains(&pod.id.uid));
            // The first of it that is bound after all is a start of its own, under the minimums of now.
            story.given_up = false;
            let Some(decided) = story.needed_now().filter(|decided| meets(&bound, pods, key, decided)) else {
                continue;
            };
            if !story.covers(&decided) {
                story.confirmed_before = story.confirmed.replace(decided);
                story.founders = std::mem::take(&mut story.placed);
                story.founders.extend(bound.iter().map(|pod| pod.id.uid.clone()));
                // What came after the deadline may have been given up by then.
                story.reopened = now >= story.deadline;
            }
        }
    }

    /// Others took a bound pod away.
    pub(crate) fn lost(&mut self, pod: &PodSpec) {
        if let Some(story) = self.of(pod).filter(|story| story.confirmed.is_some()) {
            story.lost = true;
        }
    }

    /// A kubelet refused a pod before it ran.
    pub(crate) fn refused(&mut self, pod: &PodSpec, somebody_ran: bool) {
        if pod.terminating {
            // It was lost when somebody deleted it.
            return;
        }
        let free = self.free.contains(&pod.id.uid);
        let Some(story) = self.of(pod).filter(|story| story.founders.contains(&pod.id.uid)) else { return };
        if free || (story.restarted && somebody_ran) {
            // Whoever was bound for no minimum is no part of a start; and once somebody has run, an engine that was
            // restarted cannot tell a founder from one that joined later. Then it is a loss.
            story.lost |= story.confirmed.is_some();
            return;
        }
        story.reopened = true;
        // Unless more was decided since, it has to come together for what it was confirmed for.
        let raised = story.decided.as_ref().is_some_and(|decided| !story.covers(decided));
        let confirmed = std::mem::replace(&mut story.confirmed, story.confirmed_before.take());
        if !raised {
            story.decided = confirmed;
        }
    }

    /// A delete was ordered.
    pub(crate) fn ordered_back(&mut self, uid: &str) {
        self.ordered_back.insert(uid.to_owned());
    }

    /// A delete was refused.
    pub(crate) fn kept(&mut self, pod: &PodSpec) {
        self.ordered_back.remove(&pod.id.uid);
        if let Some(story) = self.of(pod) {
            story.kept = true;
        }
    }

    /// The engine knows nothing any more but what the API shows: a start that nobody told of is held against the
    /// minimums of now.
    pub(crate) fn restarted(&mut self, groups: &BTreeMap<GroupKey, GroupSpec>, pods: &BTreeMap<String, PodSpec>) {
        self.ordered_back.clear();
        // That somebody was bound for no minimum can only be told as long as his group shows that it has none.
        let group = |uid: &String| groups.get(&pods.get(uid)?.membership.as_ref()?.group);
        self.free.retain(|uid| group(uid).is_some_and(|group| matches!(group.policy, Policy::Basic { .. })));
        for (key, story) in &mut self.by_key {
            // A refusal from before is not told from any other loss.
            story.lost |= story.reopened;
            story.reopened = true;
            story.placed.clear();
            match groups.get(key) {
                Some(group) if group.history != History::New => story.restarted = true,
                group => {
                    story.confirmed = None;
                    story.commits.clear();
                    story.decided = group.map(minimums);
                    story.forgotten = group.is_none();
                }
            }
        }
    }

    /// Whether fewer members of a group are left than it starts with.
    pub(crate) fn is_below(&self, key: &GroupKey, group: &GroupSpec, pods: &BTreeMap<String, PodSpec>) -> bool {
        let mut bound = bound(pods, key);
        bound.retain(|pod| !self.ordered_back.contains(&pod.id.uid));
        !meets(&bound, pods, key, &minimums(group))
    }

    /// A pod may only be taken back if the start that it belongs to was not confirmed.
    pub(crate) fn judge_take_back(&self, pod: &PodSpec) {
        let Some(story) = pod.membership.as_ref().and_then(|membership| self.by_key.get(&membership.group)) else {
            return;
        };
        let settled = story.confirmed.is_some() && story.founders.contains(&pod.id.uid);
        assert!(!settled || story.reopened, "{} belongs to a start that was confirmed: {story:?}", pod.id);
    }

    /// Whether a gang may rest like this.
    pub(crate) fn may_rest(&self, key: &GroupKey, pods: &BTreeMap<String, PodSpec>) -> Result<(), String> {
        let Some(story) = self.by_key.get(key) else { return Ok(()) };
        let Some(needed) = &story.confirmed.clone().or(story.needed_now()) else { return Ok(()) };
        if story.renamed && story.confirmed.is_none() {
            return Ok(());
        }
        // A pod whose subset the group no longer has is no part of it.
        let mut bound = bound(pods, key);
        bound.retain(|pod| needed.keys().any(|subset| is_of(pod, subset, needed)));
        let bound_for_it = bound.iter().any(|pod| !self.free.contains(&pod.id.uid));
        let bare = bound.iter().any(|pod| !pod.controlled);
        // "The minimum at commit": a pod that was placed for less than what is asked now, or was asked since, may stay.
        let kept_word = |pod: &&PodSpec| {
            let commit = story.commits.get(&pod.id.uid);
            commit.is_some_and(|minimums| meets(&bound, pods, key, minimums))
        };
        if bound.iter().all(kept_word) {
            return Ok(());
        }
        if !bound_for_it || meets(&bound, pods, key, needed) || story.lost || story.kept || bare {
            return Ok(());
        }
        Err(format!("gang {key} rests with {} bound and needs {needed:?}: {story:?}", bound.len()))
    }

    fn of(&mut self, pod: &PodSpec) -> Option<&mut Story> {
        self.by_key.get_mut(&pod.membership.as_ref()?.group)
    }
}

/// The least number of members of each subset that a group starts with.
pub(crate) fn minimums(group: &GroupSpec) -> Minimums {
    match &group.policy {
        Policy::Gang { min_count } => [(String::new(), *min_count as usize)].into(),
        Policy::Subsets(list) => list.iter().map(|subset| (subset.name.clone(), subset.min_member as usize)).collect(),
        Policy::Basic { .. } => [(String::new(), 0)].into(),
    }
}

/// Whether so many members of each subset are bound or finished well.
fn meets(bound: &[&PodSpec], pods: &BTreeMap<String, PodSpec>, key: &GroupKey, minimums: &Minimums) -> bool {
    let mut secured = bound.to_vec();
    secured.extend(succeeded(pods, key));
    minimums
        .iter()
        .all(|(subset, minimum)| secured.iter().filter(|pod| is_of(pod, subset, minimums)).count() >= *minimum)
}

/// Whether it was a basic group: what was decided for it needs nothing further.
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
