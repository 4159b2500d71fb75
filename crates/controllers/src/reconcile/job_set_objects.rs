//! The Workload and PodGroups of a JobSet's gangs, in Muster's own API and in each version of the native API.
//!
//! They are made and compared in the internal form of the native API. Fields that a server or other writers fill in are ignored when objects are compared. Must not depend on the caches.

use kube::core::{ApiResource, DynamicObject};
use muster_api::group_topology::Topology;
use muster_api::keys::annotations::{DISRUPTION_MODE, LATER_PODS, PREEMPTION_COST};
use muster_api::native::NativeVersion;
use muster_api::native::pod_group::{PodGroupSpec, WorkloadReference};
use muster_api::native::policy::SchedulingPolicy;
use muster_api::native::workload::{ControllerReference, PodGroupTemplate, WorkloadSpec};
use muster_api::owners::Reference;
use muster_api::owners::job_set::{GangGroup, Gangs, labels};
use muster_api::selector::Labels;
use muster_api::wire::JobSet;
use serde::Deserialize;
use serde_json::{Value, json};

use super::owner_reference;
use crate::{disruption, group_annotations};

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
        let mode = disruption::written(&json!(template)).as_str();
        let mut group = json!({"name": template.name, "policy": template.scheduling_policy, "disruptionMode": mode});
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
        disruption_mode: Some(disruption::native(disruption::written(group))),
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
            disruption_mode: Some(disruption::native(group.disruption_mode)),
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
    // Where groups are separate objects, each of them says what comes later.
    let is_inline = has_groups(native);
    let (later, cost) = (later_pods(gangs, native).filter(|_| is_inline), cost(gangs).filter(|_| is_inline));
    let spec = encode(WorkloadSpec { controller_ref: Some(reference), pod_group_templates: templates }, native);
    let modes = workload_modes(&decode(&spec, native), gangs, native);
    let spec = if native.is_none() { with_topology(spec, gangs) } else { spec };
    let annotations = [(LATER_PODS, later), (DISRUPTION_MODE, modes), (PREEMPTION_COST, cost)];
    object(set, &gangs.workload, kind, annotations, &spec)
}

/// The same Workload with the topology of its groups.
fn with_topology(mut spec: Value, gangs: &Gangs) -> Value {
    for group in spec["podGroups"].as_array_mut().into_iter().flatten() {
        let gang = gangs.groups.iter().find(|gang| group["name"] == gang.name.as_str());
        if let Some(gang) = gang.filter(|gang| !gang.topology.is_empty()) {
            group["topology"] = json!(gang.topology.iter().map(Topology::written).collect::<Vec<_>>());
        }
    }
    spec
}

/// Whether the groups of a set are parts of its Workload, not objects of their own.
fn has_groups(native: Option<NativeVersion>) -> bool {
    native.is_none_or(|version| version.pod_groups().is_none())
}

/// The annotation with the cost of evicting one of the gangs.
fn cost(gangs: &Gangs) -> Option<String> {
    gangs.preemption_cost.map(|cost| cost.to_string())
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
        disruption_mode: Some(disruption::native(group.disruption_mode)),
        ..PodGroupSpec::default()
    });
    let mode = disruption::annotation(&spec, group.disruption_mode);
    let later = later_pods(gangs, Some(version));
    object(set, name, kind, [(LATER_PODS, later), (DISRUPTION_MODE, mode), (PREEMPTION_COST, cost(gangs))], &spec)
}

/// The annotation with the modes of the groups in a Workload that its fields do not say. Where groups are separate
/// objects, each of them says its own.
fn workload_modes(groups: &[PodGroupTemplate], gangs: &Gangs, native: Option<NativeVersion>) -> Option<String> {
    if !has_groups(native) {
        return None;
    }
    let modes = gangs.groups.iter().map(|group| (group.name.as_str(), group.disruption_mode)).collect();
    let written = groups.iter().map(|group| (group.name.as_str(), disruption::written(&json!(group))));
    disruption::annotation_by_name(written, &modes)
}

fn object(
    set: &JobSet,
    name: &str,
    kind: &ApiResource,
    annotations: [(&str, Option<String>); 3],
    spec: &Value,
) -> Value {
    let metadata = &set.metadata;
    let annotations = annotations.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?)));
    let annotations: Labels = annotations.collect();
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

/// The pods of gangs that start one after another, as annotation value. Pods join a group of the Workload, or a PodGroup
/// where groups are separate objects.
fn later_pods(gangs: &Gangs, native: Option<NativeVersion>) -> Option<String> {
    if gangs.later.is_empty() {
        return None;
    }
    let mut stages = gangs.later.clone();
    if !has_groups(native) {
        for part in stages.iter_mut().flatten() {
            let group = std::mem::take(&mut part.group);
            part.group =
                Reference { workload: Some(gangs.workload.clone()), group, replica_key: None }.pod_group_name();
        }
    }
    Some(json!(stages).to_string())
}

