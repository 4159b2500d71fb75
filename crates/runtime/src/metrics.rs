//! Metrics for Prometheus, updated by small methods that are named for what happened.
//!
//! Names and buckets are kube-scheduler's where the meaning is the same, so that dashboards keep working; others begin
//! with `muster_`. A test fixes the exposed names.
//! Must not depend on its callers.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use muster_engine::model::topology::RankDistance;
use muster_engine::{GroupState, PreemptionGap, PreemptionResult};
use muster_reflector::WatchAges;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

/// The HTTP content type of [`Metrics::render`].
pub(crate) const CONTENT_TYPE_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// A unit of scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// A single pod.
    Pod,
    /// A group.
    Group,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// It was scheduled.
    Scheduled,
    /// It does not fit.
    Unschedulable,
    /// It does not fit until its victims have left.
    WaitingOnPreemption,
    /// An error occurred.
    Error,
}

/// The queue of a pending pod or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// It is ready to be tried.
    Active,
    /// It waits for its backoff after a failure.
    Backoff,
    /// It waits for an event that may make it schedulable.
    Unschedulable,
    /// It may not be tried yet.
    Gated,
}

impl AttemptResult {
    fn label(self) -> &'static str {
        match self {
            AttemptResult::Scheduled => "scheduled",
            AttemptResult::Unschedulable => "unschedulable",
            AttemptResult::WaitingOnPreemption => "waiting_on_preemption",
            AttemptResult::Error => "error",
        }
    }
}

impl Entity {
    fn label(self) -> &'static str {
        match self {
            Entity::Pod => "pod",
            Entity::Group => "podgroup",
        }
    }
}

impl Queue {
    fn label(self) -> &'static str {
        match self {
            Queue::Active => "active",
            Queue::Backoff => "backoff",
            Queue::Unschedulable => "unschedulable",
            Queue::Gated => "gated",
        }
    }
}

/// The metrics of a process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    attempts: Counters<2>,
    attempt_seconds: Histograms<2>,
    algorithm_seconds: Histogram,
    group_attempts: Counters<2>,
    group_attempt_seconds: Histograms<2>,
    group_algorithm_seconds: Histogram,
    pending_pods: Gauges<1>,
    queued_entities: Gauges<2>,
    sli_seconds: Histogram,
    api_writes: Counters<3>,
    bind_seconds: Histogram,
    binds_in_flight: Gauge,
    watch_events: Counters<1>,
    watch_restarts: Counters<1>,
    watch_age_seconds: Gauges<1>,
    watch_ages: WatchAges,
    observations_refused: Counters<1>,
    leader: Gauge,
    status_writes: Counters<1>,
    events_written: Counter,
    binds_rolled_back: Counter,
    preemption_attempts: Counter,
    preemption_victims: Histogram,
    group_preemption_attempts: Counters<1>,
    group_preemption_victims: Histogram,
    waiting_for_victims: Gauges<1>,
    pods_evicted: Counter,
    groups_evicted: Counter,
    groups: Gauges<1>,
    volume_wait_seconds: Histograms<1>,
    volume_refusals: Counters<1>,
    preemption_gap: Histogram,
    rank_distance: Histogram,
    batch_seconds: Histogram,
}

fn attempt_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

fn victim_buckets() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 14))
}

fn sli_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

fn volume_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 2.0, 14))
}

fn gap_buckets() -> Histogram {
    Histogram::new([0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0])
}

fn rank_buckets() -> Histogram {
    Histogram::new([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0])
}

fn short_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 18))
}

fn seconds(took: Duration) -> f64 {
    took.as_secs_f64()
}

fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        Self { inner: Arc::new(Inner::new()) }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Inner {
    /// Counters are registered without the `_total` that the text format adds.
    fn new() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let durations = || Histograms::<2>::new_with_constructor(attempt_buckets as fn() -> Histogram);
        Self {
            attempts: register(
                r,
                "scheduler_schedule_attempts",
                "Attempts to schedule single pods, by result",
                Counters::default(),
            ),
            attempt_seconds: register(
                r,
                "scheduler_scheduling_attempt_duration_seconds",
                "How long an attempt for a single pod took",
                durations(),
            ),
            algorithm_seconds: register(
                r,
                "scheduler_scheduling_algorithm_duration_seconds",
                "How long the decision for a single pod took",
                attempt_buckets(),
            ),
            group_attempts: register(
                r,
                "scheduler_podgroup_schedule_attempts",
                "Attempts to schedule groups, by result",
                Counters::default(),
            ),
            group_attempt_seconds: register(
                r,
                "scheduler_podgroup_scheduling_attempt_duration_seconds",
                "How long an attempt for a group took",
                durations(),
            ),
            group_algorithm_seconds: register(
                r,
                "scheduler_podgroup_scheduling_algorithm_duration_seconds",
                "How long the decision for a group took",
                attempt_buckets(),
            ),
            pending_pods: register(r, "scheduler_pending_pods", "Pending pods, by queue", Gauges::default()),
            queued_entities: register(
                r,
                "scheduler_queued_entities",
                "Pending pods and groups, each counted as one, by queue",
                Gauges::default(),
            ),
            sli_seconds: register(
                r,
                "scheduler_pod_scheduling_sli_duration_seconds",
                "From when a pod could first be scheduled until it was bound",
                sli_buckets(),
            ),
            api_writes: register(
                r,
                "muster_api_writes",
                "Write requests, by verb, resource and HTTP code (or timeout, connection)",
                Counters::default(),
            ),
            bind_seconds: register(
                r,
                "muster_bind_duration_seconds",
                "How long a bind request took",
                attempt_buckets(),
            ),
            binds_in_flight: register(r, "muster_binds_in_flight", "Binds in flight", Gauge::default()),
            watch_events: register(r, "muster_watch_events", "Events of watches, by kind", Counters::default()),
            watch_restarts: register(r, "muster_watch_restarts", "Restarts of watches, by kind", Counters::default()),
            watch_age_seconds: register(
                r,
                "muster_watch_age_seconds",
                "How long ago the API server last confirmed what a watch has shown, by kind",
                Gauges::default(),
            ),
            watch_ages: WatchAges::default(),
            observations_refused: register(
                r,
                "muster_observations_refused",
                "Objects and observations that were invalid in whole or in part, by kind",
                Counters::default(),
            ),
            leader: register(r, "muster_leader", "1 if this process holds the lease", Gauge::default()),
            status_writes: register(r, "muster_status_writes", "Status writes, by kind", Counters::default()),
            events_written: register(r, "muster_events_written", "Events that were written", Counter::default()),
            binds_rolled_back: register(
                r,
                "muster_pods_taken_back",
                "Pods that were deleted because the start of their gang failed",
                Counter::default(),
            ),
            preemption_attempts: register(
                r,
                "scheduler_preemption_attempts",
                "Attempts of single pods that did not fit to preempt, whatever the result",
                Counter::default(),
            ),
            preemption_victims: register(
                r,
                "scheduler_preemption_victims",
                "Victims of a preemption plan for a single pod",
                victim_buckets(),
            ),
            group_preemption_attempts: register(
                r,
                "scheduler_workload_preemption_attempts",
                "Attempts of groups that did not fit to preempt, by result",
                Counters::default(),
            ),
            group_preemption_victims: register(
                r,
                "scheduler_workload_preemption_victims",
                "Victims of a preemption plan for a group",
                victim_buckets(),
            ),
            waiting_for_victims: register(
                r,
                "muster_waiting_for_victims",
                "Single pods and groups that wait for their victims to leave",
                Gauges::default(),
            ),
            pods_evicted: register(r, "muster_pods_evicted", "Pods that were preempted", Counter::default()),
            groups_evicted: register(
                r,
                "muster_groups_evicted",
                "Groups whose eviction as a whole was decided",
                Counter::default(),
            ),
            groups: register(r, "muster_groups", "Groups, by state", Gauges::default()),
            volume_wait_seconds: register(
                r,
                "muster_volume_wait_seconds",
                "How long a placed pod waited for its volumes, by result",
                Histograms::<1>::new_with_constructor(volume_buckets as fn() -> Histogram),
            ),
            volume_refusals: register(
                r,
                "muster_volume_refusals",
                "Claims whose volume failed after their pod was placed, by provisioner",
                Counters::default(),
            ),
            preemption_gap: register(
                r,
                "muster_preemption_gap_ratio",
                "Share of the groups in a preemption plan that are evicted whole and not proven to be necessary",
                gap_buckets(),
            ),
            rank_distance: register(
                r,
                "muster_rank_distance",
                "Topology levels between neighbours in rank, on average over a group with levels that was placed",
                rank_buckets(),
            ),
            batch_seconds: register(
                r,
                "muster_decision_batch_duration_seconds",
                "How long the scheduling loop was busy without a pause",
                short_buckets(),
            ),
            registry,
        }
    }
}

