//! The engine: observations in, commands out.
//!
//! One thread, no clock, no randomness, no I/O. `intake` takes observations in, `gate` decides who may be tried,
//! `cycle` tries one entity, `start` and `commit` follow it to its end, `voice` says how things are. Time is what the
//! caller says it is; a clock that runs backwards stands still here.

mod arrivals;
mod claim;
mod commit;
mod cycle;
mod evict;
mod gate;
mod intake;
mod min_resources;
mod noes;
mod one_by_one;
mod pending;
mod preempt;
mod prey;
mod start;
mod survey;
pub(crate) mod voice;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::{Cluster, ProfileRules};
use crate::command::{Command, Subject};
use crate::config::Config;
use crate::diagnosis::Diagnosis;
use crate::filter;
use crate::model::Millis;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::observation::Observation;
use crate::placement::{self, cache::Cache};
use crate::queue::{Entity, Line, Queue};
use crate::refusal::Refusal;
use crate::score::Scorer;
use claim::Claim;
use noes::Noes;
pub use pending::{Pending, Waiters};
pub use survey::{NodeSurvey, NodeVerdict};
use voice::Voice;

/// Something that happens by the passing of time alone. A timer whose cause is gone does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A start is taken back if it is not confirmed.
    Deadline(GroupId),
    /// A basic group no longer waits for its desired members.
    Desired(GroupId),
    /// A bind is sent again.
    Rebind(PodId),
    /// A delete is sent again.
    TakeBack(PodId),
    /// An eviction is sent again.
    Evict(PodId),
    /// A pod has shown for long enough that it is evicted.
    Marked(PodId),
    /// A pod whose eviction was refused may be evicted again.
    Spared(PodId),
    /// A gang that lost members has had its time to replace them.
    GivenUp(GroupId),
    /// Something waited long enough to be told.
    Voice(Entity),
    /// The claim of a starving gang ends.
    Claim,
}

/// The engine.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) cluster: Cluster,
    pub(crate) queue: Queue,
    cache: Cache,
    timers: BTreeSet<(Millis, Timer)>,
    pub(crate) voice: Voice,
    outbox: Vec<Command>,
    noes: Noes,
    /// Who evicts nobody because of nodes that are being set up, or did not when it was last refused.
    awaiting_nodes: BTreeSet<Entity>,
    /// Evictions that failed in passing and are to be sent again, if the plans stand that they are for.
    evictions_due: BTreeSet<PodId>,
    /// By UID: pods that were gone before the answer to their eviction came, with the group that goes whole with them and
    /// for whom. The answer tells whether the unit has begun to go.
    gone_unanswered: BTreeMap<String, (GroupId, Arc<Subject>)>,
    pub(crate) claim: Option<Claim>,
    /// Claims in a row that ended without a gang.
    claims_expired: u32,
    no_claim_before: Millis,
    now: Millis,
    tried: Option<Tried>,
}

