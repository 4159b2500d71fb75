//! What the group objects of an owner say about its gangs, and the sentence that follows from it.

use kube::core::DynamicObject;
use muster_api::keys::GROUP;
use muster_api::keys::conditions::{NATIVE_PREFIX, POD_GROUP_SCHEDULED};
use muster_api::keys::group_reasons as reasons;
use serde_json::Value;

use super::Verdict;

/// A sentence of a group longer than this is cut.
const SENTENCE_CHARS_MAX: usize = 200;

/// The state of one gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gang {
    /// Its name for users.
    pub(super) name: String,
    /// The group in its Workload; empty if it is an object of its own.
    pub(super) group: String,
    /// Whether it is scheduled; `None` if nothing was reported, or it has no pods yet.
    pub(super) scheduled: Option<bool>,
    /// Whether it has no pods: its owner has not created them yet.
    pub(super) is_empty: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) minimum: i64,
    /// Members that have succeeded, where that is known.
    pub(super) succeeded: i64,
}

/// The gangs of an owner. Only some of many are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gangs {
    pub(super) listed: Vec<Gang>,
    pub(super) scheduled: i64,
    pub(super) total: i64,
}

impl Gangs {
    /// Adds a gang that is an object of its own.
    pub(super) fn add(&mut self, gang: Gang) {
        self.scheduled += i64::from(gang.scheduled == Some(true));
        // Parts that come later have objects and no pods.
        self.total += i64::from(!gang.is_empty);
        self.listed.push(gang);
    }

    /// The gangs in a Workload of Muster.
    pub(super) fn of_workload(workload: &DynamicObject) -> Self {
        let (spec, status) = (&workload.data["spec"], &workload.data["status"]);
        let minimum = |group: &Value| {
            let groups = spec["podGroups"].as_array().into_iter().flatten();
            let policy = groups.into_iter().find(|one| one["name"] == *group).map(|one| &one["policy"]);
            policy.and_then(|policy| policy["gang"]["minCount"].as_i64()).unwrap_or(0)
        };
        let listed = status["podGroups"].as_array().into_iter().flatten().map(|one| {
            let group = one["name"].as_str().unwrap_or_default();
            let name = match one["replicaKey"].as_str().unwrap_or_default() {
                "" => group.to_owned(),
                key => format!("{group}[{key}]"),
            };
            let gang = Gang { group: group.to_owned(), minimum: minimum(&one["name"]), ..gang(name, one, "") };
            Gang { succeeded: one["succeeded"].as_i64().unwrap_or(0), ..gang }
        });
        let listed: Vec<Gang> = listed.collect();
        let number = |field: &str| status["instances"][field].as_i64().unwrap_or(0);
        if listed.is_empty() {
            // The object cannot be used, or no pod names one of its groups yet.
            let whole = gang(workload.metadata.name.clone().unwrap_or_default(), status, "");
            let listed: Vec<Gang> = (whole.scheduled == Some(false)).then_some(whole).into_iter().collect();
            return Self { total: i64::from(!listed.is_empty()), listed, scheduled: 0 };
        }
        Self { listed, scheduled: number("scheduled"), total: number("total") }
    }

    /// What the owner has to say about gangs of which it expects so many.
    pub(super) fn verdict(&self, expected: i64, noun: &str) -> Verdict {
        let total = self.total.max(expected);
        if let Some(gang) = self.listed.iter().find(|gang| gang.scheduled == Some(false)) {
            let message = shortened(&gang.message);
            let message = if total == 1 {
                message
            } else {
                format!("{} of {total} {noun} are scheduled; {}: {message}", self.scheduled, gang.name)
            };
            return Verdict::Waiting { reason: gang.reason, message };
        }
        if self.scheduled >= total { Verdict::Scheduled } else { Verdict::Unknown }
    }
}

/// A gang that is an object of its own.
pub(super) fn gang_of_object(name: String, object: &DynamicObject, is_muster: bool) -> Gang {
    let minimum = object.data["spec"]["policy"]["gang"]["minCount"].as_i64().unwrap_or(0);
    let prefix = if is_muster { "" } else { NATIVE_PREFIX };
    Gang { minimum, ..gang(name, &object.data["status"], prefix) }
}

/// Whether a kind is one of Muster's own.
pub(super) fn is_muster(kind: &kube::core::ApiResource) -> bool {
    kind.group == GROUP
}

