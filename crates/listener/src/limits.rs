//! The limits of a listener.

use std::time::Duration;

/// What the clients of a listener may consume.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections. A new one replaces one that waits for a request.
    pub connections_max: usize,
    /// The most connections from one IP address. A new one replaces one of the same address.
    pub connections_per_peer_max: usize,
    /// How long the TLS handshake and the headers of the first request may take together, and the headers of a further
    /// request from their first byte.
    pub header_deadline: Duration,
    /// How long a body may take, the wait for memory included.
    pub body_deadline: Duration,
    /// How long the answer may take to compute.
    pub answer_deadline: Duration,
    /// How long a connection may take to read its answer, and to begin the next request.
    pub idle_deadline: Duration,
    /// How long requests in progress may take after the listener is stopped.
    pub stop_deadline: Duration,
    /// The largest body.
    pub body_bytes_max: usize,
    /// The memory for all bodies together; at least one body fits.
    pub bodies_bytes_max: usize,
}
