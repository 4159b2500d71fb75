//! A client layer that records every request in the ledger together with its sender.
//!
//! The server responds without yielding, so nothing happens between the check before a write, the write, and the check
//! after it. Must not change requests or responses.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body as Answer;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use muster_playground::Server;
use serde_json::Value;
use tower::Service;

use super::RunError;
use super::ledger::{Ledger, Shared, Write};

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Actor {
    /// A Muster process by number; a restarted process has a new number.
    Muster(u32),
    Users,
    Kubelets,
    Controllers,
    OtherScheduler,
}

/// A recorded connection to the server.
#[derive(Clone)]
pub(super) struct Recorder {
    pub(super) server: Server,
    pub(super) actor: Actor,
    pub(super) ledger: Shared<Ledger>,
}

impl Recorder {
    /// A client that uses this connection.
    pub(super) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Sends one request without a client.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), RunError> {
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, media);
        let request = request.body(Body::from(bytes))?;
        let response = self.answer(request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok((code, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    async fn answer(&self, request: Request<Body>) -> Response<Answer> {
        if request.method() == Method::GET {
            return self.server.answer(request).await;
        }
        let (parts, body) = request.into_parts();
        let sent = body.collect_bytes().await.unwrap_or_default();
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        self.ledger.borrow().check_write(self.actor, &method, &path, &sent);
        let request = Request::from_parts(parts, Body::from(sent.to_vec()));
        let (parts, body) = self.server.answer(request).await.into_parts();
        let response = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let write = Write { actor: self.actor, method, path, code: parts.status.as_u16() };
        self.ledger.borrow().record_write(&write, &sent, &response);
        Response::from_parts(parts, Answer::from(response))
    }
}

impl Service<Request<Body>> for Recorder {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let recorder = self.clone();
        Box::pin(async move { Ok(recorder.answer(request).await) })
    }
}
