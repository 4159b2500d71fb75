//! The server: TLS connections, and reviews that arrive on them.
//!
//! Connections do not disturb each other: one that fails is logged and forgotten. It must not know where certificates
//! come from, nor what is in a review beyond its envelope.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;

use super::review::{Review, Routes};
use super::shown::Certificates;

/// The largest request of an API server is 3 MiB.
const BODY_MAX: usize = 3 << 20;
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// API servers wait 30 s at most for an answer: what takes longer is of no use to anybody.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// Longer than API servers keep a connection without a request (90 s), so that they close it and not we: otherwise a
/// review could meet a closing connection.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// How long a request that is under way has when we are stopped.
const GRACE: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: usize = 1000;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// TLS that shows what is in the cell.
pub(super) fn acceptor(certificates: Certificates) -> Result<TlsAcceptor, tokio_rustls::rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificates));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The paths.
pub(super) fn router(routes: &Routes) -> Router {
    let mut router = Router::new().route("/readyz", get(|| async { "ok" }));
    for (path, review) in routes.iter() {
        let review = Arc::clone(review);
        router =
            router.route(path, post(move |request| async move { answer(path, &review, read_body(request).await) }));
    }
    router.layer(DefaultBodyLimit::max(BODY_MAX)).layer(middleware::from_fn(in_time))
}

/// The whole body; `None` if it is too large. One that says so itself is not waited for.
async fn read_body(request: Request) -> Result<Option<Bytes>, BytesRejection> {
    if request.body().size_hint().lower() > BODY_MAX as u64 {
        return Ok(None);
    }
    match Bytes::from_request(request, &()).await {
        Ok(body) => Ok(Some(body)),
        Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => Ok(None),
        Err(error) => Err(error),
    }
}

fn answer(path: &str, review: &Review, body: Result<Option<Bytes>, BytesRejection>) -> Response {
    let refused = |status: StatusCode, reason: String| {
        tracing::warn!(path, %status, reason, "a review was refused");
        (status, format!("{path}: {reason}\n")).into_response()
    };
    let body = match body {
        Ok(Some(body)) => body,
        Ok(None) => return refused(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {BODY_MAX} bytes")),
        Err(error) => return refused(StatusCode::BAD_REQUEST, error.body_text()),
    };
    match read_envelope(&body) {
        Ok(asked) => ([(CONTENT_TYPE, "application/json")], review(asked).to_string()).into_response(),
        Err(reason) => refused(StatusCode::BAD_REQUEST, reason),
    }
}

/// A review has a kind, and a request with a UID that the answer must repeat.
fn read_envelope(body: &[u8]) -> Result<Value, String> {
    let asked: Value = serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    if asked["kind"] != "AdmissionReview" {
        return Err(format!("kind: {}: not \"AdmissionReview\"", asked["kind"]));
    }
    match asked["request"]["uid"].as_str() {
        Some(uid) if !uid.is_empty() => Ok(asked),
        _ => Err(format!("AdmissionReview: request.uid: {}: not a UID", asked["request"]["uid"])),
    }
}

/// Takes connections, each into a task of its own. They end when `stop` is dropped on the other side.
pub(super) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router, stop: watch::Receiver<()>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return; // nobody closes it
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // One that went away at once, or too many open files: others go on.
                tracing::warn!(%error, "the webhook could not accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = connection(stream, acceptor, router, stop).await {
                tracing::debug!(%peer, %error, "a connection to the webhook failed");
            }
        });
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    mut stop: watch::Receiver<()>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let stream = tokio::select! {
        shaken = timeout(HANDSHAKE_MAX, acceptor.accept(stream)) => {
            shaken.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long"))??
        }
        _ = stop.changed() => return Ok(()),
    };
    let service = TowerToHyperService::new(router);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        served = serving.as_mut() => return Ok(served?),
        _ = stop.changed() => serving.as_mut().graceful_shutdown(),
    }
    timeout(GRACE, serving).await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "cut off at the end"))??;
    Ok(())
}

/// A body that does not arrive must not hold its connection for ever.
async fn in_time(request: Request, next: middleware::Next) -> Response {
    match timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time\n").into_response(),
    }
}
