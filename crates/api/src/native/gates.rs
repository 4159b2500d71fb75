//! Feature gates of the native API, defaults, and dropping of disabled fields.
//!
//! A server drops a field whose gate is off, unless the stored object has it already: then it is kept, so that turning
//! a gate off loses nothing. The default is Kubernetes 1.37 with only `GenericWorkload` on. Gates of fields that a
//! version lacks have no effect there.
//!
//! The functions work on JSON, since a server stores the complete object with fields that are unknown here. Must not
//! depend on which values are valid.

use serde_json::{Map, Value, json};

/// The gates other than `GenericWorkload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `TopologyAwareWorkloadScheduling`: `schedulingConstraints`.
    pub topology_aware_workload_scheduling: bool,
    /// `DRAWorkloadResourceClaims`: `resourceClaims`.
    pub dra_workload_resource_claims: bool,
    /// `WorkloadAwarePreemption` of 1.36: `disruptionMode`, `priorityClassName` and `priority`. In 1.37 it is part of
    /// `GenericWorkload`.
    pub workload_aware_preemption: bool,
    /// `PodGroupPreemptionPolicy`: `preemptionPolicy`.
    pub pod_group_preemption_policy: bool,
    /// `CompositePodGroup`: `parentCompositePodGroupName`. Composite templates are dropped in any case.
    pub composite_pod_group: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            topology_aware_workload_scheduling: false,
            dra_workload_resource_claims: false,
            workload_aware_preemption: true,
            pod_group_preemption_policy: false,
            composite_pod_group: false,
        }
    }
}

impl Gates {
    /// All gates on.
    pub const ALL: Self = Self {
        topology_aware_workload_scheduling: true,
        dra_workload_resource_claims: true,
        workload_aware_preemption: true,
        pod_group_preemption_policy: true,
        composite_pod_group: true,
    };

    /// The gated fields that a group and a template share, and whether they are enabled.
    fn shared(self) -> [(&'static str, bool); 6] {
        [
            ("schedulingConstraints", self.topology_aware_workload_scheduling),
            ("resourceClaims", self.dra_workload_resource_claims),
            ("disruptionMode", self.workload_aware_preemption),
            ("priorityClassName", self.workload_aware_preemption),
            ("priority", self.workload_aware_preemption),
            ("preemptionPolicy", self.pod_group_preemption_policy),
        ]
    }
}

/// Sets defaults of a PodGroup. Called on create and on update, before fields are dropped.
pub fn set_pod_group_defaults(object: &mut Value, gates: Gates) {
    set_default(object, "disruptionMode", json!({"single": {}}));
    if gates.pod_group_preemption_policy {
        set_default(object, "preemptionPolicy", json!("PreemptLowerPriority"));
    }
}

/// Sets a field of the spec that is unset.
pub(super) fn set_default(object: &mut Value, field: &str, default: Value) {
    if let Some(spec) = fields_of(object, "spec") {
        let entry = spec.entry(field).or_insert(Value::Null);
        if entry.is_null() {
            *entry = default;
        }
    }
}

/// Drops the fields of a PodGroup whose gate is off, unless `old`, the stored object, has them.
pub fn drop_disabled_pod_group(object: &mut Value, old: Option<&Value>, gates: Gates) {
    let old = old.and_then(|old| old.get("spec"));
    if let Some(spec) = fields_of(object, "spec") {
        let parent = [("parentCompositePodGroupName", gates.composite_pod_group)];
        drop_fields(spec, old, gates.shared().into_iter().chain(parent));
    }
    // The claim statuses are dropped unless the stored spec has claims.
    if let Some(status) = fields_of(object, "status")
        && !gates.dra_workload_resource_claims
        && !is_set(old, "resourceClaims")
    {
        status.remove("resourceClaimStatuses");
    }
}

/// Drops the fields of a Workload whose gate is off, unless `old`, the stored object, has them.
///
/// Templates are matched by their index in the list, as the server does.
pub fn drop_disabled_workload(object: &mut Value, old: Option<&Value>, gates: Gates) {
    let Some(spec) = fields_of(object, "spec") else {
        return;
    };
    spec.remove("compositePodGroupTemplates");
    let old = old.and_then(|old| old.pointer("/spec/podGroupTemplates"));
    let Some(Value::Array(templates)) = spec.get_mut("podGroupTemplates") else {
        return;
    };
    for (index, template) in templates.iter_mut().enumerate() {
        if let Value::Object(template) = template {
            drop_fields(template, old.and_then(|old| old.get(index)), gates.shared().into_iter());
        }
    }
}

fn fields_of<'a>(object: &'a mut Value, part: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(part).and_then(Value::as_object_mut)
}