impl Metrics {
    /// All metrics as OpenMetrics text.
    pub fn render(&self) -> String {
        self.inner.watch_age_seconds.clear();
        for (kind, age) in self.inner.watch_ages.by_kind() {
            let seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
            self.inner.watch_age_seconds.get_or_create(&[("kind", owned(&kind))]).set(seconds);
        }
        let mut text = String::new();
        encode(&mut text, &self.inner.registry).expect("writing to a string never fails");
        text
    }

    /// An attempt to schedule a pod or group ended; `profile` is the scheduler's name.
    pub fn attempt(&self, entity: Entity, result: AttemptResult, profile: &str, took: Duration) {
        let labels = [("result", result.label().into()), ("profile", owned(profile))];
        let (count, durations) = match entity {
            Entity::Pod => (&self.inner.attempts, &self.inner.attempt_seconds),
            Entity::Group => (&self.inner.group_attempts, &self.inner.group_attempt_seconds),
        };
        count.get_or_create(&labels).inc();
        durations.get_or_create(&labels).observe(seconds(took));
    }

    /// The engine decided about a pod or group.
    pub fn decided(&self, entity: Entity, took: Duration) {
        match entity {
            Entity::Pod => self.inner.algorithm_seconds.observe(seconds(took)),
            Entity::Group => self.inner.group_algorithm_seconds.observe(seconds(took)),
        }
    }

    /// A pod or group that did not fit tried to preempt.
    pub fn preemption_attempt(&self, entity: Entity, result: PreemptionResult) {
        let result = match result {
            PreemptionResult::Success => "Success",
            PreemptionResult::Unschedulable => "Unschedulable",
        };
        match entity {
            Entity::Pod => self.inner.preemption_attempts.inc(),
            Entity::Group => self.inner.group_preemption_attempts.get_or_create(&[("result", result.into())]).inc(),
        };
    }

    /// A plan evicts whole groups.
    pub fn preemption_gap(&self, gap: PreemptionGap) {
        let beyond = gap.groups.saturating_sub(gap.at_least);
        self.inner.preemption_gap.observe(f64::from(beyond) / f64::from(gap.groups.max(1)));
    }

    /// A group with topology levels was placed.
    pub fn ranks_placed(&self, distance: RankDistance) {
        self.inner.rank_distance.observe(distance.levels as f64 / f64::from(distance.pairs));
    }

    /// A preemption plan with so many victims, in so many whole groups and other pods, is executed.
    pub fn preempted(&self, entity: Entity, pods: usize, groups: usize) {
        match entity {
            Entity::Pod => self.inner.preemption_victims.observe(pods as f64),
            Entity::Group => self.inner.group_preemption_victims.observe(pods as f64),
        }
        self.inner.groups_evicted.inc_by(groups as u64);
    }

    /// Sets the number of single pods or groups that wait for their victims to leave.
    pub fn set_waiting_for_victims(&self, entity: Entity, count: usize) {
        self.inner.waiting_for_victims.get_or_create(&[("type", entity.label().into())]).set(count as i64);
    }

    /// Sets the number of groups in a state.
    pub fn set_groups(&self, state: GroupState, count: usize) {
        self.inner.groups.get_or_create(&[("state", state.name().into())]).set(count as i64);
    }

    /// A pod was preempted.
    pub fn pod_evicted(&self) {
        self.inner.pods_evicted.inc();
    }

    /// Sets the number of pending pods in a queue.
    pub fn set_pending_pods(&self, queue: Queue, count: usize) {
        self.inner.pending_pods.get_or_create(&[("queue", queue.label().into())]).set(count as i64);
    }

    /// Sets the number of pending pods or groups in a queue, each counted as one.
    pub fn set_queued_entities(&self, queue: Queue, entity: Entity, count: usize) {
        let labels = [("queue", queue.label().into()), ("type", entity.label().into())];
        self.inner.queued_entities.get_or_create(&labels).set(count as i64);
    }

