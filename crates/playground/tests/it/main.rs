//! The server as its clients see it.

mod clients;
mod faulty;
mod fill;
mod normal;
mod stories;
