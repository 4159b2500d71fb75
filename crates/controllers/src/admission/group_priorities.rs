//! Admission of Muster's own PodGroups and Workloads: their priority is resolved at creation, as for pods.
//!
//! A new group gets the number of its class, or of the default class, and is refused with any other number. Later the
//! number stays valid whatever becomes of the class: an update that changes neither class nor number is not looked at.
//! An update may correct a wrong number; the right one is what the scheduler has recorded in the status, or what the
//! class gives if nothing is recorded yet. The number is put back if an update leaves it out, as for pods, since
//! `kubectl replace` writes the user's file, which has none; but a number that may be wrong can be removed. The schema
//! refuses a change of the class. A priority of the system is refused outside of kube-system.
//!
//! Nothing is filled in or refused before the classes have been listed, and for a class that is not known: it may have
//! been created a moment ago, with the group in one file. The scheduler resolves the priority then, or reports the
//! class.

use muster_api::group::{WrittenGroup, priority};
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::resolved_priority::{ResolvedPriority, check_namespace};
use muster_api::wire::{PodGroup, Workload};
use muster_api::workload::WrittenWorkloadGroup;
use muster_api::workload_tree::WrittenCompositeGroup;
use serde_json::{Value, json};

use super::patch::Patch;
use super::{Admission, Request, Verdict};
use crate::priority_classes::Resolution;
use crate::read::read;

/// The priority fields of a group.
#[derive(Clone, Copy)]
struct Fields<'a> {
    class: Option<&'a str>,
    number: Option<i32>,
    /// Whether the default class counts if the group names none. Otherwise the priority of the members does.
    has_default: bool,
}

impl<'a> Fields<'a> {
    /// The fields of a group; `None` if the number is not one, which the schema refuses.
    fn of(class: Option<&'a str>, number: &Value, has_default: bool) -> Option<Self> {
        let number = priority(number, &FieldPath::Root("priority")).ok()?;
        // An empty name is none, as for pods.
        Some(Self { class: class.filter(|name| !name.is_empty()), number, has_default })
    }

    fn of_pod_group(group: &'a WrittenGroup) -> Option<Self> {
        Self::of(group.priority_class_name.as_deref(), &group.priority, group.subsets.is_none())
    }

    fn of_workload_group(group: &'a WrittenWorkloadGroup) -> Option<Self> {
        // A group with a parent and without a class has the priority of the parent.
        Self::of(group.priority_class_name.as_deref(), &group.priority, group.parent.is_none())
    }

    fn of_composite_group(group: &'a WrittenCompositeGroup) -> Option<Self> {
        Self::of(group.priority_class_name.as_deref(), &group.priority, group.parent.is_none())
    }
}

impl Admission {
    pub(super) fn pod_group(&self, request: &Request<'_>) -> Verdict {
        let Some(group) = read::<PodGroup>(request.object) else { return Verdict::default() };
        let old = if request.is_update { read::<PodGroup>(request.old) } else { None };
        let before = old.as_ref().map(|old| (&old.spec, ResolvedPriority::read(&old.status.conditions)));
        let before = before.and_then(|(spec, recorded)| Some((Fields::of_pod_group(spec)?, recorded)));
        let Some(fields) = Fields::of_pod_group(&group.spec) else { return Verdict::default() };
        let mut patch = Patch::of(request.object);
        match self.number(request, fields, before, &FieldPath::Root("spec")) {
            Ok(Some(number)) => patch.set(&["spec"], "priority", &json!(number)),
            Ok(None) => {}
            Err(error) => return denied(request, "PodGroup", error),
        }
        Verdict::patched(patch)
    }

