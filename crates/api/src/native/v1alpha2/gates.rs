//! Feature gates of the API of 1.36, defaults, and dropping of disabled fields.
//!
//! The default is a server with only `GenericWorkload` on: its groups have no priority and no disruption mode. Must not
//! depend on which values are valid.

use serde_json::{Value, json};

use super::DISRUPT_POD;
use crate::native::gates::{drop_fields, fields_of, is_set};

/// The gates other than `GenericWorkload`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// `TopologyAwareWorkloadScheduling`: `schedulingConstraints`.
    pub topology_aware_workload_scheduling: bool,
    /// `DRAWorkloadResourceClaims`: `resourceClaims`.
    pub dra_workload_resource_claims: bool,
    /// `WorkloadAwarePreemption`: `disruptionMode`, `priorityClassName` and `priority`.
    pub workload_aware_preemption: bool,
}

impl Gates {
    /// The gated fields of groups and templates, and whether they are enabled.
    fn fields(self) -> [(&'static str, bool); 5] {
        [
            ("schedulingConstraints", self.topology_aware_workload_scheduling),
            ("resourceClaims", self.dra_workload_resource_claims),
            ("disruptionMode", self.workload_aware_preemption),
            ("priorityClassName", self.workload_aware_preemption),
            ("priority", self.workload_aware_preemption),
        ]
    }
}

/// Sets defaults of a PodGroup. Called on create and on update, before fields are dropped.
pub fn set_pod_group_defaults(object: &mut Value) {
    if let Some(spec) = fields_of(object, "spec") {
        let mode = spec.entry("disruptionMode").or_insert(Value::Null);
        if mode.is_null() {
            *mode = json!(DISRUPT_POD);
        }
    }
}

/// Drops the fields of a PodGroup whose gate is off, unless `old`, the stored object, has them.
pub fn drop_disabled_pod_group(object: &mut Value, old: Option<&Value>, gates: Gates) {
    let old = old.and_then(|old| old.get("spec"));
    if let Some(spec) = fields_of(object, "spec") {
        drop_fields(spec, old, gates.fields().into_iter());
    }
    // The claim statuses are dropped unless the stored spec has claims.
    if let Some(status) = fields_of(object, "status")
        && !gates.dra_workload_resource_claims
        && !is_set(old, "resourceClaims")
    {
        status.remove("resourceClaimStatuses");
    }
}

/// Drops the fields of a Workload's templates whose gate is off, unless `old`, the stored object, has them.
///
/// Templates are matched by their index in the list, as the server does.
pub fn drop_disabled_workload(object: &mut Value, old: Option<&Value>, gates: Gates) {
    let old = old.and_then(|old| old.pointer("/spec/podGroupTemplates"));
    let templates = object.pointer_mut("/spec/podGroupTemplates").and_then(Value::as_array_mut);
    for (index, template) in templates.into_iter().flatten().enumerate() {
        if let Value::Object(template) = template {
            drop_fields(template, old.and_then(|old| old.get(index)), gates.fields().into_iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_preemption_groups_have_no_priority_and_no_mode() {
        let spec = json!({"schedulingPolicy": {"basic": {}}, "priority": 5, "priorityClassName": "high"});
        let mut group = json!({ "spec": spec });
        set_pod_group_defaults(&mut group);
        assert_eq!(group["spec"]["disruptionMode"], "Pod");
        let on = Gates { workload_aware_preemption: true, ..Gates::default() };
        let mut kept = group.clone();
        drop_disabled_pod_group(&mut kept, None, on);
        assert_eq!(kept, group);
        drop_disabled_pod_group(&mut kept, Some(&group), Gates::default());
        assert_eq!(kept, group, "fields in use stay");
        drop_disabled_pod_group(&mut kept, None, Gates::default());
        assert_eq!(kept, json!({"spec": {"schedulingPolicy": {"basic": {}}}}));
    }
}
