//! The actuator: sends API requests with bounded concurrency and a deadline each, and reports every outcome as an
//! event.
//!
//! Binds, deletions and writes to storage have their own lane, so that status writes never delay them. Nothing is retried here: the
//! outcome reports what is known, and the sender of the request decides. No request begins once the fence is closed.

mod bind;
pub(crate) mod evict;
mod outcome;
mod storage;
#[cfg(test)]
mod storage_tests;
#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use muster_engine::model::pod::{PodName, StartStamp};
use muster_engine::model::storage::{ClaimName, StorageWriteOutcome};
use muster_engine::{BindOutcome, DeleteOutcome};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::config::Eviction;
use crate::dialect::StatusPatch;
use crate::fence::Fence;
use crate::intake::group_index::ObjectKey;
use crate::metrics::Metrics;
use crate::scheduling_loop::Event;

use evict::{EvictionOutcomes, VictimUnit};
use outcome::Failure;
pub(crate) use outcome::WriteOutcome;

/// A request to the API server.
#[derive(Clone, Debug)]
pub(crate) enum ApiRequest {
    /// Bind a pod.
    Bind { pod: Arc<PodName>, node: Arc<str>, start: Option<Arc<StartStamp>> },
    /// Reserve a volume for a claim.
    ReserveVolume { claim: Arc<ClaimName>, claim_version: String, volume: Arc<str>, version: String },
    /// Select the node for which the volume of a claim is provisioned.
    SelectNode { claim: Arc<ClaimName>, version: String, node: Arc<str> },
    /// Delete a bound pod because the start of its gang failed.
    Rollback { pod: Arc<PodName> },
    /// Evict a victim unit.
    Evict(Arc<VictimUnit>),
    /// Clear the `DisruptionTarget` condition of a pod that is not evicted after all.
    ClearDisruptionTarget { pod: Arc<PodName>, now: jiff::Timestamp },
    /// Patch the status of a pod.
    PodStatus { pod: Arc<PodName>, patch: Value },
    /// Patch the status of a group object.
    GroupStatus { object: ObjectKey, resource: Arc<kube::core::ApiResource>, patch: StatusPatch },
    /// Create an event, or update the count of an existing one.
    Event { key: u64, namespace: String, name: String, body: Value, again: bool },
}

/// The result of an API request.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Bind {
        pod: Arc<PodName>,
        node: Arc<str>,
        outcome: BindOutcome,
    },
    StorageWrite {
        claim: Arc<ClaimName>,
        outcome: StorageWriteOutcome,
    },
    Rollback {
        pod: Arc<PodName>,
        outcome: DeleteOutcome,
    },
    Evict {
        unit: Arc<VictimUnit>,
        outcomes: EvictionOutcomes,
    },
    /// Without a result: the engine repeats the command if the condition is still there.
    ClearDisruptionTarget,
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

/// Sends API requests in two lanes.
pub(crate) struct Actuator {
    context: RequestContext,
    inbox: mpsc::Sender<Event>,
    actions: Lane,
    status_writes: Lane,
    tasks: JoinSet<()>,
}

/// What every API request needs.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub(crate) client: kube::Client,
    pub(crate) fence: Fence,
    pub(crate) timeout: Duration,
    pub(crate) eviction: Eviction,
    pub(crate) metrics: Metrics,
}

struct Lane {
    waiting: VecDeque<ApiRequest>,
    in_flight: usize,
    in_flight_max: usize,
}

impl Lane {
    fn new(in_flight_max: usize) -> Self {
        Self { waiting: VecDeque::new(), in_flight: 0, in_flight_max }
    }
}

impl Actuator {
    pub(crate) fn new(
        context: RequestContext,
        inbox: mpsc::Sender<Event>,
        actions_max: usize,
        status_max: usize,
    ) -> Self {
        Self {
            context,
            inbox,
            actions: Lane::new(actions_max),
            status_writes: Lane::new(status_max),
            tasks: JoinSet::new(),
        }
    }

    /// Queues a request and starts it as soon as its lane has a free slot.
    pub(crate) fn send(&mut self, request: ApiRequest) {
        let is_action = is_action(&request);
        self.lane(is_action).waiting.push_back(request);
        self.start(is_action);
    }

