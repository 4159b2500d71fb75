//! The HTTP/1.1 server, with limits on everything that a client can consume.
//!
//! Slow headers, slow bodies and clients that do not read their responses are cut off; connections and large bodies are
//! bounded in number. Invariant: no client holds a task or memory for longer than the limits allow. Must not depend on
//! what requests mean.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::body::BODY_SIZE_MAX;
use super::origin;
use super::status_error::StatusError;
use super::write_timeout::WriteTimeout;
use super::{Server, error_response};

/// Limits for clients on a socket.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections; more are answered with 429 and closed.
    pub connections_max: usize,
    /// The most bytes of a request line and headers.
    pub header_size_max: usize,
    /// How long a connection may take until the end of a request's headers, from its start or the last response.
    pub header_time_max: Duration,
    /// How long a body may take.
    pub body_time_max: Duration,
    /// How long a write to a client may make no progress.
    pub write_time_max: Duration,
    /// How long requests in flight may take when the server stops.
    pub stop_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 512,
            header_size_max: 64 * 1024,
            header_time_max: Duration::from_secs(90),
            body_time_max: Duration::from_secs(30),
            write_time_max: Duration::from_secs(30),
            stop_time_max: Duration::from_secs(5),
        }
    }
}

/// Connections beyond the limit that get a 429; more are closed without a response.
const REJECTED_MAX: usize = 64;
/// Bodies above this size, or of unknown size, are bounded in number.
const SMALL_BODY: u64 = 64 * 1024;
const LARGE_BODIES_MAX: usize = 32;
/// The read and write buffer of each connection.
const BUFFER_SIZE: usize = 128 * 1024;
/// How long to wait when the system is out of resources for a connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

struct HttpServer {
    server: Server,
    limits: Limits,
    slots: Arc<Semaphore>,
    rejections: Arc<Semaphore>,
    large_bodies: Semaphore,
    stopping: watch::Sender<bool>,
}

/// Serves until `stop` resolves: then watches end, requests in flight are completed, and all connections are closed.
pub(super) async fn serve(server: Server, listener: TcpListener, limits: Limits, stop: impl Future<Output = ()>) {
    let http_server = Arc::new(HttpServer {
        server,
        limits,
        slots: Arc::new(Semaphore::new(limits.connections_max)),
        rejections: Arc::new(Semaphore::new(REJECTED_MAX)),
        large_bodies: Semaphore::new(LARGE_BODIES_MAX),
        stopping: watch::Sender::new(false),
    });
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if let Some(slot) = http_server.acquire_slot() {
                        connections.spawn(Arc::clone(&http_server).serve_connection(stream, slot));
                    }
                }
                Err(error) if is_connection_error(&error) => {}
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
        }
    }
    drop(listener);
    http_server.stopping.send_replace(true);
    let all_gone = async { while connections.join_next().await.is_some() {} };
    // The rest is aborted when the set is dropped.
    let _ = tokio::time::timeout(limits.stop_time_max, all_gone).await;
}

/// Whether the client disconnected before it was accepted.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The slot of a connection, and whether its requests are rejected.
struct ConnectionSlot {
    _permit: OwnedSemaphorePermit,
    is_rejected: bool,
}

impl HttpServer {
    fn acquire_slot(&self) -> Option<ConnectionSlot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned();
        let is_rejected = permit.is_err();
        let permit = permit.or_else(|_| Arc::clone(&self.rejections).try_acquire_owned()).ok()?;
        Some(ConnectionSlot { _permit: permit, is_rejected })
    }

    /// Serves one connection.
    async fn serve_connection(self: Arc<Self>, stream: TcpStream, slot: ConnectionSlot) {
        // Responses are written whole, so delaying small packets has no benefit. Failing to set the option is harmless.
        let _ = stream.set_nodelay(true);
        let http_server = &self;
        let is_loopback = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let service = service_fn(move |request: Request<Incoming>| async move {
            let response = match origin::check(request.headers()) {
                _ if slot.is_rejected => http_server.too_many_connections(),
                Err(failure) if is_loopback => closing(&failure),
                _ => http_server.answer(request).await,
            };
            Ok::<_, Infallible>(response)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_time_max)
            .max_header_size(self.limits.header_size_max)
            .max_buf_size(BUFFER_SIZE.max(self.limits.header_size_max))
            .serve_connection(TokioIo::new(WriteTimeout::new(stream, self.limits.write_time_max)), service);
        let mut connection = pin!(connection);
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            biased;
            // It does not matter how the client ends a connection.
            _ = connection.as_mut() => return,
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }

    fn too_many_connections(&self) -> Response<Body> {
        let message = format!("there are {} connections already, please try again later", self.limits.connections_max);
        closing(&StatusError::too_many_requests(message, 1))
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let bytes = match self.read(body).await {
            Ok(bytes) => bytes,
            Err(failure) => return closing(&failure),
        };
        let response = self.server.answer(Request::from_parts(parts, Full::new(bytes))).await;
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        let mut stopping = self.stopping.subscribe();
        let stopped = async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
        };
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(stopped))))
    }

    /// The whole body, if it arrives in time and is not too large.
    async fn read(&self, body: Incoming) -> Result<Bytes, StatusError> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let size = body.size_hint();
        let too_large = || StatusError::entity_too_large(format!("limit is {BODY_SIZE_MAX}"));
        if size.lower() > BODY_SIZE_MAX as u64 {
            return Err(too_large());
        }
        let reading = async {
            let _permit = match size.upper() {
                Some(size) if size <= SMALL_BODY => None,
                _ => self.large_bodies.acquire().await.ok(),
            };
            Limited::new(body, BODY_SIZE_MAX).collect().await
        };
        match tokio::time::timeout(self.limits.body_time_max, reading).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(error)) => Err(StatusError::bad_request(format!("the body cannot be read: {error}"))),
            Err(_) => Err(StatusError::body_timed_out(self.limits.body_time_max)),
        }
    }
}

/// An error after which the connection is closed.
fn closing(failure: &StatusError) -> Response<Body> {
    let mut response = error_response(failure);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
