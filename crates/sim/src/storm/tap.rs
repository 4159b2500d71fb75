//! Between everybody and the server: each request is entered in the book under the name of who sent it.
//!
//! The server answers without waiting, so that nothing comes between the look at the state, the write, and the look
//! afterwards. A tap must not change requests or answers.

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

use super::book::{Book, Shared, Written};

/// Who sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Actor {
    /// A Muster process by number; a process that is started again has a new one.
    Muster(u32),
    Users,
    Kubelets,
    Controllers,
    Rival,
}

/// A way to the server.
#[derive(Clone)]
pub(super) struct Tap {
    pub(super) server: Server,
    pub(super) actor: Actor,
    pub(super) book: Shared<Book>,
}

impl Tap {
    /// A client that goes this way.
    pub(super) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// One request, for those who need no client.
    pub(super) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(u16, Value), String> {
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, media);
        let request = request.body(Body::from(bytes)).map_err(|error| error.to_string())?;
        let response = self.answer(request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok((code, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    async fn answer(&self, request: Request<Body>) -> Response<Answer> {
        if request.method() == Method::GET {
            return self.server.answer(request).await;
        }
        let (parts, body) = request.into_parts();
        let asked = body.collect_bytes().await.unwrap_or_default();
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        self.book.borrow().arrives(self.actor, &method, &path, &asked);
        let request = Request::from_parts(parts, Body::from(asked.to_vec()));
        let (parts, body) = self.server.answer(request).await.into_parts();
        let said = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let written = Written { actor: self.actor, method, path, code: parts.status.as_u16() };
        self.book.borrow().done(&written, &asked, &said);
        Response::from_parts(parts, Answer::from(said))
    }
}

impl Service<Request<Body>> for Tap {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let tap = self.clone();
        Box::pin(async move { Ok(tap.answer(request).await) })
    }
}
