//! The mind's loop: letters in, decisions out, on one thread.
//!
//! It owns the engine, the books and the scribe, so nothing needs a lock. A turn takes in all letters that have come,
//! decides until nothing is left to decide, and sends what is due. Nothing is decided before every watch has delivered
//! a whole list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::PodName;
use muster_engine::{BindOutcome, Command, Engine, Observation, Subject, TakeBackOutcome};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::hands::evict::Unit;
use crate::hands::{Errand, Hands, Outcome, WriteOutcome};
use crate::instruments::Instruments;
use crate::intake::card::Card;
use crate::intake::{Catch, Intake, MARK, News};
use crate::metrics::{AttemptResult, Entity, Queue};
use crate::orders::Orders;
use crate::scribe::Scribe;

/// What comes to the mind.
#[derive(Debug)]
pub(crate) enum Letter {
    /// News of the API.
    News(Box<News>),
    /// An errand came to its end.
    Outcome(Box<Outcome>),
    /// No more decisions; answer when nothing is on its way any more.
    Stop(oneshot::Sender<()>),
}

/// How many letters are taken before it is time to decide.
const LETTERS_PER_TURN: usize = 4096;
/// How many decisions are taken before it is time to read letters.
const DECISIONS_PER_TURN: usize = 256;
/// How long decisions are taken before it is time to read letters.
const DECIDING_MAX: Duration = Duration::from_millis(200);
/// How often the queue is counted for the metrics.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The loop turns at least this often, so that others see that it lives.
const TURN_MAX: Duration = Duration::from_secs(5);

/// The mind.
pub(crate) struct Mind {
    pub(crate) engine: Engine,
    pub(crate) intake: Intake,
    pub(crate) scribe: Scribe,
    pub(crate) hands: Hands,
    pub(crate) orders: Orders,
    pub(crate) clock: Clock,
    pub(crate) check_invariants: bool,
    /// The scheduler's names, one for each profile, as metrics have them.
    pub(crate) profiles: Vec<String>,
    pub(crate) instruments: Instruments,
    /// When the queue was last counted.
    pub(crate) counted: Instant,
}

/// What one decision has ordered.
#[derive(Default)]
struct Decided {
    /// UIDs of pods that are nominated.
    nominees: BTreeSet<Arc<str>>,
    /// What is to be evicted, and for whom.
    units: Vec<(Arc<Subject>, Arc<Unit>)>,
}

impl Mind {
    /// Thinks until it is told to stop or nobody writes any more.
    pub(crate) async fn think(mut self, mut inbox: mpsc::Receiver<Letter>) {
        let mut stop: Option<oneshot::Sender<()>> = None;
        loop {
            let until = self.wake_at(stop.is_some());
            let letter = tokio::select! {
                biased;
                letter = inbox.recv() => match letter {
                    Some(letter) => Some(letter),
                    None => return,
                },
                () = sleep_until(until) => None,
            };
            let began = Instant::now();
            if let Some(letter) = letter {
                self.read(letter, &mut stop);
            }
            for _ in 1..LETTERS_PER_TURN {
                match inbox.try_recv() {
                    Ok(letter) => self.read(letter, &mut stop),
                    Err(_) => break,
                }
            }
            if stop.is_none() {
                self.decide();
            }
            self.scribe.groups_changed(&mut self.intake, &self.engine);
            // What is counted from half a list is not true, and would wipe out what the API remembers.
            if self.intake.is_synced() {
                let room = self.hands.room_for_words();
                for errand in self.scribe.take_due(room, &mut self.intake, &self.engine) {
                    self.hands.send(errand);
                }
            }
            self.give_signs(began);
            if self.hands.load() == (0, 0)
                && let Some(stop) = stop.take()
            {
                let _ = stop.send(());
                return;
            }
        }
    }

    fn give_signs(&mut self, began: Instant) {
        let Instruments { metrics, health, .. } = &self.instruments;
        health.beat();
        health.set_synced(self.intake.is_synced());
        metrics.batch(began.elapsed());
        if self.counted.elapsed() < COUNT_EVERY {
            return;
        }
        self.counted = Instant::now();
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
    }

    fn wake_at(&self, stopping: bool) -> Instant {
        let engine = self.engine.next_wakeup().filter(|_| !stopping);
        // Words wait for room; an errand that comes back wakes us.
        let words = self.scribe.next_due().filter(|_| self.hands.room_for_words() > 0);
        let due = engine.into_iter().chain(words).min().filter(|_| self.intake.is_synced());
        let latest = Instant::now() + TURN_MAX;
        due.map_or(latest, |due_ms| self.clock.instant_of(due_ms).min(latest))
    }

