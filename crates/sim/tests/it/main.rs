//! Tests of the crate as its users see it.

mod rounds;
mod scenarios;
mod storms;
