//! The annotations with which a pod says how its simulated containers behave.
//!
//! Times are seconds with an optional fraction. An unknown key with this prefix, or a value that cannot be read, fails
//! the pod with the reason `InvalidPlaygroundAnnotation`: a simulation that quietly does something else is of no use.

/// What all keys begin with.
pub const PREFIX: &str = "playground.muster.dev/";
/// How long the containers take to start; 1 if it is left out.
pub const START_SECONDS: &str = "playground.muster.dev/start-seconds";
/// How long after its start the pod is ready; 0 if it is left out.
pub const READY_AFTER_SECONDS: &str = "playground.muster.dev/ready-after-seconds";
/// How long the containers run. Without it a command `sleep N` says so, and else they run for ever.
pub const RUN_SECONDS: &str = "playground.muster.dev/run-seconds";
/// How long the containers take to stop, at most the grace period; 0.5 if it is left out.
pub const STOP_SECONDS: &str = "playground.muster.dev/stop-seconds";
/// How long containers that outlast the grace period take to end when they are killed, as a process does that hangs in
/// the kernel; 0 if it is left out.
pub const KILL_SECONDS: &str = "playground.muster.dev/kill-seconds";
/// What the containers end with, 0 to 255; 0 if it is left out. By the pod's `restartPolicy` the pod then has
/// succeeded or failed, or its containers start again.
pub const EXIT_CODE: &str = "playground.muster.dev/exit-code";

/// The pod works only together with others: the time of [`RUN_SECONDS`] begins when so many pods of its namespace that
/// name the same meeting run at once. Written as `NAME/COUNT`, such as `train/8`.
pub const MEETS: &str = "playground.muster.dev/meets";

/// All keys.
pub const ALL: [&str; 7] =
    [START_SECONDS, READY_AFTER_SECONDS, RUN_SECONDS, STOP_SECONDS, KILL_SECONDS, EXIT_CODE, MEETS];
