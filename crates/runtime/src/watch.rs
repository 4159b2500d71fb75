//! Watches: one task for each kind, from the API to the inbox of the mind.
//!
//! A watch never ends: it comes back after every failure, with a growing pause. A kind that the cluster does not serve
//! is an empty list, looked at again from time to time.

use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt, pin_mut};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use muster_api::keys::GROUP;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::intake::{News, WatchTurn};
use crate::metrics::Metrics;
use crate::mind::Letter;

/// How many objects a list asks for at once.
const PAGE: u32 = 500;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// After so long without a failure the next one is a new trouble.
const QUIET: Duration = Duration::from_secs(60);

/// Watches a kind until the inbox is closed.
pub(crate) async fn watch<K>(
    kind: &'static str,
    api: Api<K>,
    inbox: mpsc::Sender<Letter>,
    metrics: Metrics,
    news: impl Fn(WatchTurn<K>) -> News + Send,
) where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // The first list and every later one ask for the newest state that the server has agreed on.
    let config = watcher::Config::default().page_size(PAGE);
    let events = watcher(api, config).backoff(Pauses::default());
    deliver(kind, events, inbox, &metrics, news).await;
}

async fn deliver<K>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    inbox: mpsc::Sender<Letter>,
    metrics: &Metrics,
    news: impl Fn(WatchTurn<K>) -> News,
) {
    pin_mut!(events);
    let (mut was_served, mut told_missing) = (false, false);
    while let Some(event) = events.next().await {
        metrics.watch_event(kind);
        let turns = match event {
            Ok(Event::Init) => vec![WatchTurn::Begin],
            Ok(Event::InitApply(object)) => vec![WatchTurn::Listed(object)],
            Ok(Event::InitDone) => {
                was_served = true;
                vec![WatchTurn::Complete]
            }
            Ok(Event::Apply(object)) => vec![WatchTurn::Seen(object)],
            Ok(Event::Delete(object)) => vec![WatchTurn::Gone(object)],
            Err(error) if is_not_served(&error) => {
                // Other projects' kinds are not missed.
                let is_installed_by_us = kind.starts_with(GROUP);
                if was_served {
                    tracing::warn!(kind, "the cluster does not serve this kind any more: its objects are gone for us");
                } else if !told_missing && is_installed_by_us {
                    told_missing = true;
                    tracing::warn!(
                        kind,
                        "the cluster does not serve this kind yet: `muster manifests` prints what installs it"
                    );
                }
                was_served = false;
                vec![WatchTurn::Absent]
            }
            Err(error) => {
                metrics.watch_restarted(kind);
                tracing::warn!(kind, %error, "the watch failed and will be started again");
                Vec::new()
            }
        };
        for turn in turns {
            if inbox.send(Letter::News(Box::new(news(turn)))).await.is_err() {
                return;
            }
        }
    }
}

fn is_not_served(error: &watcher::Error) -> bool {
    // A kind that goes away under a watch is told when the watch is to be taken up again.
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Pauses that double, without chance: two schedulers are no herd, and tests can be repeated. They begin anew only after
/// a quiet time, since every attempt begins well.
#[derive(Clone, Debug)]
struct Pauses {
    next: Duration,
    last: Option<Instant>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSE_MIN, last: None }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        self.last = Some(Instant::now());
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() > QUIET) {
            *self = Self::default();
        }
    }
}
