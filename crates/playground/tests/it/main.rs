//! The server as its clients see it.

mod clients;
mod fill;
mod muster_kinds;
mod normal;
mod stories;
