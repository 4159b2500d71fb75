//! The server as its clients see it.

mod clients;
mod faulty;
mod fill;
mod garbage;
mod model;
mod muster_kinds;
mod normal;
mod stories;
mod watch_checker;
