//! The lifecycle of one pod on its node, from admission to termination.
//!
//! Invariant: a step depends only on the behavior and the times; a late step reports the times that were due, not its
//! own.
//! Must not depend on the API, other pods or the node.

use jiff::{SignedDuration, Timestamp};
use muster_playground_client::conditions;
use muster_playground_client::untyped::UntypedPod;

use super::behavior::{Behavior, Rendezvous};
use super::desired_status::{ContainerState, DesiredStatus, RENDEZVOUS_COMPLETE, Termination};

/// The exit code of containers that are stopped (SIGTERM).
const EXIT_CODE_SIGTERM: i32 = 143;
const DEADLINE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// The current stage of a pod.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// Admitted; the volumes cannot be mounted yet.
    Mounting,
    /// Admitted; the containers start at this time.
    Starting {
        at: Timestamp,
    },
    Running {
        since: Timestamp,
        ready: bool,
    },
    /// The containers have exited and will be restarted.
    BackOff {
        until: Timestamp,
    },
    /// The pod is being deleted; its containers, if any, end at this time.
    Stopping {
        ends: Timestamp,
        ran_since: Option<Timestamp>,
    },
    /// The pod has terminated, with its final status if one is left to report.
    Terminated(Option<Box<DesiredStatus>>),
}

/// The lifecycle of a pod.
#[derive(Clone, Debug)]
pub(super) struct PodLifecycle {
    behavior: Option<Behavior>,
    admitted: Timestamp,
    stage: Stage,
    restarts: i64,
    last: Option<Termination>,
    /// When the pods of its rendezvous were all running, if it has one.
    rendezvous_at: Option<Timestamp>,
}

/// The time this many milliseconds later.
pub(super) fn later(time: Timestamp, ms: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_millis(ms)).unwrap_or(Timestamp::MAX)
}

impl PodLifecycle {
    /// A pod that the node admits now.
    pub(super) fn admitted(behavior: Behavior, now: Timestamp) -> Self {
        let stage = Stage::Starting { at: later(now, behavior.start_ms) };
        Self { behavior: Some(behavior), admitted: now, stage, restarts: 0, last: None, rendezvous_at: None }
    }

    /// A pod that the node admits now, and that starts when its volumes can be mounted.
    pub(super) fn mounting(behavior: Behavior, now: Timestamp) -> Self {
        Self { stage: Stage::Mounting, ..Self::admitted(behavior, now) }
    }

    /// Whether the pod waits for its volumes.
    pub(super) fn is_mounting(&self) -> bool {
        matches!(self.stage, Stage::Mounting)
    }

    /// The volumes of the pod are mounted now.
    pub(super) fn mounted(&mut self, now: Timestamp) {
        if let (Stage::Mounting, Some(behavior)) = (&self.stage, &self.behavior) {
            self.stage = Stage::Starting { at: later(now, behavior.start_ms) };
        }
    }

    /// When the node admitted the pod.
    pub(super) fn admitted_at(&self) -> Timestamp {
        self.admitted
    }

    /// A pod that is already running according to its status.
    pub(super) fn resumed(behavior: Behavior, pod: &UntypedPod, now: Timestamp) -> Self {
        let time = |value: &serde_json::Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let admitted = time(&pod.status["startTime"]).unwrap_or(now);
        let container = &pod.status["containerStatuses"][0];
        // Containers in back-off are restarted with the kubelet.
        let since = time(&container["state"]["running"]["startedAt"]).unwrap_or(now);
        let ready = container["ready"] == true;
        let restarts = container["restartCount"].as_i64().unwrap_or_default();
        let stage = Stage::Running { since, ready: ready || behavior.ready_after_ms == 0 };
        let rendezvous_at =
            conditions::find(&pod.status["conditions"], RENDEZVOUS_COMPLETE).filter(|one| one["status"] == "True");
        let rendezvous_at =
            rendezvous_at.and_then(|one| time(&one["lastTransitionTime"])).filter(|_| behavior.rendezvous.is_some());
        Self { behavior: Some(behavior), admitted, stage, restarts, last: None, rendezvous_at }
    }

