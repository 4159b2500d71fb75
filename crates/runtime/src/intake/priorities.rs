//! PriorityClasses, and the priority of groups.
//!
//! A priority value without a PriorityClass is never trusted.

use std::collections::BTreeMap;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use muster_engine::model::group::{GroupPriority, PreemptionPolicy};

use crate::dialect::{GroupError, Mismatch, ParsedGroup, WithoutClass};

/// The PriorityClasses of the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Priorities {
    classes: BTreeMap<String, Class>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    value: i32,
    is_default: bool,
    never_preempts: bool,
}

impl Priorities {
    /// A class was added or changed; returns whether that changes anything.
    pub(crate) fn on_applied(&mut self, class: &PriorityClass) -> bool {
        let name = class.metadata.name.clone().unwrap_or_default();
        let new = Class {
            value: class.value.unwrap_or(0),
            is_default: class.global_default == Some(true),
            never_preempts: class.preemption_policy.as_deref() == Some("Never"),
        };
        self.classes.insert(name, new) != Some(new)
    }

    /// A class is gone; returns whether it was known.
    pub(crate) fn on_deleted(&mut self, name: &str) -> bool {
        self.classes.remove(name).is_some()
    }

    /// The names of all classes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.classes.keys()
    }

    /// The priority of a group, and whether it may preempt.
    pub(crate) fn of(
        &self,
        group: &ParsedGroup,
        own_priorities: bool,
    ) -> Result<(GroupPriority, PreemptionPolicy), GroupError> {
        let field = &group.priority;
        let class = match &field.class {
            Some(name) => Some(self.classes.get(name).ok_or_else(|| no_such_class(name))?),
            // Of several default classes the API server takes the lowest.
            None => self.classes.values().filter(|class| class.is_default).min_by_key(|class| class.value),
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