    /// Frees the slot of a request that has ended.
    pub(crate) fn on_outcome(&mut self, outcome: &Outcome) {
        let is_action = matches!(
            outcome,
            Outcome::Bind { .. }
                | Outcome::StorageWrite { .. }
                | Outcome::Rollback { .. }
                | Outcome::Evict { .. }
                | Outcome::ClearDisruptionTarget
        );
        let lane = self.lane(is_action);
        lane.in_flight = lane.in_flight.saturating_sub(1);
        self.start(is_action);
        while self.tasks.try_join_next().is_some() {}
    }

    /// How many more status writes may be queued: enough to keep the lane busy without a backlog.
    pub(crate) fn free_status_slots(&self) -> usize {
        (2 * self.status_writes.in_flight_max)
            .saturating_sub(self.status_writes.in_flight + self.status_writes.waiting.len())
    }

    /// The number of waiting and running requests: actions, status writes.
    pub(crate) fn load(&self) -> (usize, usize) {
        (
            self.actions.waiting.len() + self.actions.in_flight,
            self.status_writes.waiting.len() + self.status_writes.in_flight,
        )
    }

    fn lane(&mut self, is_action: bool) -> &mut Lane {
        if is_action { &mut self.actions } else { &mut self.status_writes }
    }

    fn start(&mut self, is_action: bool) {
        loop {
            let lane = self.lane(is_action);
            if lane.in_flight >= lane.in_flight_max {
                return;
            }
            let Some(request) = lane.waiting.pop_front() else { return };
            lane.in_flight += 1;
            let (context, inbox) = (self.context.clone(), self.inbox.clone());
            self.tasks.spawn(async move {
                let outcome = context.run(request).await;
                // A scheduling loop that has ended does not need the outcome.
                let _ = inbox.send(Event::Outcome(Box::new(outcome))).await;
            });
        }
    }
}

fn is_action(request: &ApiRequest) -> bool {
    matches!(
        request,
        ApiRequest::Bind { .. }
            | ApiRequest::ReserveVolume { .. }
            | ApiRequest::SelectNode { .. }
            | ApiRequest::Rollback { .. }
            | ApiRequest::Evict(_)
            | ApiRequest::ClearDisruptionTarget { .. }
    )
}

impl RequestContext {
    async fn run(&self, request: ApiRequest) -> Outcome {
        match request {
            ApiRequest::Bind { pod, node, start } => {
                let started = Instant::now();
                self.metrics.bind_started();
                let outcome = self.bind(&pod, &node, start.as_deref()).await;
                self.metrics.bind_ended(started.elapsed());
                Outcome::Bind { pod, node, outcome }
            }
            ApiRequest::ReserveVolume { claim, claim_version, volume, version } => {
                let outcome = self.reserve_volume(&claim, &claim_version, &volume, &version).await;
                Outcome::StorageWrite { claim, outcome }
            }
            ApiRequest::SelectNode { claim, version, node } => {
                let outcome = self.select_node(&claim, &version, &node).await;
                Outcome::StorageWrite { claim, outcome }
            }
            ApiRequest::Rollback { pod } => {
                let outcome = self.delete_pod(&pod).await;
                Outcome::Rollback { pod, outcome }
            }
            ApiRequest::Evict(unit) => {
                let outcomes = self.evict(&unit).await;
                Outcome::Evict { unit, outcomes }
            }
            ApiRequest::ClearDisruptionTarget { pod, now } => {
                self.clear_disruption_target(&pod, now).await;
                Outcome::ClearDisruptionTarget
            }
            ApiRequest::PodStatus { pod, patch } => {
                let outcome = self.pod_status(&pod, &patch).await;
                Outcome::PodStatus { pod, outcome }
            }
            ApiRequest::GroupStatus { object, resource, patch } => {
                let outcome = self.group_status(&object, &resource, patch).await;
                Outcome::GroupStatus { object, outcome }
            }
            ApiRequest::Event { key, namespace, name, body, again } => {
                let outcome = self.event(&namespace, &name, &body, again).await;
                Outcome::Event { key, outcome }
            }
        }
    }

    /// Sends a request, counts it and cancels it at the deadline.
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

    /// The deadline of a request that begins now; `None` if nothing may be written.
    fn deadline(&self) -> Option<Instant> {
        self.fence.deadline(Instant::now() + self.timeout)
    }
}