    pub(super) fn workload(&self, request: &Request<'_>) -> Verdict {
        let Some(workload) = read::<Workload>(request.object) else { return Verdict::default() };
        let old = if request.is_update { read::<Workload>(request.old) } else { None };
        let mut patch = Patch::of(request.object);
        let of_pods = workload.spec.pod_groups.iter().enumerate();
        let of_pods = of_pods.map(|(at, group)| ("podGroups", at, &group.name, Fields::of_workload_group(group)));
        let composite = workload.spec.composite_pod_groups.iter().enumerate();
        let composite =
            composite.map(|(at, group)| ("compositePodGroups", at, &group.name, Fields::of_composite_group(group)));
        for (list, index, name, fields) in of_pods.chain(composite) {
            let Some(fields) = fields else { continue };
            let before = old.as_ref().and_then(|old| workload_group(old, name));
            let (path, index_text) = (FieldPath::Root("spec"), index.to_string());
            match self.number(request, fields, before, &path.child(list).index(index)) {
                Ok(Some(number)) => patch.set(&["spec", list, &index_text], "priority", &json!(number)),
                Ok(None) => {}
                Err(error) => return denied(request, "Workload", error),
            }
        }
        Verdict::patched(patch)
    }

    /// The number to be filled in, if there is one. `before` is the group before an update, with the record of its
    /// priority.
    fn number(
        &self,
        request: &Request<'_>,
        now: Fields<'_>,
        before: Option<(Fields<'_>, Option<ResolvedPriority>)>,
        path: &FieldPath<'_>,
    ) -> Result<Option<i32>, InvalidField> {
        if !request.is_update {
            return self.resolved(request, now, path);
        }
        // The schema refuses a new group in a Workload and a change of the class.
        let Some((old, recorded)) = before.filter(|(old, _)| old.class == now.class) else { return Ok(None) };
        if old.number == now.number {
            return Ok(None);
        }
        let recorded = recorded.filter(|recorded| recorded.class.as_deref() == now.class).map(|one| one.value);
        match (now.number, recorded) {
            (None, Some(recorded)) => Ok(Some(recorded)),
            // A number that differs from the class may be wrong. The scheduler resolves a group without one.
            (None, None) => {
                Ok(old.number.filter(|number| self.classes.resolve(now.class) == Resolution::Value(*number)))
            }
            (Some(number), Some(recorded)) if number == recorded => Ok(None),
            (Some(number), Some(recorded)) => {
                let reason = format!("the priority was resolved when the group was created, and is {recorded}");
                Err(path.child("priority").invalid(&number, reason))
            }
            (Some(_), None) => self.resolved(request, now, path),
        }
    }

    /// Checks the number against the class of this moment; returns it if it is to be filled in.
    fn resolved(
        &self,
        request: &Request<'_>,
        fields: Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Result<Option<i32>, InvalidField> {
        let Resolution::Value(value) = self.classes.resolve(fields.class) else { return Ok(None) };
        let namespace = request.object["metadata"]["namespace"].as_str().unwrap_or_default();
        check_namespace(value, namespace)
            .map_err(|reason| path.child("priorityClassName").invalid(&fields.class.unwrap_or_default(), reason))?;
        match fields.number {
            None => Ok(Some(value).filter(|_| fields.class.is_some() || fields.has_default)),
            Some(number) if number == value => Ok(None),
            Some(number) => {
                let why = fields.class.map_or_else(
                    || format!("without a priorityClassName it is {value}"),
                    |name| format!("PriorityClass {name} has {value}"),
                );
                Err(path.child("priority").invalid(&number, format!("{why}; leave it out, and it is filled in")))
            }
        }
    }
}

/// A group of a Workload with the record of its priority, which every replica of it shows.
fn workload_group<'a>(workload: &'a Workload, name: &str) -> Option<(Fields<'a>, Option<ResolvedPriority>)> {
    let group = workload.spec.pod_groups.iter().find(|group| group.name == name).map(Fields::of_workload_group);
    let composite = || workload.spec.composite_pod_groups.iter().find(|group| group.name == name);
    let fields = group.or_else(|| composite().map(Fields::of_composite_group))??;
    let mut shown = workload.status.pod_groups.iter().filter(|shown| shown.name == name);
    let recorded = shown.find_map(|shown| ResolvedPriority::read(&shown.conditions));
    Some((fields, recorded))
}

fn denied(request: &Request<'_>, kind: &str, error: InvalidField) -> Verdict {
    let metadata = &request.object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    // The name is generated later.
    let name = if text("name").is_empty() { text("generateName") } else { text("name") };
    Verdict::denied(error.on(format!("{kind} {}/{name}", text("namespace"))).to_string())
}

#[cfg(test)]
mod tests;
