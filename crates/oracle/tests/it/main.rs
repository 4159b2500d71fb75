//! Compares the engine with slow exact reference implementations on thousands of small random clusters.
//!
//! Every random case has a seed, printed when it fails; `MUSTER_SEED=<seed>` runs only that case, `MUSTER_TIMES=<n>`
//! runs n times as many.

mod engine_run;
mod enumeration;
mod identical_pods;
mod instance;
mod mingled;
mod mixed_groups;
mod nominations;
mod packing;
mod planted;
mod preemption;
mod scores;
