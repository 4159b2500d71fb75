//! A client at work in the background: it ends when its handle is dropped.

use std::future::Future;

use tokio::task::JoinHandle;

/// A running task. Dropping it ends the task.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    /// Starts the task. Needs a tokio runtime.
    pub(crate) fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
