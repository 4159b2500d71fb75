//! A bell that rings when something has changed: whoever listens is woken in the order in which they began to wait.
//!
//! tokio's `watch` would do but for that order, which it draws by chance: a run could not be played again from its seed.
//! It must not know what changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Rope {
    rings: AtomicU64,
    gone: AtomicBool,
    notify: Notify,
}

/// The bell. When it is dropped, nobody waits for it any more.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rope: Arc<Rope>,
}

/// An ear that hears every ring since it began to listen.
#[derive(Debug)]
pub struct Ear {
    rope: Arc<Rope>,
    heard: u64,
}

impl Bell {
    /// Something has changed.
    pub(crate) fn ring(&self) {
        self.rope.rings.fetch_add(1, Ordering::SeqCst);
        self.rope.notify.notify_waiters();
    }

    /// Listens from now on.
    pub(crate) fn listen(&self) -> Ear {
        Ear { rope: Arc::clone(&self.rope), heard: self.rope.rings.load(Ordering::SeqCst) }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.rope.gone.store(true, Ordering::SeqCst);
        self.rope.notify.notify_waiters();
    }
}

impl Ear {
    /// What has rung by now counts as heard.
    pub fn hear(&mut self) {
        self.heard = self.rope.rings.load(Ordering::SeqCst);
    }

    /// Waits for a ring that was not heard; false if the bell is gone.
    pub async fn wait(&mut self) -> bool {
        loop {
            // It counts rings from its making, so that none is missed between the look and the wait.
            let notified = self.rope.notify.notified();
            let rings = self.rope.rings.load(Ordering::SeqCst);
            if rings != self.heard {
                self.heard = rings;
                return true;
            }
            if self.rope.gone.load(Ordering::SeqCst) {
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
    fn no_ring_is_missed_and_none_is_heard_twice() {
        let bell = Bell::default();
        let mut ear = bell.listen();
        assert_eq!(ear.wait().now_or_never(), None);
        bell.ring();
        bell.ring();
        assert_eq!(ear.wait().now_or_never(), Some(true));
        assert_eq!(ear.wait().now_or_never(), None);
        bell.ring();
        ear.hear();
        assert_eq!(ear.wait().now_or_never(), None);
        drop(bell);
        assert_eq!(ear.wait().now_or_never(), Some(false));
    }
}