/// A gang as the conditions in a status show it.
fn gang(name: String, status: &Value, prefix: &str) -> Gang {
    let kind = format!("{prefix}{POD_GROUP_SCHEDULED}");
    let condition = status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == *kind);
    let text = |field: &str| condition.and_then(|one| one[field].as_str()).unwrap_or_default();
    let is_empty = text("reason") == reasons::WAITING_FOR_MEMBERS && has_no_members(status, text("message"));
    let scheduled = match text("status") {
        "True" => Some(true),
        "False" if !is_empty => Some(false),
        _ => None,
    };
    let (reason, message) = (known_reason(text("reason")), text("message").to_owned());
    Gang { name, group: String::new(), scheduled, is_empty, reason, message, minimum: 0, succeeded: 0 }
}

/// Whether a group that waits for members has none. Native groups show no counts, but the message says so.
fn has_no_members(status: &Value, message: &str) -> bool {
    let subsets = status["subsets"].as_array().into_iter().flatten();
    let counts: Vec<i64> = subsets.chain([status]).filter_map(|one| one["total"].as_i64()).collect();
    if counts.is_empty() {
        return message.starts_with("Waiting for members: 0 of") || message.starts_with("Waiting for members: none");
    }
    counts.iter().all(|count| *count == 0)
}

/// The reasons for which a group can wait.
const WAITING_REASONS: [&str; 11] = [
    reasons::UNSCHEDULABLE,
    reasons::WAITING_FOR_MEMBERS,
    reasons::GATED,
    reasons::NOT_FOUND_WITHIN_BUDGET,
    reasons::NEVER_FITS,
    reasons::WAITING_FOR_VICTIMS,
    reasons::WAITING_FOR_VOLUMES,
    reasons::SCHEDULE_TIMEOUT,
    reasons::INVALID,
    reasons::UNSUPPORTED,
    reasons::SCHEDULER_ERROR,
];

/// A reason of a group's condition. Another could be invalid on the owner.
fn known_reason(reason: &str) -> &'static str {
    WAITING_REASONS.into_iter().find(|known| *known == reason).unwrap_or(reasons::UNSCHEDULABLE)
}

/// Whether a reason is about groups, not about the owner itself.
pub(super) fn is_reason(reason: &str) -> bool {
    reason == reasons::SCHEDULED || WAITING_REASONS.contains(&reason)
}

/// The beginning of a text, up to the end of a sentence if there is one.
fn shortened(text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(SENTENCE_CHARS_MAX) else { return text.to_owned() };
    let text = &text[..end];
    match (text.rfind(". "), text.rfind(' ')) {
        (Some(end), _) => text[..=end].to_owned(),
        (None, Some(end)) => format!("{} ...", &text[..end]),
        (None, None) => format!("{text} ..."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn gang_whose_pods_are_not_created_yet_does_not_wait() {
        let status = |total: Value, message: &str| {
            let condition = json!({"type": "PodGroupScheduled", "status": "False", "reason": "WaitingForMembers", "message": message});
            json!({"subsets": total, "conditions": [condition]})
        };
        let of = |status: &Value| gang("g".to_owned(), status, "");
        let mut gangs = Gangs::default();
        gangs.add(of(&status(json!([{"total": 0}]), "Waiting for members: 0 of 2 are there.")));
        gangs.add(of(&status(json!(null), "Waiting for members: 0 of 2 are there.")));
        assert_eq!((gangs.total, gangs.verdict(1, "gangs")), (0, Verdict::Unknown));
        gangs.add(Gang { scheduled: Some(true), is_empty: false, ..of(&json!({})) });
        assert_eq!(gangs.verdict(1, "gangs"), Verdict::Scheduled);
        let waiting = of(&status(json!([{"total": 1}]), "Waiting for members: 1 of 2 are there."));
        assert_eq!((waiting.scheduled, waiting.is_empty), (Some(false), false));
    }

    #[test]
    fn long_text_ends_with_a_sentence() {
        let sentence = "a".repeat(150) + ".";
        assert_eq!(shortened(&format!("{sentence} {sentence}")), sentence);
        assert_eq!(shortened("short. text"), "short. text");
        let words = "word ".repeat(60);
        assert!(shortened(&words).ends_with("word ...") && shortened(&words).len() < 210);
        assert_eq!(shortened(&"ä".repeat(300)).chars().count(), SENTENCE_CHARS_MAX + 4);
    }
}
