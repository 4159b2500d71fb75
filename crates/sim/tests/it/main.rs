//! Tests of the crate as its users see it.

mod scenarios;
mod storms;
