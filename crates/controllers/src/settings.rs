//! What the controllers are to do: for whom, and in whose words.

use muster_api::makers::GangedOwners;
use muster_api::makers::job::Unasked;

/// What the controllers are to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The names by which pods ask for Muster.
    pub scheduler_names: Vec<String>,
    /// Who writes events.
    pub identity: String,
    /// Whose pods become gangs.
    pub ganged: GangedOwners,
}

impl Settings {
    /// Which Jobs are gangs without asking for it.
    pub(crate) fn unasked_jobs(&self) -> Unasked {
        self.ganged.jobs.unwrap_or_default()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler_names: vec![muster_api::keys::SCHEDULER_NAME.to_owned()],
            identity: "muster".to_owned(),
            ganged: GangedOwners::all(),
        }
    }
}
