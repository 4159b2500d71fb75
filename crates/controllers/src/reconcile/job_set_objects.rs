//! The Workload and PodGroups of a JobSet's gangs, in Muster's own API and in each version of the native API.
//!
//! They are made and compared in the internal form of the native API. Fields that a server or other writers fill in are ignored when objects are compared. Must not depend on the caches.

use kube::core::{ApiResource, DynamicObject};
use muster_api::keys::annotations::WHOLE_RESOURCES;
use muster_api::native::NativeVersion;
use muster_api::native::pod_group::{PodGroupSpec, WorkloadReference};
use muster_api::native::policy::SchedulingPolicy;
use muster_api::native::workload::{ControllerReference, PodGroupTemplate, WorkloadSpec};
use muster_api::owners::job_set::{GangGroup, Gangs, labels};
use muster_api::owners::requests::to_quantities;
use muster_api::selector::Labels;
use muster_api::wire::JobSet;
use serde::Deserialize;
use serde_json::{Value, json};

use super::owner_reference;

/// The change that an object needs.
#[derive(Debug, PartialEq)]
pub(super) enum Correction {
    /// None.
    None,
    /// A merge patch.
    Patch(Value),
    /// It must be deleted and created again.
    Recreate,
}

/// The spec of a Workload in the API that a cluster's groups are written in: Muster's own has groups with a class.
fn encode(spec: WorkloadSpec, native: Option<NativeVersion>) -> Value {
    if let Some(version) = native {
        return version.encode_workload_spec(spec);
    }
    let groups = spec.pod_group_templates.iter().map(|template| {
        let mut group = json!({"name": template.name, "policy": template.scheduling_policy});
        if !template.priority_class_name.is_empty() {
            group["priorityClassName"] = json!(template.priority_class_name);
        }
        group
    });
    json!({"controllerRef": spec.controller_ref, "podGroups": groups.collect::<Vec<_>>()})
}

/// The groups of a stored Workload.
fn decode(spec: &Value, native: Option<NativeVersion>) -> Vec<PodGroupTemplate> {
    if let Some(version) = native {
        return version.decode_workload_spec(spec).unwrap_or_default().pod_group_templates;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let groups = spec["podGroups"].as_array().into_iter().flatten().map(|group| PodGroupTemplate {
        name: text(&group["name"]),
        scheduling_policy: SchedulingPolicy::deserialize(&group["policy"]).unwrap_or_default(),
        priority_class_name: text(&group["priorityClassName"]),
        ..PodGroupTemplate::default()
    });
    groups.collect()
}

/// The Workload of a set.
pub(super) fn workload(set: &JobSet, gangs: &Gangs, native: Option<NativeVersion>, kind: &ApiResource) -> Value {
    let mut templates: Vec<PodGroupTemplate> = gangs
        .groups
        .iter()
        .map(|group| PodGroupTemplate {
            name: group.name.clone(),
            scheduling_policy: SchedulingPolicy::gang(group.minimum()),
            priority_class_name: group.priority_class_name.clone(),
            ..PodGroupTemplate::default()
        })
        .collect();
    // All templates of a native Workload must have the same class; if they differ, only the PodGroups carry it.
    if native.is_some() && templates.windows(2).any(|two| two[0].priority_class_name != two[1].priority_class_name) {
        for template in &mut templates {
            template.priority_class_name.clear();
        }
    }
    let reference = ControllerReference {
        api_group: "jobset.x-k8s.io".to_owned(),
        kind: "JobSet".to_owned(),
        name: set.metadata.name.clone().unwrap_or_default(),
    };
    // Where groups are separate objects, each of them carries the total.
    let whole = whole_resources(gangs).filter(|_| native.is_none_or(|version| version.pod_groups().is_none()));
    let spec = encode(WorkloadSpec { controller_ref: Some(reference), pod_group_templates: templates }, native);
    object(set, &gangs.workload, kind, whole, &spec)
}

/// The PodGroup of a group, or of one of its replicas.
pub(super) fn pod_group(
    set: &JobSet,
    gangs: &Gangs,
    group: &GangGroup,
    name: &str,
    (version, kind): (NativeVersion, &ApiResource),
) -> Value {
    let workload_ref = WorkloadReference { workload_name: gangs.workload.clone(), template_name: group.name.clone() };
    let spec = version.encode_pod_group_spec(PodGroupSpec {
        workload_ref: Some(workload_ref),
        scheduling_policy: SchedulingPolicy::gang(group.minimum()),
        priority_class_name: group.priority_class_name.clone(),
        ..PodGroupSpec::default()
    });
    object(set, name, kind, whole_resources(gangs), &spec)
}

fn object(set: &JobSet, name: &str, kind: &ApiResource, whole: Option<String>, spec: &Value) -> Value {
    let metadata = &set.metadata;
    let annotations: Labels = whole.map(|text| (WHOLE_RESOURCES.to_owned(), text)).into_iter().collect();
    json!({
        "apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {
            "name": name, "namespace": metadata.namespace,
            "labels": {labels::JOB_SET: metadata.name, labels::JOB_SET_UID: metadata.uid},
            "annotations": annotations,
            "ownerReferences": [owner_reference(set)],
        },
        "spec": spec,
    })
}

