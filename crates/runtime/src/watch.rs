//! Watches: one task per kind delivers changes to the inbox of the scheduling loop.
//!
//! A watch never ends: it is restarted after every failure, with a growing backoff. A kind that the cluster does not
//! serve is an empty list and is checked again from time to time.

use std::fmt::Debug;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher;
use muster_api::keys::GROUP;
use muster_reflector::{Delta, PAUSE_MAX};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::intake::WatchEvent;
use crate::metrics::Metrics;
use crate::scheduling_loop::Event;

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
    let config = watcher::Config::default();
    let counters = metrics.clone();
    let mut deltas = muster_reflector::watch(api, config, PAUSE_MAX, move |error| {
        counters.watch_event(kind);
        counters.watch_restarted(kind);
        tracing::warn!(kind, %error, "the watch failed and will be restarted");
    });
    let mut served = Served::default();
    while let Some(delta) = deltas.next().await {
        metrics.watch_event(kind);
        served.note(kind, &delta);
        if inbox.send(Event::Watch(Box::new(to_event(delta)))).await.is_err() {
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
