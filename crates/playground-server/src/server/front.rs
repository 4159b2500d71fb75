//! The server on a socket: HTTP/1.1 with a bound on everything that a client can take.
//!
//! Slow headers, slow bodies and clients that do not read what they asked for are cut off; there are so many
//! connections and so many large bodies at once. Invariant: no client, whatever it does, holds a task or memory for
//! longer than the limits say. It must not know what requests mean.

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
use super::failure::Failure;
use super::origin;
use super::patient::Patient;
use super::{Server, failed};

/// What clients on a socket may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many connections there may be; more are answered with 429 and closed.
    pub connections_max: usize,
    /// The most bytes of a request's first line and headers.
    pub header_size_max: usize,
    /// How long a connection may wait for the end of a request's headers, from its beginning or the last answer.
    pub header_time_max: Duration,
    /// How long a body may take.
    pub body_time_max: Duration,
    /// How long a client may take nothing of what is written to it.
    pub write_time_max: Duration,
    /// How long requests that are under way may take when the server stops.
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

/// Connections beyond the limit that are told so; those beyond that are closed without a word.
const REFUSED_AT_ONCE: usize = 64;
/// A body above this size, or of unknown size, takes one of a few places.
const SMALL_BODY: u64 = 64 * 1024;
const LARGE_BODIES_AT_ONCE: usize = 32;
/// How much of what is read or written waits in memory for each connection.
const BUFFER_SIZE: usize = 128 * 1024;
/// How long to wait when the system has no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

struct Front {
    server: Server,
    limits: Limits,
    places: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    large_bodies: Semaphore,
    stopping: watch::Sender<bool>,
}

/// Serves until `stop` is done: then watches end, requests under way are finished, and all is closed.
pub(super) async fn serve(server: Server, listener: TcpListener, limits: Limits, stop: impl Future<Output = ()>) {
    let front = Arc::new(Front {
        server,
        limits,
        places: Arc::new(Semaphore::new(limits.connections_max)),
        refusals: Arc::new(Semaphore::new(REFUSED_AT_ONCE)),
        large_bodies: Semaphore::new(LARGE_BODIES_AT_ONCE),
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
                    if let Some(guest) = front.admit() {
                        connections.spawn(Arc::clone(&front).attend(stream, guest));
                    }
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    front.stopping.send_replace(true);
    let all_gone = async { while connections.join_next().await.is_some() {} };
    // What is left then is cut off when the set is dropped.
    let _ = tokio::time::timeout(limits.stop_time_max, all_gone).await;
}

/// Whether the client went away before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// A connection's place, and whether it is there to be refused.
struct Guest {
    _place: OwnedSemaphorePermit,
    refused: bool,
}

impl Front {
    fn admit(&self) -> Option<Guest> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let refused = place.is_err();
        let place = place.or_else(|_| Arc::clone(&self.refusals).try_acquire_owned()).ok()?;
        Some(Guest { _place: place, refused })
    }

    /// One connection, from its first request to its last.
    async fn attend(self: Arc<Self>, stream: TcpStream, guest: Guest) {
        // Answers are written whole: waiting for more only delays them. A socket that cannot is as good as any.
        let _ = stream.set_nodelay(true);
        let front = &self;
        let is_loopback = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let service = service_fn(move |request: Request<Incoming>| async move {
            let response = match origin::check(request.headers()) {
                _ if guest.refused => front.turn_away(),
                Err(failure) if is_loopback => closing(&failure),
                _ => front.answer(request).await,
            };
            Ok::<_, Infallible>(response)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_time_max)
            .max_header_size(self.limits.header_size_max)
            .max_buf_size(BUFFER_SIZE.max(self.limits.header_size_max))
            .serve_connection(TokioIo::new(Patient::new(stream, self.limits.write_time_max)), service);
        let mut connection = pin!(connection);
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            biased;
            // How a connection ends is the client's business.
            _ = connection.as_mut() => return,
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }

    fn turn_away(&self) -> Response<Body> {
        let message = format!("there are {} connections already, please try again later", self.limits.connections_max);
        closing(&Failure::too_many_requests(message, 1))
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

    /// The whole body, if it comes in time and is not too large.
    async fn read(&self, body: Incoming) -> Result<Bytes, Failure> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let size = body.size_hint();
        let too_large = || Failure::entity_too_large(format!("limit is {BODY_SIZE_MAX}"));
        if size.lower() > BODY_SIZE_MAX as u64 {
            return Err(too_large());
        }
        let reading = async {
            let _place = match size.upper() {
                Some(size) if size <= SMALL_BODY => None,
                _ => self.large_bodies.acquire().await.ok(),
            };
            Limited::new(body, BODY_SIZE_MAX).collect().await
        };
        match tokio::time::timeout(self.limits.body_time_max, reading).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(error)) => Err(Failure::bad_request(format!("the body cannot be read: {error}"))),
            Err(_) => Err(Failure::body_timed_out(self.limits.body_time_max)),
        }
    }
}

/// A refusal after which the connection is closed.
fn closing(failure: &Failure) -> Response<Body> {
    let mut response = failed(failure);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
