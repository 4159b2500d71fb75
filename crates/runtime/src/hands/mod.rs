//! The hands: errands to the API, so many at once, each with a deadline, outcomes by letter.
//!
//! Binds and deletes have a lane of their own, so that words never hold up deeds. Nothing is retried here: the outcome
//! says what is known, and whoever sent the errand decides. No errand begins once the fence is closed.

mod bind;
pub(crate) mod evict;
mod outcome;
#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use muster_engine::model::pod::PodName;
use muster_engine::{BindOutcome, TakeBackOutcome};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::config::Eviction;
use crate::dialect::StatusPatch;
use crate::fence::Fence;
use crate::intake::groups::ObjectKey;
use crate::metrics::Metrics;
use crate::mind::Letter;

use evict::{Outcomes, Unit};
use outcome::Failure;
pub(crate) use outcome::WriteOutcome;

/// Something to be done in the API.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    /// Bind a pod.
    Bind { pod: Arc<PodName>, node: Arc<str> },
    /// Delete a pod that was bound in vain.
    TakeBack { pod: Arc<PodName> },
    /// Evict a unit for somebody else.
    Evict(Arc<Unit>),
    /// Take the mark off a pod that is not evicted after all.
    Spare { pod: Arc<PodName>, now: jiff::Timestamp },
    /// Say something in a pod's status.
    PodStatus { pod: Arc<PodName>, patch: Value },
    /// Say something in the status of a group's object.
    GroupStatus { object: ObjectKey, resource: Arc<kube::core::ApiResource>, patch: StatusPatch },
    /// Tell an event, or that it happened again.
    Event { key: u64, namespace: String, name: String, body: Value, again: bool },
}

/// What became of an errand.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Bind {
        pod: Arc<PodName>,
        node: Arc<str>,
        outcome: BindOutcome,
    },
    TakeBack {
        pod: Arc<PodName>,
        outcome: TakeBackOutcome,
    },
    Evict {
        unit: Arc<Unit>,
        outcomes: Outcomes,
    },
    /// If it failed it is asked for again.
    Spare,
    PodStatus {
        pod: Arc<PodName>,
        outcome: WriteOutcome,
    },
    GroupStatus {
        object: ObjectKey,
        outcome: WriteOutcome,
    },
    Event {
        key: u64,
        outcome: WriteOutcome,
    },
}

/// The hands.
pub(crate) struct Hands {
    reach: Reach,
    inbox: mpsc::Sender<Letter>,
    deeds: Lane,
    words: Lane,
    tasks: JoinSet<()>,
}

/// What an errand needs.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) client: kube::Client,
    pub(crate) fence: Fence,
    pub(crate) timeout: Duration,
    pub(crate) eviction: Eviction,
    pub(crate) metrics: Metrics,
}

struct Lane {
    waiting: VecDeque<Errand>,
    in_flight: usize,
    in_flight_max: usize,
}

impl Lane {
    fn new(in_flight_max: usize) -> Self {
        Self { waiting: VecDeque::new(), in_flight: 0, in_flight_max }
    }
}

impl Hands {
    pub(crate) fn new(reach: Reach, inbox: mpsc::Sender<Letter>, deeds_max: usize, words_max: usize) -> Self {
        Self { reach, inbox, deeds: Lane::new(deeds_max), words: Lane::new(words_max), tasks: JoinSet::new() }
    }

    /// Takes an errand on.
    pub(crate) fn send(&mut self, errand: Errand) {
        let deed = is_deed(&errand);
        self.lane(deed).waiting.push_back(errand);
        self.start(deed);
    }

    /// An errand has come to its end: there is room for the next.
    pub(crate) fn back(&mut self, outcome: &Outcome) {
        let deed =
            matches!(outcome, Outcome::Bind { .. } | Outcome::TakeBack { .. } | Outcome::Evict { .. } | Outcome::Spare);
        let lane = self.lane(deed);
        lane.in_flight = lane.in_flight.saturating_sub(1);
        self.start(deed);
        while self.tasks.try_join_next().is_some() {}
    }

    /// How many more words can be taken on so that the lane stays busy and nothing piles up.
    pub(crate) fn room_for_words(&self) -> usize {
        (2 * self.words.in_flight_max).saturating_sub(self.words.in_flight + self.words.waiting.len())
    }

    /// How many errands are waiting or on their way: deeds, words.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.deeds.waiting.len() + self.deeds.in_flight, self.words.waiting.len() + self.words.in_flight)
    }

    fn lane(&mut self, deed: bool) -> &mut Lane {
        if deed { &mut self.deeds } else { &mut self.words }
    }

    fn start(&mut self, deed: bool) {
        loop {
            let lane = self.lane(deed);
            if lane.in_flight >= lane.in_flight_max {
                return;
            }
            let Some(errand) = lane.waiting.pop_front() else { return };
            lane.in_flight += 1;
            let (reach, inbox) = (self.reach.clone(), self.inbox.clone());
            self.tasks.spawn(async move {
                let outcome = reach.run(errand).await;
                // The mind that does not listen any more has no use for it.
                let _ = inbox.send(Letter::Outcome(Box::new(outcome))).await;
            });
        }
    }
}

fn is_deed(errand: &Errand) -> bool {
    matches!(errand, Errand::Bind { .. } | Errand::TakeBack { .. } | Errand::Evict(_) | Errand::Spare { .. })
}

impl Reach {
    async fn run(&self, errand: Errand) -> Outcome {
        match errand {
            Errand::Bind { pod, node } => {
                let started = Instant::now();
                self.metrics.bind_started();
                let outcome = self.bind(&pod, &node).await;
                self.metrics.bind_ended(started.elapsed());
                Outcome::Bind { pod, node, outcome }
            }
            Errand::TakeBack { pod } => {
                let outcome = self.take_back(&pod).await;
                Outcome::TakeBack { pod, outcome }
            }
            Errand::Evict(unit) => {
                let outcomes = self.evict(&unit).await;
                Outcome::Evict { unit, outcomes }
            }
            Errand::Spare { pod, now } => {
                self.spare(&pod, now).await;
                Outcome::Spare
            }
            Errand::PodStatus { pod, patch } => {
                let outcome = self.pod_status(&pod, &patch).await;
                Outcome::PodStatus { pod, outcome }
            }
            Errand::GroupStatus { object, resource, patch } => {
                let outcome = self.group_status(&object, &resource, patch).await;
                Outcome::GroupStatus { object, outcome }
            }
            Errand::Event { key, namespace, name, body, again } => {
                let outcome = self.event(&namespace, &name, &body, again).await;
                Outcome::Event { key, outcome }
            }
        }
    }

    /// Sends a request and counts it; gives it up at the deadline.
    async fn send<T>(
        &self,
        (verb, resource): (&'static str, &'static str),
        deadline: Instant,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failure> {
        let answer = timeout_at(deadline, request).await;
        let code = match &answer {
            Ok(Ok(_)) => "2xx".to_owned(),
            Ok(Err(kube::Error::Api(status))) => status.code.to_string(),
            Ok(Err(_)) => "connection".to_owned(),
            Err(_) => "timeout".to_owned(),
        };
        self.metrics.api_write(verb, resource, &code);
        match answer {
            Ok(answer) => answer.map_err(|error| Failure::of(&error)),
            Err(_) => Err(Failure::Unknown("no answer in time".to_owned())),
        }
    }

    /// Until when a request that begins now may last; `None` if nothing may be written.
    fn deadline(&self) -> Option<Instant> {
        self.fence.deadline(Instant::now() + self.timeout)
    }
}