    /// A pod was bound, this long after it could first be scheduled.
    pub fn pod_scheduled(&self, waited: Duration) {
        self.inner.sli_seconds.observe(seconds(waited));
    }

    /// A write request ended: `code` is its HTTP status, or `timeout` or `connection` if it had none.
    pub fn api_write(&self, verb: &'static str, resource: &'static str, code: &str) {
        let labels = [("verb", verb.into()), ("resource", resource.into()), ("code", owned(code))];
        self.inner.api_writes.get_or_create(&labels).inc();
    }

    /// A bind was sent.
    pub fn bind_started(&self) {
        self.inner.binds_in_flight.inc();
    }

    /// A bind has ended or was cancelled.
    pub fn bind_ended(&self, took: Duration) {
        self.inner.binds_in_flight.dec();
        self.inner.bind_seconds.observe(seconds(took));
    }

    /// The ages of the watches of this process.
    pub fn watch_ages(&self) -> &WatchAges {
        &self.inner.watch_ages
    }

    /// A watch delivered an event.
    pub fn watch_event(&self, kind: &str) {
        self.inner.watch_events.get_or_create(&[("kind", owned(kind))]).inc();
    }

    /// A watch failed and is restarted.
    pub fn watch_restarted(&self, kind: &str) {
        self.inner.watch_restarts.get_or_create(&[("kind", owned(kind))]).inc();
    }

    /// An object or observation was invalid.
    pub fn observation_refused(&self, kind: &str) {
        self.inner.observations_refused.get_or_create(&[("kind", owned(kind))]).inc();
    }

    /// Whether this process holds the lease.
    pub fn set_leader(&self, leads: bool) {
        self.inner.leader.set(i64::from(leads));
    }

    /// A status was written.
    pub fn status_written(&self, kind: &str) {
        self.inner.status_writes.get_or_create(&[("kind", owned(kind))]).inc();
    }

    /// An event was written.
    pub fn event_written(&self) {
        self.inner.events_written.inc();
    }

    /// A pod was deleted because the start of its gang failed.
    pub fn bind_rolled_back(&self) {
        self.inner.binds_rolled_back.inc();
    }

    /// A placed pod waited this long for its volumes, and has them or was given up.
    pub fn volumes_waited(&self, bound: bool, waited: Duration) {
        let result = if bound { "bound" } else { "given_up" };
        self.inner.volume_wait_seconds.get_or_create(&[("result", result.into())]).observe(seconds(waited));
    }

    /// The volume of a claim failed after its pod was placed. The provisioner is empty if its class has none.
    pub fn volume_failed(&self, provisioner: &str) {
        let provisioner = if provisioner.is_empty() { "none" } else { provisioner };
        self.inner.volume_refusals.get_or_create(&[("provisioner", owned(provisioner))]).inc();
    }

