//! Time and randomness as values, so that a seeded run repeats exactly.
//!
//! A [`clock::Clock`] counts with tokio, so that paused time moves it; a [`random::Random`] is determined by its seed.
//! Must not depend on Kubernetes, I/O or any other crate of this repository.

pub mod clock;
pub mod random;
