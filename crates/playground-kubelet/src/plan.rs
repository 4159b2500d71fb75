//! How a pod's containers will behave: how long they take to start, run and stop, and how they end.
//!
//! The plan stands in annotations; without them a command `sleep N` says how long it runs.
//! It must not know the clock.

use muster_playground_client::seen::SeenPod;
use serde_json::Value;

use crate::annotations::{
    ALL, EXIT_CODE, KILL_SECONDS, MEETS, PREFIX, READY_AFTER_SECONDS, RUN_SECONDS, START_SECONDS, STOP_SECONDS,
};

/// About thirty years; longer times would be mistakes.
const SECONDS_MAX: f64 = 1e9;
const START_MS: i64 = 1000;
const STOP_MS: i64 = 500;
/// How long the second restart waits; each further one waits twice as long.
const RESTART_WAIT_MS: i64 = 10_000;
const RESTART_WAIT_MS_MAX: i64 = 300_000;

/// Whether containers are started again when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// Pods that work only while all of them are there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Meeting {
    pub(super) name: String,
    pub(super) pods: usize,
}

/// How a pod will behave.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) start_ms: i64,
    /// How long after its start it is ready.
    pub(super) ready_after_ms: i64,
    /// How long it runs; for ever if there is no time.
    pub(super) run_ms: Option<i64>,
    pub(super) stop_ms: i64,
    /// How long it outlasts its grace.
    pub(super) kill_ms: i64,
    pub(super) exit_code: i32,
    pub(super) restart: Restart,
    /// How long the pod may be on its node in all.
    pub(super) deadline_ms: Option<i64>,
    /// Whom it must meet before it works.
    pub(super) meets: Option<Meeting>,
    /// How many times as fast as written all of it happens.
    pub(super) speed: f64,
}

impl Plan {
    /// Reads the plan, or says which annotation is wrong.
    pub(super) fn read(pod: &SeenPod, speed: f64) -> Result<Self, String> {
        let written = Self::written(pod)?;
        let faster = |ms: i64| hastened(ms, speed);
        Ok(Self {
            start_ms: faster(written.start_ms),
            ready_after_ms: faster(written.ready_after_ms),
            run_ms: written.run_ms.map(faster),
            stop_ms: faster(written.stop_ms),
            kill_ms: faster(written.kill_ms),
            deadline_ms: written.deadline_ms.map(faster),
            speed,
            ..written
        })
    }

    fn written(pod: &SeenPod) -> Result<Self, String> {
        let keys = pod.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str());
        if let Some(unknown) = keys.filter(|key| key.starts_with(PREFIX)).find(|key| !ALL.contains(key)) {
            return Err(format!("annotation {unknown}: is not known; known are {}", ALL.join(", ")));
        }
        let asleep_ms = pod.spec["containers"].as_array().into_iter().flatten().filter_map(sleep_ms).max();
        Ok(Self {
            start_ms: time_ms(pod, START_SECONDS)?.unwrap_or(START_MS),
            ready_after_ms: time_ms(pod, READY_AFTER_SECONDS)?.unwrap_or(0),
            run_ms: time_ms(pod, RUN_SECONDS)?.or(asleep_ms),
            stop_ms: time_ms(pod, STOP_SECONDS)?.unwrap_or(STOP_MS),
            kill_ms: time_ms(pod, KILL_SECONDS)?.unwrap_or(0),
            exit_code: exit_code(pod)?,
            restart: match pod.spec["restartPolicy"].as_str() {
                Some("Never") => Restart::Never,
                Some("OnFailure") => Restart::OnFailure,
                _ => Restart::Always,
            },
            deadline_ms: pod.spec["activeDeadlineSeconds"].as_i64().map(|seconds| seconds.saturating_mul(1000)),
            meets: meeting(pod)?,
            speed: 1.0,
        })
    }

    /// How long ended containers wait for their next start, after so many.
    pub(super) fn restart_wait_ms(&self, restarts: i64) -> i64 {
        let wait_ms = match restarts {
            0 => 0,
            before => RESTART_WAIT_MS_MAX.min(RESTART_WAIT_MS << (before - 1).min(8)),
        };
        hastened(wait_ms, self.speed)
    }

    /// How long a pod may take to stop that was given this long.
    pub(super) fn stop_within_ms(&self, grace_ms: i64) -> i64 {
        let grace_ms = hastened(grace_ms, self.speed);
        if self.stop_ms <= grace_ms { self.stop_ms } else { grace_ms.saturating_add(self.kill_ms) }
    }

    /// Whether containers that have ended start again.
    pub(super) fn restarts(&self) -> bool {
        self.restart == Restart::Always || (self.restart == Restart::OnFailure && self.exit_code != 0)
    }
}

