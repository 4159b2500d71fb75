//! The status of a group that is a part of a tree: what is true of the root, seen from this group.

use crate::cluster::group::Group;
use crate::cluster::pod::{Pod, PodState};
use crate::diagnosis::Diagnosis;
use crate::model::group::{GroupKey, GroupSpec, Policy, Subset};
use crate::queue::Entity;
use crate::scheduler::Engine;
use crate::scheduler::trees::part_diagnosis;
use crate::status::{Completion, Counts, EvictionStatus, GroupStatus, Health, ScheduledStatus, StartStatus};

impl Engine {
    pub(crate) fn status_in_tree(&self, key: &GroupKey) -> GroupStatus<'_> {
        let spec = self.forest.spec(key);
        let of_place = self.forest.place(key).and_then(|place| {
            let id = self.cluster.group_id(&place.root)?;
            Some((place.node, id, self.cluster.group(id)))
        });
        let Some((node, id, group)) = of_place else { return self.status_without_tree(key, spec) };
        let Some(tree) = &group.tree else { return GroupStatus { spec, ..GroupStatus::default() } };
        let below: Vec<usize> =
            (0..group.rules.len()).filter(|subset| tree.path(tree.leaves()[*subset]).any(|at| at == node)).collect();
        let is_member = |pod: &&Pod| below.iter().any(|subset| *pod.subset == *group.rules[*subset].name);
        let pods = || group.members.iter().map(|(_, member)| self.cluster.pod(*member)).filter(is_member);
        let verdicts = self.reports.verdicts(Entity::Group(id));
        let mut counts = Counts::default();
        for pod in pods() {
            let verdict = verdicts.iter().find(|(name, _)| name.uid == pod.id.uid).map(|(_, verdict)| *verdict);
            counts.add(pod, verdict);
        }
        let has_started = tree.met(|subset| group.has_started_subset(subset))[node];
        let standing = self.reports.standing(Entity::Group(id));
        let is_leaf = tree.subset(node).is_some();
        GroupStatus {
            spec,
            counts,
            subsets: vec![(String::new(), counts)],
            has_nodes: pods().any(crate::status::holds_node),
            scheduled: match standing {
                _ if counts.total == 0 && !has_started => ScheduledStatus::NoMembers,
                Some(standing) => ScheduledStatus::OfTree(part_diagnosis(group, node, standing)),
                None if has_started => ScheduledStatus::Started,
                None => ScheduledStatus::Unchanged,
            },
            start: if is_leaf { start(group, below[0]) } else { StartStatus::Unchanged },
            health: health(group, &below, has_started),
            eviction: eviction(pods),
            completion: completion(pods(), &counts),
            priority_mismatch: None,
        }
    }

    /// The status of a group that is no part of a tree, and has no pods of its own.
    fn status_without_tree<'e>(&'e self, key: &GroupKey, spec: Option<&'e GroupSpec>) -> GroupStatus<'e> {
        if let Some(id) = self.cluster.group_id(key) {
            return self.status_of(id);
        }
        let problem =
            self.problem_of(key).filter(|_| spec.is_some_and(|spec| matches!(spec.policy, Policy::Groups { .. })));
        let scheduled = match problem {
            Some(problem) => ScheduledStatus::Incomplete(Diagnosis::Waiting(problem)),
            None => ScheduledStatus::NoMembers,
        };
        GroupStatus { spec, scheduled, ..GroupStatus::default() }
    }
}

/// What a leaf records of its start.
fn start(group: &Group, subset: usize) -> StartStatus {
    if !group.definition.was_seen() {
        return StartStatus::Unchanged;
    }
    match group.lifecycle.confirmed() {
        Some(confirmed) if confirmed.minimum.get(subset).is_some_and(|minimum| *minimum > 0) => {
            let minimum = vec![Subset { name: String::new(), min_member: confirmed.minimum[subset] }];
            StartStatus::Started { minimum, decided_ms: confirmed.decided_ms }
        }
        _ if group.member_counts[subset].bound > 0 => StartStatus::Open,
        _ => StartStatus::NotStarted,
    }
}

/// Whether a group of a tree has lost members.
fn health(group: &Group, below: &[usize], has_started: bool) -> Option<Health> {
    let confirmed = group.lifecycle.confirmed();
    let Some(confirmed) = confirmed.filter(|_| has_started) else {
        return below.iter().all(|subset| group.member_counts[*subset].bound == 0).then_some(Health::NothingLeft);
    };
    let quorum = group.cap_at_minimum(&confirmed.minimum);
    let is_below = |subset: &usize| group.member_counts[*subset].scheduled() < quorum[*subset];
    match &confirmed.loss {
        Some(loss) if below.iter().any(is_below) => loss.reported.then(|| {
            let minimum = below.iter().map(|subset| quorum[*subset]).sum();
            let scheduled = below.iter().map(|subset| group.member_counts[*subset].scheduled()).sum();
            Health::Degraded(Diagnosis::Degraded { minimum, scheduled, evicted: 0 })
        }),
        _ => Some(Health::Healthy),
    }
}

/// Whether the pods of a group are being evicted, as those of a part of a tree that is evicted together.
fn eviction<'p, I: Iterator<Item = &'p Pod>>(pods: impl Fn() -> I) -> Option<EvictionStatus<'p>> {
    let is_placed = |pod: &Pod| matches!(pod.state, PodState::Bound(_)) && !pod.terminating;
    let by = pods().find_map(|pod| pod.eviction.as_ref().filter(|one| one.whole)).map(|eviction| &*eviction.by);
    let goes = pods().any(|pod| pod.terminating && pod.state != PodState::Waiting);
    match by {
        Some(by) if goes => Some(EvictionStatus::Evicted { by }),
        Some(_) => Some(EvictionStatus::Ordered),
        None => pods().any(is_placed).then_some(EvictionStatus::NotEvicted),
    }
}

fn completion<'p>(mut pods: impl Iterator<Item = &'p Pod>, counts: &Counts) -> Option<Completion> {
    if counts.total == 0 || pods.any(crate::status::is_ending) {
        return None;
    }
    let finished = counts.succeeded + counts.failed == counts.total;
    Some(if finished { Completion::Finished } else { Completion::NotFinished })
}