/// The total of all gangs that start one after another, as annotation value: the first gang waits until that much is
/// free.
fn whole_resources(gangs: &Gangs) -> Option<String> {
    (!gangs.whole_resources.is_empty()).then(|| json!(to_quantities(&gangs.whole_resources)).to_string())
}

fn annotation(object: &DynamicObject) -> Option<&str> {
    object.metadata.annotations.as_ref().and_then(|all| all.get(WHOLE_RESOURCES)).map(String::as_str)
}

/// The change that a Workload of a set needs.
pub(super) fn workload_correction(
    current: &DynamicObject,
    desired: &Value,
    native: Option<NativeVersion>,
) -> Correction {
    let (current_groups, desired_groups) = (decode(&current.data["spec"], native), decode(&desired["spec"], native));
    let desired_of = |group: &PodGroupTemplate| desired_groups.iter().find(|one| one.name == group.name);
    let same = |one: &PodGroupTemplate, other: &PodGroupTemplate| {
        one.name == other.name && has_class(&one.priority_class_name, &other.priority_class_name, native)
    };
    let is_same_shape = current_groups.len() == desired_groups.len()
        && desired_groups.iter().all(|group| current_groups.iter().any(|one| same(one, group)))
        && annotation(current) == desired["metadata"]["annotations"][WHOLE_RESOURCES].as_str();
    if !is_same_shape {
        return Correction::Recreate;
    }
    let minimum = |group: &PodGroupTemplate| group.scheduling_policy.gang.as_ref().map(|gang| gang.min_count);
    if current_groups.iter().all(|group| desired_of(group).map(minimum) == Some(minimum(group))) {
        return Correction::None;
    }
    if !native.is_some_and(NativeVersion::can_change_min_count) {
        return Correction::Recreate;
    }
    // Such a version has the internal form. A merge patch replaces the whole list, so every other field is repeated.
    let mut templates = current.data["spec"]["podGroupTemplates"].clone();
    for (index, group) in current_groups.iter().enumerate() {
        templates[index]["schedulingPolicy"]["gang"]["minCount"] = json!(desired_of(group).and_then(minimum));
    }
    Correction::Patch(json!({"spec": {"podGroupTemplates": templates}}))
}

/// Whether a group has the desired class. A server without priority classes of groups drops the field.
fn has_class(current: &str, desired: &str, native: Option<NativeVersion>) -> bool {
    current == desired || (native.is_some() && (current.is_empty() || desired.is_empty()))
}

/// The change that a PodGroup of a set needs.
pub(super) fn pod_group_correction(
    current: &DynamicObject,
    gangs: &Gangs,
    group: &GangGroup,
    version: NativeVersion,
) -> Correction {
    let class = current.data["spec"]["priorityClassName"].as_str().unwrap_or_default();
    if !has_class(class, &group.priority_class_name, Some(version)) {
        return Correction::Recreate;
    }
    let mut patch = json!({});
    if current.data["spec"]["schedulingPolicy"]["gang"]["minCount"].as_i64() != Some(group.minimum()) {
        if !version.can_change_min_count() {
            return Correction::Recreate;
        }
        patch["spec"]["schedulingPolicy"] = json!(SchedulingPolicy::gang(group.minimum()));
    }
    let whole = whole_resources(gangs);
    if annotation(current) != whole.as_deref() {
        patch["metadata"]["annotations"][WHOLE_RESOURCES] = json!(whole);
    }
    if patch == json!({}) { Correction::None } else { Correction::Patch(patch) }
}

#[cfg(test)]
mod tests {
    use muster_api::owners::job_set::gangs;

    use super::*;