/// A time at another speed; what takes time takes a millisecond at least.
fn hastened(ms: i64, speed: f64) -> i64 {
    if ms <= 0 { ms } else { ((ms as f64 / speed).round() as i64).max(1) }
}

fn meeting(pod: &SeenPod) -> Result<Option<Meeting>, String> {
    let Some(text) = annotation(pod, MEETS) else { return Ok(None) };
    let read = text.rsplit_once('/').filter(|(name, _)| !name.is_empty());
    let read = read.and_then(|(name, pods)| Some((name, pods.parse::<u32>().ok().filter(|pods| *pods > 0)?)));
    match read {
        Some((name, pods)) => Ok(Some(Meeting { name: name.to_owned(), pods: pods as usize })),
        None => Err(format!("annotation {MEETS}: {text:?}: must be NAME/COUNT, such as train/8")),
    }
}

fn annotation<'a>(pod: &'a SeenPod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn time_ms(pod: &SeenPod, key: &str) -> Result<Option<i64>, String> {
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

fn exit_code(pod: &SeenPod) -> Result<i32, String> {
    let Some(text) = annotation(pod, EXIT_CODE) else { return Ok(0) };
    match text.parse::<u8>() {
        Ok(code) => Ok(i32::from(code)),
        Err(_) => Err(format!("annotation {EXIT_CODE}: {text:?}: must be an integer from 0 to 255")),
    }
}

/// How long a container sleeps whose command is `sleep N`, also in a shell.
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

    fn plan(annotations: &Value, container: &Value) -> Result<Plan, String> {
        let pod = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [container]}});
        Plan::read(&serde_json::from_value(pod).unwrap(), 1.0)
    }

    #[test]
    fn annotations_say_how_long_and_how_it_ends() {
        let key = |name: &str| format!("playground.muster.dev/{name}");
        let read = plan(
            &json!({key("start-seconds"): "0", key("ready-after-seconds"): "2.5", key("run-seconds"): "60",
                    key("stop-seconds"): "0.25", key("exit-code"): "3"}),
            &json!({"command": ["sleep", "5"]}),
        );
        let read = read.unwrap();
        assert_eq!((read.start_ms, read.ready_after_ms, read.run_ms), (0, 2500, Some(60_000)));
        assert_eq!((read.stop_ms, read.exit_code, read.restarts()), (250, 3, true));
    }

    #[test]
    fn a_key_that_is_not_known_is_refused() {
        let why = plan(&json!({"playground.muster.dev/run-second": "5"}), &json!({})).unwrap_err();
        assert!(why.contains("playground.muster.dev/run-second: is not known"), "{why}");
        assert!(plan(&json!({"example.com/run-second": "5"}), &json!({})).is_ok());
    }

    #[test]
    fn a_sleep_says_how_long_it_runs() {
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
            assert_eq!(plan(&json!({}), &container).unwrap().run_ms, expected, "{container}");
        }
    }

    #[test]
    fn everything_is_hastened_alike() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"activeDeadlineSeconds": 60,
            "containers": [{"command": ["sleep", "30"]}]}});
        let read = Plan::read(&serde_json::from_value(pod).unwrap(), 10.0).unwrap();
        assert_eq!((read.start_ms, read.ready_after_ms, read.run_ms), (100, 0, Some(3000)));
        assert_eq!((read.stop_ms, read.deadline_ms), (50, Some(6000)));
        assert_eq!((read.stop_within_ms(200), read.stop_within_ms(30_000)), (20, 50));
        let stubborn = Plan { kill_ms: 500, ..read.clone() };
        assert_eq!((stubborn.stop_within_ms(200), stubborn.stop_within_ms(30_000)), (520, 50));
        assert_eq!((read.restart_wait_ms(0), read.restart_wait_ms(1), read.restart_wait_ms(99)), (0, 1000, 30_000));
    }

    #[test]
    fn a_meeting_has_a_name_and_a_count() {
        let read = plan(&json!({"playground.muster.dev/meets": "a/b/12"}), &json!({})).unwrap();
        assert_eq!(read.meets, Some(Meeting { name: "a/b".to_owned(), pods: 12 }));
    }

    #[test]
    fn a_bad_annotation_is_named_with_its_value() {
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
            let error = plan(&json!({&key: value}), &json!({})).unwrap_err();
            assert!(error.starts_with(&format!("annotation {key}: {value:?}: must be")), "{error}");
        }
    }
}
