//! A group as the engine keeps it: its definition, its members, and how many of them stand where.
//!
//! The census is kept by differences, so that a gang of thousands costs nothing per event: every change
//! of a member goes through the cluster, which counts it out before and in again after.

use std::collections::{BTreeMap, BTreeSet};

use super::pod::{Pod, PodState, Standing};
use crate::model::Millis;
use crate::model::group::{DegradedPolicy, GroupKey, GroupPriority, GroupSpec, History, Subset};
use crate::model::ids::PodId;

/// How many members of one subset stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Could be placed now.
    pub waiting: u32,
    /// Wait behind scheduling gates.
    pub gated: u32,
    /// Wait because something of them cannot be honoured.
    pub refused: u32,
    /// Decided, not confirmed.
    pub assumed: u32,
    /// Bound and staying.
    pub bound: u32,
    /// Finished well.
    pub succeeded: u32,
}

impl Census {
    /// Members that have a place or had one and finished well.
    pub fn held(&self) -> u32 {
        self.assumed + self.secured()
    }

    /// Members whose place is confirmed.
    pub fn secured(&self) -> u32 {
        self.bound + self.succeeded
    }

    /// Members that could count towards the minimum.
    pub fn present(&self) -> u32 {
        self.waiting + self.gated + self.refused + self.held()
    }

    fn slot(&mut self, standing: Standing) -> Option<&mut u32> {
        match standing {
            Standing::Waiting => Some(&mut self.waiting),
            Standing::Gated => Some(&mut self.gated),
            Standing::Refused => Some(&mut self.refused),
            Standing::Assumed => Some(&mut self.assumed),
            Standing::Bound => Some(&mut self.bound),
            Standing::Succeeded => Some(&mut self.succeeded),
            Standing::Aside => None,
        }
    }
}

/// Why a member is left out of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stray {
    /// It names a subset that the group does not have.
    UnknownSubset,
    /// Its priority is not the one that the members share.
    OtherPriority {
        /// The shared one.
        shared: i32,
    },
    /// It is left over from an earlier group of the same name.
    Former,
}

/// A start that is under way: some members may be bound, the minimum is not confirmed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The minimum of each subset when the start was decided.
    pub quorum: Vec<u32>,
    /// When it is taken back.
    pub deadline: Millis,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Which group.
    pub key: GroupKey,
    /// The object, once it was seen and while it is there.
    pub spec: Option<GroupSpec>,
    /// The quorum: one rule per subset. Those of the last object seen; before that, one without a minimum.
    pub rules: Vec<Subset>,
    /// All pods that name this group, oldest first.
    pub members: BTreeSet<(Millis, PodId)>,
    /// Members that could be placed now, oldest first.
    pub waiting: BTreeSet<(Millis, PodId)>,
    /// Members behind scheduling gates.
    pub gated: BTreeSet<PodId>,
    /// Members of which something cannot be honoured.
    pub refused: BTreeSet<PodId>,
    /// Members that are left out, and why.
    pub strays: BTreeMap<PodId, Stray>,
    /// Members that were left out or taken in again since somebody last looked.
    pub strays_changed: BTreeSet<PodId>,
    /// How many members stand where, per subset.
    pub census: Vec<Census>,
    /// How many live members have which priority.
    pub priorities: BTreeMap<i32, u32>,
    /// The minimum of each subset that was once confirmed. Empty: the group never started.
    pub reached: Vec<u32>,
    /// The minimum of each subset that the founders were placed for. Empty: nobody knows of any.
    pub founded: Vec<u32>,
    /// What the API said of its past when the object was first seen: bound members below the minimum may be what
    /// is left of a start, and not one that was cut short.
    pub history: History,
    /// Which object it was when it was last seen.
    pub incarnation: Option<String>,
    /// The start that is under way.
    pub attempt: Option<Attempt>,
    /// Bound members below the minimum were kept because nobody would make them again.
    pub kept_partial: bool,
    /// It had started and is below its minimum.
    pub degraded: bool,
    /// That it is degraded was told.
    pub loss_told: bool,
    /// When what is left of it is given up, if it is still degraded then and its policy says so.
    pub given_up_at: Option<Millis>,
    /// How many were left when that was last said.
    pub secured_when_told: u32,
    /// How many decisions were made for it; tells refusals of one decision from those of the next.
    pub decisions: u32,
    /// The last decision of which a bind was refused.
    pub refused_decision: u32,
    /// How many decisions in a row had a bind refused.
    pub refusals_in_a_row: u32,
    /// Members that were refused are not placed again before this time.
    pub repair_not_before: Millis,
    /// Until when a basic group waits for the rest of its desired members.
    pub desired_until: Option<Millis>,
    /// Counts what could change the answer to "does it fit": waiting members and rules.
    pub stirred: u64,
    /// The count when it was last parked.
    pub stirred_when_parked: u64,
    /// What it needed when it was last parked.
    pub needs_when_parked: Vec<u32>,
    /// How many members are nominated.
    pub nominations: u32,
    /// The priority under which its nominations were last counted.
    pub nominated_at: i32,
}

