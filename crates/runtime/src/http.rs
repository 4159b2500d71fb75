//! Serves `/healthz`, `/livez`, `/readyz` and `/metrics` for probes and Prometheus.
//!
//! Responses are plain text. A failing check is always named; `?verbose` names the passing ones too. Probes are answered
//! although other clients occupy the listener: their connections give way to new ones.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use muster_listener::{Limits, ListenerThread, Transport};

use crate::health::{Check, Health};
use crate::metrics::{CONTENT_TYPE_METRICS, Metrics};

/// Probes and scrapes are few and small, and have no body.
pub(crate) const LIMITS: Limits = Limits {
    connections_max: 128,
    connections_per_peer_max: 64,
    header_deadline: Duration::from_secs(5),
    body_deadline: Duration::from_secs(5),
    answer_deadline: Duration::from_secs(10),
    // Longer than the usual time between two scrapes.
    idle_deadline: Duration::from_secs(180),
    stop_deadline: Duration::from_secs(5),
    body_bytes_max: 1 << 10,
    bodies_bytes_max: 64 << 10,
};

/// The paths for probes, and for Prometheus if metrics are served to everyone.
pub fn router(health: Health, metrics: Option<Metrics>) -> Router {
    let live = |State(health): State<Health>, RawQuery(query): RawQuery| async move {
        respond("livez", &[health.alive()], query.as_deref())
    };
    let healthy = |State(health): State<Health>, RawQuery(query): RawQuery| async move {
        respond("healthz", &[health.alive()], query.as_deref())
    };
    let ready = |State(health): State<Health>, RawQuery(query): RawQuery| async move {
        respond("readyz", &[health.alive(), health.synced()], query.as_deref())
    };
    let mut router = Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .with_state(health);
    let mut paths = "there are /livez, /readyz and /healthz\n";
    if let Some(metrics) = metrics {
        router = router.route("/metrics", get(|| async move { render_metrics(&metrics) }));
        paths = "there are /livez, /readyz, /healthz and /metrics\n";
    }
    router.fallback(move || async move { (StatusCode::NOT_FOUND, paths) })
}

/// The metrics as a response.
pub(crate) fn render_metrics(metrics: &Metrics) -> Response {
    ([(CONTENT_TYPE, CONTENT_TYPE_METRICS)], metrics.render()).into_response()
}

/// Serves [`router`] on a thread of its own until the result is dropped.
pub async fn serve(listen: SocketAddr, health: Health, metrics: Option<Metrics>) -> io::Result<ListenerThread> {
    ListenerThread::start("health", listen, Transport::Plain, LIMITS, router(health, metrics)).await
}

fn respond(path: &str, checks: &[Check], query: Option<&str>) -> Response {
    let verbose = match query.unwrap_or_default() {
        "" => false,
        "verbose" | "verbose=" | "verbose=true" | "verbose=1" => true,
        other => return (StatusCode::BAD_REQUEST, format!("?{other}: only ?verbose is known\n")).into_response(),
    };
    let failed = checks.iter().any(|check| check.failure.is_some());
    if !failed && !verbose {
        return "ok".into_response();
    }
    let mut text = String::new();
    for Check { name, failure } in checks {
        let written = match failure {
            None => writeln!(text, "[+]{name} ok"),
            Some(reason) => writeln!(text, "[-]{name} failed: {reason}"),
        };
        written.expect("writing to a string never fails");
    }
    let (status, outcome) =
        if failed { (StatusCode::SERVICE_UNAVAILABLE, "failed") } else { (StatusCode::OK, "passed") };
    (status, format!("{text}{path} check {outcome}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::{Body, to_bytes};
    use http::Request;
    use tokio::time::advance;
    use tower::ServiceExt as _;

    use super::*;

    async fn get_path(health: &Health, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(health.clone(), Some(Metrics::default())).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn ok() -> (u16, String) {
        (200, "ok".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_without_heartbeat_is_not_live() {
        let health = Health::default();
        advance(Duration::from_secs(29)).await;
        assert_eq!(get_path(&health, "/livez").await, ok(), "a loop has some time to start");
        health.heartbeat();
        advance(Duration::from_secs(31)).await;
        for path in ["livez", "healthz"] {
            let (status, text) = get_path(&health, &format!("/{path}")).await;
            let expected = format!(
                "[-]decisions failed: no heartbeat of the scheduling loop for 31 s (the limit is 30 s)\n{path} check failed\n"
            );
            assert_eq!((status, text), (503, expected));
        }
        health.heartbeat();
        assert_eq!(get_path(&health, "/livez").await, ok());
        assert_eq!(
            get_path(&health, "/livez?verbose").await,
            (200, "[+]decisions ok\nlivez check passed\n".to_owned())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn ready_means_in_sync_or_on_standby() {
        let health = Health::default();
        let (status, text) = get_path(&health, "/readyz").await;
        assert_eq!(status, 503);
        assert!(text.starts_with("[+]decisions ok\n[-]sync failed: not all watches"), "{text}");
        health.set_standby(true);
        advance(Duration::from_secs(3600)).await;
        assert_eq!(get_path(&health, "/readyz").await, ok());
        assert_eq!(get_path(&health, "/livez").await, ok(), "a standby process decides nothing");
        health.set_standby(false);
        assert_eq!(get_path(&health, "/livez").await, ok(), "a new leader has time for its first heartbeat");
        assert_eq!(get_path(&health, "/readyz").await.0, 503);
        health.set_synced(true);
        assert_eq!(get_path(&health, "/readyz").await, ok());
    }

    #[tokio::test]
    async fn metrics_are_served_and_unknown_paths_are_rejected() {
        let health = Health::default();
        assert!(get_path(&health, "/metrics").await.1.contains("muster_leader 0"));
        assert_eq!(get_path(&health, "/readyz?exclude=sync").await.0, 400);
        assert_eq!(get_path(&health, "/").await.0, 404);
    }
}
