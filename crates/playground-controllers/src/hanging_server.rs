//! A server that never responds, for tests of what a controller does on its own.

use std::convert::Infallible;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;

/// A client of that server.
pub(crate) fn client() -> Client {
    let service = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    Client::new(service, "default")
}