    fn read(&mut self, letter: Letter, stop: &mut Option<oneshot::Sender<()>>) {
        match letter {
            Letter::News(news) => {
                let catch = self.intake.take(*news, self.clock.now_ms());
                self.take(catch);
            }
            Letter::Outcome(outcome) => self.outcome(*outcome),
            Letter::Stop(answer) => *stop = Some(answer),
        }
    }

    fn take(&mut self, catch: Catch) {
        for pod in catch.settled {
            self.scribe.settled(&pod);
            self.call_off(&pod.uid);
        }
        for pod in catch.newcomers {
            self.scribe.newcomer(&pod, &mut self.intake);
        }
        for observation in catch.observations {
            self.observe(observation);
        }
        for (pod, reason, note) in catch.notes {
            self.scribe.note(&pod, reason, note);
        }
        for complaint in catch.complaints {
            self.instruments.metrics.observation_refused("unreadable");
            tracing::warn!(complaint, "an object cannot be used");
        }
    }

    fn observe(&mut self, observation: Observation) {
        let now_ms = self.clock.now_ms();
        if let Some(record) = &self.instruments.record {
            record.observe(now_ms, &observation);
        }
        if let Err(refusal) = self.engine.observe(now_ms, observation) {
            self.instruments.metrics.observation_refused("observation");
            tracing::warn!(%refusal, "an observation was not taken in whole");
        }
        self.check();
    }

