//! The simulated behavior of a pod's containers: how long they take to start, run and stop, and how they exit.
//!
//! It is read from annotations; without them a command `sleep N` sets the run time.
//! Must not depend on the clock.

use muster_playground_client::untyped::UntypedPod;
use serde_json::Value;

use crate::annotations::{
    ALL, EXIT_CODE, KILL_SECONDS, PREFIX, READY_AFTER_SECONDS, RENDEZVOUS, RUN_SECONDS, START_SECONDS, STOP_SECONDS,
};

/// About thirty years; longer times are taken for mistakes.
const SECONDS_MAX: f64 = 1e9;
const START_MS: i64 = 1000;
const STOP_MS: i64 = 500;
/// The back-off before the second restart; it doubles with each further restart.
const RESTART_WAIT_MS: i64 = 10_000;
const RESTART_WAIT_MS_MAX: i64 = 300_000;

/// Whether containers are restarted when they exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// A rendezvous: pods that make progress only while all of them run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rendezvous {
    pub(super) name: String,
    pub(super) pods: usize,
}

/// How the containers of a pod behave.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Behavior {
    pub(super) start_ms: i64,
    /// How long after its start the pod becomes ready.
    pub(super) ready_after_ms: i64,
    /// How long the containers run; forever if absent.
    pub(super) run_ms: Option<i64>,
    pub(super) stop_ms: i64,
    /// How long the pod exceeds its grace period after SIGKILL.
    pub(super) kill_ms: i64,
    pub(super) exit_code: i32,
    pub(super) restart: Restart,
    /// How long the pod may be active on its node (`activeDeadlineSeconds`).
    pub(super) deadline_ms: Option<i64>,
    /// The rendezvous that has to be complete before the pod makes progress.
    pub(super) rendezvous: Option<Rendezvous>,
    /// The speed-up factor of all times.
    pub(super) speed: f64,
}

impl Behavior {
    /// Reads the behavior, or returns which annotation is invalid.
    pub(super) fn read(pod: &UntypedPod, speed: f64) -> Result<Self, String> {
        let unscaled = Self::unscaled(pod)?;
        let scale = |ms: i64| scaled(ms, speed);
        Ok(Self {
            start_ms: scale(unscaled.start_ms),
            ready_after_ms: scale(unscaled.ready_after_ms),
            run_ms: unscaled.run_ms.map(scale),
            stop_ms: scale(unscaled.stop_ms),
            kill_ms: scale(unscaled.kill_ms),
            deadline_ms: unscaled.deadline_ms.map(scale),
            speed,
            ..unscaled
        })
    }

    fn unscaled(pod: &UntypedPod) -> Result<Self, String> {
        let keys = pod.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str());
        if let Some(unknown) = keys.filter(|key| key.starts_with(PREFIX)).find(|key| !ALL.contains(key)) {
            return Err(format!("annotation {unknown}: is not known; known are {}", ALL.join(", ")));
        }
        let sleep_ms = pod.spec["containers"].as_array().into_iter().flatten().filter_map(sleep_ms).max();
        Ok(Self {
            start_ms: time_ms(pod, START_SECONDS)?.unwrap_or(START_MS),
            ready_after_ms: time_ms(pod, READY_AFTER_SECONDS)?.unwrap_or(0),
            run_ms: time_ms(pod, RUN_SECONDS)?.or(sleep_ms),
            stop_ms: time_ms(pod, STOP_SECONDS)?.unwrap_or(STOP_MS),
            kill_ms: time_ms(pod, KILL_SECONDS)?.unwrap_or(0),
            exit_code: exit_code(pod)?,
            restart: match pod.spec["restartPolicy"].as_str() {
                Some("Never") => Restart::Never,
                Some("OnFailure") => Restart::OnFailure,
                _ => Restart::Always,
            },
            deadline_ms: pod.spec["activeDeadlineSeconds"].as_i64().map(|seconds| seconds.saturating_mul(1000)),
            rendezvous: rendezvous(pod)?,
            speed: 1.0,
        })
    }

    /// The back-off before the next restart, after this many restarts.
    pub(super) fn restart_wait_ms(&self, restarts: i64) -> i64 {
        let wait_ms = match restarts {
            0 => 0,
            before => RESTART_WAIT_MS_MAX.min(RESTART_WAIT_MS << (before - 1).min(8)),
        };
        scaled(wait_ms, self.speed)
    }

    /// How long the pod takes to stop with this grace period.
    pub(super) fn stop_within_ms(&self, grace_ms: i64) -> i64 {
        let grace_ms = scaled(grace_ms, self.speed);
        if self.stop_ms <= grace_ms { self.stop_ms } else { grace_ms.saturating_add(self.kill_ms) }
    }

    /// Whether containers that have exited are restarted.
    pub(super) fn restarts(&self) -> bool {
        self.restart == Restart::Always || (self.restart == Restart::OnFailure && self.exit_code != 0)
    }
}

/// Divides a time by the speed-up factor; a positive time stays at least one millisecond.
fn scaled(ms: i64, speed: f64) -> i64 {
    if ms <= 0 { ms } else { ((ms as f64 / speed).round() as i64).max(1) }
}

fn rendezvous(pod: &UntypedPod) -> Result<Option<Rendezvous>, String> {
    let Some(text) = annotation(pod, RENDEZVOUS) else { return Ok(None) };
    let read = text.rsplit_once('/').filter(|(name, _)| !name.is_empty());
    let read = read.and_then(|(name, pods)| Some((name, pods.parse::<u32>().ok().filter(|pods| *pods > 0)?)));
    match read {
        Some((name, pods)) => Ok(Some(Rendezvous { name: name.to_owned(), pods: pods as usize })),
        None => Err(format!("annotation {RENDEZVOUS}: {text:?}: must be NAME/COUNT, such as train/8")),
    }
}

