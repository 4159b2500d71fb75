//! A budget of memory for the bodies of all requests.
//!
//! A body reserves all of its bytes before it is read, so bodies never wait for each other half read. When the budget is
//! used up, bodies wait: first those of the peer that holds the least, then the smallest. An unfinished body of a peer
//! that holds more is reclaimed at once for one that waits; any other after a time in which an honest client has sent
//! its body. Must not depend on how bodies are read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How long an unfinished body keeps its bytes although another one waits.
const RESERVED_TIME_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ByteBudget {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes_free: usize,
    next_id: u64,
    bodies: BTreeMap<u64, Body>,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Body {
    peer: IpAddr,
    bytes: usize,
    since: Instant,
    state: BodyState,
}

#[derive(Debug)]
enum BodyState {
    Unfinished(oneshot::Sender<()>),
    /// Its reader was told to drop it.
    Reclaimed,
    Complete,
}

#[derive(Debug)]
struct Waiting {
    peer: IpAddr,
    bytes: usize,
    granted: oneshot::Sender<Reservation>,
}

/// The bytes of one body; dropping it returns them to the budget.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<ByteBudget>,
    id: u64,
    reclaimed: oneshot::Receiver<()>,
}

/// A place among those that wait; dropping it gives it up.
struct Queued<'a> {
    budget: &'a ByteBudget,
    id: u64,
}

impl ByteBudget {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        let state = State { bytes_free: bytes_max, next_id: 0, bodies: BTreeMap::new(), waiting: BTreeMap::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the budget has this many bytes, which must not be more than all of it.
    pub(crate) async fn reserve(self: &Arc<Self>, peer: IpAddr, bytes: usize) -> Reservation {
        let (granted, mut grant) = oneshot::channel();
        let id = {
            let mut state = self.lock();
            let id = state.next_id;
            state.next_id += 1;
            state.waiting.insert(id, Waiting { peer, bytes, granted });
            id
        };
        let _queued = Queued { budget: self, id };
        self.grant();
        loop {
            let next_look = self.lock().reclaim(Instant::now());
            tokio::select! {
                biased;
                granted = &mut grant => return granted.expect("a waiting body is dropped only with its future"),
                () = sleep_until(next_look) => {}
            }
        }
    }

    /// Gives free bytes to those that wait.
    fn grant(self: &Arc<Self>) {
        let mut unclaimed = Vec::new();
        let mut state = self.lock();
        while let Some(id) = state.first_waiting().filter(|id| state.waiting[id].bytes <= state.bytes_free) {
            let Some(Waiting { peer, bytes, granted }) = state.waiting.remove(&id) else { break };
            let (reclaim, reclaimed) = oneshot::channel();
            let body = Body { peer, bytes, since: Instant::now(), state: BodyState::Unfinished(reclaim) };
            state.bytes_free -= bytes;
            state.bodies.insert(id, body);
            unclaimed.extend(granted.send(Reservation { budget: Arc::clone(self), id, reclaimed }).err());
        }
        state.reclaim(Instant::now());
        // Dropping a reservation takes the lock.
        drop(state);
        drop(unclaimed);
    }
}

impl State {
    fn held_by(&self, peer: IpAddr) -> usize {
        self.bodies.values().filter(|body| body.peer == peer).map(|body| body.bytes).sum()
    }

    fn first_waiting(&self) -> Option<u64> {
        let rank = |(id, waiting): (&u64, &Waiting)| (self.held_by(waiting.peer), waiting.bytes, *id);
        self.waiting.iter().map(rank).min().map(|(.., id)| id)
    }

    /// Reclaims unfinished bodies until there will be room for the first that waits; returns when to look again.
    fn reclaim(&mut self, now: Instant) -> Instant {
        let later = now + RESERVED_TIME_MIN;
        let Some(id) = self.first_waiting() else { return later };
        let Waiting { peer, bytes: needed, .. } = self.waiting[&id];
        let share = self.held_by(peer) + needed;
        let reclaimed = self.bodies.values().filter(|body| matches!(body.state, BodyState::Reclaimed));
        let mut bytes_expected = self.bytes_free + reclaimed.map(|body| body.bytes).sum::<usize>();
        while bytes_expected < needed {
            let Some((held, id)) = self.first_to_reclaim() else { return later };
            let Some(body) = self.bodies.get_mut(&id) else { return later };
            let due = if held > share { body.since } else { body.since + RESERVED_TIME_MIN };
            if due > now {
                return due;
            }
            bytes_expected += body.bytes;
            if let BodyState::Unfinished(reclaim) = std::mem::replace(&mut body.state, BodyState::Reclaimed) {
                // Its reader may have ended just now.
                let _ = reclaim.send(());
            }
        }
        later
    }

