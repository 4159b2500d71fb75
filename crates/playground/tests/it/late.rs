//! A client whose watches are late: what they tell comes so long after it happened. Everything else is at once.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http::{Request, Response};
use muster_playground::Server;

/// A client of the server with late watches.
pub(crate) fn client(server: &Server, lag: Duration) -> kube::Client {
    kube::Client::new(Late { server: server.clone(), lag }, "default")
}

#[derive(Clone)]
struct Late {
    server: Server,
    lag: Duration,
}

impl<B> tower::Service<Request<B>> for Late
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (server, lag) = (self.server.clone(), self.lag);
        Box::pin(async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let response = server.answer(request).await;
            if !watches {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            // Many pieces may be on their way at once, each for as long as the others.
            let pieces = body.into_data_stream().map(move |piece| async move {
                tokio::time::sleep(lag).await;
                piece
            });
            Ok(Response::from_parts(parts, Body::from_stream(pieces.buffered(1024))))
        })
    }
}
