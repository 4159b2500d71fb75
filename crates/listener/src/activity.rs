//! What a connection is doing, and since when: the basis of deadlines and of the choice of connections to close.

use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::Limits;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The TLS handshake, or the headers of a request.
    Header,
    /// The body of a request, the wait for its memory included.
    Body,
    /// A complete request is being answered.
    Answering,
    /// The last request was answered: the client reads the answer, or is idle.
    Idle,
    /// The connection has to close: another one takes its place.
    Evicted,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    pub(crate) phase: Phase,
    pub(crate) since: Instant,
    /// Whether any request of this connection was complete.
    pub(crate) has_completed: bool,
}

impl Activity {
    fn deadline(self, limits: &Limits) -> Option<Instant> {
        let time = match self.phase {
            Phase::Header => limits.header_deadline,
            // The reader of the body answers when its deadline has passed; this is for a client that does not read that.
            Phase::Body => limits.body_deadline * 2,
            Phase::Answering => limits.answer_deadline,
            Phase::Idle => limits.idle_deadline,
            Phase::Evicted => Duration::ZERO,
        };
        self.since.checked_add(time)
    }
}

/// A connection as the listener sees it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: IpAddr,
    activity: watch::Sender<Activity>,
}

impl Connection {
    pub(crate) fn new(peer: IpAddr) -> Self {
        let activity = Activity { phase: Phase::Header, since: Instant::now(), has_completed: false };
        Self { peer, activity: watch::Sender::new(activity) }
    }

    pub(crate) fn activity(&self) -> Activity {
        *self.activity.borrow()
    }

    /// Changes the phase, except of a connection that has to close.
    pub(crate) fn enter(&self, phase: Phase) {
        self.activity.send_if_modified(|activity| {
            let changes = activity.phase != Phase::Evicted;
            if changes {
                let has_completed = activity.has_completed || phase == Phase::Answering;
                *activity = Activity { phase, since: Instant::now(), has_completed };
            }
            changes
        });
    }

    /// The client has sent bytes.
    pub(crate) fn received(&self) {
        if self.activity().phase == Phase::Idle {
            self.enter(Phase::Header);
        }
    }

    /// Waits until the connection has to close; returns the phase in which it took too long.
    pub(crate) async fn overdue(&self, limits: &Limits) -> Phase {
        let mut changes = self.activity.subscribe();
        loop {
            let activity = *changes.borrow_and_update();
            let deadline = async {
                match activity.deadline(limits) {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = deadline => return activity.phase,
                // It fails when the sender is dropped, and that is `self`.
                _ = changes.changed() => {}
            }
        }
    }
}