fn drop_fields(
    fields: &mut Map<String, Value>,
    old: Option<&Value>,
    gated: impl Iterator<Item = (&'static str, bool)>,
) {
    for (field, is_on) in gated {
        if !is_on && !is_set(old, field) {
            fields.remove(field);
        }
    }
}

/// Whether an object has a field; an empty list counts as unset.
fn is_set(object: Option<&Value>, field: &str) -> bool {
    match object.and_then(|object| object.get(field)) {
        None | Some(Value::Null) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Value {
        json!({
            "schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "c",
            "schedulingConstraints": {"topology": [{"key": "rack"}]}, "resourceClaims": [{"name": "a"}],
            "preemptionPolicy": "Never", "priority": 5,
        })
    }

    #[test]
    fn disabled_fields_are_dropped_and_others_stay() {
        let mut group = json!({"spec": full(), "status": {"conditions": [], "resourceClaimStatuses": [{"name": "a"}]}});
        drop_disabled_pod_group(&mut group, None, Gates::default());
        let expected =
            json!({"spec": {"schedulingPolicy": {"basic": {}}, "priority": 5}, "status": {"conditions": []}});
        assert_eq!(group, expected);
        let mut workload = json!({"spec": {
            "podGroupTemplates": [full()], "compositePodGroupTemplates": [{"name": "c"}], "controllerRef": {},
        }});
        drop_disabled_workload(&mut workload, None, Gates::default());
        // A template has no parent field, so an unknown field of that name is not dropped.
        let template = json!({"schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "c", "priority": 5});
        assert_eq!(workload, json!({"spec": {"podGroupTemplates": [template], "controllerRef": {}}}));
    }

    #[test]
    fn enabled_or_used_fields_stay() {
        for (old, gates) in [(None, Gates::ALL), (Some(json!({"spec": full()})), Gates::default())] {
            let mut group = json!({"spec": full(), "status": {"resourceClaimStatuses": [{"name": "a"}]}});
            let before = group.clone();
            drop_disabled_pod_group(&mut group, old.as_ref(), gates);
            assert_eq!(group, before);
        }
        let stored = json!({"spec": {"podGroupTemplates": [full(), {"name": "b", "resourceClaims": []}]}});
        let mut workload = json!({"spec": {"podGroupTemplates": [full(), full()]}});
        drop_disabled_workload(&mut workload, Some(&stored), Gates::default());
        assert_eq!(workload["spec"]["podGroupTemplates"][0], full());
        assert_eq!(workload["spec"]["podGroupTemplates"][1].get("resourceClaims"), None);
    }

    #[test]
    fn without_preemption_groups_have_no_priority_and_no_mode() {
        let off = Gates { workload_aware_preemption: false, ..Gates::default() };
        let group = json!({"spec": {
            "schedulingPolicy": {"basic": {}}, "disruptionMode": "Pod", "priority": 5, "priorityClassName": "high",
        }});
        for (old, gates) in [(None, Gates::default()), (Some(&group), off)] {
            let mut kept = group.clone();
            drop_disabled_pod_group(&mut kept, old, gates);
            assert_eq!(kept, group, "enabled fields and fields in use stay");
        }
        let mut dropped = group.clone();
        drop_disabled_pod_group(&mut dropped, None, off);
        assert_eq!(dropped, json!({"spec": {"schedulingPolicy": {"basic": {}}}}));
    }

    #[test]
    fn disruption_mode_defaults_to_single() {
        for (spec, gate, expected) in [
            (json!({}), false, json!({"disruptionMode": {"single": {}}})),
            (json!({"disruptionMode": null}), false, json!({"disruptionMode": {"single": {}}})),
            (json!({"disruptionMode": {"all": {}}}), false, json!({"disruptionMode": {"all": {}}})),
            (json!({}), true, json!({"disruptionMode": {"single": {}}, "preemptionPolicy": "PreemptLowerPriority"})),
        ] {
            let mut object = json!({ "spec": spec });
            set_pod_group_defaults(&mut object, Gates { pod_group_preemption_policy: gate, ..Gates::default() });
            assert_eq!(object["spec"], expected);
        }
    }
}
