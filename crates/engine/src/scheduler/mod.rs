//! The scheduler: turns observations into commands.
//!
//! Single-threaded; no clock, no randomness, no I/O. `observe` applies observations, `pre_enqueue` decides what may be
//! attempted, `scheduling_cycle` attempts one entity, `gang_start` and `binding` follow it until it is confirmed or
//! rolled back, and `report_dedup` limits what is reported. The caller supplies the time; a clock that runs backwards
//! is held at its latest value.

mod binding;
mod evaluation;
mod eviction;
mod gang_start;
mod min_resources;
mod observe;
mod pending_counts;
mod per_pod_preemption;
mod post_filter;
mod pre_enqueue;
mod preemption_wakeups;
pub(crate) mod report_dedup;
mod reservation;
mod scheduling_cycle;
mod unschedulable_cache;
mod upcoming_nodes;

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
use crate::queue::{Entity, PodShape, Queue};
use crate::refusal::Refusal;
use crate::score::Scorer;
pub use evaluation::{NodeEvaluation, NodeVerdict};
pub use pending_counts::{Pending, PendingCount};
use report_dedup::ReportDedup;
use reservation::Reservation;
use unschedulable_cache::UnschedulableCache;

/// An event caused by the passage of time alone. A timer whose cause is gone does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The gang start is rolled back if it is not confirmed.
    StartDeadline(GroupId),
    /// A basic group stops waiting for its desired members.
    DesiredCount(GroupId),
    /// The bind is sent again.
    RetryBind(PodId),
    /// The delete that rolls back a bind is sent again.
    RetryRollBack(PodId),
    /// The eviction is sent again.
    RetryEviction(PodId),
    /// The pod's disruption mark is removed if the pod stays.
    Unmark(PodId),
    /// A pod whose eviction was refused may be evicted again.
    SpareEnd(PodId),
    /// A degraded gang has not replaced its members in time.
    EvictDegraded(GroupId),
    /// A diagnosis has lasted long enough to be reported.
    Report(Entity),
    /// The reservation of a starving gang ends.
    ReservationEnd,
}

/// The engine.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) cluster: Cluster,
    pub(crate) queue: Queue,
    cache: Cache,
    timers: BTreeSet<(Millis, Timer)>,
    pub(crate) reports: ReportDedup,
    outbox: Vec<Command>,
    unschedulable: UnschedulableCache,
    /// Entities that do not preempt because of upcoming nodes, or did not when they were last unschedulable.
    awaiting_nodes: BTreeSet<Entity>,
    /// Evictions that failed transiently and are retried if their preemption plans still hold.
    evictions_to_retry: BTreeSet<PodId>,
    /// By UID: pods that were gone before the outcome of their eviction was known, with the group that is evicted as a
    /// whole and its preemptor. The outcome decides whether the eviction of the unit has started.
    gone_before_outcome: BTreeMap<String, (GroupId, Arc<Subject>)>,
    pub(crate) reservation: Option<Reservation>,
    /// Consecutive reservations that expired before the gang was placed.
    reservations_expired: u32,
    no_reservation_before: Millis,
    now: Millis,
    last_attempt: Option<SchedulingAttempt>,
}

/// The entity of one scheduling attempt, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingAttempt {
    /// Whether it is a group; otherwise a single pod.
    pub group: bool,
    /// The index of its profile.
    pub profile: u16,
    /// Whether any pod was placed.
    pub placed: bool,
}

