//! A watch that never ends: it restarts with backoff after every failure.

use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::backoff::Pauses;
use crate::delta::Delta;

/// The longest pause of a client that must not burden an API server in trouble.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The page size of lists.
const PAGE_SIZE: u32 = 500;
const NOT_FOUND: u16 = 404;

/// Watches a kind. A kind that the cluster does not serve is listed again from time to time; every other failure goes to
/// `on_error`, and the watch restarts, after pauses that grow up to `pause_max`.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    pause_max: Duration,
    mut on_error: impl FnMut(&watcher::Error) + Send + 'static,
) -> impl Stream<Item = Delta<K>> + Send + Unpin + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, config.page_size(PAGE_SIZE)).backoff(Pauses::up_to(pause_max));
    Box::pin(events.filter_map(move |event| {
        std::future::ready(match event {
            Ok(event) => Some(event.into()),
            Err(error) if is_not_served(&error) => Some(Delta::NotServed),
            Err(error) => {
                on_error(&error);
                None
            }
        })
    }))
}

/// A kind that is removed under a watch shows when the watch starts again.
fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == NOT_FOUND)
}
