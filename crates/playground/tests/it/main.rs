//! The server as its clients see it.

mod clients;
mod fill;
mod normal;
mod stories;
