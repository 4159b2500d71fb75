//! Integration tests of the crate's public API.

mod rounds;
mod scenarios;
mod storms;
