//! Events are taken in as they come; what they come to is told a few times a second at most.

use std::ops::ControlFlow;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::time::Instant;

/// Lets a listener take in events until there are no more or it has told everything.
pub(super) async fn listen<Listener, Event>(
    mut events: impl Stream<Item = Event> + Unpin,
    pause: Duration,
    listener: &mut Listener,
    take: impl Fn(&mut Listener, Event),
    tell: impl Fn(&mut Listener) -> ControlFlow<()>,
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
                take(listener, event);
                due.get_or_insert_with(|| Instant::now() + pause);
            }
            () = turn => {
                due = None;
                if tell(listener).is_break() {
                    return;
                }
            }
        }
    }
}