    /// A terminated pod with the final status to report, if any.
    pub(super) fn terminated(status: Option<DesiredStatus>, now: Timestamp) -> Self {
        Self {
            behavior: None,
            admitted: now,
            stage: Stage::Terminated(status.map(Box::new)),
            restarts: 0,
            last: None,
            rendezvous_at: None,
        }
    }

    /// Whether the pod still uses resources of the node.
    pub(super) fn holds_resources(&self) -> bool {
        !self.is_terminated()
    }

    pub(super) fn is_terminated(&self) -> bool {
        matches!(self.stage, Stage::Terminated(_))
    }

    /// Another writer has set the pod to a final phase.
    pub(super) fn end(&mut self) {
        self.stage = Stage::Terminated(None);
    }

    /// The pod is being deleted with this grace period.
    pub(super) fn stop(&mut self, grace_ms: i64, now: Timestamp) {
        let Some(behavior) = &self.behavior else { return };
        let ends = later(now, behavior.stop_within_ms(grace_ms));
        self.stage = match &self.stage {
            Stage::Terminated(_) => return,
            Stage::Running { since, .. } => Stage::Stopping { ends, ran_since: Some(*since) },
            Stage::Stopping { ends: before, ran_since } => {
                Stage::Stopping { ends: (*before).min(ends), ran_since: *ran_since }
            }
            Stage::Mounting | Stage::Starting { .. } | Stage::BackOff { .. } => {
                Stage::Stopping { ends: now, ran_since: None }
            }
        };
    }

    /// When the stage changes next without an event.
    pub(super) fn next_change(&self) -> Option<Timestamp> {
        let behavior = self.behavior.as_ref()?;
        let own = match &self.stage {
            Stage::Mounting => None,
            Stage::Starting { at } => Some(*at),
            Stage::Running { since, ready: false } => {
                let ready = later(*since, behavior.ready_after_ms);
                Some(self.work_ends(behavior, *since).map_or(ready, |ends| ready.min(ends)))
            }
            Stage::Running { since, ready: true } => self.work_ends(behavior, *since),
            Stage::BackOff { until } => Some(*until),
            Stage::Stopping { ends, .. } => return Some(*ends),
            Stage::Terminated(_) => return None,
        };
        [own, self.deadline()].into_iter().flatten().min()
    }

    /// When containers that run since then are done, if that is known.
    fn work_ends(&self, behavior: &Behavior, since: Timestamp) -> Option<Timestamp> {
        let started_at = if behavior.rendezvous.is_some() { self.rendezvous_at?.max(since) } else { since };
        behavior.run_ms.map(|run_ms| later(started_at, run_ms))
    }

    /// The rendezvous that the pod still waits for.
    pub(super) fn awaited_rendezvous(&self) -> Option<&Rendezvous> {
        self.behavior.as_ref()?.rendezvous.as_ref().filter(|_| self.rendezvous_at.is_none() && self.runs())
    }

    pub(super) fn behavior(&self) -> Option<&Behavior> {
        self.behavior.as_ref()
    }