    /// The scheduling loop was busy for this long without a pause.
    pub fn batch(&self, took: Duration) {
        self.inner.batch_seconds.observe(seconds(took));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTATION: &str = include_str!("../../../docs/operations.md");
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn exposed_names_labels_and_values_are_fixed() {
        let metrics = Metrics::default();
        metrics.attempt(Entity::Pod, AttemptResult::Scheduled, "muster", MS * 3);
        metrics.attempt(Entity::Group, AttemptResult::Unschedulable, "muster", MS * 3);
        metrics.attempt(Entity::Group, AttemptResult::Error, "muster", MS * 3);
        metrics.decided(Entity::Pod, MS);
        metrics.decided(Entity::Group, MS);
        metrics.set_pending_pods(Queue::Backoff, 4);
        metrics.set_queued_entities(Queue::Gated, Entity::Group, 2);
        metrics.pod_scheduled(MS * 20);
        metrics.api_write("create", "pods/binding", "409");
        metrics.bind_started();
        metrics.bind_started();
        metrics.bind_ended(MS);
        metrics.watch_event("Pod");
        metrics.watch_restarted("Node");
        let _age = metrics.watch_ages().add("Node");
        metrics.observation_refused("PodGroup");
        metrics.set_leader(true);
        metrics.status_written("PodGroup");
        metrics.event_written();
        metrics.bind_rolled_back();
        metrics.preemption_attempt(Entity::Pod, PreemptionResult::Unschedulable);
        metrics.preemption_attempt(Entity::Group, PreemptionResult::Success);
        metrics.preempted(Entity::Pod, 3, 1);
        metrics.preempted(Entity::Group, 4, 1);
        metrics.set_waiting_for_victims(Entity::Group, 2);
        metrics.set_groups(GroupState::PartiallyBound, 5);
        metrics.pod_evicted();
        metrics.volumes_waited(true, MS * 300);
        metrics.volumes_waited(false, MS);
        metrics.volume_failed("csi.example");
        metrics.volume_failed("");
        metrics.preemption_gap(PreemptionGap { groups: 50, at_least: 49 });
        metrics.ranks_placed(RankDistance { pairs: 4, levels: 3 });
        metrics.batch(MS);
        let text = metrics.clone().render();
        for line in [
            r#"scheduler_schedule_attempts_total{result="scheduled",profile="muster"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_count{result="scheduled",profile="muster"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_bucket{le="0.002",result="scheduled",profile="muster"} 0"#,
            r#"scheduler_scheduling_attempt_duration_seconds_bucket{le="0.004",result="scheduled",profile="muster"} 1"#,
            "scheduler_scheduling_algorithm_duration_seconds_count 1",
            r#"scheduler_podgroup_schedule_attempts_total{result="unschedulable",profile="muster"} 1"#,
            r#"scheduler_podgroup_schedule_attempts_total{result="error",profile="muster"} 1"#,
            r#"scheduler_podgroup_scheduling_attempt_duration_seconds_count{result="error",profile="muster"} 1"#,
            "scheduler_podgroup_scheduling_algorithm_duration_seconds_count 1",
            r#"scheduler_pending_pods{queue="backoff"} 4"#,
            r#"scheduler_queued_entities{queue="gated",type="podgroup"} 2"#,
            "scheduler_pod_scheduling_sli_duration_seconds_count 1",
            r#"muster_api_writes_total{verb="create",resource="pods/binding",code="409"} 1"#,
            "muster_bind_duration_seconds_count 1",
            "muster_binds_in_flight 1",
            r#"muster_watch_events_total{kind="Pod"} 1"#,
            r#"muster_watch_restarts_total{kind="Node"} 1"#,
            r#"muster_watch_age_seconds{kind="Node"} 0"#,
            r#"muster_observations_refused_total{kind="PodGroup"} 1"#,
            "muster_leader 1",
            r#"muster_status_writes_total{kind="PodGroup"} 1"#,
            "muster_events_written_total 1",
            "muster_pods_taken_back_total 1",
            "scheduler_preemption_attempts_total 1",
            "scheduler_preemption_victims_sum 3.0",
            r#"scheduler_workload_preemption_attempts_total{result="Success"} 1"#,
            "scheduler_workload_preemption_victims_sum 4.0",
            r#"muster_waiting_for_victims{type="podgroup"} 2"#,
            "muster_groups_evicted_total 2",
            r#"muster_groups{state="partially_bound"} 5"#,
            "muster_pods_evicted_total 1",
            r#"muster_volume_wait_seconds_bucket{le="0.2",result="bound"} 0"#,
            r#"muster_volume_wait_seconds_bucket{le="0.4",result="bound"} 1"#,
            r#"muster_volume_wait_seconds_count{result="given_up"} 1"#,
            r#"muster_volume_refusals_total{provisioner="csi.example"} 1"#,
            r#"muster_volume_refusals_total{provisioner="none"} 1"#,
            r#"muster_preemption_gap_ratio_bucket{le="0.02"} 1"#,
            r#"muster_rank_distance_bucket{le="0.75"} 1"#,
            "muster_decision_batch_duration_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let row = match line.split_once(' ') {
                Some((name, "counter")) => format!("| `{name}_total` | "),
                Some((name, _)) => format!("| `{name}` | "),
                None => panic!("a type without a name: {line}"),
            };
            assert!(DOCUMENTATION.contains(&row), "docs/operations.md should have {row}");
        }
        let documented = DOCUMENTATION.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        for name in documented.filter(|name| name.starts_with("scheduler_") || name.starts_with("muster_")) {
            assert!(text.contains(&format!("\n{name}")), "docs/operations.md documents {name}, which does not exist");
        }
    }
}