    fn set(parallelism: i64, classes: [&str; 2]) -> JobSet {
        let job = |(name, class): (&str, &str)| {
            json!({"name": name, "replicas": 2, "template": {
                "metadata": {"annotations": {"muster.dev/gang-mode": "ReplicatedGang"}},
                "spec": {"parallelism": parallelism, "completions": parallelism, "template": {
                    "spec": {"schedulerName": "muster", "priorityClassName": class, "containers": []}}}}})
        };
        let jobs: Vec<Value> = ["a", "b"].into_iter().zip(classes).map(job).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "js", "namespace": "n", "uid": "u"}, "spec": {"replicatedJobs": jobs}}))
        .unwrap()
    }

    fn gangs_of(set: &JobSet) -> Gangs {
        gangs(set, &["muster".to_owned()]).unwrap().unwrap()
    }

    fn kind() -> ApiResource {
        NativeVersion::V1beta1.workloads()
    }

    fn cached(object: &Value) -> DynamicObject {
        serde_json::from_value(object.clone()).unwrap()
    }

    const VERSIONS: [Option<NativeVersion>; 4] =
        [None, Some(NativeVersion::V1beta1), Some(NativeVersion::V1alpha2), Some(NativeVersion::V1alpha1)];

    #[test]
    fn correct_workload_is_unchanged_and_new_minimums_are_patched_where_mutable() {
        let (before, after) = (set(2, ["", ""]), set(3, ["", ""]));
        for version in VERSIONS {
            let current = workload(&before, &gangs_of(&before), version, &kind());
            assert_eq!(workload_correction(&cached(&current), &current, version), Correction::None, "{version:?}");
            let desired = workload(&after, &gangs_of(&after), version, &kind());
            let correction = workload_correction(&cached(&current), &desired, version);
            if version == Some(NativeVersion::V1beta1) {
                let Correction::Patch(patch) = correction else { panic!("{correction:?}") };
                assert_eq!(patch["spec"]["podGroupTemplates"], desired["spec"]["podGroupTemplates"]);
            } else {
                assert_eq!(correction, Correction::Recreate, "{version:?}");
            }
        }
    }

    #[test]
    fn changed_set_of_groups_recreates_workload() {
        let two = set(2, ["", ""]);
        let mut one = two.clone();
        one.spec.replicated_jobs.pop();
        for version in VERSIONS {
            let current = workload(&two, &gangs_of(&two), version, &kind());
            let desired = workload(&one, &gangs_of(&one), version, &kind());
            assert_eq!(workload_correction(&cached(&current), &desired, version), Correction::Recreate, "{version:?}");
        }
    }

    #[test]
    fn templates_share_one_class_or_none_and_dropped_class_is_accepted() {
        let version = NativeVersion::V1beta1;
        let differing = set(2, ["high", "low"]);
        let gangs = gangs_of(&differing);
        let templates = workload(&differing, &gangs, Some(version), &kind())["spec"]["podGroupTemplates"].clone();
        assert_eq!(
            (&templates[0]["priorityClassName"], &templates[1]["priorityClassName"]),
            (&Value::Null, &Value::Null)
        );
        let group = &gangs.groups[0];
        let mut current = pod_group(&differing, &gangs, group, "w-js.pg-a.0", (version, &kind()));
        assert_eq!(current["spec"]["priorityClassName"], "high");
        assert_eq!(current["spec"]["workloadRef"], json!({"workloadName": "w-js", "templateName": "pg-a"}));
        assert_eq!(pod_group_correction(&cached(&current), &gangs, group, version), Correction::None);
        current["spec"].as_object_mut().unwrap().remove("priorityClassName");
        assert_eq!(pod_group_correction(&cached(&current), &gangs, group, version), Correction::None);
        current["spec"]["priorityClassName"] = json!("low");
        assert_eq!(pod_group_correction(&cached(&current), &gangs, group, version), Correction::Recreate);
    }

    #[test]
    fn pod_group_follows_counts_of_its_set() {
        let (before, after) = (set(2, ["", ""]), set(3, ["", ""]));
        let (old, new) = (gangs_of(&before), gangs_of(&after));
        for (version, recreated) in [(NativeVersion::V1beta1, false), (NativeVersion::V1alpha2, true)] {
            let current = cached(&pod_group(&before, &old, &old.groups[0], "g", (version, &kind())));
            let correction = pod_group_correction(&current, &new, &new.groups[0], version);
            let patch = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}});
            assert_eq!(correction, if recreated { Correction::Recreate } else { Correction::Patch(patch) });
        }
        let mut whole = new.clone();
        whole.whole_resources.insert("cpu".to_owned(), 4_000);
        let version = NativeVersion::V1alpha2;
        let current = cached(&pod_group(&after, &new, &new.groups[0], "g", (version, &kind())));
        let correction = pod_group_correction(&current, &whole, &new.groups[0], version);
        assert!(
            matches!(&correction, Correction::Patch(patch) if patch["metadata"]["annotations"][WHOLE_RESOURCES].is_string()),
            "{correction:?}"
        );
    }
}
