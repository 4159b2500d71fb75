//! PriorityClasses, and the priority of groups.
//!
//! A priority value without a PriorityClass is never trusted.

use k8s_openapi::api::scheduling::v1::PriorityClass;
use muster_engine::model::group::{GroupPriority, PreemptionPolicy};
use muster_reflector::{Delta, Key, Table, key_of};

use super::raw::Guarded;
use crate::dialect::{GroupError, Mismatch, ParsedGroup, WithoutClass};

/// The PriorityClasses of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Priorities {
    classes: Table<Key, Class>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    value: i32,
    is_default: bool,
    never_preempts: bool,
}

impl Priorities {
    pub(super) fn has_synced(&self) -> bool {
        self.classes.has_synced()
    }

    /// Applies an event. Returns whether that changes anything, and an error if the class cannot be parsed.
    pub(super) fn on_delta(&mut self, delta: Delta<Guarded<PriorityClass>>) -> (bool, Option<String>) {
        let read = |class: PriorityClass| Class {
            value: class.value.unwrap_or(0),
            is_default: class.global_default == Some(true),
            never_preempts: class.preemption_policy.as_deref() == Some("Never"),
        };
        let (changed, error) = self.classes.update(delta, key_of, |class| class.parsed().map(read));
        (!changed.is_empty(), error)
    }

    /// The priority of a group, and whether it may preempt.
    pub(crate) fn of(
        &self,
        group: &ParsedGroup,
        own_priorities: bool,
    ) -> Result<(GroupPriority, PreemptionPolicy), GroupError> {
        let field = &group.priority;
        let class = match &field.class {
            Some(name) => {
                Some(self.classes.entries.get(&(String::new(), name.clone())).ok_or_else(|| no_such_class(name))?)
            }
            // Of several default classes the API server takes the lowest.
            None => self.classes.entries.values().filter(|class| class.is_default).min_by_key(|class| class.value),
        };
        let value = class.map_or(0, |class| class.value);
        if field.mismatch == Mismatch::Refused && field.number.is_some_and(|number| number != value) {
            let why = field.class.as_ref().map_or_else(
                || format!("without spec.priorityClassName it is {value}"),
                |name| format!("the class {name} gives {value}"),
            );
            let message = format!("spec.priority: {}: {why}", field.number.unwrap_or(0));
            return Err(GroupError::invalid(message));
        }
        let priority = match (&field.class, field.without_class) {
            (None, WithoutClass::SharedByMembers) => GroupPriority::SharedByMembers,
            (None, WithoutClass::LowestMember) => {
                return Ok((GroupPriority::LowestMember, PreemptionPolicy::default()));
            }
            _ if own_priorities => GroupPriority::Own(value),
            _ => GroupPriority::LowestMember,
        };
        let of_class = class.filter(|class| class.never_preempts).map(|_| PreemptionPolicy::Never);
        Ok((priority, group.preemption_policy.or(of_class).unwrap_or_default()))
    }
}

fn no_such_class(name: &str) -> GroupError {
    GroupError::invalid(format!("spec.priorityClassName: {name:?}: there is no such PriorityClass"))
}