    /// The oldest unfinished body of the peer that holds the most, and how much that is.
    fn first_to_reclaim(&self) -> Option<(usize, u64)> {
        let unfinished = self.bodies.iter().filter(|(_, body)| matches!(body.state, BodyState::Unfinished(_)));
        let ranked = unfinished.map(|(id, body)| (usize::MAX - self.held_by(body.peer), body.since, *id));
        ranked.min().map(|(rank, _, id)| (usize::MAX - rank, id))
    }
}

impl Reservation {
    /// Waits until another body needs the bytes more than this unfinished one.
    pub(crate) async fn reclaimed(&mut self) {
        if (&mut self.reclaimed).await.is_err() {
            // The body is complete.
            std::future::pending::<()>().await;
        }
    }

    /// The body is complete: it is no longer reclaimed.
    pub(crate) fn complete(&self) {
        if let Some(body) = self.budget.lock().bodies.get_mut(&self.id) {
            body.state = BodyState::Complete;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        {
            let mut state = self.budget.lock();
            if let Some(body) = state.bodies.remove(&self.id) {
                state.bytes_free += body.bytes;
            }
        }
        self.budget.grant();
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        // Dropping what waits drops only a sender, which takes no lock.
        self.budget.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use tokio::time::advance;

    use super::*;

    const HOSTILE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const HONEST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn is_reclaimed(reservation: &mut Reservation) -> bool {
        poll(pin!(reservation.reclaimed())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn body_waits_until_bytes_are_free() {
        let budget = ByteBudget::new(100);
        let first = budget.reserve(HONEST, 60).await;
        first.complete();
        let mut second = pin!(budget.reserve(HONEST, 60));
        assert!(poll(second.as_mut()).is_pending());
        drop(first);
        assert!(poll(second).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_body_of_peer_that_holds_more_is_reclaimed_at_once() {
        let budget = ByteBudget::new(100);
        let mut held = [budget.reserve(HOSTILE, 50).await, budget.reserve(HOSTILE, 50).await];
        let mut honest = pin!(budget.reserve(HONEST, 10));
        assert!(poll(honest.as_mut()).is_pending());
        assert!(is_reclaimed(&mut held[0]), "the older one");
        assert!(!is_reclaimed(&mut held[1]), "one is enough");
        let [first, _second] = held;
        drop(first);
        assert!(poll(honest).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_holds_least_goes_first_and_then_the_smallest_body() {
        let budget = ByteBudget::new(100);
        let held = budget.reserve(HOSTILE, 100).await;
        held.complete();
        let mut hostile = pin!(budget.reserve(HOSTILE, 90));
        assert!(poll(hostile.as_mut()).is_pending());
        let mut large = pin!(budget.reserve(HONEST, 90));
        assert!(poll(large.as_mut()).is_pending());
        let mut small = pin!(budget.reserve(HONEST, 20));
        assert!(poll(small.as_mut()).is_pending());
        drop(held);
        let Poll::Ready(small) = poll(small) else { panic!("the smallest is first") };
        assert!(poll(large.as_mut()).is_pending() && poll(hostile.as_mut()).is_pending());
        drop(small);
        assert!(poll(hostile).is_ready() != poll(large).is_ready(), "there is room for one");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_body_of_the_same_peer_is_reclaimed_after_a_while() {
        let budget = ByteBudget::new(100);
        let mut slow = budget.reserve(HONEST, 100).await;
        let mut next = pin!(budget.reserve(HONEST, 10));
        assert!(poll(next.as_mut()).is_pending());
        assert!(!is_reclaimed(&mut slow));
        advance(RESERVED_TIME_MIN).await;
        assert!(poll(next.as_mut()).is_pending());
        assert!(is_reclaimed(&mut slow));
        drop(slow);
        assert!(poll(next).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn complete_body_is_never_reclaimed() {
        let budget = ByteBudget::new(100);
        let mut complete = budget.reserve(HOSTILE, 100).await;
        complete.complete();
        let mut honest = pin!(budget.reserve(HONEST, 10));
        advance(RESERVED_TIME_MIN * 2).await;
        assert!(poll(honest.as_mut()).is_pending());
        assert!(!is_reclaimed(&mut complete));
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_gives_up_waiting_takes_nothing() {
        let budget = ByteBudget::new(100);
        let held = budget.reserve(HONEST, 100).await;
        {
            let mut gives_up = pin!(budget.reserve(HONEST, 100));
            assert!(poll(gives_up.as_mut()).is_pending());
            // Granted, but not taken.
            drop(held);
        }
        assert!(poll(pin!(budget.reserve(HONEST, 100))).is_ready());
    }
}
