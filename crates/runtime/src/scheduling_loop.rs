//! The scheduling loop: takes events from the watches and the actuator, lets the engine decide, and sends the resulting
//! API requests.
//!
//! It owns the engine, the intake and the status writer and runs as one task, so nothing needs a lock. A round handles
//! the events that have arrived, decides until nothing is left to decide, and sends the requests that are due. Nothing
//! is decided before every watch has delivered a complete list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_clock::Clock;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::PodName;
use muster_engine::model::storage::StorageWriteOutcome;
use muster_engine::{
    BindOutcome, Command, DeleteOutcome, Engine, GroupState, Observation, PreemptionResult, Subject, VolumeEvent,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::actuator::evict::VictimUnit;
use crate::actuator::{Actuator, ApiRequest, Outcome, WriteOutcome};
use crate::eviction_queue::EvictionQueue;
use crate::instruments::Instruments;
use crate::intake::pod_record::PodRecord;
use crate::intake::{Intake, IntakeOutput, PREEMPTION_MESSAGE, WatchEvent};
use crate::metrics::{AttemptResult, Entity, Queue};
use crate::status_writer::StatusWriter;

/// An input of the scheduling loop.
#[derive(Debug)]
pub(crate) enum Event {
    /// An object changed, as seen by a watch, with the room that it takes in the inbox.
    Watch(Box<WatchEvent>, OwnedSemaphorePermit),
    /// An API request has ended.
    Outcome(Box<Outcome>),
    /// Makes no more decisions; replies once no request is in flight.
    Stop(oneshot::Sender<()>),
}

/// How many events are handled before the loop decides again.
const EVENTS_PER_ROUND: usize = 4096;
/// How many decisions are made before the loop reads events again.
const DECISIONS_PER_ROUND: usize = 256;
/// How long the loop reads events before it decides again, and how long it decides before it reads again.
const SLICE: Duration = Duration::from_millis(200);
/// How often the queue is counted for the metrics.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The longest pause between two rounds, so that the liveness probe sees the loop run.
const ROUND_MAX: Duration = Duration::from_secs(5);

/// The scheduling loop and everything that it owns.
pub(crate) struct SchedulingLoop {
    pub(crate) engine: Engine,
    pub(crate) intake: Intake,
    pub(crate) status_writer: StatusWriter,
    pub(crate) actuator: Actuator,
    pub(crate) eviction_queue: EvictionQueue,
    pub(crate) clock: Clock,
    pub(crate) check_invariants: bool,
    /// The scheduler names, one per profile, as used in metrics.
    pub(crate) profiles: Vec<String>,
    pub(crate) instruments: Instruments,
    /// When the queue was last counted.
    pub(crate) counted_at: Instant,
}

/// The nominations and evictions of one decision.
#[derive(Default)]
struct DecisionEffects {
    /// UIDs of the nominated pods.
    nominees: BTreeSet<Arc<str>>,
    /// The victim units, each with the preemptor.
    units: Vec<(Arc<Subject>, Arc<VictimUnit>)>,
}

impl SchedulingLoop {
    /// Runs until it is stopped or all senders are gone.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Event>) {
        let mut stop: Option<oneshot::Sender<()>> = None;
        loop {
            let until = self.wake_at(stop.is_some());
            let event = tokio::select! {
                biased;
                event = inbox.recv() => match event {
                    Some(event) => Some(event),
                    None => return,
                },
                () = sleep_until(until) => None,
            };
            let began = Instant::now();
            if let Some(event) = event {
                self.handle_event(event, &mut stop);
            }
            for _ in 1..EVENTS_PER_ROUND {
                match inbox.try_recv() {
                    Ok(event) => self.handle_event(event, &mut stop),
                    Err(_) => break,
                }
                if began.elapsed() > SLICE {
                    break;
                }
            }
            if stop.is_none() {
                self.decide();
            }
            self.status_writer.groups_changed(&mut self.intake, &self.engine);
            // Counts from an incomplete list would be wrong and would overwrite the state that the API remembers.
            if self.intake.has_synced() {
                let room = self.actuator.free_status_slots();
                for request in self.status_writer.take_due(room, &mut self.intake, &self.engine) {
                    self.actuator.send(request);
                }
            }
            self.publish_health(began);
            if self.actuator.load() == (0, 0)
                && let Some(stop) = stop.take()
            {
                let _ = stop.send(());
                return;
            }
        }
    }

    fn publish_health(&mut self, began: Instant) {
        let Instruments { metrics, health, .. } = &self.instruments;
        health.heartbeat();
        health.set_synced(self.intake.has_synced());
        metrics.batch(began.elapsed());
        if self.counted_at.elapsed() < COUNT_EVERY {
            return;
        }
        self.counted_at = Instant::now();
        let pending = self.engine.pending();
        for (queue, waiters) in [
            (Queue::Active, &pending.active),
            (Queue::Backoff, &pending.backoff),
            (Queue::Unschedulable, &pending.parked),
            (Queue::Gated, &pending.held),
        ] {
            metrics.set_pending_pods(queue, waiters.pods);
            metrics.set_queued_entities(queue, Entity::Group, waiters.groups);
        }
        metrics.set_waiting_for_victims(Entity::Pod, pending.waiting_for_victims.pods);
        metrics.set_waiting_for_victims(Entity::Group, pending.waiting_for_victims.groups);
        for (state, count) in GroupState::ALL.into_iter().zip(self.engine.groups_by_state()) {
            metrics.set_groups(state, count);
        }
    }

    fn wake_at(&self, stopping: bool) -> Instant {
        let engine = self.engine.next_wakeup().filter(|_| !stopping);
        // Status writes wait for a free slot; the outcome of a request wakes the loop.
        let status = self.status_writer.next_due().filter(|_| self.actuator.free_status_slots() > 0);
        let due = engine.into_iter().chain(status).min().filter(|_| self.intake.has_synced());
        let latest = Instant::now() + ROUND_MAX;
        due.map_or(latest, |due_ms| self.clock.instant_of(due_ms).min(latest))
    }

    fn handle_event(&mut self, event: Event, stop: &mut Option<oneshot::Sender<()>>) {
        match event {
            Event::Watch(event, _room) => {
                let output = self.intake.handle(*event, self.clock.now_ms());
                self.handle_intake(output);
            }
            Event::Outcome(outcome) => self.handle_outcome(*outcome),
            Event::Stop(answer) => *stop = Some(answer),
        }
        self.instruments.health.heartbeat();
    }

    fn handle_intake(&mut self, output: IntakeOutput) {
        for pod in output.no_longer_pending {
            self.status_writer.on_no_longer_pending(&pod);
            self.cancel_evictions(&pod.uid);
        }
        for pod in output.newly_pending {
            self.status_writer.on_pending(&pod, &mut self.intake);
        }
        for observation in output.observations {
            self.observe(observation);
        }
        for (pod, reason, note) in output.pod_events {
            self.status_writer.note(&pod, reason, note);
        }
        for error in output.errors {
            self.instruments.metrics.observation_refused("unreadable");
            tracing::warn!(error, "an object cannot be used");
        }
    }

    fn observe(&mut self, observation: Observation) {
        let now_ms = self.clock.now_ms();
        if let Some(record) = &self.instruments.record {
            record.observe(now_ms, &observation);
        }
        if let Err(refusal) = self.engine.observe(now_ms, observation) {
            self.instruments.metrics.observation_refused("observation");
            tracing::warn!(%refusal, "the engine rejected an observation or a part of it");
        }
        self.count_volume_events();
        self.check();
    }

    fn handle_outcome(&mut self, outcome: Outcome) {
        self.actuator.on_outcome(&outcome);
        self.status_writer.done(&outcome);
        let metrics = &self.instruments.metrics;
        match &outcome {
            Outcome::PodStatus { outcome: WriteOutcome::Written(_), .. } => metrics.status_written("Pod"),
            Outcome::GroupStatus { object, outcome: WriteOutcome::Written(_) } => {
                metrics.status_written(self.intake.groups.dialects[object.dialect].origin());
            }
            Outcome::Event { outcome: WriteOutcome::Written(_), .. } => metrics.event_written(),
            _ => {}
        }
        match outcome {
            Outcome::Bind { pod, node, outcome } => {
                if outcome == BindOutcome::Bound
                    && let Some(pod_record) = self.intake.pod_record(&pod.uid)
                {
                    let waited_ms = self.clock.now_ms().saturating_sub(pod_record.pending_since_ms);
                    self.instruments.metrics.pod_scheduled(Duration::from_millis(waited_ms));
                }
                self.observe(Observation::BindDone { pod, node, outcome });
            }
            Outcome::StorageWrite { claim, outcome } => {
                if let StorageWriteOutcome::Refused { message } = &outcome {
                    tracing::warn!(%claim, message, "a write for the volume of a claim was refused");
                }
                self.observe(Observation::StorageWriteDone { claim, outcome });
            }
            Outcome::Rollback { pod, outcome } => self.observe(Observation::RollBackDone { pod, outcome }),
            Outcome::Evict { unit, outcomes } => {
                // Deleted pods first: once a unit has begun to go, its remaining pods must follow.
                let is_deleted = |(_, outcome): &&(_, DeleteOutcome)| *outcome == DeleteOutcome::Deleted;
                let (deleted, others): (Vec<_>, Vec<_>) = outcomes.iter().partition(is_deleted);
                for (pod, outcome) in deleted.into_iter().chain(others) {
                    if *outcome == DeleteOutcome::Deleted {
                        self.instruments.metrics.pod_evicted();
                    }
                    self.observe(Observation::EvictDone { pod: pod.clone(), outcome: outcome.clone() });
                }
                self.status_writer.on_eviction_done(&unit, &outcomes, &self.intake);
            }
            Outcome::PodStatus { pod, outcome: WriteOutcome::Gone } => self.cancel_evictions(&pod.uid),
            Outcome::PodStatus { pod, .. } if !self.status_writer.is_nominating(&pod.uid) => {
                for unit in self.eviction_queue.on_nomination_written(&pod.uid) {
                    self.actuator.send(ApiRequest::Evict(unit));
                }
            }
            Outcome::GroupStatus { object, outcome: WriteOutcome::Written(Some(text)) } => {
                let output = self.intake.handle_group_response(object.dialect, &text);
                self.handle_intake(output);
            }
            Outcome::ClearDisruptionTarget
            | Outcome::PodStatus { .. }
            | Outcome::GroupStatus { .. }
            | Outcome::Event { .. } => {}
        }
    }

    fn decide(&mut self) {
        if !self.intake.has_synced() {
            return;
        }
        let began = Instant::now();
        for _ in 0..DECISIONS_PER_ROUND {
            let now_ms = self.clock.now_ms();
            // Return to the events soon: a long queue must not delay the watches or the fence.
            if began.elapsed() > SLICE || self.engine.next_wakeup().is_none_or(|due_ms| due_ms > now_ms) {
                return;
            }
            if let Some(record) = &self.instruments.record {
                record.decide(now_ms);
            }
            let began = Instant::now();
            let commands = self.engine.decide(now_ms);
            self.count_attempt(began.elapsed());
            self.count_volume_events();
            let mut effects = DecisionEffects::default();
            for command in commands {
                self.execute(command, &mut effects);
            }
            self.queue_evictions(effects);
            self.instruments.health.heartbeat();
            self.check();
        }
    }

    fn count_attempt(&self, took: Duration) {
        let Some(attempt) = self.engine.last_attempt() else { return };
        let entity = if attempt.group { Entity::Group } else { Entity::Pod };
        let result = match (attempt.placed, attempt.preemption) {
            (true, _) => AttemptResult::Scheduled,
            (false, Some(PreemptionResult::Success)) if attempt.group => AttemptResult::WaitingOnPreemption,
            (false, _) => AttemptResult::Unschedulable,
        };
        if let Some(preemption) = attempt.preemption {
            self.instruments.metrics.preemption_attempt(entity, preemption);
        }
        if let Some(gap) = attempt.preemption_gap {
            self.instruments.metrics.preemption_gap(gap);
        }
        if let Some(distance) = attempt.rank_distance {
            self.instruments.metrics.ranks_placed(distance);
        }
        let profile = &self.profiles[usize::from(attempt.profile)];
        self.instruments.metrics.attempt(entity, result, profile, took);
        self.instruments.metrics.decided(entity, took);
    }

    fn count_volume_events(&self) {
        for event in self.engine.volume_events() {
            match event {
                VolumeEvent::Waited { ms, bound } => {
                    self.instruments.metrics.volumes_waited(*bound, Duration::from_millis(*ms));
                }
                VolumeEvent::Failed { provisioner, .. } => self.instruments.metrics.volume_failed(provisioner),
            }
        }
    }

    /// Queues evictions until the preemptor's nominations are written. Repeated evictions do not wait.
    fn queue_evictions(&mut self, effects: DecisionEffects) {
        // A group member preempts for its group or, without delayed preemption, for itself.
        let preemptors = |pod_record: &PodRecord| {
            let group = pod_record.group.as_ref().map(|key| Subject::Group((**key).clone()));
            group.into_iter().chain([Subject::Pod(pod_record.id.clone())])
        };
        let pod_records = effects.nominees.iter().filter_map(|uid| self.intake.pod_record(uid));
        let nominated: BTreeSet<Subject> = pod_records.flat_map(preemptors).collect();
        let (new, repeated): (Vec<_>, Vec<_>) = effects.units.into_iter().partition(|(by, _)| nominated.contains(by));
        let [new, repeated]: [Vec<Arc<VictimUnit>>; 2] =
            [new, repeated].map(|part| part.into_iter().map(|(_, unit)| unit).collect());
        if !new.is_empty() {
            let is_group = self.engine.last_attempt().is_some_and(|attempt| attempt.group);
            let entity = if is_group { Entity::Group } else { Entity::Pod };
            let pods = new.iter().map(|unit| unit.pods.len()).sum();
            self.instruments.metrics.preempted(entity, pods, new.iter().filter(|unit| unit.group.is_some()).count());
        }
        for unit in new.iter().chain(&repeated) {
            self.status_writer.on_eviction_requested(unit, &mut self.intake);
        }
        for unit in self.eviction_queue.add(effects.nominees, new).into_iter().chain(repeated) {
            self.actuator.send(ApiRequest::Evict(unit));
        }
    }

    /// The pod no longer needs its nomination: cancels the evictions that were not sent yet, so that the engine decides
    /// again.
    fn cancel_evictions(&mut self, uid: &str) {
        for unit in self.eviction_queue.cancel(uid) {
            for (pod, _) in &unit.pods {
                let message = "the preemptor no longer needs it".to_owned();
                let outcome = DeleteOutcome::Transient { message };
                self.observe(Observation::EvictDone { pod: pod.clone(), outcome });
            }
        }
    }

    /// Builds a victim unit with everything that its eviction requests need.
    fn victim_unit(&self, pods: Vec<Arc<PodName>>, group: Option<GroupKey>, by: &Subject) -> VictimUnit {
        let node = |pod: &PodName| {
            let node = self.engine.pod_view(&pod.uid).and_then(|pod| pod.node());
            node.map(|node| node.name().to_owned()).unwrap_or_default()
        };
        let (kind, by) = match by {
            Subject::Pod(_) => ("pod", Some(by.to_string())),
            // The rest of a unit that was begun earlier: the preemptor is not known here.
            Subject::Group(key) if group.as_ref() == Some(key) => ("podgroup", None),
            Subject::Group(_) => ("podgroup", Some(by.to_string())),
        };
        VictimUnit {
            pods: pods.into_iter().map(|pod| (pod.clone(), node(&pod))).collect(),
            group,
            by,
            message: format!("{}{PREEMPTION_MESSAGE}{kind}", self.profiles[0]),
            now: self.clock.now(),
        }
    }

    fn execute(&mut self, command: Command, effects: &mut DecisionEffects) {
        match command {
            Command::Bind { pod, node, start } => {
                tracing::info!(%pod, %node, "bind");
                // A pod that has a node needs no preemption.
                self.status_writer.forget_nomination(&pod.uid);
                self.cancel_evictions(&pod.uid);
                self.actuator.send(ApiRequest::Bind { pod, node, start });
            }
            Command::ReserveVolume { claim, claim_version, volume, version } => {
                tracing::info!(%claim, %volume, "reserve volume");
                self.actuator.send(ApiRequest::ReserveVolume { claim, claim_version, volume, version });
            }
            Command::SelectNode { claim, version, node } => {
                tracing::info!(%claim, %node, "select node");
                self.actuator.send(ApiRequest::SelectNode { claim, version, node });
            }
            Command::RollBack { pod } => {
                tracing::info!(%pod, "undo bind");
                self.instruments.metrics.bind_rolled_back();
                self.actuator.send(ApiRequest::Rollback { pod });
            }
            Command::Nominate { pod, node } => {
                tracing::info!(%pod, %node, "nominate");
                effects.nominees.insert(pod.uid.as_str().into());
                self.status_writer.nominate(&pod, &node, &self.intake);
            }
            Command::Evict { pods, group, by } => {
                let unit = self.victim_unit(pods, group, &by);
                for (pod, node) in &unit.pods {
                    tracing::info!(%pod, node, by = unit.by, "evict");
                }
                effects.units.push((by, Arc::new(unit)));
            }
            Command::ClearDisruptionMark { pod } => {
                tracing::info!(%pod, "clear disruption target");
                self.actuator.send(ApiRequest::ClearDisruptionTarget { pod, now: self.clock.now() });
            }
            Command::ClearNomination { pod } => {
                self.status_writer.clear_nomination(&pod, &self.intake);
                self.cancel_evictions(&pod.uid);
            }
            Command::Report(report) => {
                tracing::info!(subject = ?report.subject, text = %report.diagnosis, "report");
                self.status_writer.report(*report, &mut self.intake, &self.engine);
            }
        }
    }

    fn check(&self) {
        if self.check_invariants {
            muster_engine::invariants::check(&self.engine).expect("the engine's invariants hold");
        }
    }
}
