//! Scenarios: stories about a cluster, played with Muster on the playground or on a real cluster, and judged by what
//! the API shows. Storms: random runs under faults, judged by the rules. Rounds: sets that
//! compete, and are deleted, made again and restarted at random. Tiers: how much of it the tests play.
//!
//! This crate must not know how decisions are made: it writes objects and reads objects.

pub mod rounds;
pub mod scenario;
pub mod storm;
pub mod tier;
