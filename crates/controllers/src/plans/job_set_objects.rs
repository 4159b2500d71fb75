//! The objects of a JobSet's gangs, in our own words and in those of each version of Kubernetes' own groups.
//!
//! What a server or others fill in does not count when an object is compared. It must not know what there is.

use kube::core::{ApiResource, DynamicObject};
use muster_api::keys::annotations::WHOLE_RESOURCES;
use muster_api::makers::job_set::{GangGroup, Gangs, labels};
use muster_api::makers::requests::written;
use muster_api::native::NativeVersion;
use muster_api::selector::Labels;
use muster_api::wire::JobSet;
use serde_json::{Value, json};

use super::owner;

/// What has to be changed in an object.
#[derive(Debug, PartialEq)]
pub(super) enum Correction {
    /// Nothing.
    Nothing,
    /// This, in place.
    Patch(Value),
    /// So much that another has to take its place.
    Anew,
}

/// The fields of a Workload that have its groups, and how these are placed.
fn fields(native: Option<NativeVersion>) -> (&'static str, &'static str) {
    match native {
        None | Some(NativeVersion::V1alpha1) => ("podGroups", "policy"),
        Some(_) => ("podGroupTemplates", "schedulingPolicy"),
    }
}

fn gang(group: &GangGroup) -> Value {
    json!({"gang": {"minCount": group.minimum()}})
}

/// The Workload of a set.
pub(super) fn workload(set: &JobSet, gangs: &Gangs, native: Option<NativeVersion>, kind: &ApiResource) -> Value {
    let (list, policy) = fields(native);
    let has_classes = match native {
        None => true,
        Some(NativeVersion::V1alpha1) => false,
        // All templates of a Workload have one class: where they differ only the groups tell.
        Some(_) => gangs.groups.windows(2).all(|two| two[0].priority_class_name == two[1].priority_class_name),
    };
    let groups: Vec<Value> = gangs
        .groups
        .iter()
        .map(|group| {
            let mut written = json!({"name": group.name, policy: gang(group)});
            if has_classes && !group.priority_class_name.is_empty() {
                written["priorityClassName"] = json!(group.priority_class_name);
            }
            written
        })
        .collect();
    let reference = json!({"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": set.metadata.name});
    // Where groups are objects of their own, each says what all need.
    let whole = whole_resources(gangs).filter(|_| native.is_none_or(|version| version.pod_groups().is_none()));
    let spec = json!({"controllerRef": reference, list: groups});
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
    let mut spec = json!({"schedulingPolicy": gang(group)});
    if version == NativeVersion::V1alpha2 {
        let template = json!({"workloadName": gangs.workload, "podGroupTemplateName": group.name});
        spec["podGroupTemplateRef"] = json!({"workload": template});
    } else {
        spec["workloadRef"] = json!({"workloadName": gangs.workload, "templateName": group.name});
    }
    if !group.priority_class_name.is_empty() {
        spec["priorityClassName"] = json!(group.priority_class_name);
    }
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
            "ownerReferences": [owner(set)],
        },
        "spec": spec,
    })
}

/// What the first gang has to wait for if the others start after it.
fn whole_resources(gangs: &Gangs) -> Option<String> {
    (!gangs.whole_resources.is_empty()).then(|| json!(written(&gangs.whole_resources)).to_string())
}

fn annotation(object: &DynamicObject) -> Option<&str> {
    object.metadata.annotations.as_ref().and_then(|all| all.get(WHOLE_RESOURCES)).map(String::as_str)
}

/// What has to be changed in a Workload of a set.
pub(super) fn correction_of_workload(
    current: &DynamicObject,
    wanted: &Value,
    native: Option<NativeVersion>,
) -> Correction {
    let (list, policy) = fields(native);
    let groups = |spec: &Value| spec[list].as_array().cloned().unwrap_or_default();
    let (there, wanted_groups) = (groups(&current.data["spec"]), groups(&wanted["spec"]));
    let minimum = |group: &Value| group[policy]["gang"]["minCount"].clone();
    let same = |one: &Value, other: &Value| one["name"] == other["name"] && has_class(one, other, native);
    let is_the_same = there.len() == wanted_groups.len()
        && wanted_groups.iter().all(|group| there.iter().any(|one| same(one, group)))
        && annotation(current) == wanted["metadata"]["annotations"][WHOLE_RESOURCES].as_str();
    if !is_the_same {
        return Correction::Anew;
    }
    let mut right = there.clone();
    for group in &mut right {
        let wanted = wanted_groups.iter().find(|one| one["name"] == group["name"]);
        group[policy]["gang"]["minCount"] = wanted.map(minimum).unwrap_or_default();
    }
    if right == there {
        Correction::Nothing
    } else if native.is_some_and(NativeVersion::minimums_may_change) {
        Correction::Patch(json!({"spec": {list: right}}))
    } else {
        Correction::Anew
    }
}