/// The change that a Workload of a set needs.
pub(super) fn workload_correction(
    current: &DynamicObject,
    desired: &Value,
    gangs: &Gangs,
    native: Option<NativeVersion>,
) -> Correction {
    let (current_groups, desired_groups) = (decode(&current.data["spec"], native), decode(&desired["spec"], native));
    let desired_of = |group: &PodGroupTemplate| desired_groups.iter().find(|one| one.name == group.name);
    let same = |one: &PodGroupTemplate, other: &PodGroupTemplate| {
        one.name == other.name && has_class(&one.priority_class_name, &other.priority_class_name, native)
    };
    let is_same_shape = current_groups.len() == desired_groups.len()
        && desired_groups.iter().all(|group| current_groups.iter().any(|one| same(one, group)));
    if !is_same_shape {
        return Correction::Recreate;
    }
    let mut patch = json!({});
    let annotations = current.metadata.annotations.as_ref();
    let needed = |key: &str| desired["metadata"]["annotations"][key].as_str();
    for key in [LATER_PODS, PREEMPTION_COST] {
        group_annotations::correct(&mut patch, annotations, key, needed(key));
    }
    let modes = workload_modes(&current_groups, gangs, native);
    group_annotations::correct(&mut patch, annotations, DISRUPTION_MODE, modes.as_deref());
    let minimum = |group: &PodGroupTemplate| group.scheduling_policy.gang.as_ref().map(|gang| gang.min_count);
    if current_groups.iter().any(|group| desired_of(group).map(minimum) != Some(minimum(group))) {
        if native.is_some_and(|version| !version.can_change_min_count()) {
            return Correction::Recreate;
        }
        // A native version whose minimums can be changed has the internal form.
        let (list, policy) =
            if native.is_some() { ("podGroupTemplates", "schedulingPolicy") } else { ("podGroups", "policy") };
        // A merge patch replaces the whole list, so every other field is repeated.
        let mut groups = current.data["spec"][list].clone();
        for (index, group) in current_groups.iter().enumerate() {
            groups[index][policy]["gang"]["minCount"] = json!(desired_of(group).and_then(minimum));
        }
        patch["spec"][list] = groups;
    }
    if patch == json!({}) { Correction::None } else { Correction::Patch(patch) }
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
    let annotations = current.metadata.annotations.as_ref();
    let mode = disruption::annotation(&current.data["spec"], group.disruption_mode);
    group_annotations::correct(&mut patch, annotations, LATER_PODS, later_pods(gangs, Some(version)).as_deref());
    group_annotations::correct(&mut patch, annotations, DISRUPTION_MODE, mode.as_deref());
    group_annotations::correct(&mut patch, annotations, PREEMPTION_COST, cost(gangs).as_deref());
    if patch == json!({}) { Correction::None } else { Correction::Patch(patch) }
}

#[cfg(test)]
mod tests {
    use muster_api::later_pods::LaterPods;
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
            let (old, new) = (gangs_of(&before), gangs_of(&after));
            let current = workload(&before, &old, version, &kind());
            let unchanged = workload_correction(&cached(&current), &current, &old, version);
            assert_eq!(unchanged, Correction::None, "{version:?}");
            let desired = workload(&after, &new, version, &kind());
            let correction = workload_correction(&cached(&current), &desired, &new, version);
            let list = match version {
                None => "podGroups",
                Some(NativeVersion::V1beta1) => "podGroupTemplates",
                Some(_) => {
                    assert_eq!(correction, Correction::Recreate, "{version:?}");
                    continue;
                }
            };
            let Correction::Patch(patch) = correction else { panic!("{correction:?}") };
            assert_eq!(patch["spec"][list], desired["spec"][list]);
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
            let correction = workload_correction(&cached(&current), &desired, &gangs_of(&one), version);
            assert_eq!(correction, Correction::Recreate, "{version:?}");
        }
    }

    #[test]
    fn changed_disruption_mode_is_an_annotation() {
        let before = set(2, ["", ""]);
        let mut after = before.clone();
        after.metadata.annotations.get_or_insert_default().insert(DISRUPTION_MODE.to_owned(), "Pod".to_owned());
        let (old, new) = (gangs_of(&before), gangs_of(&after));
        for version in VERSIONS {
            let mut current = workload(&before, &old, version, &kind());
            let desired = workload(&after, &new, version, &kind());
            let correction = workload_correction(&cached(&current), &desired, &new, version);
            let annotation = match version {
                None => json!(r#"{"pg-a":"Pod","pg-b":"Pod"}"#),
                // It has no field for it: the annotation that said PodGroup is removed.
                Some(NativeVersion::V1alpha1) => Value::Null,
                Some(_) => {
                    assert_eq!(correction, Correction::None, "its PodGroups say it");
                    continue;
                }
            };
            let Correction::Patch(patch) = correction else { panic!("{correction:?}") };
            assert_eq!(patch, json!({"metadata": {"annotations": {DISRUPTION_MODE: annotation}}}));
            current["metadata"]["annotations"] = json!({});
            if !annotation.is_null() {
                current["metadata"]["annotations"][DISRUPTION_MODE] = annotation;
            }
            let again = workload_correction(&cached(&current), &desired, &new, version);
            assert_eq!(again, Correction::None, "{version:?}");
        }
        let version = NativeVersion::V1beta1;
        let current = cached(&pod_group(&before, &old, &old.groups[0], "g", (version, &kind())));
        let correction = pod_group_correction(&current, &new, &new.groups[0], version);
        let patch = json!({"metadata": {"annotations": {DISRUPTION_MODE: "Pod"}}});
        assert_eq!(correction, Correction::Patch(patch));
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
        whole.later = vec![vec![LaterPods { group: "pg-a".to_owned(), count: 2, ..LaterPods::default() }]];
        let version = NativeVersion::V1alpha2;
        let current = cached(&pod_group(&after, &new, &new.groups[0], "g", (version, &kind())));
        let correction = pod_group_correction(&current, &whole, &new.groups[0], version);
        assert!(
            matches!(&correction, Correction::Patch(patch) if patch["metadata"]["annotations"][LATER_PODS].as_str().is_some_and(|text| text.contains("w-js.pg-a"))),
            "{correction:?}"
        );
    }
}
