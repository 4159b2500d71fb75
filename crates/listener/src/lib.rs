//! HTTP listeners on threads of their own, with limits on what clients can consume.
//!
//! A client that sends slowly, never finishes, or opens many connections is cut off in favour of others: connections
//! that wait for a request give way to new ones, and unfinished bodies to bodies that wait for memory.
//!
//! Must not depend on Kubernetes or on what requests mean.

mod activity;
mod body;
mod byte_budget;
mod connection;
mod connection_table;
mod limits;
mod observed_stream;
mod server;
#[cfg(test)]
mod tests;
mod thread;
mod throttled_log;
pub mod tls;

pub use limits::Limits;
pub use server::{Peer, Transport};
pub use thread::ListenerThread;
pub use throttled_log::ThrottledLog;