impl Engine {
    /// An engine without any state.
    pub fn new(config: Config) -> Result<Self, Refusal> {
        config.validate()?;
        let mut cluster = Cluster::default();
        cluster.profiles = config.profiles.iter().map(ProfileRules::new).collect();
        let scorers =
            config.profiles.iter().map(|profile| Scorer::new(&profile.scoring, &mut cluster.resources)).collect();
        let reports = ReportDedup::new(config.report_waiting_after_ms);
        Ok(Self {
            config,
            cluster,
            queue: Queue::default(),
            cache: Cache::new(scorers),
            timers: BTreeSet::new(),
            reports,
            outbox: Vec::new(),
            unschedulable: UnschedulableCache::default(),
            awaiting_nodes: BTreeSet::new(),
            evictions_to_retry: BTreeSet::new(),
            gone_before_outcome: BTreeMap::new(),
            reservation: None,
            reservations_expired: 0,
            no_reservation_before: 0,
            now: 0,
            last_attempt: None,
        })
    }

    /// Applies an observation. A refusal names what was not applied; everything else was.
    pub fn observe(&mut self, now: Millis, observation: Observation) -> Result<(), Refusal> {
        self.now = self.now.max(now);
        self.apply_observation(observation)
    }

    /// Runs one step: due timers, then one scheduling attempt for the head of the queue.
    pub fn decide(&mut self, now: Millis) -> Vec<Command> {
        self.now = self.now.max(now);
        self.queue.tick(self.now);
        self.fire_timers();
        self.last_attempt = None;
        if let Some(entity) = self.queue.pop() {
            let (sent, profile) = (self.outbox.len(), self.profile_of(entity));
            match entity {
                Entity::Pod(pod) => self.schedule_pod(pod),
                Entity::Group(group) => self.schedule_group(group),
            }
            let placed = self.outbox[sent..].iter().any(|command| matches!(command, Command::Bind { .. }));
            self.last_attempt = Some(SchedulingAttempt { group: matches!(entity, Entity::Group(_)), profile, placed });
        }
        std::mem::take(&mut self.outbox)
    }

    /// The index of an entity's profile; for a group, that of its first waiting member.
    fn profile_of(&self, entity: Entity) -> u16 {
        let pod = match entity {
            Entity::Pod(pod) => Some(pod),
            Entity::Group(group) => self.cluster.group(group).waiting.first().map(|(_, member)| *member),
        };
        pod.map_or(0, |pod| self.cluster.class(self.cluster.pod(pod).class).spec.profile)
    }

    /// When `decide` has work to do: not later than now if it has work already, `None` if it depends on an observation.
    pub fn next_wakeup(&self) -> Option<Millis> {
        if !self.outbox.is_empty() {
            return Some(self.now);
        }
        let timer = self.timers.first().map(|(due, _)| *due);
        let queue = self.queue.next_due().map(|due| due.max(self.now));
        timer.into_iter().chain(queue).min()
    }

    /// The entity of the scheduling attempt in the last `decide`, if there was one.
    pub fn last_attempt(&self) -> Option<SchedulingAttempt> {
        self.last_attempt
    }

    /// The latest diagnosis of a pod or group, if there is one.
    pub fn explain(&self, subject: &Subject) -> Option<&Diagnosis> {
        let entity = match subject {
            Subject::Pod(pod) => Entity::Pod(self.cluster.pod_id(&pod.uid)?),
            Subject::Group(key) => Entity::Group(self.cluster.group_id(key)?),
        };
        self.reports.latest(entity)
    }

