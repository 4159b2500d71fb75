//! The scheduler: turns observations into commands.
//!
//! Single-threaded; no clock, no randomness, no I/O. `observe` applies observations, `pre_enqueue` decides what may be
//! attempted, `scheduling_cycle` attempts one entity, `gang_start` and `binding` follow it until it is confirmed or
//! rolled back, and `report_dedup` limits what is reported. The caller supplies the time; a clock that runs backwards
//! is held at its latest value.

mod binding;
mod bottleneck;
mod evaluation;
mod eviction;
mod exclusive_domains;
mod found_members;
mod gang_start;
mod group_move;
mod group_states;
mod kept_room;
mod later_pods;
mod min_resources;
mod observe;
mod pending_counts;
mod per_pod_preemption;
mod place_takeover;
mod planning_view;
mod post_filter;
mod pre_enqueue;
mod queueing_hints;
pub(crate) mod report_dedup;
mod reservation;
mod scheduling_cycle;
mod tree_request;
pub(crate) mod trees;
mod unschedulable_cache;
mod upcoming_nodes;
mod victims_timeout;
mod volume_binding;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::event::ClusterEvent;
use crate::cluster::forest::Forest;
use crate::cluster::profile::ProfileRules;
use crate::command::Command;
use crate::config::Config;
use crate::diagnosis::{Diagnosis, Victims};
use crate::model::Millis;
use crate::model::group::GroupKey;
use crate::model::ids::{ClaimId, ClassId, GroupId, PodId};
use crate::model::pod::PodSpec;
use crate::model::subject::Subject;
use crate::model::topology::RankDistance;
use crate::observation::Observation;
use crate::placement::cache::Cache;
use crate::queue::{Entity, Queue};
use crate::score::Scorer;
use crate::validation_error::ValidationError;
pub use evaluation::{NodeEvaluation, NodeVerdict};
pub use group_states::GroupState;
use kept_room::KeptRooms;
pub use pending_counts::{Pending, PendingCount};
use report_dedup::ReportDedup;
use reservation::{Reservation, VainReservations};
use unschedulable_cache::UnschedulableCache;
use volume_binding::VolumeBindings;
pub use volume_binding::VolumeEvent;

/// An event caused by the passage of time alone. A timer whose cause is gone does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The gang start is rolled back if it is not confirmed.
    StartDeadline(GroupId),
    /// A basic group stops waiting for its desired members.
    DesiredCount(GroupId),
    /// The bind is sent again.
    RetryBind(PodId),
    /// The claims of a placed pod are not bound in time.
    VolumeDeadline(PodId),
    /// The write for a claim is sent again.
    RetryClaim(ClaimId),
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
    /// A degraded gang has had no room in its domains for a while.
    MoveGroup(GroupId),
    /// A diagnosis has lasted long enough to be reported.
    Report(Entity),
    /// The reservation of a starving gang ends.
    ReservationEnd,
    /// Room has been kept for later pods for long enough.
    KeptRoomEnd,
}

