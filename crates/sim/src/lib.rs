//! End-to-end tests of Muster against an API server.
//!
//! - `scenario`: scripted test cases in YAML, run on the playground or on a real cluster and checked against the API.
//! - `storm`: random runs under fault injection, checked against scheduling invariants.
//! - `rounds`: JobSets and LeaderWorkerSets that compete for capacity and are deleted, recreated and restarted at
//!   random.
//! - `crash_points`: crashes at every single write of a start with volumes.
//! - `tier`: how much of this a test run covers.
//!
//! Must not depend on how decisions are made: it only writes and reads API objects.

pub mod crash_points;
pub mod rounds;
pub mod scenario;
pub mod storm;
pub mod tier;
