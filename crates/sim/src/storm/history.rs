//! The history of each gang, derived from the server state alone: whether it has reached its minimum since it last had
//! no bound members, and whether a kubelet rejected a member.
//!
//! Must not depend on Muster's internal state, only on what the API shows.

use std::collections::BTreeMap;

use super::server_state::{GroupKey, PodChange, ServerState};

/// The history of one gang since it last had no bound members.
#[derive(Clone, Debug, Default)]
pub(super) struct GangHistory {
    /// The minimums by subset when it last reached all of them.
    pub(super) reached: Option<Vec<usize>>,
    /// A kubelet rejected a member.
    pub(super) refused: bool,
}

/// The histories of all gangs.
#[derive(Debug, Default)]
pub(super) struct Histories {
    by_key: BTreeMap<GroupKey, GangHistory>,
}

impl Histories {
    pub(super) fn pod_changed(&mut self, change: &PodChange) {
        let was_refused = change.before.as_ref().is_some_and(super::server_state::Pod::refused);
        if let Some(pod) = change.after.as_ref().filter(|pod| pod.refused() && !was_refused)
            && let Some(key) = &pod.group
        {
            self.by_key.entry(key.clone()).or_default().refused = true;
        }
    }

    /// Updates the history of every gang from the current state.
    pub(super) fn update(&mut self, state: &ServerState) {
        for key in state.groups() {
            let history = self.by_key.entry(key.clone()).or_default();
            if !state.members(&key).any(super::server_state::Pod::counts_towards_minimum) {
                *history = GangHistory::default();
                continue;
            }
            if let Some(progress) = state.progress(&key)
                && progress.iter().all(|(minimum, counted)| counted >= minimum)
            {
                history.reached = Some(progress.iter().map(|(minimum, _)| *minimum).collect());
            }
        }
    }

    pub(super) fn history(&self, key: &GroupKey) -> GangHistory {
        self.by_key.get(key).cloned().unwrap_or_default()
    }

    /// Why the start of a gang is final, so that it must not be rolled back.
    pub(super) fn why_final(&self, state: &ServerState, key: &GroupKey) -> Option<String> {
        let history = self.by_key.get(key)?;
        let progress = state.progress(key)?;
        let reached = history.reached.as_ref()?;
        let covered =
            reached.len() == progress.len() && reached.iter().zip(&progress).all(|(had, (need, _))| had >= need);
        let confirmed = state.conditions(key).into_iter().any(|one| one.kind == "Started" && one.holds);
        (covered && confirmed && !history.refused).then(|| format!("its gang {key:?} has started with {reached:?}"))
    }
}
