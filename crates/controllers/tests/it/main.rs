//! The controllers on the playground's server, with its small controllers of Jobs, JobSets and LeaderWorkerSets.

mod faults;
mod native;
mod world;