/// The engine.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) cluster: Cluster,
    /// The groups of trees.
    pub(crate) forest: Forest,
    /// Groups of trees whose objects are gone while pods of them have nodes: what they were holds.
    forest_gone: BTreeSet<GroupKey>,
    pub(crate) queue: Queue,
    cache: Cache,
    timers: BTreeSet<(Millis, Timer)>,
    pub(crate) reports: ReportDedup,
    outbox: Vec<Command>,
    /// Whether a decision was taken. Before that everything has to be listed.
    has_decided: bool,
    unschedulable: UnschedulableCache,
    /// Entities that do not preempt because of upcoming nodes, or did not when they were last unschedulable.
    awaiting_nodes: BTreeSet<Entity>,
    /// Evictions that failed transiently and are retried if their preemption plans still hold.
    evictions_to_retry: BTreeSet<PodId>,
    /// By UID: pods that were gone before the outcome of their eviction was known, with the group that is evicted as a
    /// whole and its preemptor. The outcome decides whether the eviction of the unit has started.
    gone_before_outcome: BTreeMap<String, ((GroupId, usize), Arc<Subject>)>,
    volumes: VolumeBindings,
    /// Of the last call: what has ended about volumes, and the claims that failed.
    volume_events: Vec<VolumeEvent>,
    failed_claims: BTreeSet<ClaimId>,
    /// By UID: pods that were refused because there is no room for the names of the resources that they request.
    refused_requests: BTreeMap<String, PodSpec>,
    pub(crate) reservation: Option<Reservation>,
    /// The room that is kept for later pods.
    kept_rooms: KeptRooms,
    /// How many stand-ins for later pods there have been.
    stand_ins_made: u64,
    /// The classes of the later pods of parked groups, which are among their shapes.
    parked_later: BTreeMap<GroupId, Vec<ClassId>>,
    /// When groups are moved that have no room in their domains.
    moves: BTreeMap<GroupId, Millis>,
    /// By namespace.
    vain_reservations: BTreeMap<String, VainReservations>,
    now: Millis,
    last_attempt: Option<SchedulingAttempt>,
    /// The result of preemption in the current attempt, if it was tried.
    preemption_result: Option<PreemptionResult>,
    /// Of the plan that the current attempt made.
    preemption_gap: Option<PreemptionGap>,
    /// Of the group that the current attempt placed.
    rank_distance: Option<RankDistance>,
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
    /// The result of preemption, if it was tried because something did not fit.
    pub preemption: Option<PreemptionResult>,
    /// How far the plan that it made may be from the fewest whole groups, if it evicts any.
    pub preemption_gap: Option<PreemptionGap>,
    /// How far apart neighbours in rank are, of the pods of a group with topology levels that it placed.
    pub rank_distance: Option<RankDistance>,
    /// What it cost, independent of the machine: about the evaluations of one node.
    pub steps: u64,
}

/// How many groups a plan evicts whole, and how many are proven to be necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionGap {
    /// Groups that are evicted whole; not zero.
    pub groups: u32,
    /// At least so many must be, for any plan without victims of a higher priority; zero if that is not known.
    pub at_least: u32,
}

impl PreemptionGap {
    fn of(victims: &Victims) -> Option<Self> {
        (victims.groups > 0)
            .then(|| Self { groups: victims.groups, at_least: victims.groups_at_least.min(victims.groups) })
    }
}

/// The result of an attempt to preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptionResult {
    /// It waits for victims, of this attempt or an earlier one.
    Success,
    /// It does not preempt, or no plan was found.
    Unschedulable,
}

impl Engine {
    /// An engine without any state.
    pub fn new(config: Config) -> Result<Self, ValidationError> {
        config.validate()?;
        let mut cluster = Cluster::default();
        cluster.profiles = config.profiles.iter().map(ProfileRules::new).collect();
        cluster.group_priority_capped = config.group_priority_capped;
        cluster.storage.is_scored = config.profiles.iter().any(|profile| profile.scoring.weight_volume_binding > 0);
        let scorers =
            config.profiles.iter().map(|profile| Scorer::new(&profile.scoring, &mut cluster.resources)).collect();
        let reports = ReportDedup::new(config.report_waiting_after_ms);
        Ok(Self {
            config,
            cluster,
            forest: Forest::default(),
            forest_gone: BTreeSet::new(),
            queue: Queue::default(),
            cache: Cache::new(scorers),
            timers: BTreeSet::new(),
            reports,
            has_decided: false,
            outbox: Vec::new(),
            unschedulable: UnschedulableCache::default(),
            awaiting_nodes: BTreeSet::new(),
            evictions_to_retry: BTreeSet::new(),
            gone_before_outcome: BTreeMap::new(),
            volumes: VolumeBindings::default(),
            volume_events: Vec::new(),
            failed_claims: BTreeSet::new(),
            refused_requests: BTreeMap::new(),
            reservation: None,
            kept_rooms: KeptRooms::default(),
            stand_ins_made: 0,
            parked_later: BTreeMap::new(),
            moves: BTreeMap::new(),
            vain_reservations: BTreeMap::new(),
            now: 0,
            last_attempt: None,
            preemption_result: None,
            preemption_gap: None,
            rank_distance: None,
        })
    }

    /// Applies an observation. An error names what was not applied; everything else was.
    pub fn observe(&mut self, now: Millis, observation: Observation) -> Result<(), ValidationError> {
        self.now = self.now.max(now);
        self.forget_volume_events();
        let applied = self.apply_observation(observation);
        self.handle_events();
        applied
    }

