//! The watch of the playground's clients: as soon as the API server answers again, they go on.

use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::Resource;
use kube::api::Api;
use muster_reflector::{Delta, Selection, WatchAges};
use serde::de::DeserializeOwned;

/// The first pause of client-go, without growth and jitter.
const PAUSE_MAX: Duration = Duration::from_millis(800);

/// A stream of watch events. A failed watch restarts after a short pause; the error is dropped, since the next list
/// shows the current state. While a kind is not served there are no events, so that its cache does not sync, as with
/// client-go.
pub fn watch<K>(api: Api<K>, selection: Selection) -> impl Stream<Item = Delta<K>> + Send + Unpin + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let deltas = muster_reflector::watch(api, selection, PAUSE_MAX, WatchAges::default().add(""), |_| ());
    deltas.filter(|delta| std::future::ready(!matches!(delta, Delta::NotServed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use muster_api::wire::Pod;

    #[tokio::test(start_paused = true)]
    async fn after_failures_the_list_is_soon_tried_again_and_a_missing_kind_is_no_empty_list() {
        let tries = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&tries);
        let service = tower::service_fn(move |_: Request<Body>| {
            let code = if count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { 503 } else { 404 };
            let body = serde_json::json!({"status": "Failure", "message": "", "reason": "", "code": code}).to_string();
            let response = Response::builder().status(code).body(Body::from(body.into_bytes()));
            std::future::ready(Ok::<_, Infallible>(response.expect("a valid response")))
        });
        let pods: Api<Pod> = Api::all(kube::Client::new(service, "default"));
        let minute = tokio::time::sleep(Duration::from_secs(60));
        let deltas: Vec<_> = watch(pods, Selection::default()).take_until(minute).collect().await;
        assert!(tries.load(Ordering::Relaxed) > 70, "only {} tries", tries.load(Ordering::Relaxed));
        assert!(deltas.iter().all(|delta| *delta == Delta::ListStarted), "{deltas:?}");
    }
}
