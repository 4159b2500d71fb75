//! Watches: one task per kind delivers changes to the inbox of the scheduling loop.
//!
//! A watch never ends: it is restarted after every failure, with a growing backoff. A kind that the cluster does not
//! serve is an empty list and is checked again from time to time.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use kube::Api;
use muster_api::keys::GROUP;
use muster_reflector::{Delta, PAUSE_MAX, Selection};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::intake::WatchEvent;
use crate::intake::raw::Watched;
use crate::metrics::Metrics;
use crate::scheduling_loop::Event;

/// How much of the objects in the inbox the watches may fill, in KiB. Users decide how large objects are.
const INBOX_KIB_MAX: u32 = 32 << 10;

/// The inbox of the scheduling loop, for watches: it holds only so many bytes.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    events: mpsc::Sender<Event>,
    kib: Arc<Semaphore>,
}

impl Inbox {
    pub(crate) fn new(events: mpsc::Sender<Event>) -> Self {
        Self { events, kib: Arc::new(Semaphore::new(INBOX_KIB_MAX as usize)) }
    }

    /// Waits for room for an object of this size. The room is kept until the result is dropped.
    async fn reserve(&self, bytes: usize) -> OwnedSemaphorePermit {
        let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX).clamp(1, INBOX_KIB_MAX);
        Arc::clone(&self.kib).acquire_many_owned(kib).await.expect("the semaphore is never closed")
    }
}

/// Watches a kind until the inbox is closed.
pub(crate) async fn watch<K>(
    kind: &'static str,
    api: Api<K>,
    inbox: Inbox,
    metrics: Metrics,
    to_event: impl Fn(Delta<K>) -> WatchEvent + Send,
) where
    K: Watched + kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let counters = metrics.clone();
    let age = metrics.watch_ages().add(kind);
    let mut deltas = muster_reflector::watch(api, Selection::default(), PAUSE_MAX, age, move |error| {
        counters.watch_event(kind);
        counters.watch_restarted(kind);
        tracing::warn!(kind, %error, "the watch failed and will be restarted");
    });
    let mut served = Served::default();
    while let Some(delta) = deltas.next().await {
        metrics.watch_event(kind);
        served.note(kind, &delta);
        let room = inbox.reserve(delta.object().map_or(0, Watched::bytes)).await;
        if inbox.events.send(Event::Watch(Box::new(to_event(delta)), room)).await.is_err() {
            return;
        }
    }
}

/// Whether the cluster serves a kind, so that a change is logged once.
#[derive(Debug, Default)]
struct Served {
    is_served: bool,
    warned: bool,
}

impl Served {
    fn note<K>(&mut self, kind: &'static str, delta: &Delta<K>) {
        match delta {
            Delta::ListDone => self.is_served = true,
            Delta::NotServed => {
                // Kinds of other projects need not be installed.
                let is_installed_by_us = kind.starts_with(GROUP);
                if self.is_served {
                    tracing::warn!(kind, "the cluster does not serve this kind any more: its objects count as deleted");
                } else if !self.warned && is_installed_by_us {
                    self.warned = true;
                    tracing::warn!(
                        kind,
                        "the cluster does not serve this kind yet: `muster manifests` prints what installs it"
                    );
                }
                self.is_served = false;
            }
            _ => {}
        }
    }
}
