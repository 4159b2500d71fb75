//! Change notification that wakes subscribers in the order in which they began to wait.
//!
//! tokio's `watch` wakes in random order, which would make runs irreproducible for a given seed.
//! Must not depend on what changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Shared {
    count: AtomicU64,
    closed: AtomicBool,
    notify: Notify,
}

/// The sending side. Dropping it ends all waits.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    shared: Arc<Shared>,
}

/// Receives every notification since it subscribed.
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    seen: u64,
}

impl Notifier {
    /// Notifies all subscribers of a change.
    pub(crate) fn notify(&self) {
        self.shared.count.fetch_add(1, Ordering::SeqCst);
        self.shared.notify.notify_waiters();
    }

    /// Subscribes to changes from now on.
    pub(crate) fn subscribe(&self) -> Subscription {
        Subscription { shared: Arc::clone(&self.shared), seen: self.shared.count.load(Ordering::SeqCst) }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.notify.notify_waiters();
    }
}

impl Subscription {
    /// Marks all notifications so far as seen.
    pub fn mark_seen(&mut self) {
        self.seen = self.shared.count.load(Ordering::SeqCst);
    }

    /// Waits for an unseen notification; false if the notifier is gone.
    pub async fn wait(&mut self) -> bool {
        loop {
            // Created before the check, so that a notification between check and wait is not missed.
            let notified = self.shared.notify.notified();
            let count = self.shared.count.load(Ordering::SeqCst);
            if count != self.seen {
                self.seen = count;
                return true;
            }
            if self.shared.closed.load(Ordering::SeqCst) {
                return false;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn each_notification_is_seen_once() {
        let notifier = Notifier::default();
        let mut subscription = notifier.subscribe();
        assert_eq!(subscription.wait().now_or_never(), None);
        notifier.notify();
        notifier.notify();
        assert_eq!(subscription.wait().now_or_never(), Some(true));
        assert_eq!(subscription.wait().now_or_never(), None);
        notifier.notify();
        subscription.mark_seen();
        assert_eq!(subscription.wait().now_or_never(), None);
        drop(notifier);
        assert_eq!(subscription.wait().now_or_never(), Some(false));
    }
}
