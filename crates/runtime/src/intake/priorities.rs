//! PriorityClasses, and the priority of groups.
//!
//! A priority value without a PriorityClass is never trusted.

use k8s_openapi::api::scheduling::v1::PriorityClass;
use muster_api::resolved_priority::{ResolvedPriority, check_namespace};
use muster_engine::model::group::{GroupPriority, PreemptionPolicy};
use muster_reflector::{Delta, Guarded, Key, Table, key_of};

use super::raw;
use crate::dialect::{GroupError, ParsedGroup, PriorityField, WithoutClass};

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
        let (changed, error) = self.classes.update(delta, key_of, |class| raw::parsed(class).map(read));
        (!changed.is_empty(), error)
    }

    /// The priority of a group that has none yet, from its class or the default one; `None` if it has that of its
    /// members. A number that the API server resolved counts, whatever has become of the class.
    pub(crate) fn resolve(&self, field: &PriorityField) -> Result<Option<ResolvedPriority>, GroupError> {
        if let Some(value) = field.number_by_server() {
            let never_preempts = self.class(field).ok().flatten().is_some_and(|class| class.never_preempts);
            return Ok(Some(ResolvedPriority { class: field.class.clone(), value, never_preempts }));
        }
        if field.class.is_none() && field.without_class == WithoutClass::LowestMember {
            return Ok(None);
        }
        let class = self.class(field)?;
        Ok(Some(ResolvedPriority {
            class: field.class.clone(),
            value: class.map_or(0, |class| class.value),
            never_preempts: class.is_some_and(|class| class.never_preempts),
        }))
    }

    fn class(&self, field: &PriorityField) -> Result<Option<&Class>, GroupError> {
        let classes = &self.classes.entries;
        match &field.class {
            Some(name) => classes.get(&(String::new(), name.clone())).map(Some).ok_or_else(|| no_such_class(name)),
            // Of several default classes the API server takes the lowest.
            None => Ok(classes.values().filter(|class| class.is_default).min_by_key(|class| class.value)),
        }
    }

    /// The priority of a group, and whether it may preempt. `resolved` is its priority if it was resolved before.
    pub(crate) fn of(
        &self,
        group: &ParsedGroup,
        namespace: &str,
        resolved: Option<&ResolvedPriority>,
        own_priorities: bool,
    ) -> Result<(GroupPriority, PreemptionPolicy), GroupError> {
        let field = &group.priority;
        let resolved = match resolved.filter(|resolved| resolved.class == field.class) {
            Some(resolved) => Some(resolved.clone()),
            None => self.resolve(field)?,
        };
        let Some(resolved) = resolved else { return Ok((GroupPriority::LowestMember, PreemptionPolicy::default())) };
        if let Some(number) = field.number.filter(|number| *number != resolved.value) {
            let why = field.class.as_ref().map_or_else(
                || format!("without spec.priorityClassName it is {}", resolved.value),
                |name| format!("the class {name} gives {}", resolved.value),
            );
            return Err(GroupError::invalid(format!("spec.priority: {number}: {why}")));
        }
        if own_priorities && let Err(reason) = check_namespace(resolved.value, namespace) {
            let class = field.class.as_deref().unwrap_or_default();
            return Err(GroupError::invalid(format!("spec.priorityClassName: {class:?}: {reason}")));
        }
        let priority = match (&field.class, field.without_class) {
            (None, WithoutClass::SharedByMembers) => GroupPriority::SharedByMembers,
            _ if own_priorities => GroupPriority::Own(resolved.value),
            _ => GroupPriority::LowestMember,
        };
        let of_class = if resolved.never_preempts { PreemptionPolicy::Never } else { PreemptionPolicy::default() };
        Ok((priority, group.preemption_policy.unwrap_or(of_class)))
    }
}

fn no_such_class(name: &str) -> GroupError {
    GroupError::invalid(format!("spec.priorityClassName: {name:?}: there is no such PriorityClass"))
}
