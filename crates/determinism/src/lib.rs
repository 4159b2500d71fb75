//! Randomness as a value, so that a seeded run repeats exactly.
//!
//! Must not depend on Kubernetes, I/O or any other crate of this repository.

pub mod random;
