//! The annotation of a group object with the pods that its owner creates only after others run.
//!
//! It is a list of stages, each with the pods that run at the same time. Everything that decides on which nodes a pod may
//! run and what it uses there is kept of a template, also its scheduler's name for the profile; terms about other pods are
//! not.

use serde::{Deserialize, Serialize};

use crate::invalid::{FieldPath, Invalid, InvalidField};
use crate::keys::annotations::LATER_PODS;
use crate::owners::requests::{requests_of, to_quantities};
use crate::wire::container::{Container, Requirements};
use crate::wire::pod::PodSpec;
use crate::wire::pod_affinity::Affinity;

/// The maximum number of entries in all stages.
pub const LATER_PARTS_MAX: usize = 64;
/// The maximum number of pods in all entries: an attempt looks for room for each of them.
pub const LATER_PODS_MAX: i64 = 20_000;

/// Pods of one template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LaterPods {
    /// The group that they join: in a Workload one of its groups, else the name of the group object.
    pub group: String,
    /// How many members it will have in all, those that exist already included.
    pub count: i64,
    /// What each of them requires.
    pub pod: PodSpec,
}

/// Reads the annotation.
pub fn read(text: &str) -> Result<Vec<Vec<LaterPods>>, InvalidField> {
    let annotations = FieldPath::Root("metadata.annotations");
    let path = annotations.key(LATER_PODS);
    let stages: Vec<Vec<LaterPods>> = serde_json::from_str(text)
        .map_err(|error| path.invalid(text, format_args!("must be a list of lists of pods as JSON: {error}")))?;
    let parts = stages.iter().flatten();
    if parts.clone().count() > LATER_PARTS_MAX {
        return Err(path.invalid(&parts.count(), format_args!("must have at most {LATER_PARTS_MAX} entries")));
    }
    for (index, part) in parts.enumerate() {
        let path = path.index(index);
        if part.group.is_empty() {
            return Err(path.child("group").invalid("", "must be set"));
        }
        if part.count < 1 {
            return Err(path.child("count").invalid(&part.count, "must be 1 or more"));
        }
    }
    let total = total(&stages);
    if total > LATER_PODS_MAX {
        return Err(path.invalid(&total, format_args!("must be at most {LATER_PODS_MAX} pods in all")));
    }
    Ok(stages)
}

/// The number of pods in all stages.
pub fn total(stages: &[Vec<LaterPods>]) -> i64 {
    stages.iter().flatten().fold(0, |sum: i64, part| sum.saturating_add(part.count))
}

/// What a pod of a template requires of its node. Requests default to limits, as on the pod.
pub fn reduced(template: &PodSpec) -> Result<PodSpec, Invalid> {
    let requests = to_quantities(&requests_of(template)?);
    let resources = Requirements { requests: Some(requests), ..Requirements::default() };
    let ports = template.containers.iter().flat_map(|container| &container.ports);
    let ports = ports.filter(|port| port.host_port != 0).cloned().collect();
    let node_affinity = template.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
    Ok(PodSpec {
        containers: vec![Container { resources, ports, ..Container::default() }],
        node_selector: template.node_selector.clone(),
        affinity: node_affinity.map(|affinity| Affinity { node_affinity: Some(affinity), ..Affinity::default() }),
        tolerations: template.tolerations.clone(),
        scheduler_name: template.scheduler_name.clone(),
        ..PodSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn template_is_reduced_to_what_it_requires_of_a_node() {
        let template: PodSpec = serde_json::from_value(json!({
            "schedulerName": "muster",
            "containers": [
                {"name": "a", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "1"}}},
                {"name": "b", "image": "log", "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": "500m"}}},
            ],
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}, "nodeAffinity": {}},
        }))
        .unwrap();
        let expected = json!({
            "schedulerName": "muster",
            "containers": [{"name": "", "resources": {"requests": {"cpu": "1500m", "nvidia.com/gpu": "8"}}}],
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        });
        assert_eq!(json!(reduced(&template).unwrap()), expected);
    }

    #[test]
    fn invalid_annotations_name_the_entry() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert!(error("[").contains("must be a list of lists of pods"));
        assert!(error(r#"[[{"group": "g", "count": 0, "pod": {"containers": []}}]]"#).contains("[0].count"));
        assert!(error(r#"[[{"group": "", "count": 1, "pod": {"containers": []}}]]"#).contains("[0].group"));
        assert!(error(r#"[[{"group": "g", "count": 1, "pods": {}}]]"#).contains("unknown field"));
        let many = format!("[[{}]]", vec![r#"{"group": "g", "count": 1, "pod": {"containers": []}}"#; 65].join(","));
        assert!(error(&many).contains("at most 64"));
        assert!(error(r#"[[{"group": "g", "count": 20001, "pod": {"containers": []}}]]"#).contains("at most 20000"));
        assert_eq!(read("[]"), Ok(Vec::new()));
    }
}
