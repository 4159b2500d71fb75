//! The priority of a group, as resolved when its object was created, and the condition message that records it.
//!
//! As for pods, later changes of PriorityClasses change no existing group. The condition is the memory of that across
//! restarts; the scheduler writes it, and the webhook compares later numbers with it. Must not depend on how a priority
//! is resolved.

use crate::keys::conditions::PRIORITY_RESOLVED;
use crate::wire::condition::Condition;

/// The highest priority that a PriorityClass of users can have; higher ones are the system's.
const USER_PRIORITY_MAX: i32 = 1_000_000_000;
/// The only namespace whose groups may have a priority of the system.
const SYSTEM_NAMESPACE: &str = "kube-system";

const PREFIX: &str = "The priority is ";
const CLASS: &str = ", of PriorityClass ";
const NEVER: &str = ", and it never preempts";

/// Refuses a priority of the system to groups of other namespaces. For pods ResourceQuota can limit the use of such a
/// class; it does not look at groups, and any pod in such a group could preempt nearly everything.
pub fn check_namespace(value: i32, namespace: &str) -> Result<(), String> {
    if value <= USER_PRIORITY_MAX || namespace == SYSTEM_NAMESPACE {
        return Ok(());
    }
    Err(format!("the priority {value} is the system's, which only groups in {SYSTEM_NAMESPACE} may have"))
}

/// A priority that was resolved from a class, or from the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPriority {
    /// The class that the object named; `None` if it named none.
    pub class: Option<String>,
    /// The number.
    pub value: i32,
    /// Whether the class forbade to preempt.
    pub never_preempts: bool,
}

impl ResolvedPriority {
    /// The message of the condition.
    pub fn message(&self) -> String {
        let class = self.class.as_ref().map(|name| format!("{CLASS}{name}")).unwrap_or_default();
        let never = if self.never_preempts { NEVER } else { "" };
        format!("{PREFIX}{}{class}{never}.", self.value)
    }

    /// What the conditions of a group record, if they do.
    pub fn read(conditions: &[Condition]) -> Option<Self> {
        let recorded = Condition::find(conditions, PRIORITY_RESOLVED).filter(|one| one.is_true())?;
        let text = recorded.message.strip_prefix(PREFIX)?.strip_suffix('.')?;
        let (text, never_preempts) = text.strip_suffix(NEVER).map_or((text, false), |rest| (rest, true));
        let (value, class) = text.split_once(CLASS).map_or((text, None), |(value, class)| (value, Some(class)));
        Some(Self { class: class.map(str::to_owned), value: value.parse().ok()?, never_preempts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(status: &str, message: String) -> Option<ResolvedPriority> {
        let kind = PRIORITY_RESOLVED.to_owned();
        ResolvedPriority::read(&[Condition { kind, status: status.to_owned(), message, ..Condition::default() }])
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        for class in [None, Some("high"), Some("a.b-c")] {
            for value in [i32::MIN, -1, 0, 2_000_000_000] {
                for never_preempts in [false, true] {
                    let resolved = ResolvedPriority { class: class.map(str::to_owned), value, never_preempts };
                    assert_eq!(recorded("True", resolved.message()), Some(resolved));
                }
            }
        }
    }

    #[test]
    fn text_that_was_not_written_by_muster_records_nothing() {
        for message in ["", "The priority is .", "The priority is high.", "The priority is 5", "the priority is 5."] {
            assert_eq!(recorded("True", message.to_owned()), None, "{message}");
        }
        assert_eq!(recorded("False", "The priority is 5.".to_owned()), None);
    }
}
