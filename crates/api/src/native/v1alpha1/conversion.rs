//! Conversion between v1alpha1 and the internal form, which is that of v1beta1: a group of a Workload is a template.
//!
//! v1alpha1 has only the policy of a group; its other settings are dropped. Must not depend on any rule.

use super::{PodGroup, WorkloadSpec};
use crate::native::workload::{self, PodGroupTemplate};

impl From<WorkloadSpec> for workload::WorkloadSpec {
    fn from(spec: WorkloadSpec) -> Self {
        let templates = spec.pod_groups.into_iter().map(|group| PodGroupTemplate {
            name: group.name,
            scheduling_policy: group.policy,
            ..PodGroupTemplate::default()
        });
        Self { controller_ref: spec.controller_ref, pod_group_templates: templates.collect() }
    }
}

impl From<workload::WorkloadSpec> for WorkloadSpec {
    fn from(spec: workload::WorkloadSpec) -> Self {
        let groups = spec.pod_group_templates.into_iter();
        let groups = groups.map(|template| PodGroup { name: template.name, policy: template.scheduling_policy });
        Self { controller_ref: spec.controller_ref, pod_groups: groups.collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn specs_survive_the_internal_form() {
        let group = json!({"name": "a", "policy": {"gang": {"minCount": 3}}});
        let written = json!({"controllerRef": {"kind": "Job", "name": "j"}, "podGroups": [group]});
        let spec: WorkloadSpec = serde_json::from_value(written.clone()).unwrap();
        let internal = workload::WorkloadSpec::from(spec);
        assert_eq!(json!(internal)["podGroupTemplates"][0]["schedulingPolicy"], json!({"gang": {"minCount": 3}}));
        assert_eq!(json!(WorkloadSpec::from(internal)), written);
    }
}
