//! The life of one pod on its node, from admission to its end.
//!
//! Invariant: a step depends on the plan and the times alone; a late step gives the times that were due, not its own.
//! It must not know the API, other pods or the node.

use jiff::{SignedDuration, Timestamp};
use muster_playground_client::conditions;
use muster_playground_client::seen::SeenPod;

use super::plan::{Meeting, Plan};
use super::sketch::{Containers, Ending, MET, Sketch};

/// How containers end that were told to stop.
const EXIT_CODE_STOPPED: i32 = 143;
const TOO_LONG: &str = "Pod was active on the node longer than the specified deadline";

/// Where a pod is in its life.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// The node has taken it; containers start then.
    Starting {
        at: Timestamp,
    },
    Running {
        since: Timestamp,
        ready: bool,
    },
    /// The containers have ended and will be started again.
    Resting {
        until: Timestamp,
    },
    /// It is being deleted; the containers, if there are any, are gone by then.
    Stopping {
        ends: Timestamp,
        ran_since: Option<Timestamp>,
    },
    /// It is over, and this is the last that there is to say.
    Over(Option<Box<Sketch>>),
}

/// The life of a pod.
#[derive(Clone, Debug)]
pub(super) struct Life {
    plan: Option<Plan>,
    admitted: Timestamp,
    stage: Stage,
    restarts: i64,
    last: Option<Ending>,
    /// When those that it must meet were all there, if it must meet any.
    met: Option<Timestamp>,
}

/// A time so many milliseconds later.
pub(super) fn later(time: Timestamp, ms: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_millis(ms)).unwrap_or(Timestamp::MAX)
}

impl Life {
    /// A pod that the node takes now.
    pub(super) fn admitted(plan: Plan, now: Timestamp) -> Self {
        let stage = Stage::Starting { at: later(now, plan.start_ms) };
        Self { plan: Some(plan), admitted: now, stage, restarts: 0, last: None, met: None }
    }

    /// A pod that is running already, as its status says.
    pub(super) fn resumed(plan: Plan, pod: &SeenPod, now: Timestamp) -> Self {
        let time = |value: &serde_json::Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let admitted = time(&pod.status["startTime"]).unwrap_or(now);
        let container = &pod.status["containerStatuses"][0];
        // Containers that wait for their next start are started with the kubelet.
        let since = time(&container["state"]["running"]["startedAt"]).unwrap_or(now);
        let ready = container["ready"] == true;
        let restarts = container["restartCount"].as_i64().unwrap_or_default();
        let stage = Stage::Running { since, ready: ready || plan.ready_after_ms == 0 };
        let met = conditions::find(&pod.status["conditions"], MET).filter(|one| one["status"] == "True");
        let met = met.and_then(|one| time(&one["lastTransitionTime"])).filter(|_| plan.meets.is_some());
        Self { plan: Some(plan), admitted, stage, restarts, last: None, met }
    }

    /// A pod that is over, with the last that there is to say.
    pub(super) fn over(sketch: Option<Sketch>, now: Timestamp) -> Self {
        Self { plan: None, admitted: now, stage: Stage::Over(sketch.map(Box::new)), restarts: 0, last: None, met: None }
    }

