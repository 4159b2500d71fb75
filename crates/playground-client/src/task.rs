//! A background task that is aborted when its handle is dropped, and whose end can be awaited.

use std::future::Future;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running task. Dropping it ends the task.
#[derive(Debug)]
pub struct Task {
    name: &'static str,
    handle: JoinHandle<()>,
    /// Closed when the task has ended, also by a panic.
    ended: watch::Receiver<()>,
}

impl Task {
    /// Starts the task. Needs a tokio runtime.
    pub fn start(name: &'static str, work: impl Future<Output = ()> + Send + 'static) -> Self {
        let (alive, ended) = watch::channel(());
        let handle = tokio::spawn(async move {
            work.await;
            drop(alive);
        });
        Self { name, handle, ended }
    }

    /// Waits until the task has ended and returns its name. For a task that runs until it is dropped, this means that
    /// it failed.
    pub async fn ended(&self) -> &'static str {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
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
    async fn end_and_panic_of_a_task_are_noticed() {
        let short = Task::start("short", sleep(Duration::from_secs(5)));
        let broken = Task::start("broken", async {
            sleep(Duration::from_secs(5)).await;
            panic!("on purpose");
        });
        for task in [&short, &broken] {
            assert!(timeout(Duration::from_secs(2), task.ended()).await.is_err(), "it is running");
        }
        assert_eq!((short.ended().await, broken.ended().await), ("short", "broken"));
        assert_eq!(broken.ended().await, "broken", "and can be awaited again");
    }
}
