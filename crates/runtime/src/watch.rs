//! Watches: one task per kind delivers changes to the inbox of the scheduling loop.
//!
//! A watch never ends: it is restarted after every failure, with a growing backoff. A kind that the cluster does not
//! serve is an empty list and is checked again from time to time.

use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt, pin_mut};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, watcher};
use muster_api::keys::GROUP;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::intake::{Delta, WatchEvent};
use crate::metrics::Metrics;
use crate::scheduling_loop::Event;

/// The page size of lists.
const PAGE: u32 = 500;
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// After this long without a failure the backoff starts over.
const QUIET: Duration = Duration::from_secs(60);

/// Watches a kind until the inbox is closed.
pub(crate) async fn watch<K>(
    kind: &'static str,
    api: Api<K>,
    inbox: mpsc::Sender<Event>,
    metrics: Metrics,
    to_event: impl Fn(Delta<K>) -> WatchEvent + Send,
) where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // The first list and every later one are consistent reads of the latest state.
    let config = watcher::Config::default().page_size(PAGE);
    let events = watcher(api, config).backoff(WatchBackoff::default());
    deliver(kind, events, inbox, &metrics, to_event).await;
}

async fn deliver<K>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    inbox: mpsc::Sender<Event>,
    metrics: &Metrics,
    to_event: impl Fn(Delta<K>) -> WatchEvent,
) {
    pin_mut!(events);
    let (mut was_served, mut warned) = (false, false);
    while let Some(event) = events.next().await {
        metrics.watch_event(kind);
        let deltas = match event {
            Ok(watcher::Event::Init) => vec![Delta::ListStarted],
            Ok(watcher::Event::InitApply(object)) => vec![Delta::Listed(object)],
            Ok(watcher::Event::InitDone) => {
                was_served = true;
                vec![Delta::ListDone]
            }
            Ok(watcher::Event::Apply(object)) => vec![Delta::Applied(object)],
            Ok(watcher::Event::Delete(object)) => vec![Delta::Deleted(object)],
            Err(error) if is_not_served(&error) => {
                // Kinds of other projects need not be installed.
                let is_installed_by_us = kind.starts_with(GROUP);
                if was_served {
                    tracing::warn!(kind, "the cluster does not serve this kind any more: its objects count as deleted");
                } else if !warned && is_installed_by_us {
                    warned = true;
                    tracing::warn!(
                        kind,
                        "the cluster does not serve this kind yet: `muster manifests` prints what installs it"
                    );
                }
                was_served = false;
                vec![Delta::NotServed]
            }
            Err(error) => {
                metrics.watch_restarted(kind);
                tracing::warn!(kind, %error, "the watch failed and will be restarted");
                Vec::new()
            }
        };
        for delta in deltas {
            if inbox.send(Event::Watch(Box::new(to_event(delta)))).await.is_err() {
                return;
            }
        }
    }
}

fn is_not_served(error: &watcher::Error) -> bool {
    // If a kind is removed during a watch, the error occurs when the watch is restarted.
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// An exponential backoff without jitter: two schedulers do not overload the server, and tests are reproducible. It is
/// reset only after a quiet time, since every attempt begins with a success.
#[derive(Clone, Debug)]
struct WatchBackoff {
    next: Duration,
    last: Option<Instant>,
}

impl Default for WatchBackoff {
    fn default() -> Self {
        Self { next: BACKOFF_MIN, last: None }
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(BACKOFF_MAX);
        self.last = Some(Instant::now());
        Some(pause)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() > QUIET) {
            *self = Self::default();
        }
    }
}
