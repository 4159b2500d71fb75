//! Conditions that the server refuses: all of a kind in a namespace for a while, and one of an object until that object
//! changes.
//!
//! Must not depend on how conditions are sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::write::ConditionChange;

/// For so long no condition is written to a kind in a namespace after the server has forbidden it.
pub(crate) const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);
/// How many objects with refused conditions are remembered.
const OBJECTS_MAX: usize = 10_000;

/// What the server refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Kinds, by plural and namespace, whose status may not be written, and when that was found.
    forbidden: BTreeMap<(String, String), Instant>,
    /// Objects whose condition is invalid, by UID.
    invalid: BTreeMap<String, InvalidConditions>,
}

/// The conditions of one object that were refused.
#[derive(Debug, Default)]
struct InvalidConditions {
    /// The object as it was.
    resource_version: String,
    /// Status and reason of each.
    refused: BTreeSet<(String, String)>,
}

impl Refusals {
    /// Whether a change would be refused again.
    pub(crate) fn cover(&self, change: &ConditionChange, now: Instant) -> bool {
        // A policy may forbid it in one namespace.
        let forbidden = self.forbidden.get(&place(change));
        let invalid = self.invalid.get(&change.target.uid);
        forbidden.is_some_and(|since| now.duration_since(*since) < FORBIDDEN_PAUSE)
            || invalid.is_some_and(|known| {
                known.resource_version == change.resource_version && known.refused.contains(&gist(change))
            })
    }

    /// Remembers that the status of this kind may not be written in this namespace; returns whether that is the first
    /// namespace.
    pub(crate) fn forbid(&mut self, change: &ConditionChange, now: Instant) -> bool {
        let place = place(change);
        let is_first = !self.forbidden.keys().any(|(kind, _)| *kind == place.0);
        self.forbidden.insert(place, now);
        is_first
    }

    /// Remembers that a condition of this object, as it is, is invalid.
    pub(crate) fn refuse(&mut self, change: &ConditionChange) {
        if self.invalid.len() >= OBJECTS_MAX {
            self.invalid.clear();
        }
        let known = self.invalid.entry(change.target.uid.clone()).or_default();
        if known.resource_version != change.resource_version {
            *known = InvalidConditions { resource_version: change.resource_version.clone(), ..Default::default() };
        }
        known.refused.insert(gist(change));
    }
}

fn place(change: &ConditionChange) -> (String, String) {
    (change.target.resource.plural.clone(), change.target.namespace.clone())
}

/// The part of a condition that decides whether it is refused again. Its message may change every moment.
fn gist(change: &ConditionChange) -> (String, String) {
    let text = |field: &str| {
        let condition = change.condition.as_ref();
        condition.and_then(|one| one[field].as_str()).unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"))
}

#[cfg(test)]
mod tests {
    use kube::core::ApiResource;
    use muster_api::wire::Job;
    use serde_json::json;

    use super::*;
    use crate::write::Target;

    fn change(uid: &str, resource_version: &str, reason: &str, message: &str) -> ConditionChange {
        let resource = ApiResource::erase::<Job>(&());
        ConditionChange {
            target: Target { resource, namespace: "n".to_owned(), name: uid.to_owned(), uid: uid.to_owned() },
            resource_version: resource_version.to_owned(),
            index: None,
            is_first: true,
            condition: Some(json!({"status": "False", "reason": reason, "message": message})),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_condition_is_refused_until_the_object_changes() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        refusals.refuse(&change("a", "1", "Unschedulable", "one node"));
        assert!(refusals.cover(&change("a", "1", "Unschedulable", "two nodes"), now + 10 * FORBIDDEN_PAUSE));
        assert!(!refusals.cover(&change("a", "2", "Unschedulable", "one node"), now), "it has changed");
        assert!(!refusals.cover(&change("a", "1", "NeverFits", "one node"), now), "another condition may be valid");
        assert!(!refusals.cover(&change("b", "1", "Unschedulable", "one node"), now));
        refusals.refuse(&change("a", "1", "NeverFits", "one node"));
        assert!(refusals.cover(&change("a", "1", "Unschedulable", "one node"), now), "both are remembered");
        refusals.refuse(&change("a", "2", "NeverFits", "one node"));
        assert!(!refusals.cover(&change("a", "1", "Unschedulable", "one node"), now), "only of the last state");
        for number in 0..2 * OBJECTS_MAX {
            refusals.refuse(&change(&number.to_string(), "1", "Unschedulable", ""));
        }
        assert!(refusals.invalid.len() <= OBJECTS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn forbidden_kind_is_tried_again_after_a_pause() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        assert!(refusals.forbid(&change("a", "1", "Unschedulable", ""), now));
        assert!(!refusals.forbid(&change("b", "1", "Unschedulable", ""), now), "the kind is known");
        assert!(refusals.cover(&change("c", "7", "Scheduled", ""), now));
        assert!(!refusals.cover(&change("c", "7", "Scheduled", ""), now + FORBIDDEN_PAUSE));
    }
}
