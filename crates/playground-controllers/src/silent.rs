//! A server that never answers, for tests of what a controller does by itself.

use std::convert::Infallible;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;

/// A client of it.
pub(crate) fn client() -> Client {
    let service = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    Client::new(service, "default")
}