impl Group {
    /// A group of which nothing but the name is known.
    pub fn new(key: GroupKey) -> Self {
        Self {
            key,
            spec: None,
            rules: vec![Subset { name: String::new(), min_member: 0 }],
            members: BTreeSet::new(),
            waiting: BTreeSet::new(),
            gated: BTreeSet::new(),
            refused: BTreeSet::new(),
            strays: BTreeMap::new(),
            strays_changed: BTreeSet::new(),
            census: vec![Census::default()],
            priorities: BTreeMap::new(),
            reached: Vec::new(),
            founded: Vec::new(),
            history: History::New,
            incarnation: None,
            attempt: None,
            kept_partial: false,
            degraded: false,
            loss_told: false,
            given_up_at: None,
            decisions: 0,
            refused_decision: 0,
            refusals_in_a_row: 0,
            repair_not_before: 0,
            secured_when_told: 0,
            desired_until: None,
            stirred: 0,
            stirred_when_parked: 0,
            needs_when_parked: Vec::new(),
            nominations: 0,
            nominated_at: 0,
        }
    }

    /// Whether the group starts whole or not at all.
    pub fn is_gang(&self) -> bool {
        self.rules.iter().any(|rule| rule.min_member > 0)
    }

    /// The sum over all subsets.
    pub fn total(&self) -> Census {
        self.census.iter().fold(Census::default(), |mut sum, census| {
            sum.waiting += census.waiting;
            sum.gated += census.gated;
            sum.refused += census.refused;
            sum.assumed += census.assumed;
            sum.bound += census.bound;
            sum.succeeded += census.succeeded;
            sum
        })
    }

    /// The minimum over all subsets.
    pub fn min_total(&self) -> u64 {
        self.rules.iter().map(|rule| u64::from(rule.min_member)).sum()
    }

    /// The present minimum of each subset.
    pub fn quorum(&self) -> Vec<u32> {
        self.rules.iter().map(|rule| rule.min_member).collect()
    }

    /// Takes new rules; what was decided or reached under the old ones goes with the subsets' names.
    pub(crate) fn set_rules(&mut self, rules: Vec<Subset>) {
        let old = |name: &str| self.rules.iter().position(|rule| rule.name == name);
        let carry = |counts: &[u32], unknown: u32| -> Vec<u32> {
            rules.iter().map(|rule| old(&rule.name).and_then(|at| counts.get(at).copied()).unwrap_or(unknown)).collect()
        };
        // A subset that is new has reached nothing, and a start that is under way has to fill it too.
        let reached = if self.reached.is_empty() { Vec::new() } else { carry(&self.reached, 0) };
        // Who was placed for no minimum stays that; any other start has to fill a new subset too.
        let freely = self.founded.iter().all(|minimum| *minimum == 0);
        let unknown = if freely { 0 } else { u32::MAX };
        let founded = if self.founded.is_empty() { Vec::new() } else { carry(&self.founded, unknown) };
        let decided = self.attempt.as_ref().map(|attempt| carry(&attempt.quorum, u32::MAX));
        if let (Some(attempt), Some(decided)) = (&mut self.attempt, decided) {
            attempt.quorum = decided;
        }
        self.reached = reached;
        self.founded = founded;
        self.rules = rules;
    }

    /// Whether the present minimum was already confirmed once: then members may join one by one, unless the group lost
    /// some and is to have its quorum again first.
    pub fn joins_singly(&self) -> bool {
        let policy = self.spec.as_ref().map(|spec| spec.degraded_policy);
        !(self.degraded && policy == Some(DegradedPolicy::Requorum))
            && self.reached.len() == self.rules.len()
            && self.rules.iter().zip(&self.reached).all(|(rule, reached)| rule.min_member <= *reached)
    }

    /// Whether it says that it will need more than its members do, and has yet to start.
    pub fn asks_for_more(&self) -> bool {
        !self.joins_singly() && self.spec.as_ref().is_some_and(|spec| !spec.min_resources.is_empty())
    }

