//! What has become of each gang so far, kept from the truth alone: whether it has had its minimum since it was last
//! empty, and what others did to it.
//!
//! It must not know what Muster thinks, only what the API shows.

use std::collections::BTreeMap;

use super::truth::{GroupKey, PodChange, Truth};

/// The story of one gang since nothing of it was on nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    /// The minimums that were reached, by subset, when it last had all of them.
    pub(super) reached: Option<Vec<usize>>,
    /// A kubelet refused a member.
    pub(super) refused: bool,
}

/// All gangs.
#[derive(Debug, Default)]
pub(super) struct Stories {
    by_key: BTreeMap<GroupKey, Story>,
}

impl Stories {
    /// A pod changed.
    pub(super) fn pod_changed(&mut self, change: &PodChange) {
        let was_refused = change.before.as_ref().is_some_and(super::truth::Pod::refused);
        if let Some(pod) = change.after.as_ref().filter(|pod| pod.refused() && !was_refused)
            && let Some(key) = &pod.group
        {
            self.by_key.entry(key.clone()).or_default().refused = true;
        }
    }

    /// Looks at all gangs as they are now.
    pub(super) fn look(&mut self, truth: &Truth) {
        for key in truth.groups() {
            let story = self.by_key.entry(key.clone()).or_default();
            if !truth.members(&key).any(super::truth::Pod::secured) {
                *story = Story::default();
                continue;
            }
            if let Some(needs) = truth.needs(&key)
                && needs.iter().all(|(minimum, secured)| secured >= minimum)
            {
                story.reached = Some(needs.iter().map(|(minimum, _)| *minimum).collect());
            }
        }
    }

    pub(super) fn story(&self, key: &GroupKey) -> Story {
        self.by_key.get(key).cloned().unwrap_or_default()
    }

    /// Why the start of a gang is settled, so that none of it may be taken back.
    pub(super) fn settled(&self, truth: &Truth, key: &GroupKey) -> Option<String> {
        let story = self.by_key.get(key)?;
        let needs = truth.needs(key)?;
        let reached = story.reached.as_ref()?;
        let covered = reached.len() == needs.len() && reached.iter().zip(&needs).all(|(had, (need, _))| had >= need);
        let told = truth.conditions(key).into_iter().any(|one| one.kind == "Started" && one.holds);
        (covered && told && !story.refused).then(|| format!("its gang {key:?} has started with {reached:?}"))
    }
}
