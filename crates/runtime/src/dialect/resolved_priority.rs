//! The priority of a group, as resolved when its object was first seen, and the condition that records it.
//!
//! As for pods, later changes of PriorityClasses change no existing group. The condition is the memory of that across
//! restarts.

use muster_api::wire::condition::Condition;
use muster_engine::model::group::PreemptionPolicy;

use super::condition::Conditions;
use muster_api::keys::conditions::PRIORITY_RESOLVED;

/// The reason of the condition.
const REASON: &str = "Resolved";
const PREFIX: &str = "The priority is ";
const CLASS: &str = ", of PriorityClass ";
const NEVER: &str = ", and it never preempts";

/// A priority that was resolved from a class, or from the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedPriority {
    /// The class that the object named; `None` if it named none.
    pub(crate) class: Option<String>,
    pub(crate) value: i32,
    /// Whether the class forbade to preempt.
    pub(crate) never_preempts: bool,
}

impl ResolvedPriority {
    /// The preemption policy of the class.
    pub(crate) fn preemption_policy(&self) -> PreemptionPolicy {
        if self.never_preempts { PreemptionPolicy::Never } else { PreemptionPolicy::default() }
    }

    /// Records it.
    pub(crate) fn write(&self, conditions: &mut Conditions) {
        let class = self.class.as_ref().map(|name| format!("{CLASS}{name}")).unwrap_or_default();
        let never = if self.never_preempts { NEVER } else { "" };
        conditions.set(PRIORITY_RESOLVED, true, REASON, &format!("{PREFIX}{}{class}{never}.", self.value));
    }

    /// What is recorded, if anything is.
    pub(crate) fn read(conditions: &[Condition]) -> Option<Self> {
        let recorded = Condition::find(conditions, PRIORITY_RESOLVED).filter(|one| one.is_true())?;
        let text = recorded.message.strip_prefix(PREFIX)?.strip_suffix('.')?;
        let (text, never_preempts) = text.strip_suffix(NEVER).map_or((text, false), |rest| (rest, true));
        let (value, class) = text.split_once(CLASS).map_or((text, None), |(value, class)| (value, Some(class)));
        Some(Self { class: class.map(str::to_owned), value: value.parse().ok()?, never_preempts })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn record_is_read_as_it_was_written() {
        for class in [None, Some("high"), Some("a.b-c")] {
            for value in [i32::MIN, -1, 0, 2_000_000_000] {
                for never_preempts in [false, true] {
                    let resolved = ResolvedPriority { class: class.map(str::to_owned), value, never_preempts };
                    let mut conditions = Conditions::from(&[], Timestamp::UNIX_EPOCH, 1);
                    resolved.write(&mut conditions);
                    assert_eq!(ResolvedPriority::read(&conditions.into_list()), Some(resolved));
                }
            }
        }
    }

    #[test]
    fn text_that_was_not_written_by_muster_records_nothing() {
        for message in ["", "The priority is .", "The priority is high.", "The priority is 5", "the priority is 5."] {
            let mut conditions = Conditions::from(&[], Timestamp::UNIX_EPOCH, 1);
            conditions.set(PRIORITY_RESOLVED, true, REASON, message);
            assert_eq!(ResolvedPriority::read(&conditions.into_list()), None, "{message}");
        }
    }
}
