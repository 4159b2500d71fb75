//! One connection of a listener: TLS, requests and their answers, until a deadline, an eviction or the end.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::Service as _;

use crate::activity::{Connection, Phase};
use crate::body::{self, CompleteBody};
use crate::connection_table::Slot;
use crate::observed_stream::ObservedStream;
use crate::server::{Listener, Peer, Transport};

/// The most bytes of a request line and headers.
const HEADER_BYTES_MAX: usize = 32 << 10;
/// The read and write buffer of a connection.
const BUFFER_BYTES_MAX: usize = 64 << 10;

type ConnectionError = Box<dyn Error + Send + Sync>;

/// Serves a connection until it ends. It is closed after the request in progress when `stop` is dropped.
pub(crate) async fn run<S>(listener: Arc<Listener>, slot: Slot, stream: S, stop: watch::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = &slot.connection;
    let name = listener.name;
    tokio::select! {
        served = shake_hands(&listener, connection, stream, stop) => if let Err(error) = served {
            tracing::debug!(listener = name, peer = %connection.peer, %error, "a connection failed");
        },
        phase = connection.overdue(&listener.limits) => {
            tracing::debug!(listener = name, peer = %connection.peer, ?phase, "a connection was closed");
        }
    }
}

async fn shake_hands<S>(
    listener: &Arc<Listener>,
    connection: &Arc<Connection>,
    stream: S,
    mut stop: watch::Receiver<()>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match &listener.transport {
        Transport::Plain => serve(listener, connection, stream, stop).await,
        Transport::Tls(acceptor) => {
            let stream = tokio::select! {
                shaken = acceptor.accept(stream) => shaken?,
                _ = stop.changed() => return Ok(()),
            };
            serve(listener, connection, stream, stop).await
        }
    }
}

async fn serve<S>(
    listener: &Arc<Listener>,
    connection: &Arc<Connection>,
    stream: S,
    mut stop: watch::Receiver<()>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = ObservedStream { stream, connection: Arc::clone(connection) };
    let service = service_fn(async |request| Ok::<_, Infallible>(answer(listener, connection, request).await));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        // The deadlines depend on the activity of the connection.
        .header_read_timeout(None)
        .max_header_size(HEADER_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        served = serving.as_mut() => return Ok(served?),
        _ = stop.changed() => serving.as_mut().graceful_shutdown(),
    }
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the request did not finish in time after the stop");
    timeout(listener.limits.stop_deadline, serving).await.map_err(|_| late())??;
    Ok(())
}

async fn answer(listener: &Listener, connection: &Connection, request: Request<Incoming>) -> Response {
    connection.enter(Phase::Body);
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(Peer(connection.peer));
    let response = match body::read(body, connection.peer, &listener.limits, &listener.budget).await {
        Ok(CompleteBody { bytes, reservation }) => {
            connection.enter(Phase::Answering);
            let request = Request::from_parts(parts, Body::from(bytes));
            let Ok(response) = listener.router.clone().call(request).await;
            drop(reservation);
            response
        }
        Err(refusal) => {
            let (peer, status, reason) = (connection.peer, refusal.status(), refusal.reason());
            if let Some(suppressed) = listener.log.admit() {
                tracing::warn!(listener = listener.name, %peer, %status, reason, suppressed, "a request was refused");
            }
            refusal.response(parts.uri.path())
        }
    };
    connection.enter(Phase::Idle);
    response
}