/// Whether a group has the class that is wanted. A server that does not know classes of groups drops them.
fn has_class(current: &Value, wanted: &Value, native: Option<NativeVersion>) -> bool {
    let class = |group: &Value| group["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let (current, wanted) = (class(current), class(wanted));
    current == wanted || (native.is_some() && (current.is_empty() || wanted.is_empty()))
}

/// What has to be changed in the PodGroup of a group.
pub(super) fn correction_of_pod_group(
    current: &DynamicObject,
    gangs: &Gangs,
    group: &GangGroup,
    version: NativeVersion,
) -> Correction {
    let class = json!({"priorityClassName": group.priority_class_name});
    if !has_class(&current.data["spec"], &class, Some(version)) {
        return Correction::Anew;
    }
    let mut patch = json!({});
    if current.data["spec"]["schedulingPolicy"]["gang"]["minCount"].as_i64() != Some(group.minimum()) {
        if !version.minimums_may_change() {
            return Correction::Anew;
        }
        patch["spec"]["schedulingPolicy"] = gang(group);
    }
    let whole = whole_resources(gangs);
    if annotation(current) != whole.as_deref() {
        patch["metadata"]["annotations"][WHOLE_RESOURCES] = json!(whole);
    }
    if patch == json!({}) { Correction::Nothing } else { Correction::Patch(patch) }
}

#[cfg(test)]
mod tests {
    use muster_api::makers::job_set::gangs;

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

    fn seen(object: &Value) -> DynamicObject {
        serde_json::from_value(object.clone()).unwrap()
    }

    const VERSIONS: [Option<NativeVersion>; 4] =
        [None, Some(NativeVersion::V1beta1), Some(NativeVersion::V1alpha2), Some(NativeVersion::V1alpha1)];

    #[test]
    fn a_workload_that_is_right_is_left_alone_and_new_minimums_are_written_where_they_can_be() {
        let (before, after) = (set(2, ["", ""]), set(3, ["", ""]));
        for version in VERSIONS {
            let there = workload(&before, &gangs_of(&before), version, &kind());
            assert_eq!(correction_of_workload(&seen(&there), &there, version), Correction::Nothing, "{version:?}");
            let wanted = workload(&after, &gangs_of(&after), version, &kind());
            let correction = correction_of_workload(&seen(&there), &wanted, version);
            if version == Some(NativeVersion::V1beta1) {
                let Correction::Patch(patch) = correction else { panic!("{correction:?}") };
                assert_eq!(patch["spec"]["podGroupTemplates"], wanted["spec"]["podGroupTemplates"]);
            } else {
                assert_eq!(correction, Correction::Anew, "{version:?}");
            }
        }
    }

    #[test]
    fn other_groups_are_another_workload() {
        let two = set(2, ["", ""]);
        let mut one = two.clone();
        one.spec.replicated_jobs.pop();
        for version in VERSIONS {
            let there = workload(&two, &gangs_of(&two), version, &kind());
            let wanted = workload(&one, &gangs_of(&one), version, &kind());
            assert_eq!(correction_of_workload(&seen(&there), &wanted, version), Correction::Anew, "{version:?}");
        }
    }

    #[test]
    fn templates_have_one_class_or_none_and_what_a_server_dropped_is_not_missed() {
        let version = NativeVersion::V1beta1;
        let differing = set(2, ["high", "low"]);
        let gangs = gangs_of(&differing);
        let templates = workload(&differing, &gangs, Some(version), &kind())["spec"]["podGroupTemplates"].clone();
        assert_eq!(
            (&templates[0]["priorityClassName"], &templates[1]["priorityClassName"]),
            (&Value::Null, &Value::Null)
        );
        let group = &gangs.groups[0];
        let mut there = pod_group(&differing, &gangs, group, "w-js.pg-a.0", (version, &kind()));
        assert_eq!(there["spec"]["priorityClassName"], "high");
        assert_eq!(there["spec"]["workloadRef"], json!({"workloadName": "w-js", "templateName": "pg-a"}));
        assert_eq!(correction_of_pod_group(&seen(&there), &gangs, group, version), Correction::Nothing);
        there["spec"].as_object_mut().unwrap().remove("priorityClassName");
        assert_eq!(correction_of_pod_group(&seen(&there), &gangs, group, version), Correction::Nothing);
        there["spec"]["priorityClassName"] = json!("low");
        assert_eq!(correction_of_pod_group(&seen(&there), &gangs, group, version), Correction::Anew);
    }

    #[test]
    fn a_group_follows_the_numbers_of_its_set() {
        let (before, after) = (set(2, ["", ""]), set(3, ["", ""]));
        let (old, new) = (gangs_of(&before), gangs_of(&after));
        for (version, anew) in [(NativeVersion::V1beta1, false), (NativeVersion::V1alpha2, true)] {
            let there = seen(&pod_group(&before, &old, &old.groups[0], "g", (version, &kind())));
            let correction = correction_of_pod_group(&there, &new, &new.groups[0], version);
            let patch = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}});
            assert_eq!(correction, if anew { Correction::Anew } else { Correction::Patch(patch) });
        }
        let mut whole = new.clone();
        whole.whole_resources.insert("cpu".to_owned(), 4_000);
        let version = NativeVersion::V1alpha2;
        let there = seen(&pod_group(&after, &new, &new.groups[0], "g", (version, &kind())));
        let correction = correction_of_pod_group(&there, &whole, &new.groups[0], version);
        assert!(
            matches!(&correction, Correction::Patch(patch) if patch["metadata"]["annotations"][WHOLE_RESOURCES].is_string()),
            "{correction:?}"
        );
    }
}
