//! The connection of one Muster process to the server: it counts writes, checks each of them before the server sees it,
//! and ends the life of the process after a given one.
//!
//! Leases and events are not counted: no process reads them to decide. Must not change requests or responses.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body as Answer;
use http::{Method, Request, Response};
use kube::client::Body;
use muster_playground::Server;
use serde_json::Value;
use tokio::sync::Notify;

use super::checks;

/// What the process has written so far.
#[derive(Debug, Default)]
struct Written {
    lines: Vec<String>,
    violations: Vec<String>,
}

/// The connection. Clones belong to the same process.
#[derive(Clone)]
pub(super) struct Connection {
    server: Server,
    /// The number of the write after which the process is dead; it lives on if there is none.
    last: Option<usize>,
    written: Arc<Mutex<Written>>,
    died: Arc<Notify>,
}

impl Connection {
    pub(super) fn new(server: Server, last: Option<usize>) -> Self {
        Self { server, last, written: Arc::default(), died: Arc::default() }
    }

    pub(super) fn client(&self) -> kube::Client {
        let connection = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let connection = connection.clone();
            async move { Ok::<_, Infallible>(connection.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Resolves when the last write of the process has taken effect.
    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    /// The writes so far, one line each.
    pub(super) fn writes(&self) -> Vec<String> {
        self.written().lines.clone()
    }

    /// The rules that writes have broken.
    pub(super) fn violations(&self) -> Vec<String> {
        self.written().violations.clone()
    }

    fn written(&self) -> std::sync::MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: Request<Body>) -> Response<Answer> {
        let path = request.uri().path().to_owned();
        let counts = request.method() != Method::GET && !path.contains("/leases") && !path.ends_with("/events");
        if self.last.is_some_and(|last| self.written().lines.len() >= last) {
            // The process is dead: nothing that it still sends arrives.
            return pending().await;
        }
        if !counts {
            return self.server.answer(request).await;
        }
        let (parts, body) = request.into_parts();
        let sent = body.collect_bytes().await.unwrap_or_default();
        let content: Value = serde_json::from_slice(&sent).unwrap_or_default();
        let violations = checks::of_write(&self.server, &parts.method, &path, &content).await;
        let line = format!("{} {path}", parts.method);
        {
            let mut written = self.written();
            written.violations.extend(violations.into_iter().map(|why| format!("{line}: {why}")));
            written.lines.push(line);
        }
        let response = self.server.answer(Request::from_parts(parts, Body::from(sent.to_vec()))).await;
        if self.last == Some(self.written().lines.len()) {
            self.died.notify_one();
            return pending().await;
        }
        response
    }
}