    /// Whether it still takes room on the node.
    pub(super) fn holds_room(&self) -> bool {
        !self.is_over()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    /// Somebody else has ended it.
    pub(super) fn end(&mut self) {
        self.stage = Stage::Over(None);
    }

    /// It is being deleted and has this long to stop.
    pub(super) fn stop(&mut self, grace_ms: i64, now: Timestamp) {
        let Some(plan) = &self.plan else { return };
        let ends = later(now, plan.stop_within_ms(grace_ms));
        self.stage = match &self.stage {
            Stage::Over(_) => return,
            Stage::Running { since, .. } => Stage::Stopping { ends, ran_since: Some(*since) },
            Stage::Stopping { ends: before, ran_since } => {
                Stage::Stopping { ends: (*before).min(ends), ran_since: *ran_since }
            }
            Stage::Starting { .. } | Stage::Resting { .. } => Stage::Stopping { ends: now, ran_since: None },
        };
    }

    /// When something happens next by itself.
    pub(super) fn next_change(&self) -> Option<Timestamp> {
        let plan = self.plan.as_ref()?;
        let own = match &self.stage {
            Stage::Starting { at } => Some(*at),
            Stage::Running { since, ready: false } => {
                let ready = later(*since, plan.ready_after_ms);
                Some(self.work_ends(plan, *since).map_or(ready, |ends| ready.min(ends)))
            }
            Stage::Running { since, ready: true } => self.work_ends(plan, *since),
            Stage::Resting { until } => Some(*until),
            Stage::Stopping { ends, .. } => return Some(*ends),
            Stage::Over(_) => return None,
        };
        [own, self.deadline()].into_iter().flatten().min()
    }

    /// When containers that run since then have done their work, if that is known.
    fn work_ends(&self, plan: &Plan, since: Timestamp) -> Option<Timestamp> {
        let began = if plan.meets.is_some() { self.met?.max(since) } else { since };
        plan.run_ms.map(|run_ms| later(began, run_ms))
    }

    /// Whom it waits for before it works.
    pub(super) fn waits_for(&self) -> Option<&Meeting> {
        self.plan.as_ref()?.meets.as_ref().filter(|_| self.met.is_none() && self.runs())
    }

    pub(super) fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Whether its containers run.
    pub(super) fn runs(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    /// All that it must meet are there.
    pub(super) fn meet(&mut self, now: Timestamp) {
        self.met = Some(now);
    }

    fn deadline(&self) -> Option<Timestamp> {
        Some(later(self.admitted, self.plan.as_ref()?.deadline_ms?))
    }

    /// Lets everything happen that is due.
    pub(super) fn step(&mut self, now: Timestamp) {
        while let Some(due) = self.next_change().filter(|due| *due <= now) {
            self.change(due);
        }
    }

    fn change(&mut self, due: Timestamp) {
        let Some(plan) = self.plan.clone() else { return };
        if !matches!(self.stage, Stage::Stopping { .. }) && self.deadline().is_some_and(|deadline| deadline <= due) {
            let ran_since = if let Stage::Running { since, .. } = self.stage { Some(since) } else { None };
            let stopped = self.stopped(ran_since, due);
            let sketch = Sketch { reason: "DeadlineExceeded".to_owned(), message: TOO_LONG.to_owned(), ..stopped };
            self.stage = Stage::Over(Some(Box::new(sketch)));
            return;
        }
        self.stage = match &self.stage {
            Stage::Starting { at } | Stage::Resting { until: at } => {
                Stage::Running { since: *at, ready: plan.ready_after_ms == 0 }
            }
            Stage::Running { since, .. } if self.work_ends(&plan, *since).is_some_and(|ends| ends <= due) => {
                let ending = Ending { began: *since, ended: due, exit_code: plan.exit_code };
                self.after(&plan, ending)
            }
            Stage::Running { since, .. } => Stage::Running { since: *since, ready: true },
            Stage::Stopping { ran_since, .. } => Stage::Over(Some(Box::new(self.stopped(*ran_since, due)))),
            Stage::Over(_) => return,
        };
    }

    /// What comes after the containers have ended by themselves.
    fn after(&mut self, plan: &Plan, ending: Ending) -> Stage {
        if plan.restarts() {
            let until = later(ending.ended, plan.restart_wait_ms(self.restarts));
            self.restarts += 1;
            self.last = Some(ending);
            return Stage::Resting { until };
        }
        let phase = if ending.exit_code == 0 { "Succeeded" } else { "Failed" };
        Stage::Over(Some(Box::new(self.draw(phase, Containers::Ended(ending), false))))
    }

    fn stopped(&self, ran_since: Option<Timestamp>, ended: Timestamp) -> Sketch {
        let containers = match (ran_since, &self.last) {
            (Some(began), _) => Containers::Ended(Ending { began, ended, exit_code: EXIT_CODE_STOPPED }),
            (None, Some(last)) => Containers::Ended(last.clone()),
            (None, None) => Containers::Waiting("ContainerCreating"),
        };
        self.draw("Failed", containers, false)
    }

    /// What the status should say now; nothing while it is as it was.
    pub(super) fn sketch(&self) -> Option<Sketch> {
        match &self.stage {
            Stage::Starting { .. } => Some(self.draw("Pending", Containers::Waiting("ContainerCreating"), false)),
            Stage::Running { since, ready } => Some(self.draw("Running", Containers::Running(*since), *ready)),
            Stage::Resting { .. } => Some(self.draw("Running", Containers::Waiting("CrashLoopBackOff"), false)),
            Stage::Stopping { .. } => None,
            Stage::Over(sketch) => sketch.as_deref().cloned(),
        }
    }

    fn draw(&self, phase: &'static str, containers: Containers, ready: bool) -> Sketch {
        Sketch {
            phase,
            reason: String::new(),
            message: String::new(),
            admitted: Some(self.admitted),
            containers,
            ready,
            restarts: self.restarts,
            last: self.last.clone(),
            met: self.met,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Restart;
    use super::*;

    fn plan() -> Plan {
        Plan {
            start_ms: 1000,
            ready_after_ms: 0,
            run_ms: None,
            stop_ms: 500,
            kill_ms: 0,
            exit_code: 0,
            restart: Restart::Never,
            deadline_ms: None,
            meets: None,
            speed: 1.0,
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    /// Phase, reason, readiness and restarts at each change of a life, with its time.
    fn story(mut life: Life, until_ms: i64) -> Vec<(i64, &'static str, String, bool, i64)> {
        let mut told = Vec::new();
        while let Some(due) = life.next_change().filter(|due| *due <= at(until_ms)) {
            life.step(due);
            let sketch = life.sketch().unwrap();
            told.push((due.as_millisecond(), sketch.phase, sketch.reason, sketch.ready, sketch.restarts));
        }
        told
    }

    fn line(ms: i64, phase: &'static str, ready: bool, restarts: i64) -> (i64, &'static str, String, bool, i64) {
        (ms, phase, String::new(), ready, restarts)
    }

    #[test]
    fn it_starts_gets_ready_and_ends() {
        let plan = Plan { ready_after_ms: 2000, run_ms: Some(5000), ..plan() };
        let expected =
            [line(1000, "Running", false, 0), line(3000, "Running", true, 0), line(6000, "Succeeded", false, 0)];
        assert_eq!(story(Life::admitted(plan.clone(), at(0)), 60_000), expected);
        let failing = story(Life::admitted(Plan { exit_code: 1, ..plan }, at(0)), 60_000);
        assert_eq!(failing[2], line(6000, "Failed", false, 0));
    }

    #[test]
    fn where_the_policy_says_so_it_starts_again() {
        let plan = Plan { run_ms: Some(1000), restart: Restart::OnFailure, ..plan() };
        let done = story(Life::admitted(plan.clone(), at(0)), 60_000);
        assert_eq!(done.last().unwrap(), &line(2000, "Succeeded", false, 0));
        for plan in [Plan { exit_code: 2, ..plan.clone() }, Plan { restart: Restart::Always, ..plan }] {
            let told = story(Life::admitted(plan, at(0)), 14_500);
            let expected = [
                line(1000, "Running", true, 0),
                // The first restart comes at once, the second after ten seconds.
                line(2000, "Running", true, 1),
                line(3000, "Running", false, 2),
                line(13_000, "Running", true, 2),
                line(14_000, "Running", false, 3),
            ];
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn the_deadline_ends_it_at_any_stage() {
        for start_ms in [1000, 9000] {
            let plan = Plan { start_ms, deadline_ms: Some(3000), ..plan() };
            let told = story(Life::admitted(plan, at(0)), 60_000);
            assert_eq!(told.last().unwrap(), &(3000, "Failed", "DeadlineExceeded".to_owned(), false, 0));
        }
    }

    #[test]
    fn stopping_takes_its_time_and_no_more_than_the_grace() {
        let running = || {
            let mut life = Life::admitted(plan(), at(0));
            life.step(at(1000));
            life
        };
        let mut life = running();
        life.stop(30_000, at(2000));
        assert_eq!((life.next_change(), life.sketch()), (Some(at(2500)), None));
        life.step(at(2500));
        let sketch = life.sketch().unwrap();
        let ending = Ending { began: at(1000), ended: at(2500), exit_code: 143 };
        assert_eq!((sketch.phase, sketch.containers), ("Failed", Containers::Ended(ending)));

        let mut life = running();
        life.stop(200, at(2000));
        assert_eq!(life.next_change(), Some(at(2200)), "the grace is shorter");

        let slow = Plan { stop_ms: 60_000, ..plan() };
        let mut life = Life::admitted(slow, at(0));
        life.step(at(1000));
        life.stop(30_000, at(2000));
        life.stop(5000, at(3000));
        assert_eq!(life.next_change(), Some(at(8000)), "the grace was shortened");

        let mut life = Life::admitted(plan(), at(0));
        life.stop(30_000, at(500));
        life.step(at(500));
        assert!(life.is_over(), "nothing had started");
    }

    #[test]
    fn a_late_step_tells_the_times_that_were_due() {
        let mut life = Life::admitted(Plan { run_ms: Some(5000), ..plan() }, at(0));
        life.step(at(3_600_000));
        let ending = Ending { began: at(1000), ended: at(6000), exit_code: 0 };
        assert_eq!(life.sketch().unwrap().containers, Containers::Ended(ending));
    }
}
