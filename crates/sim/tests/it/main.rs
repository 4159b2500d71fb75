//! Integration tests of the crate's public API.

mod crash_points;
mod rounds;
mod scenarios;
mod storms;
