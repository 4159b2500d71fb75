//! The engine against slow exact answers, on thousands of small random clusters.
//!
//! Every random case has a seed, printed when it fails; `MUSTER_SEED=<seed>` runs that case alone,
//! `MUSTER_TIMES=<n>` runs n times as many.

mod enumeration;
mod instance;
mod like_groups;
mod mixed_groups;
mod nominations;
mod play;
mod preemption;
mod scores;
