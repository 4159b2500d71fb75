//! The commands of the `muster` program, and what it shares with `muster-lab`: the scheduler in a thread, the connection
//! to a cluster, logs, signals, exit codes.
//!
//! It must not know the playground, the oracle or the simulator: what a cluster runs contains no test bench.

pub mod client;
pub mod logs;
pub mod manifests;
pub mod outcome;
pub mod replay;
pub mod run;
pub mod scheduler_thread;
pub mod signals;
