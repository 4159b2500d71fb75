//! The server as its clients see it.

mod clients;
mod faulty;
mod fill;
mod garbage;
mod model;
mod normal;
mod stories;
mod watch_checker;