    /// Runs one step: due timers, then one scheduling attempt for the head of the queue.
    pub fn decide(&mut self, now: Millis) -> Vec<Command> {
        self.now = self.now.max(now);
        self.forget_volume_events();
        if !std::mem::replace(&mut self.has_decided, true) {
            self.compose_all_trees();
            self.forget_starts_without_members();
            self.keep_room_for_found_groups();
            self.handle_events();
        }
        self.queue.tick(self.now);
        self.fire_timers();
        self.follow_volume_changes();
        self.last_attempt = None;
        if let Some((entity, namespace)) = self.queue.pop() {
            let (sent, profile) = (self.outbox.len(), self.profile_of(entity));
            let begin = self.cluster.steps.total();
            self.preemption_result = None;
            self.preemption_gap = None;
            self.rank_distance = None;
            self.cache.searches.begin_attempt();
            match entity {
                Entity::Pod(pod) => self.schedule_pod(pod),
                Entity::Group(group) => self.schedule_group(group),
            }
            self.handle_events();
            let steps = self.cluster.steps.total() - begin;
            self.queue.charge(&namespace, steps);
            let is_placement = |command: &Command| {
                use Command::{Bind, ReserveVolume, SelectNode};
                matches!(command, Bind { .. } | ReserveVolume { .. } | SelectNode { .. })
            };
            let placed = self.outbox[sent..].iter().any(is_placement);
            let (group, preemption) = (matches!(entity, Entity::Group(_)), self.preemption_result);
            self.last_attempt = Some(SchedulingAttempt {
                group,
                profile,
                placed,
                preemption,
                preemption_gap: self.preemption_gap,
                rank_distance: self.rank_distance,
                steps,
            });
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
        // Trees are composed with the first decision.
        let has_new_trees = !self.has_decided && self.forest.keys().next().is_some();
        if !self.outbox.is_empty() || self.volumes.has_changes() || has_new_trees {
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

    /// What has ended about the volumes of placed pods in the last `observe` or `decide`.
    pub fn volume_events(&self) -> &[VolumeEvent] {
        &self.volume_events
    }

    fn forget_volume_events(&mut self) {
        self.volume_events.clear();
        self.failed_claims.clear();
    }

    /// The latest diagnosis of a pod or group, if there is one.
    pub fn explain(&self, subject: &Subject) -> Option<&Diagnosis> {
        let entity = match subject {
            Subject::Pod(pod) => Entity::Pod(self.cluster.pod_id(&pod.uid)?),
            Subject::Group(key) => self.entity_of(key)?,
        };
        self.reports.latest(entity)
    }

    /// The latest time that the engine was given.
    pub fn now(&self) -> Millis {
        self.now
    }

    fn fire_timers(&mut self) {
        while let Some((due, timer)) = self.timers.first().copied().filter(|(due, _)| *due <= self.now) {
            self.timers.pop_first();
            match timer {
                Timer::StartDeadline(group) => self.on_start_deadline(group, due),
                Timer::DesiredCount(group) => self.desired_wait_over(group, due),
                Timer::RetryBind(pod) => self.retry_bind(pod, due),
                Timer::VolumeDeadline(pod) => self.on_volume_deadline(pod, due),
                Timer::RetryClaim(claim) => self.retry_claim(claim, due),
                Timer::RetryRollBack(pod) => self.retry_roll_back(pod, due),
                Timer::RetryEviction(pod) => self.retry_eviction(pod),
                Timer::Unmark(pod) => self.unmark(pod),
                Timer::SpareEnd(pod) => self.cluster.record(ClusterEvent::PodPreemptible(pod)),
                Timer::EvictDegraded(group) => self.evict_degraded(group, due),
                Timer::MoveGroup(group) => self.move_group(group, due),
                Timer::ReservationEnd => self.reservation_expired(due),
                Timer::KeptRoomEnd => self.kept_rooms_expired(),
                Timer::Report(entity) => {
                    if let Some(report) = self.reports.due(entity, self.now) {
                        let lost = matches!(report.diagnosis, Diagnosis::Degraded { .. });
                        self.send_report(report);
                        // A pending `Degraded` report suppresses others; now that it is sent, report what the group
                        // waits for.
                        if let (true, Entity::Group(group)) = (lost, entity) {
                            if let Some(loss) = self.cluster.group_mut(group).lifecycle.loss_mut() {
                                loss.reported = true;
                            }
                            self.review_group(group);
                        }
                    }
                }
            }
            self.handle_events();
        }
    }

    fn set_timer(&mut self, due: Millis, timer: Timer) {
        self.timers.insert((due, timer));
    }
}
