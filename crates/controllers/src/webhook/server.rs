//! The HTTPS server of the webhook.
//!
//! Connections are independent: a failure is logged and affects no other one. Must not depend on where certificates
//! come from, or on the content of a review beyond its envelope.

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

use super::resolver::CertificateResolver;
use super::review::{Review, Routes};

/// The largest request of an API server is 3 MiB.
const BODY_MAX: usize = 3 << 20;
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// API servers wait at most 30 s for an answer.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// Longer than API servers keep an idle connection (90 s), so that they close it first: otherwise a review could be
/// sent on a closing connection.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// How long a request in progress may take after the webhook is stopped.
const GRACE: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: usize = 1000;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A TLS acceptor that serves the current certificate.
pub(super) fn acceptor(certificates: CertificateResolver) -> Result<TlsAcceptor, tokio_rustls::rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificates));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The router for all paths.
pub(super) fn router(routes: &Routes) -> Router {
    let mut router = Router::new().route("/readyz", get(|| async { "ok" }));
    for (path, review) in routes.iter() {
        let review = Arc::clone(review);
        router =
            router.route(path, post(move |request| async move { answer(path, &review, read_body(request).await) }));
    }
    router.layer(DefaultBodyLimit::max(BODY_MAX)).layer(middleware::from_fn(in_time))
}

/// The complete body; `None` if it is too large. A body whose declared length is too large is not read.
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
    let rejected = |status: StatusCode, reason: String| {
        tracing::warn!(path, %status, reason, "a review request was rejected");
        (status, format!("{path}: {reason}\n")).into_response()
    };
    let body = match body {
        Ok(Some(body)) => body,
        Ok(None) => return rejected(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {BODY_MAX} bytes")),
        Err(error) => return rejected(StatusCode::BAD_REQUEST, error.body_text()),
    };
    match read_envelope(&body) {
        Ok(request) => ([(CONTENT_TYPE, "application/json")], review(request).to_string()).into_response(),
        Err(reason) => rejected(StatusCode::BAD_REQUEST, reason),
    }
}

/// Checks that a review has its kind, and a request with a UID, which the response must repeat.
fn read_envelope(body: &[u8]) -> Result<Value, String> {
    let review: Value = serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    if review["kind"] != "AdmissionReview" {
        return Err(format!("kind: {}: not \"AdmissionReview\"", review["kind"]));
    }
    match review["request"]["uid"].as_str() {
        Some(uid) if !uid.is_empty() => Ok(review),
        _ => Err(format!("AdmissionReview: request.uid: {}: not a UID", review["request"]["uid"])),
    }
}

/// Accepts connections, each in its own task. They end when the sender of `stop` is dropped.
pub(super) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router, stop: watch::Receiver<()>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            return; // never: the semaphore is not closed
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // The client is gone already, or there are too many open files: keep accepting.
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
    timeout(GRACE, serving)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the request did not finish in time after shutdown"))??;
    Ok(())
}

/// Limits the duration of a request: a body that does not arrive must not hold its connection forever.
async fn in_time(request: Request, next: middleware::Next) -> Response {
    match timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time\n").into_response(),
    }
}
