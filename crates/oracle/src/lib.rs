//! Slow exact answers, for tests and benchmarks only.
//!
//! [`naive`] schedules pod by pod as kube-scheduler 1.37 does, [`brute`] says whether a group can be placed at all,
//! [`victims`] whom to evict for it at least, [`random`] makes the instances that both are asked about. What is here was written from Kubernetes' own code and
//! must not call the engine's decisions, filters or scores: two ways to the same answer are worth something only if
//! they have nothing in common but the question. The engine's model types are that question.

pub mod brute;
pub mod naive;
pub mod random;
pub mod seeds;
pub mod victims;
