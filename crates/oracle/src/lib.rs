//! Slow exact reference implementations, for tests and benchmarks only.
//!
//! [`naive`] schedules pod by pod like kube-scheduler 1.37, [`brute`] and, for larger groups, [`by_counts`] decide
//! whether a group can be placed at all, [`parts`] whether its slices can be, [`planted`] makes groups that can,
//! [`victims`] computes the cheapest victims, and [`random`] generates instances. Everything here was written from the
//! code of Kubernetes. Must not depend on the engine's decisions, filters or scores: a comparison proves something only
//! if both sides share nothing but the problem, which is given by the engine's model types.

pub mod brute;
pub mod by_counts;
pub mod naive;
pub mod parts;
pub mod planted;
pub mod random;
pub mod seeds;
pub mod victims;
