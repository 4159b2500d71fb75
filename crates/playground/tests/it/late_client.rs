//! A client with a bad connection: its watch events arrive late, and some requests fail.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http::{Request, Response};
use muster_playground::Server;
use muster_playground::random::Random;

/// A client of the server with late watches.
pub(crate) fn client(server: &Server, lag: Duration) -> kube::Client {
    kube::Client::new(Late { server: server.clone(), lag, faults: None }, "default")
}

/// A client whose watches are late and a third of whose requests fail, before or after they are executed.
pub(crate) fn faulty_client(server: &Server, lag: Duration, seed: u64) -> kube::Client {
    let faults = Some(Arc::new(Mutex::new(Random::new(seed))));
    kube::Client::new(Late { server: server.clone(), lag, faults }, "default")
}

#[derive(Clone)]
struct Late {
    server: Server,
    lag: Duration,
    faults: Option<Arc<Mutex<Random>>>,
}

/// When a request fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Before,
    After,
}

impl Late {
    fn fault(&self) -> Fault {
        let Some(faults) = &self.faults else { return Fault::None };
        match faults.lock().unwrap().below(6) {
            0 => Fault::Before,
            1 => Fault::After,
            _ => Fault::None,
        }
    }
}

fn failed(code: u16) -> Response<Body> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "bad luck",
    });
    Response::builder().status(code).body(Body::from(status.to_string())).unwrap()
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
        let (server, lag, fault) = (self.server.clone(), self.lag, self.fault());
        Box::pin(async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if fault == Fault::Before {
                return Ok(failed(429));
            }
            let response = server.answer(request).await;
            if fault == Fault::After {
                return Ok(failed(503));
            }
            if !watches {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            // Many chunks may be in flight at once, each delayed by the same time.
            let pieces = body.into_data_stream().map(move |piece| async move {
                tokio::time::sleep(lag).await;
                piece
            });
            Ok(Response::from_parts(parts, Body::from_stream(pieces.buffered(1024))))
        })
    }
}