    /// The latest time that the engine was given.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The engine's state of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn fire_timers(&mut self) {
        while let Some((due, timer)) = self.timers.first().copied().filter(|(due, _)| *due <= self.now) {
            self.timers.pop_first();
            match timer {
                Timer::StartDeadline(group) => self.on_start_deadline(group, due),
                Timer::DesiredCount(group) => self.desired_wait_over(group, due),
                Timer::RetryBind(pod) => self.retry_bind(pod, due),
                Timer::RetryRollBack(pod) => self.retry_roll_back(pod, due),
                Timer::RetryEviction(pod) => self.retry_eviction(pod),
                Timer::Unmark(pod) => self.unmark(pod),
                Timer::SpareEnd(pod) => {
                    if self.cluster.pod_if_any(pod).is_some() {
                        self.on_pod_became_preemptible(pod);
                    }
                }
                Timer::EvictDegraded(group) => self.evict_degraded(group, due),
                Timer::ReservationEnd => self.reservation_expired(due),
                Timer::Report(entity) => {
                    if let Some(report) = self.reports.due(entity, self.now) {
                        let lost = matches!(report.diagnosis, Diagnosis::Degraded { .. });
                        self.outbox.push(Command::Report(Box::new(report)));
                        // A pending `Degraded` report suppresses others; now that it is sent, report what the group
                        // waits for.
                        if let (true, Entity::Group(group)) = (lost, entity) {
                            self.cluster.group_mut(group).degraded_reported = true;
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

    /// A node may have more free capacity: activates entities that have a pod of a shape that may fit there now.
    fn on_capacity_freed(&mut self, node: NodeId) {
        let Some(place) = self.cluster.node_if_any(node).filter(|place| place.present) else { return };
        let reserved = place.reservation_priority.is_some();
        let nominated = place.nominated.clone();
        for shape in self.parked_shapes() {
            if self.node_may_help(node, shape) {
                self.queue.activate(shape, self.now);
            } else if self.cluster.class(shape.0).has_required_inter_pod_terms() {
                // The pod that left may have blocked places on other nodes that are nominated.
                self.queue.activate_waiting_for_victims(shape, self.now);
            }
        }
        // Nominated capacity is not visible to other shapes, so the nominated entities are activated directly.
        let entity = |pod: PodId| self.cluster.pod(pod).group.map_or(Entity::Pod(pod), Entity::Group);
        for entity in nominated.into_iter().map(entity).collect::<BTreeSet<Entity>>() {
            if self.victims_are_gone(entity) {
                self.queue.activate_now(entity, self.now);
            } else {
                self.queue.activate_parked(entity, self.now);
            }
        }
        // Reserved nodes are not visible to other shapes, so the owner of the reservation is activated directly.
        if let Some(reservation) = self.reservation.as_ref().filter(|_| reserved) {
            self.queue.activate_parked(Entity::Group(reservation.group), self.now);
        }
    }

    /// The shapes of parked entities, without those whose class lost its last pod just now.
    fn parked_shapes(&self) -> Vec<PodShape> {
        self.queue.parked_shapes().filter(|(class, _)| self.cluster.classes.contains(*class)).collect()
    }

    /// Whether a pod of this shape may fit now that this node has changed.
    fn node_may_help(&mut self, node: NodeId, (class, priority): PodShape) -> bool {
        // A pod that leaves a node may have blocked all nodes of the domain.
        if self.cluster.class(class).has_required_inter_pod_terms()
            && self.cache.candidates(&self.cluster, class, priority).best().is_some()
        {
            return true;
        }
        let (class, place) = (self.cluster.class(class), self.cluster.node(node));
        let view = filter::view(&self.cluster, node, priority);
        filter::passes_static_filters(class, place)
            && (filter::has_room(class, place, &view) || self.fits_with_preemption(class, node, priority, view))
    }

    /// A domain lost a node, or a pod that blocked others: activates entities that fit now.
    fn on_domains_changed(&mut self) {
        for (class, priority) in self.parked_shapes() {
            if self.cluster.class(class).has_required_inter_pod_terms()
                && self.cache.candidates(&self.cluster, class, priority).best().is_some()
            {
                self.queue.activate((class, priority), self.now);
            }
        }
    }

    /// A pod was placed: activates entities with affinity to it, or whose topology spread it evens out.
    fn on_pod_placed(&mut self, pod: PodId) {
        if self.cluster.class(self.cluster.pod(pod).class).selectors.is_empty() {
            return;
        }
        for (class, priority) in self.parked_shapes() {
            let gains = placement::may_gain_feasible_nodes(&self.cluster, class);
            if gains && self.cache.candidates(&self.cluster, class, priority).best().is_some() {
                self.queue.activate((class, priority), self.now);
            }
        }
    }
}