/// Whom a decision was about, and how it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// A group, or else a single pod.
    pub group: bool,
    /// The number of the profile that it is judged by.
    pub profile: u16,
    /// Whether any pod was given a place.
    pub placed: bool,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: Config) -> Result<Self, Refusal> {
        config.validate()?;
        let mut cluster = Cluster::default();
        cluster.profiles = config.profiles.iter().map(ProfileRules::new).collect();
        let scorers =
            config.profiles.iter().map(|profile| Scorer::new(&profile.scoring, &mut cluster.resources)).collect();
        let voice = Voice::new(config.report_waiting_after_ms);
        Ok(Self {
            config,
            cluster,
            queue: Queue::default(),
            cache: Cache::new(scorers),
            timers: BTreeSet::new(),
            voice,
            outbox: Vec::new(),
            noes: Noes::default(),
            awaiting_nodes: BTreeSet::new(),
            evictions_due: BTreeSet::new(),
            gone_unanswered: BTreeMap::new(),
            claim: None,
            claims_expired: 0,
            no_claim_before: 0,
            now: 0,
            tried: None,
        })
    }

    /// Takes in what was seen. A refusal says what was not taken; nothing else is lost by it.
    pub fn observe(&mut self, now: Millis, observation: Observation) -> Result<(), Refusal> {
        self.now = self.now.max(now);
        self.take_in(observation)
    }

    /// Takes one decision: whatever time brought, then the next in the queue.
    pub fn decide(&mut self, now: Millis) -> Vec<Command> {
        self.now = self.now.max(now);
        self.queue.tick(self.now);
        self.fire_timers();
        self.tried = None;
        if let Some(entity) = self.queue.pop() {
            let (told, profile) = (self.outbox.len(), self.profile_of(entity));
            match entity {
                Entity::Pod(pod) => self.try_pod(pod),
                Entity::Group(group) => self.try_group(group),
            }
            let placed = self.outbox[told..].iter().any(|command| matches!(command, Command::Bind { .. }));
            self.tried = Some(Tried { group: matches!(entity, Entity::Group(_)), profile, placed });
        }
        std::mem::take(&mut self.outbox)
    }

    /// The number of the profile that somebody is judged by: of a group, that of its first member that waits.
    fn profile_of(&self, entity: Entity) -> u16 {
        let pod = match entity {
            Entity::Pod(pod) => Some(pod),
            Entity::Group(group) => self.cluster.group(group).waiting.first().map(|(_, member)| *member),
        };
        pod.map_or(0, |pod| self.cluster.class(self.cluster.pod(pod).class).spec.profile)
    }

    /// When `decide` would do something; not later than now if it would at once, `None` if only an observation
    /// can change anything.
    pub fn next_wakeup(&self) -> Option<Millis> {
        if !self.outbox.is_empty() {
            return Some(self.now);
        }
        let timer = self.timers.first().map(|(due, _)| *due);
        let queue = self.queue.next_due().map(|due| due.max(self.now));
        timer.into_iter().chain(queue).min()
    }

    /// Whom the last `decide` tried to place, if anybody.
    pub fn tried(&self) -> Option<Tried> {
        self.tried
    }

    /// How things are with somebody, as far as there is anything to say.
    pub fn explain(&self, subject: &Subject) -> Option<&Diagnosis> {
        let entity = match subject {
            Subject::Pod(pod) => Entity::Pod(self.cluster.pod_id(&pod.uid)?),
            Subject::Group(key) => Entity::Group(self.cluster.group_id(key)?),
        };
        self.voice.latest(entity)
    }

    /// The latest time that the engine was told.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The engine's picture of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn fire_timers(&mut self) {
        while let Some((due, timer)) = self.timers.first().copied().filter(|(due, _)| *due <= self.now) {
            self.timers.pop_first();
            match timer {
                Timer::Deadline(group) => self.deadline(group, due),
                Timer::Desired(group) => self.desired_wait_over(group, due),
                Timer::Rebind(pod) => self.rebind(pod, due),
                Timer::TakeBack(pod) => self.take_back_again(pod, due),
                Timer::Evict(pod) => self.evict_again(pod),
                Timer::Marked(pod) => self.unmark(pod),
                Timer::Spared(pod) => {
                    if self.cluster.pod_if_any(pod).is_some() {
                        self.prey_appeared(pod);
                    }
                }
                Timer::GivenUp(group) => self.give_up_degraded(group, due),
                Timer::Claim => self.claim_expired(due),
                Timer::Voice(entity) => {
                    if let Some(report) = self.voice.due(entity, self.now) {
                        let lost = matches!(report.diagnosis, Diagnosis::Degraded { .. });
                        self.outbox.push(Command::Report(Box::new(report)));
                        // A loss drowns out what the group waits for; now that it is told, that is worth telling.
                        if let (true, Entity::Group(group)) = (lost, entity) {
                            self.cluster.group_mut(group).loss_told = true;
                            self.review_group(group);
                        }
                    }
                }
            }
        }
    }

    fn set_timer(&mut self, due: Millis, timer: Timer) {
        self.timers.insert((due, timer));
    }

    /// There may be more room on a node: wakes whoever a pod of that class would now fit there for.
    fn room_appeared(&mut self, node: NodeId) {
        let Some(place) = self.cluster.node_if_any(node).filter(|place| place.present) else { return };
        let claimed = place.claimed_at.is_some();
        let nominated = place.nominated.clone();
        for line in self.lines() {
            if self.room_helps(node, line) {
                self.queue.wake(line, self.now);
            } else if self.cluster.class(line.0).has_demands() {
                // Who left may have been in the way of places elsewhere that are kept free.
                self.queue.wake_those_who_await(line, self.now);
            }
        }
        // The room that a node is kept free for is hidden from everybody's line but is for the nominated themselves.
        let entity = |pod: PodId| self.cluster.pod(pod).group.map_or(Entity::Pod(pod), Entity::Group);
        for entity in nominated.into_iter().map(entity).collect::<BTreeSet<Entity>>() {
            if self.places_are_free(entity) {
                self.queue.hurry(entity, self.now);
            } else {
                self.queue.wake_parked(entity, self.now);
            }
        }
        // Nobody else sees room on a claimed node, so it is nobody's line that wakes the claimant.
        if let Some(claim) = self.claim.as_ref().filter(|_| claimed) {
            self.queue.wake_parked(Entity::Group(claim.group), self.now);
        }
    }

    /// The lines of those who wait. Somebody whose last pod of a class is just gone may still stand in its line.
    fn lines(&self) -> Vec<Line> {
        self.queue.lines().filter(|(class, _)| self.cluster.classes.contains(*class)).collect()
    }

    /// Whether there may be a place now for whoever waits in a line, since this node changed.
    fn room_helps(&mut self, node: NodeId, (class, priority): Line) -> bool {
        // Who leaves a node may have been in the way on all nodes near it.
        if self.cluster.class(class).has_demands()
            && self.cache.candidates(&self.cluster, class, priority).best().is_some()
        {
            return true;
        }
        let (class, place) = (self.cluster.class(class), self.cluster.node(node));
        let view = filter::view(&self.cluster, node, priority);
        filter::node_would_do(class, place)
            && (filter::has_room(class, place, &view) || self.has_room_by_force(class, node, priority, view))
    }

    /// A domain may have lost its last node, or those who were in the way there: wakes whoever finds a place now.
    fn domains_changed(&mut self) {
        for (class, priority) in self.lines() {
            if self.cluster.class(class).has_demands()
                && self.cache.candidates(&self.cluster, class, priority).best().is_some()
            {
                self.queue.wake((class, priority), self.now);
            }
        }
    }

    /// A pod has come to a node: wakes whoever insists on its company, or was too far ahead of it.
    fn company_came(&mut self, pod: PodId) {
        if self.cluster.class(self.cluster.pod(pod).class).tags.is_empty() {
            return;
        }
        for (class, priority) in self.lines() {
            let gains = placement::may_gain_places(&self.cluster, class);
            if gains && self.cache.candidates(&self.cluster, class, priority).best().is_some() {
                self.queue.wake((class, priority), self.now);
            }
        }
    }
}
