//! Slow exact reference implementations, for tests and benchmarks only.
//!
//! [`naive`] schedules pod by pod like kube-scheduler 1.37, [`brute`] decides whether a group can be placed at all,
//! [`victims`] computes the cheapest victims for it, [`parts`] decides whether its slices can be placed, and [`random`]
//! generates instances. Everything here was written
//! from the code of Kubernetes. Must not depend on the engine's decisions, filters or scores: a comparison proves
//! something only if both sides share nothing but the problem, which is given by the engine's model types.

pub mod brute;
pub mod naive;
pub mod parts;
pub mod random;
pub mod seeds;
pub mod victims;