    /// Whether members are bound of a start that is not confirmed, or no longer is since a kubelet refused a founder.
    pub fn start_is_open(&self) -> bool {
        let unconfirmed = self.attempt.is_some() || self.kept_partial;
        unconfirmed && self.reached.iter().all(|minimum| *minimum == 0) && !self.joins_singly()
    }

    /// Whether one member that may not be placed holds back the others. A start that is under way, and members that
    /// join one by one, do not wait for newcomers.
    pub fn waits_for_everyone(&self) -> bool {
        self.attempt.is_none() && !self.joins_singly()
    }

    /// Whether there is anybody to be placed, now or once those that may not be placed yet may.
    pub fn wants_places(&self) -> bool {
        let held_back = !self.gated.is_empty() || !self.refused.is_empty();
        !self.waiting.is_empty() || (held_back && self.waits_for_everyone())
    }

    /// How many more members each subset needs before anything may be bound.
    pub fn needs(&self) -> Vec<u32> {
        if self.joins_singly() {
            return vec![0; self.rules.len()];
        }
        self.rules
            .iter()
            .zip(&self.census)
            .map(|(rule, census)| rule.min_member.saturating_sub(census.held()))
            .collect()
    }

    /// The minimum that a start has to confirm: what was decided, or less if the minimum was lowered since.
    pub fn no_more_than_asked(&self, decided: &[u32]) -> Vec<u32> {
        let decided = |position: usize| decided.get(position).copied().unwrap_or(u32::MAX);
        self.rules.iter().enumerate().map(|(position, rule)| rule.min_member.min(decided(position))).collect()
    }

    /// Whether so many members of each subset are confirmed.
    pub fn secured_at_least(&self, quorum: &[u32]) -> bool {
        self.census.iter().zip(quorum).all(|(census, min)| census.secured() >= *min)
    }

    /// Whether nothing is left of a start but members that finished well, and fewer of them than the group asks for.
    pub fn is_spent(&self) -> bool {
        let total = self.total();
        total.held() == 0 || (total.assumed + total.bound == 0 && !self.secured_at_least(&self.quorum()))
    }

    /// The group's priority by its rule.
    pub fn priority(&self, oldest_member: impl FnOnce() -> Option<i32>) -> i32 {
        match self.spec.as_ref().map(|spec| spec.priority) {
            Some(GroupPriority::Own(priority)) => priority,
            Some(GroupPriority::SharedByMembers) => oldest_member().unwrap_or(0),
            Some(GroupPriority::LowestMember) | None => self.priorities.keys().next().copied().unwrap_or(0),
        }
    }

    /// The subset that a member belongs to, or why it is left out. Before the object was seen nobody is; nor is
    /// a pod with another priority that has a place already.
    pub fn subset_of(&self, pod: &Pod, shared_priority: Option<i32>) -> Result<usize, Stray> {
        let since = self.spec.as_ref().and_then(|spec| spec.members_since_ms);
        if since.is_some_and(|since| pod.created_ms < since) {
            return Err(Stray::Former);
        }
        if let Some(shared) = shared_priority
            && pod.priority != shared
            && pod.state == PodState::Waiting
        {
            return Err(Stray::OtherPriority { shared });
        }
        let open = self.spec.as_ref().is_some_and(|spec| spec.open);
        let subset = crate::model::group::subset_of(&self.rules, open, &pod.subset);
        subset.or(self.spec.is_none().then_some(0)).ok_or(Stray::UnknownSubset)
    }

    /// Counts one member in or out at its standing.
    pub(crate) fn count(&mut self, subset: u16, standing: Standing, member: (Millis, PodId), into: bool) {
        if let Some(slot) = self.census[usize::from(subset)].slot(standing) {
            if into { *slot += 1 } else { *slot -= 1 }
        }
        let changed = match (standing, into) {
            (Standing::Waiting, true) => self.waiting.insert(member),
            (Standing::Waiting, false) => self.waiting.remove(&member),
            (Standing::Gated, true) => self.gated.insert(member.1),
            (Standing::Gated, false) => self.gated.remove(&member.1),
            (Standing::Refused, true) => self.refused.insert(member.1),
            (Standing::Refused, false) => self.refused.remove(&member.1),
            _ => true,
        };
        debug_assert!(changed, "a member is counted once");
        if standing == Standing::Waiting {
            self.stirred += 1;
        }
    }

    /// Whether nothing would be lost by forgetting the group.
    pub fn is_forgotten(&self) -> bool {
        self.spec.is_none() && self.members.is_empty()
    }
}

/// A sum of minimums, as far as it can be told.
pub(crate) fn sum_of(quorum: &[u32]) -> u32 {
    quorum.iter().fold(0, |sum: u32, count| sum.saturating_add(*count))
}
