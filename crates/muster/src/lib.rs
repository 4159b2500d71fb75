//! The commands of the `muster` program, and what it shares with `muster-lab`: the scheduler thread, the connection to
//! a cluster, logs, signals, exit codes.
//!
//! Must not depend on the playground, the oracle or the simulator: the production binary contains no test code.

pub mod client;
pub mod logs;
pub mod manifests;
pub mod outcome;
pub mod replay;
pub mod run;
pub mod scheduler_thread;
pub mod signals;
