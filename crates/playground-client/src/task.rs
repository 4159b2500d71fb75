//! A client at work in the background: it ends when its handle is dropped, and that it ended before is noticed.

use std::future::Future;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running task. Dropping it ends the task.
#[derive(Debug)]
pub struct Task {
    name: &'static str,
    handle: JoinHandle<()>,
    /// Closed when the work is over, also by a panic.
    life: watch::Receiver<()>,
}

impl Task {
    /// Starts the task. Needs a tokio runtime.
    pub fn start(name: &'static str, work: impl Future<Output = ()> + Send + 'static) -> Self {
        let (alive, life) = watch::channel(());
        let handle = tokio::spawn(async move {
            work.await;
            drop(alive);
        });
        Self { name, handle, life }
    }

    /// Waits until the work is over, and answers whose it was. What works until it is dropped has then failed.
    pub async fn ended(&self) -> &'static str {
        let mut life = self.life.clone();
        while life.changed().await.is_ok() {}
        self.name
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};

    #[tokio::test(start_paused = true)]
    async fn an_end_is_noticed_and_a_panic_too() {
        let short = Task::start("short", sleep(Duration::from_secs(5)));
        let broken = Task::start("broken", async {
            sleep(Duration::from_secs(5)).await;
            panic!("on purpose");
        });
        for task in [&short, &broken] {
            assert!(timeout(Duration::from_secs(2), task.ended()).await.is_err(), "it is at work");
        }
        assert_eq!((short.ended().await, broken.ended().await), ("short", "broken"));
        assert_eq!(broken.ended().await, "broken", "and can be asked again");
    }
}
