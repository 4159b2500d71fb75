//! Serves `/metrics` over TLS to clients that the API server authenticates and authorises, as kube-scheduler does.
//!
//! It has its own address: probes of the kubelet have no credentials, and stay on the plain one.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use http::StatusCode;
use jiff::Timestamp;
use muster_listener::tls::resolver::CertificateResolver;
use muster_listener::tls::{files, in_memory, transport};
use muster_listener::{ListenerThread, Peer};
use tokio::task::JoinSet;

use crate::http::{LIMITS, render_metrics};
use crate::metrics::Metrics;
use crate::metrics_access::AccessReviewer;

const NAME: &str = "metrics";

/// The address and the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureMetricsSettings {
    /// The address; port 0 selects a free port.
    pub listen: SocketAddr,
    /// A folder with `tls.crt` and `tls.key`; without it a certificate is generated at the start.
    pub folder: Option<PathBuf>,
}

/// A running listener of metrics. Dropping it stops it.
#[derive(Debug)]
pub struct SecureMetrics {
    listener: ListenerThread,
    /// Keeps the certificate valid; aborted on drop.
    _certificates: JoinSet<()>,
}

impl SecureMetrics {
    /// Starts it; the client asks the API server about the clients of the metrics.
    pub async fn start(
        settings: SecureMetricsSettings,
        client: kube::Client,
        metrics: Metrics,
        now: impl Fn() -> Timestamp + Send + 'static,
    ) -> io::Result<Self> {
        let resolver = CertificateResolver::default();
        let transport = transport(resolver.clone()).map_err(io::Error::other)?;
        let router = router(AccessReviewer::new(client), metrics);
        let listener = ListenerThread::start(NAME, settings.listen, transport, LIMITS, router).await?;
        let mut certificates = JoinSet::new();
        certificates.spawn(async move {
            match settings.folder {
                Some(folder) => match files::follow(NAME, folder, resolver).await {},
                None => match in_memory::renew(NAME, vec!["localhost".to_owned()], resolver, now).await {},
            }
        });
        Ok(Self { listener, _certificates: certificates })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

fn router(reviewer: AccessReviewer, metrics: Metrics) -> Router {
    Router::new()
        .route("/metrics", get(serve))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is /metrics\n") })
        .with_state((Arc::new(reviewer), metrics))
}

async fn serve(
    State((reviewer, metrics)): State<(Arc<AccessReviewer>, Metrics)>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
) -> Response {
    match reviewer.review(peer, request.headers(), request.method().as_str(), request.uri().path()).await {
        Ok(()) => render_metrics(&metrics),
        Err(denial) => denial.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use axum::body::Body;
    use http::header::AUTHORIZATION;
    use tower::ServiceExt as _;

    use super::*;
    use crate::metrics_access::tests::FakeServer;

    #[tokio::test(start_paused = true)]
    async fn only_authorised_clients_read_metrics() {
        let server = FakeServer::start();
        let router = router(AccessReviewer::new(server.client()), Metrics::default());
        let status = async |path: &str, token: Option<&str>| {
            let mut request = Request::get(path);
            if let Some(token) = token {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            let mut request = request.body(Body::empty()).unwrap();
            request.extensions_mut().insert(Peer(IpAddr::from([10, 0, 0, 1])));
            router.clone().oneshot(request).await.unwrap().status().as_u16()
        };
        assert_eq!(status("/metrics", Some("good")).await, 200);
        assert_eq!(status("/metrics", Some("other")).await, 403);
        assert_eq!(status("/metrics", Some("guessed")).await, 401);
        assert_eq!(status("/metrics", None).await, 403);
        assert_eq!(status("/livez", Some("good")).await, 404);
    }
}
