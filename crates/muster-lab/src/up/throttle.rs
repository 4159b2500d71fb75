//! Rate limiting of output: events are collected as they arrive and printed a few times a second at most.

use std::ops::ControlFlow;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::time::Instant;

/// Passes events to a listener until there are no more or it has printed everything.
pub(super) async fn listen<Listener, Event>(
    mut events: impl Stream<Item = Event> + Unpin,
    pause: Duration,
    listener: &mut Listener,
    observe: impl Fn(&mut Listener, Event),
    print_new: impl Fn(&mut Listener) -> ControlFlow<()>,
) {
    let mut due = None;
    loop {
        let turn = async {
            match due {
                Some(time) => tokio::time::sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = events.next() => {
                let Some(event) = event else { return };
                observe(listener, event);
                due.get_or_insert_with(|| Instant::now() + pause);
            }
            () = turn => {
                due = None;
                if print_new(listener).is_break() {
                    return;
                }
            }
        }
    }
}
