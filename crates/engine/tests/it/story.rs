//! What became of each gang, as the world saw it: what was decided, what was confirmed, and what others did to it.
//! The judge holds the engine against this, with "the minimum at commit" taken literally.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::model::group::{GroupKey, GroupSpec, Policy};
use muster_engine::model::pod::{Phase, PodSpec};

/// A minimum for each subset; a gang without subsets has one without a name.
pub(crate) type Minimums = BTreeMap<String, usize>;

/// The story of one gang.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// The minimums that members were last bound for, or less if they were lowered since.
    decided: Option<Minimums>,
    /// The minimums that were really reached after they were decided.
    confirmed: Option<Minimums>,
    /// The pods that were there then.
    founders: BTreeSet<String>,
    /// Others took members away after the start was confirmed.
    lost: bool,
    /// The engine may not know of the confirmed start: it was restarted, or a kubelet refused a founder.
    reopened: bool,
    /// A delete was refused: something had to stay.
    kept: bool,
}

impl Story {
    /// Whether these minimums were confirmed before.
    fn covers(&self, minimums: &Minimums) -> bool {
        self.confirmed.as_ref().is_some_and(|confirmed| {
            minimums.iter().all(|(subset, minimum)| confirmed.get(subset).is_some_and(|reached| reached >= minimum))
        })
    }
}

/// The stories of all gangs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stories {
    by_key: BTreeMap<GroupKey, Story>,
    /// Pods whose deletion was ordered: they no longer count.
    ordered_back: BTreeSet<String>,
}

impl Stories {
    /// Binds were sent for a gang with these minimums.
    pub(crate) fn decided(&mut self, key: &GroupKey, minimums: Minimums) {
        let story = self.by_key.entry(key.clone()).or_default();
        if !story.covers(&minimums) {
            story.decided = Some(minimums);
        }
    }

    /// The object asks for other minimums now. What has other subsets now is another question.
    pub(crate) fn asked(&mut self, key: &GroupKey, minimums: &Minimums) {
        let story = self.by_key.entry(key.clone()).or_default();
        let carried = |old: &Minimums, unknown: Option<usize>| -> Minimums {
            let carry = |(subset, asked): (&String, &usize)| {
                let known = old.get(subset).copied().or(unknown);
                (subset.clone(), known.map_or(*asked, |known| known.min(*asked)))
            };
            minimums.iter().map(carry).collect()
        };
        let renamed = story.decided.as_ref().is_some_and(|decided| !decided.keys().eq(minimums.keys()));
        // Whether the old start had been confirmed to the engine by then cannot be seen from here.
        story.reopened |= renamed;
        story.decided = story.decided.take().map(|decided| carried(&decided, None));
        story.confirmed = story.confirmed.take().map(|confirmed| carried(&confirmed, Some(0)));
    }

    /// Looks at the truth.
    pub(crate) fn look(&mut self, pods: &BTreeMap<String, PodSpec>) {
        for (key, story) in &mut self.by_key {
            let mut bound = bound(pods, key);
            bound.retain(|pod| !self.ordered_back.contains(&pod.id.uid));
            if bound.is_empty() && succeeded(pods, key).is_empty() {
                *story = Story::default();
                continue;
            }
            let Some(decided) = story.decided.clone().filter(|decided| meets(&bound, pods, key, decided)) else {
                continue;
            };
            if !story.covers(&decided) {
                story.confirmed = Some(decided);
                story.founders = bound.iter().map(|pod| pod.id.uid.clone()).collect();
                story.reopened = false;
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
    pub(crate) fn refused(&mut self, pod: &PodSpec) {
        if let Some(story) = self.of(pod) {
            story.reopened |= story.founders.contains(&pod.id.uid);
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

    /// The engine knows nothing any more but what the API shows.
    pub(crate) fn restarted(&mut self) {
        self.ordered_back.clear();
        for story in self.by_key.values_mut() {
            story.reopened = true;
        }
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
        let Some(needed) = story.confirmed.as_ref().or(story.decided.as_ref()) else { return Ok(()) };
        // A pod whose subset the group no longer has is no part of it.
        let mut bound = bound(pods, key);
        bound.retain(|pod| needed.keys().any(|subset| is_of(pod, subset, needed)));
        let bare = bound.iter().any(|pod| !pod.controlled);
        if bound.is_empty() || meets(&bound, pods, key, needed) || story.lost || story.kept || bare {
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
