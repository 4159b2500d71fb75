//! The annotations that set how the simulated containers of a pod behave.
//!
//! Times are seconds with an optional fraction. An unknown key with this prefix or an unreadable value fails the pod
//! with the reason `InvalidPlaygroundAnnotation`: a simulation that silently does something else is useless.

/// The prefix of all keys.
pub const PREFIX: &str = "playground.muster.dev/";
/// How long the containers take to start; default 1.
pub const START_SECONDS: &str = "playground.muster.dev/start-seconds";
/// How long after its start the pod becomes ready; default 0.
pub const READY_AFTER_SECONDS: &str = "playground.muster.dev/ready-after-seconds";
/// How long the containers run. Default: the duration of a command `sleep N`, otherwise forever.
pub const RUN_SECONDS: &str = "playground.muster.dev/run-seconds";
/// How long the containers take to stop, at most the grace period; default 0.5.
pub const STOP_SECONDS: &str = "playground.muster.dev/stop-seconds";
/// How long containers that exceed the grace period take to end after SIGKILL, like a process that hangs in the kernel;
/// default 0.
pub const KILL_SECONDS: &str = "playground.muster.dev/kill-seconds";
/// The exit code of the containers, 0 to 255; default 0. Depending on the pod's `restartPolicy` the pod then succeeds,
/// fails or restarts its containers.
pub const EXIT_CODE: &str = "playground.muster.dev/exit-code";

/// The pod makes progress only together with others: the time of [`RUN_SECONDS`] starts when this many pods of its
/// namespace with the same rendezvous name run at once. The format is `NAME/COUNT`, such as `train/8`.
pub const RENDEZVOUS: &str = "playground.muster.dev/meets";

/// All keys.
pub const ALL: [&str; 7] =
    [START_SECONDS, READY_AFTER_SECONDS, RUN_SECONDS, STOP_SECONDS, KILL_SECONDS, EXIT_CODE, RENDEZVOUS];