    /// Whether its containers run.
    pub(super) fn runs(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    /// All pods of the rendezvous are running.
    pub(super) fn complete_rendezvous(&mut self, now: Timestamp) {
        self.rendezvous_at = Some(now);
    }

    fn deadline(&self) -> Option<Timestamp> {
        Some(later(self.admitted, self.behavior.as_ref()?.deadline_ms?))
    }

    /// Applies all changes that are due.
    pub(super) fn step(&mut self, now: Timestamp) {
        while let Some(due) = self.next_change().filter(|due| *due <= now) {
            self.change(due);
        }
    }

    fn change(&mut self, due: Timestamp) {
        let Some(behavior) = self.behavior.clone() else { return };
        if !matches!(self.stage, Stage::Stopping { .. }) && self.deadline().is_some_and(|deadline| deadline <= due) {
            let ran_since = if let Stage::Running { since, .. } = self.stage { Some(since) } else { None };
            let stopped = self.stopped(ran_since, due);
            let status = DesiredStatus {
                reason: "DeadlineExceeded".to_owned(),
                message: DEADLINE_MESSAGE.to_owned(),
                ..stopped
            };
            self.stage = Stage::Terminated(Some(Box::new(status)));
            return;
        }
        self.stage = match &self.stage {
            Stage::Starting { at } | Stage::BackOff { until: at } => {
                Stage::Running { since: *at, ready: behavior.ready_after_ms == 0 }
            }
            Stage::Running { since, .. } if self.work_ends(&behavior, *since).is_some_and(|ends| ends <= due) => {
                let termination = Termination { started_at: *since, finished_at: due, exit_code: behavior.exit_code };
                self.stage_after_exit(&behavior, termination)
            }
            Stage::Running { since, .. } => Stage::Running { since: *since, ready: true },
            Stage::Stopping { ran_since, .. } => Stage::Terminated(Some(Box::new(self.stopped(*ran_since, due)))),
            Stage::Mounting | Stage::Terminated(_) => return,
        };
    }

    /// The stage after the containers have exited by themselves.
    fn stage_after_exit(&mut self, behavior: &Behavior, termination: Termination) -> Stage {
        if behavior.restarts() {
            let until = later(termination.finished_at, behavior.restart_wait_ms(self.restarts));
            self.restarts += 1;
            self.last = Some(termination);
            return Stage::BackOff { until };
        }
        let phase = if termination.exit_code == 0 { "Succeeded" } else { "Failed" };
        Stage::Terminated(Some(Box::new(self.build_status(phase, ContainerState::Terminated(termination), false))))
    }

    fn stopped(&self, ran_since: Option<Timestamp>, finished_at: Timestamp) -> DesiredStatus {
        let containers = match (ran_since, &self.last) {
            (Some(started_at), _) => {
                ContainerState::Terminated(Termination { started_at, finished_at, exit_code: EXIT_CODE_SIGTERM })
            }
            (None, Some(last)) => ContainerState::Terminated(last.clone()),
            (None, None) => ContainerState::Waiting("ContainerCreating"),
        };
        self.build_status("Failed", containers, false)
    }

    /// The status to report now; nothing to keep the current one.
    pub(super) fn status(&self) -> Option<DesiredStatus> {
        match &self.stage {
            Stage::Mounting | Stage::Starting { .. } => {
                Some(self.build_status("Pending", ContainerState::Waiting("ContainerCreating"), false))
            }
            Stage::Running { since, ready } => {
                Some(self.build_status("Running", ContainerState::Running(*since), *ready))
            }
            Stage::BackOff { .. } => {
                Some(self.build_status("Running", ContainerState::Waiting("CrashLoopBackOff"), false))
            }
            Stage::Stopping { .. } => None,
            Stage::Terminated(status) => status.as_deref().cloned(),
        }
    }

    fn build_status(&self, phase: &'static str, containers: ContainerState, ready: bool) -> DesiredStatus {
        DesiredStatus {
            phase,
            reason: String::new(),
            message: String::new(),
            admitted: Some(self.admitted),
            containers,
            ready,
            restarts: self.restarts,
            last: self.last.clone(),
            rendezvous_at: self.rendezvous_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::behavior::Restart;
    use super::*;

    fn behavior() -> Behavior {
        Behavior {
            start_ms: 1000,
            ready_after_ms: 0,
            run_ms: None,
            stop_ms: 500,
            kill_ms: 0,
            exit_code: 0,
            restart: Restart::Never,
            deadline_ms: None,
            rendezvous: None,
            speed: 1.0,
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    /// Phase, reason, readiness and restarts at each change of stage, with its time.
    fn changes_until(mut lifecycle: PodLifecycle, until_ms: i64) -> Vec<(i64, &'static str, String, bool, i64)> {
        let mut changes = Vec::new();
        while let Some(due) = lifecycle.next_change().filter(|due| *due <= at(until_ms)) {
            lifecycle.step(due);
            let status = lifecycle.status().unwrap();
            changes.push((due.as_millisecond(), status.phase, status.reason, status.ready, status.restarts));
        }
        changes
    }

    fn line(ms: i64, phase: &'static str, ready: bool, restarts: i64) -> (i64, &'static str, String, bool, i64) {
        (ms, phase, String::new(), ready, restarts)
    }

    #[test]
    fn pod_starts_becomes_ready_and_ends() {
        let behavior = Behavior { ready_after_ms: 2000, run_ms: Some(5000), ..behavior() };
        let expected =
            [line(1000, "Running", false, 0), line(3000, "Running", true, 0), line(6000, "Succeeded", false, 0)];
        assert_eq!(changes_until(PodLifecycle::admitted(behavior.clone(), at(0)), 60_000), expected);
        let failing = changes_until(PodLifecycle::admitted(Behavior { exit_code: 1, ..behavior }, at(0)), 60_000);
        assert_eq!(failing[2], line(6000, "Failed", false, 0));
    }

    #[test]
    fn containers_restart_by_restart_policy() {
        let behavior = Behavior { run_ms: Some(1000), restart: Restart::OnFailure, ..behavior() };
        let done = changes_until(PodLifecycle::admitted(behavior.clone(), at(0)), 60_000);
        assert_eq!(done.last().unwrap(), &line(2000, "Succeeded", false, 0));
        for behavior in
            [Behavior { exit_code: 2, ..behavior.clone() }, Behavior { restart: Restart::Always, ..behavior }]
        {
            let changes = changes_until(PodLifecycle::admitted(behavior, at(0)), 14_500);
            let expected = [
                line(1000, "Running", true, 0),
                // The first restart is immediate, the second after ten seconds.
                line(2000, "Running", true, 1),
                line(3000, "Running", false, 2),
                line(13_000, "Running", true, 2),
                line(14_000, "Running", false, 3),
            ];
            assert_eq!(changes, expected);
        }
    }

    #[test]
    fn deadline_ends_the_pod_in_any_stage() {
        for start_ms in [1000, 9000] {
            let behavior = Behavior { start_ms, deadline_ms: Some(3000), ..behavior() };
            let changes = changes_until(PodLifecycle::admitted(behavior, at(0)), 60_000);
            assert_eq!(changes.last().unwrap(), &(3000, "Failed", "DeadlineExceeded".to_owned(), false, 0));
        }
    }

    #[test]
    fn stopping_takes_at_most_the_grace_period() {
        let running = || {
            let mut lifecycle = PodLifecycle::admitted(behavior(), at(0));
            lifecycle.step(at(1000));
            lifecycle
        };
        let mut lifecycle = running();
        lifecycle.stop(30_000, at(2000));
        assert_eq!((lifecycle.next_change(), lifecycle.status()), (Some(at(2500)), None));
        lifecycle.step(at(2500));
        let status = lifecycle.status().unwrap();
        let termination = Termination { started_at: at(1000), finished_at: at(2500), exit_code: 143 };
        assert_eq!((status.phase, status.containers), ("Failed", ContainerState::Terminated(termination)));

        let mut lifecycle = running();
        lifecycle.stop(200, at(2000));
        assert_eq!(lifecycle.next_change(), Some(at(2200)), "the grace period is shorter");

        let slow = Behavior { stop_ms: 60_000, ..behavior() };
        let mut lifecycle = PodLifecycle::admitted(slow, at(0));
        lifecycle.step(at(1000));
        lifecycle.stop(30_000, at(2000));
        lifecycle.stop(5000, at(3000));
        assert_eq!(lifecycle.next_change(), Some(at(8000)), "the grace period was shortened");

        let mut lifecycle = PodLifecycle::admitted(behavior(), at(0));
        lifecycle.stop(30_000, at(500));
        lifecycle.step(at(500));
        assert!(lifecycle.is_terminated(), "nothing had started");
    }

    #[test]
    fn late_step_reports_the_times_that_were_due() {
        let mut lifecycle = PodLifecycle::admitted(Behavior { run_ms: Some(5000), ..behavior() }, at(0));
        lifecycle.step(at(3_600_000));
        let termination = Termination { started_at: at(1000), finished_at: at(6000), exit_code: 0 };
        assert_eq!(lifecycle.status().unwrap().containers, ContainerState::Terminated(termination));
    }
}