    fn outcome(&mut self, outcome: Outcome) {
        self.hands.back(&outcome);
        self.scribe.done(&outcome);
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
                    && let Some(card) = self.intake.card(&pod.uid)
                {
                    let waited_ms = self.clock.now_ms().saturating_sub(card.asked_ms);
                    self.instruments.metrics.pod_scheduled(Duration::from_millis(waited_ms));
                }
                self.observe(Observation::BindDone { pod, node, outcome });
            }
            Outcome::TakeBack { pod, outcome } => self.observe(Observation::TakeBackDone { pod, outcome }),
            Outcome::Evict { unit, outcomes } => {
                // Those that go first: what has begun to go whole is not left in part.
                let is_going = |(_, outcome): &&(_, TakeBackOutcome)| *outcome == TakeBackOutcome::Deleted;
                let (going, others): (Vec<_>, Vec<_>) = outcomes.iter().partition(is_going);
                for (pod, outcome) in going.into_iter().chain(others) {
                    if *outcome == TakeBackOutcome::Deleted {
                        self.instruments.metrics.pod_evicted();
                    }
                    self.observe(Observation::EvictDone { pod: pod.clone(), outcome: outcome.clone() });
                }
                self.scribe.evicted(&unit, &outcomes, &self.intake);
            }
            Outcome::PodStatus { pod, outcome: WriteOutcome::Gone } => self.call_off(&pod.uid),
            Outcome::PodStatus { pod, .. } if !self.scribe.is_nominating(&pod.uid) => {
                for unit in self.orders.nominated(&pod.uid) {
                    self.hands.send(Errand::Evict(unit));
                }
            }
            Outcome::GroupStatus { object, outcome: WriteOutcome::Written(Some(text)) } => {
                for observation in self.intake.group_answer(object.dialect, &text) {
                    self.observe(observation);
                }
            }
            Outcome::Spare | Outcome::PodStatus { .. } | Outcome::GroupStatus { .. } | Outcome::Event { .. } => {}
        }
    }

    fn decide(&mut self) {
        if !self.intake.is_synced() {
            return;
        }
        let began = Instant::now();
        for _ in 0..DECISIONS_PER_TURN {
            let now_ms = self.clock.now_ms();
            // Letters are read again soon: the fence and the watches do not wait for a long queue.
            if began.elapsed() > DECIDING_MAX || self.engine.next_wakeup().is_none_or(|due_ms| due_ms > now_ms) {
                return;
            }
            if let Some(record) = &self.instruments.record {
                record.decide(now_ms);
            }
            let began = Instant::now();
            let commands = self.engine.decide(now_ms);
            self.count_attempt(began.elapsed());
            let mut orders = Decided::default();
            for command in commands {
                self.carry_out(command, &mut orders);
            }
            self.order(orders);
            self.check();
        }
    }

    fn count_attempt(&self, took: Duration) {
        let Some(tried) = self.engine.tried() else { return };
        let entity = if tried.group { Entity::Group } else { Entity::Pod };
        let result = if tried.placed { AttemptResult::Scheduled } else { AttemptResult::Unschedulable };
        let profile = &self.profiles[usize::from(tried.profile)];
        self.instruments.metrics.attempt(entity, result, profile, took);
        self.instruments.metrics.decided(entity, took);
    }

    /// What is to be evicted goes once those are nominated for whom it goes. What is sent again does not wait.
    fn order(&mut self, decided: Decided) {
        // A member of a group preempts with it or, without delayed preemption, for itself.
        let whose = |card: &Card| {
            let group = card.group.as_ref().map(|key| Subject::Group((**key).clone()));
            group.into_iter().chain([Subject::Pod(card.id.clone())])
        };
        let cards = decided.nominees.iter().filter_map(|uid| self.intake.card(uid));
        let nominated: BTreeSet<Subject> = cards.flat_map(whose).collect();
        let (new, again): (Vec<_>, Vec<_>) = decided.units.into_iter().partition(|(by, _)| nominated.contains(by));
        let [new, again]: [Vec<Arc<Unit>>; 2] =
            [new, again].map(|part| part.into_iter().map(|(_, unit)| unit).collect());
        if !new.is_empty() {
            self.instruments.metrics.preempted(new.iter().map(|unit| unit.pods.len()).sum());
        }
        for unit in new.iter().chain(&again) {
            self.scribe.eviction_ordered(unit, &mut self.intake);
        }
        for unit in self.orders.give(decided.nominees, new).into_iter().chain(again) {
            self.hands.send(Errand::Evict(unit));
        }
    }

    /// A pod is not nominated any more: what was not begun for it is for the engine to decide anew.
    fn call_off(&mut self, uid: &str) {
        for unit in self.orders.called_off(uid) {
            for (pod, _) in &unit.pods {
                let message = "whoever it was for does not need it any more".to_owned();
                let outcome = TakeBackOutcome::Transient { message };
                self.observe(Observation::EvictDone { pod: pod.clone(), outcome });
            }
        }
    }

    /// A unit as the hands need it.
    fn unit(&self, pods: Vec<Arc<PodName>>, group: Option<GroupKey>, by: &Subject) -> Unit {
        let cluster = self.engine.cluster();
        let node = |pod: &PodName| {
            let node = cluster.pod_id(&pod.uid).and_then(|id| cluster.pod(id).state.node());
            node.map(|node| cluster.node(node).name.to_string()).unwrap_or_default()
        };
        let (word, by) = match by {
            Subject::Pod(pod) => ("pod", Some(format!("pod {pod}"))),
            // The rest of a unit: for whom it goes is not known here.
            Subject::Group(key) if group.as_ref() == Some(key) => ("podgroup", None),
            Subject::Group(key) => ("podgroup", Some(format!("podgroup {key}"))),
        };
        Unit {
            pods: pods.into_iter().map(|pod| (pod.clone(), node(&pod))).collect(),
            group,
            by,
            message: format!("{}{MARK}{word}", self.profiles[0]),
            now: self.clock.now(),
        }
    }

    fn carry_out(&mut self, command: Command, decided: &mut Decided) {
        match command {
            Command::Bind { pod, node } => {
                tracing::info!(%pod, %node, "bind");
                // Whoever has a place needs nobody to leave another.
                self.scribe.forget_nomination(&pod.uid);
                self.call_off(&pod.uid);
                self.hands.send(Errand::Bind { pod, node });
            }
            Command::TakeBack { pod } => {
                tracing::info!(%pod, "take back");
                self.instruments.metrics.pod_taken_back();
                self.hands.send(Errand::TakeBack { pod });
            }
            Command::Nominate { pod, node } => {
                tracing::info!(%pod, %node, "nominate");
                decided.nominees.insert(pod.uid.as_str().into());
                self.scribe.nominate(&pod, &node, &self.intake);
            }
            Command::Evict { pods, group, by } => {
                let unit = self.unit(pods, group, &by);
                for (pod, node) in &unit.pods {
                    tracing::info!(%pod, node, by = unit.by, "evict");
                }
                decided.units.push((by, Arc::new(unit)));
            }
            Command::Spare { pod } => {
                tracing::info!(%pod, "spare");
                self.hands.send(Errand::Spare { pod, now: self.clock.now() });
            }
            Command::ClearNomination { pod } => {
                self.scribe.clear_nomination(&pod, &self.intake);
                self.call_off(&pod.uid);
            }
            Command::Report(report) => {
                tracing::info!(subject = ?report.subject, text = %report.diagnosis, "report");
                self.scribe.report(*report, &mut self.intake, &self.engine);
            }
        }
    }

    fn check(&self) {
        if self.check_invariants {
            muster_engine::invariants::check(&self.engine).expect("the engine's invariants hold");
        }
    }
}
