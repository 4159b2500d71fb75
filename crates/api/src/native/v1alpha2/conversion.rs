//! Conversion between v1alpha2 and the internal form, which is that of v1beta1.
//!
//! Valid objects are converted without loss. `preemptionPolicy` and `parentCompositePodGroupName` do not exist in
//! v1alpha2. Must not depend on any rule.

use super::{
    DISRUPT_POD, DISRUPT_POD_GROUP, PodGroup, PodGroupSpec, PodGroupTemplate, TemplateReference, WorkloadSpec,
    WorkloadTemplate,
};
use crate::native;
use crate::native::pod_group::WorkloadReference;
use crate::native::policy::{DisruptionMode, Empty};

impl From<PodGroup> for native::PodGroup {
    fn from(group: PodGroup) -> Self {
        Self { metadata: group.metadata, spec: group.spec.into(), status: group.status }
    }
}

impl From<PodGroupSpec> for native::pod_group::PodGroupSpec {
    fn from(spec: PodGroupSpec) -> Self {
        Self {
            parent_composite_pod_group_name: None,
            workload_ref: spec.pod_group_template_ref.and_then(|reference| reference.workload).map(|template| {
                WorkloadReference {
                    workload_name: template.workload_name,
                    template_name: template.pod_group_template_name,
                }
            }),
            scheduling_policy: spec.scheduling_policy,
            scheduling_constraints: spec.scheduling_constraints,
            resource_claims: spec.resource_claims,
            disruption_mode: spec.disruption_mode.as_deref().map(union_of),
            priority_class_name: spec.priority_class_name,
            priority: spec.priority,
            preemption_policy: None,
        }
    }
}

impl From<native::pod_group::PodGroupSpec> for PodGroupSpec {
    fn from(spec: native::pod_group::PodGroupSpec) -> Self {
        Self {
            pod_group_template_ref: spec.workload_ref.map(|reference| TemplateReference {
                workload: Some(WorkloadTemplate {
                    workload_name: reference.workload_name,
                    pod_group_template_name: reference.template_name,
                }),
            }),
            scheduling_policy: spec.scheduling_policy,
            scheduling_constraints: spec.scheduling_constraints,
            resource_claims: spec.resource_claims,
            disruption_mode: spec.disruption_mode.as_ref().map(name_of),
            priority_class_name: spec.priority_class_name,
            priority: spec.priority,
        }
    }
}

impl From<WorkloadSpec> for native::workload::WorkloadSpec {
    fn from(spec: WorkloadSpec) -> Self {
        let templates = spec.pod_group_templates.into_iter().map(|template| native::workload::PodGroupTemplate {
            name: template.name,
            scheduling_policy: template.scheduling_policy,
            scheduling_constraints: template.scheduling_constraints,
            resource_claims: template.resource_claims,
            disruption_mode: template.disruption_mode.as_deref().map(union_of),
            priority_class_name: template.priority_class_name,
            priority: template.priority,
            preemption_policy: None,
        });
        Self { controller_ref: spec.controller_ref, pod_group_templates: templates.collect() }
    }
}

impl From<native::workload::WorkloadSpec> for WorkloadSpec {
    fn from(spec: native::workload::WorkloadSpec) -> Self {
        let templates = spec.pod_group_templates.into_iter().map(|template| PodGroupTemplate {
            name: template.name,
            scheduling_policy: template.scheduling_policy,
            scheduling_constraints: template.scheduling_constraints,
            resource_claims: template.resource_claims,
            disruption_mode: template.disruption_mode.as_ref().map(name_of),
            priority_class_name: template.priority_class_name,
            priority: template.priority,
        });
        Self { controller_ref: spec.controller_ref, pod_group_templates: templates.collect() }
    }
}

/// An unknown name sets neither member, which is as invalid as the name.
fn union_of(name: &str) -> DisruptionMode {
    let is = |known: &str| (name == known).then_some(Empty {});
    DisruptionMode { single: is(DISRUPT_POD), all: is(DISRUPT_POD_GROUP) }
}

fn name_of(mode: &DisruptionMode) -> String {
    if mode.all.is_some() { DISRUPT_POD_GROUP } else { DISRUPT_POD }.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn specs_survive_the_internal_form() {
        let settings = |mode: &str| {
            json!({
                "schedulingPolicy": {"gang": {"minCount": 3}}, "schedulingConstraints": {"topology": [{"key": "rack"}]},
                "resourceClaims": [{"name": "c", "resourceClaimName": "x"}], "disruptionMode": mode,
                "priorityClassName": "high", "priority": 5,
            })
        };
        for (mode, union) in [("Pod", json!({"single": {}})), ("PodGroup", json!({"all": {}}))] {
            let mut written = settings(mode);
            written["podGroupTemplateRef"] = json!({"workload": {"workloadName": "w", "podGroupTemplateName": "t"}});
            let spec: PodGroupSpec = serde_json::from_value(written.clone()).unwrap();
            let internal = native::pod_group::PodGroupSpec::from(spec);
            let shown = json!(internal);
            assert_eq!(shown["workloadRef"], json!({"workloadName": "w", "templateName": "t"}));
            assert_eq!(shown["disruptionMode"], union);
            assert_eq!(json!(PodGroupSpec::from(internal)), written);
            let mut template = settings(mode);
            template["name"] = json!("t");
            let written = json!({"controllerRef": {"kind": "Job", "name": "j"}, "podGroupTemplates": [template]});
            let spec: WorkloadSpec = serde_json::from_value(written.clone()).unwrap();
            let internal = native::workload::WorkloadSpec::from(spec);
            assert_eq!(json!(internal)["podGroupTemplates"][0]["disruptionMode"], union);
            assert_eq!(json!(WorkloadSpec::from(internal)), written);
        }
        let internal = native::pod_group::PodGroupSpec::from(PodGroupSpec::default());
        assert_eq!(json!(PodGroupSpec::from(internal))["podGroupTemplateRef"], Value::Null);
    }
}