fn annotation<'a>(pod: &'a UntypedPod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn time_ms(pod: &UntypedPod, key: &str) -> Result<Option<i64>, String> {
    let Some(text) = annotation(pod, key) else { return Ok(None) };
    match seconds_ms(text) {
        Some(ms) => Ok(Some(ms)),
        None => Err(format!("annotation {key}: {text:?}: must be a number of seconds from 0 to 1000000000")),
    }
}

fn seconds_ms(text: &str) -> Option<i64> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))?;
    Some((seconds * 1000.0).round() as i64)
}

fn exit_code(pod: &UntypedPod) -> Result<i32, String> {
    let Some(text) = annotation(pod, EXIT_CODE) else { return Ok(0) };
    match text.parse::<u8>() {
        Ok(code) => Ok(i32::from(code)),
        Err(_) => Err(format!("annotation {EXIT_CODE}: {text:?}: must be an integer from 0 to 255")),
    }
}

/// The run time of a container with the command `sleep N`, also in a shell.
fn sleep_ms(container: &Value) -> Option<i64> {
    let words = |field: &str| container[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<&str> = words("command").chain(words("args")).collect();
    match &*words {
        ["sleep" | "/bin/sleep", seconds] => seconds_ms(seconds.trim_end_matches('s')),
        ["sh" | "/bin/sh" | "bash" | "/bin/bash", "-c", script] => {
            let script: Vec<&str> = script.split_whitespace().collect();
            let script = script.strip_prefix(&["exec"]).unwrap_or(&script);
            match script {
                ["sleep" | "/bin/sleep", seconds] => seconds_ms(seconds.trim_end_matches('s')),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn behavior(annotations: &Value, container: &Value) -> Result<Behavior, String> {
        let pod = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [container]}});
        Behavior::read(&serde_json::from_value(pod).unwrap(), 1.0)
    }

    #[test]
    fn annotations_set_times_and_exit_code() {
        let key = |name: &str| format!("playground.muster.dev/{name}");
        let read = behavior(
            &json!({key("start-seconds"): "0", key("ready-after-seconds"): "2.5", key("run-seconds"): "60",
                    key("stop-seconds"): "0.25", key("exit-code"): "3"}),
            &json!({"command": ["sleep", "5"]}),
        );
        let read = read.unwrap();
        assert_eq!((read.start_ms, read.ready_after_ms, read.run_ms), (0, 2500, Some(60_000)));
        assert_eq!((read.stop_ms, read.exit_code, read.restarts()), (250, 3, true));
    }

    #[test]
    fn unknown_annotation_is_rejected() {
        let why = behavior(&json!({"playground.muster.dev/run-second": "5"}), &json!({})).unwrap_err();
        assert!(why.contains("playground.muster.dev/run-second: is not known"), "{why}");
        assert!(behavior(&json!({"example.com/run-second": "5"}), &json!({})).is_ok());
    }

    #[test]
    fn sleep_command_sets_the_run_time() {
        for (container, expected) in [
            (json!({"command": ["sleep", "5"]}), Some(5000)),
            (json!({"command": ["sleep"], "args": ["1.5"]}), Some(1500)),
            (json!({"args": ["sleep", "7s"]}), Some(7000)),
            (json!({"command": ["sh", "-c", "sleep 9"]}), Some(9000)),
            (json!({"command": ["/bin/sh", "-c"], "args": ["exec sleep 9"]}), Some(9000)),
            (json!({"command": ["sh", "-c", "sleep 9; echo done"]}), None),
            (json!({"command": ["sleep", "infinity"]}), None),
            (json!({}), None),
        ] {
            assert_eq!(behavior(&json!({}), &container).unwrap().run_ms, expected, "{container}");
        }
    }

    #[test]
    fn speed_scales_all_times() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"activeDeadlineSeconds": 60,
            "containers": [{"command": ["sleep", "30"]}]}});
        let read = Behavior::read(&serde_json::from_value(pod).unwrap(), 10.0).unwrap();
        assert_eq!((read.start_ms, read.ready_after_ms, read.run_ms), (100, 0, Some(3000)));
        assert_eq!((read.stop_ms, read.deadline_ms), (50, Some(6000)));
        assert_eq!((read.stop_within_ms(200), read.stop_within_ms(30_000)), (20, 50));
        let stubborn = Behavior { kill_ms: 500, ..read.clone() };
        assert_eq!((stubborn.stop_within_ms(200), stubborn.stop_within_ms(30_000)), (520, 50));
        assert_eq!((read.restart_wait_ms(0), read.restart_wait_ms(1), read.restart_wait_ms(99)), (0, 1000, 30_000));
    }

    #[test]
    fn rendezvous_has_a_name_and_a_count() {
        let read = behavior(&json!({"playground.muster.dev/meets": "a/b/12"}), &json!({})).unwrap();
        assert_eq!(read.rendezvous, Some(Rendezvous { name: "a/b".to_owned(), pods: 12 }));
    }

    #[test]
    fn error_names_annotation_and_value() {
        for (name, value) in [
            ("run-seconds", "soon"),
            ("run-seconds", "-1"),
            ("run-seconds", "NaN"),
            ("start-seconds", "1e10"),
            ("stop-seconds", ""),
            ("kill-seconds", "late"),
            ("exit-code", "256"),
            ("exit-code", "-1"),
            ("meets", "train"),
            ("meets", "/8"),
            ("meets", "train/0"),
        ] {
            let key = format!("playground.muster.dev/{name}");
            let error = behavior(&json!({&key: value}), &json!({})).unwrap_err();
            assert!(error.starts_with(&format!("annotation {key}: {value:?}: must be")), "{error}");
        }
    }
}
