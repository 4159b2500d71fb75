//! Tests of the admission decisions. Every patch is applied and the result reviewed again: the second review must
//! change nothing.

use muster_api::native::NativeVersion;
use muster_api::owners::{GangedOwners, GroupApi, ProviderName};
use serde_json::{Value, json};

use super::*;

/// A webhook that writes native groups in this version, or Muster's own.
fn admission(native: Option<NativeVersion>) -> Admission {
    let mut ganged = GangedOwners::all();
    if native.is_some() {
        ganged.job_sets = Some(GroupApi::Native);
        ganged.leader_worker_sets = Some(ProviderName::Native);
    }
    let names = vec!["muster".to_owned()];
    let settings = Settings::new(names, "muster".to_owned(), ganged, native).unwrap();
    Admission::new(settings, PriorityClasses::unknown())
}

fn review(group: &str, resource: &str, object: &Value, old: &Value) -> Value {
    review_in(None, group, resource, object, old)
}

fn review_in(native: Option<NativeVersion>, group: &str, resource: &str, object: &Value, old: &Value) -> Value {
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    let request = json!({"uid": "u", "operation": operation, "resource": {"group": group, "resource": resource},
        "object": object, "oldObject": old});
    let answer = admission(native).review(&json!({"request": request}))["response"].clone();
    assert_eq!(answer["uid"], "u");
    answer
}

/// The object after the patch; the review must allow it.
fn patched(group: &str, resource: &str, object: &Value, old: &Value) -> Value {
    patched_in(None, group, resource, object, old)
}

fn patched_in(native: Option<NativeVersion>, group: &str, resource: &str, object: &Value, old: &Value) -> Value {
    let answer = review_in(native, group, resource, object, old);
    assert_eq!(answer["allowed"], true, "{answer}");
    let mut after = object.clone();
    if let Some(patch) = answer["patch"].as_str() {
        let patch = STANDARD.decode(patch).unwrap();
        json_patch::patch(&mut after, &serde_json::from_slice::<json_patch::Patch>(&patch).unwrap()).unwrap();
    }
    let again = review_in(native, group, resource, &after, old);
    assert_eq!(again.get("patch"), None, "{again}");
    after
}

fn denied(group: &str, resource: &str, object: &Value, old: &Value) -> String {
    let answer = review(group, resource, object, old);
    assert_eq!(answer["allowed"], false, "{answer}");
    answer["status"]["message"].as_str().unwrap().to_owned()
}

fn template() -> Value {
    json!({"spec": {"parallelism": 2, "template": {"spec": {"schedulerName": "muster", "containers": []}}}})
}

fn job_set(mode: &str) -> Value {
    json!({"metadata": {"generateName": "js-", "annotations": {"muster.dev/gang-mode": mode}},
        "spec": {"replicatedJobs": [{"name": "a", "template": template()}, {"name": "b", "template": template()}]}})
}

const SETS: (&str, &str) = ("jobset.x-k8s.io", "jobsets");

#[test]
fn job_templates_of_set_get_gang_scope() {
    let scope = |set: &Value, index: usize| {
        set["spec"]["replicatedJobs"][index]["template"]["metadata"]["annotations"]["muster.dev/gang-scope"].clone()
    };
    let whole = patched(SETS.0, SETS.1, &job_set("Gang"), &Value::Null);
    assert_eq!((scope(&whole, 0), scope(&whole, 1)), (json!("JobSet"), json!("JobSet")));
    let mut split = job_set("Gang");
    split["spec"]["replicatedJobs"][1]["dependsOn"] = json!([{"name": "a", "status": "Ready"}]);
    assert_eq!(scope(&patched(SETS.0, SETS.1, &split, &Value::Null), 1), "ReplicatedJob");
    assert!(
        review(SETS.0, SETS.1, &split, &Value::Null)["warnings"][0].as_str().unwrap().contains("one after another")
    );
    // A scope that does not follow from the gang mode is removed.
    let mut forged = job_set("Off");
    forged["spec"]["replicatedJobs"][0]["template"]["metadata"] =
        json!({"annotations": {"muster.dev/gang-scope": "Job"}});
    assert_eq!(scope(&patched(SETS.0, SETS.1, &forged, &Value::Null), 0), Value::Null);
    // An update that leaves the scopes out is allowed, and they are restored.
    assert_eq!(patched(SETS.0, SETS.1, &job_set("Gang"), &whole), whole);
}

#[test]
fn exclusive_topology_of_gangs_is_taken_over() {
    let (by_job_set, by_muster) = ("alpha.jobset.sigs.k8s.io/exclusive-topology", "muster.dev/exclusive-topology");
    let exclusive = |mode: &str| {
        let mut set = job_set(mode);
        set["metadata"]["annotations"][by_job_set] = json!("rack");
        set["spec"]["replicatedJobs"][1]["template"]["metadata"] = json!({"annotations": {by_job_set: "block"}});
        set["spec"]["replicatedJobs"].as_array_mut().unwrap().remove(0);
        set
    };
    let whole = patched(SETS.0, SETS.1, &exclusive("Gang"), &Value::Null);
    let of_job = &whole["spec"]["replicatedJobs"][0]["template"]["metadata"]["annotations"];
    for (annotations, value) in [(&whole["metadata"]["annotations"], "rack"), (of_job, "block")] {
        assert_eq!((&annotations[by_job_set], &annotations[by_muster]), (&Value::Null, &json!(value)));
    }
    // An update by `kubectl apply` writes JobSet's annotation again.
    assert_eq!(patched(SETS.0, SETS.1, &exclusive("Gang"), &whole)["metadata"], whole["metadata"]);
    // Without a gang it is JobSet's, and so it is with selectors that are written beforehand.
    let mut selected = exclusive("Gang");
    selected["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/node-selector"] = json!("true");
    for set in [exclusive("Off"), selected] {
        let kept = patched(SETS.0, SETS.1, &set, &Value::Null);
        assert_eq!(kept["metadata"]["annotations"][by_job_set], "rack");
    }
    // Kubernetes' own groups cannot say it.
    let native = Some(NativeVersion::V1beta1);
    let answer = review_in(native, SETS.0, SETS.1, &exclusive("Gang"), &Value::Null);
    assert!(answer["status"]["message"].as_str().unwrap().contains("[\"block\"] is not supported"), "{answer}");
}

#[test]
fn invalid_set_and_change_of_mode_are_denied() {
    assert!(denied(SETS.0, SETS.1, &job_set("All"), &Value::Null).contains("Off, Gang"));
    assert!(denied(SETS.0, SETS.1, &job_set("Off"), &job_set("Gang")).contains("cannot be changed"));
    let mut invalid = job_set("Gang");
    invalid["metadata"]["annotations"]["muster.dev/disruption-mode"] = json!("All");
    assert!(denied(SETS.0, SETS.1, &invalid, &job_set("Gang")).contains("must be Pod or PodGroup"));
    assert_eq!(review(SETS.0, SETS.1, &invalid, &invalid)["allowed"], true, "it was invalid before");
    let mut other = job_set("Off");
    other["spec"]["replicatedJobs"][1]["template"]["metadata"] =
        json!({"annotations": {"muster.dev/gang-mode": "Gang"}});
    assert!(denied(SETS.0, SETS.1, &other, &job_set("Off")).contains("replicatedJobs[1]"));
}

fn job_of_set(annotations: &Value) -> Value {
    let mut job = template();
    job["metadata"] = json!({"name": "js-a-3", "annotations": annotations, "labels": {
        "jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "3",
    }});
    job
}

#[test]
fn job_of_set_references_its_group() {
    let references = |annotations: Value| {
        let job = patched("batch", "jobs", &job_of_set(&annotations), &Value::Null);
        job["spec"]["template"]["metadata"]["annotations"].clone()
    };
    let scope = |value: &str| json!({"muster.dev/gang-scope": value});
    assert_eq!(references(scope("JobSet")), json!({"muster.dev/workload": "w-js", "muster.dev/pod-group": "pg-js"}));
    assert_eq!(
        references(scope("ReplicatedJob")),
        json!({"muster.dev/workload": "w-js", "muster.dev/pod-group": "pg-a"})
    );
    let of_job = json!({"muster.dev/workload": "w-js", "muster.dev/pod-group": "pg-a", "muster.dev/replica-key": "3"});
    assert_eq!(references(scope("Job")), of_job);
    assert_eq!(
        references(json!({"muster.dev/gang-mode": "ReplicatedGang"})),
        Value::Null,
        "another controller may manage its set"
    );
    assert_eq!(references(json!({})), Value::Null);
    let mut by_hand = job_of_set(&scope("Job"));
    by_hand["spec"]["template"]["metadata"] = json!({"annotations": {"muster.dev/pod-group": "mine"}});
    assert_eq!(patched("batch", "jobs", &by_hand, &Value::Null), by_hand);
}

#[test]
fn references_to_native_groups_are_fields_and_survive_updates() {
    let fields = [
        (NativeVersion::V1beta1, "schedulingGroup", json!({"podGroupName": "w-js.pg-a.3"})),
        (NativeVersion::V1alpha2, "schedulingGroup", json!({"podGroupName": "w-js.pg-a.3"})),
        (
            NativeVersion::V1alpha1,
            "workloadRef",
            json!({"name": "w-js", "podGroup": "pg-a", "podGroupReplicaKey": "3"}),
        ),
    ];
    for (version, field, expected) in fields {
        let job = job_of_set(&json!({"muster.dev/gang-scope": "Job"}));
        let before = patched_in(Some(version), "batch", "jobs", &job, &Value::Null);
        assert_eq!(before["spec"]["template"]["spec"][field], expected);
        assert_eq!(before["spec"]["template"]["metadata"], Value::Null, "no Muster annotations in addition");
        // A controller that does not know the field writes the Job without it.
        let mut dropped = before.clone();
        dropped["spec"]["template"]["spec"].as_object_mut().unwrap().remove(field);
        assert_eq!(patched_in(Some(version), "batch", "jobs", &dropped, &before), before);
    }
}

#[test]
fn reference_survives_update_that_drops_it() {
    let before = patched("batch", "jobs", &job_of_set(&json!({"muster.dev/gang-scope": "Job"})), &Value::Null);
    let mut dropped = before.clone();
    dropped["spec"]["template"].as_object_mut().unwrap().remove("metadata");
    dropped["spec"]["suspend"] = json!(false);
    let after = patched("batch", "jobs", &dropped, &before);
    assert_eq!(after["spec"]["template"], before["spec"]["template"]);
}

#[test]
fn annotated_job_references_its_own_group() {
    let mut job = template();
    job["metadata"] = json!({"name": "train", "annotations": {"muster.dev/gang-mode": "Gang"}});
    let after = patched("batch", "jobs", &job, &Value::Null);
    assert_eq!(after["spec"]["template"]["metadata"]["annotations"], json!({"muster.dev/pod-group": "job-train"}));
    job["metadata"]["annotations"]["muster.dev/gang-mode"] = json!("ReplicatedGang");
    assert!(denied("batch", "jobs", &job, &Value::Null).contains("muster.dev/gang-mode"));
    let generated = json!({"generateName": "train-", "annotations": {"muster.dev/gang-mode": "Gang"}});
    job["metadata"] = generated;
    assert_eq!(patched("batch", "jobs", &job, &Value::Null), job, "its name is not known yet");
}

#[test]
fn pod_of_leader_worker_set_references_group_of_its_replica() {
    let pod = |scheduler: &str| {
        json!({"metadata": {"name": "test-0", "labels": {
                "leaderworkerset.sigs.k8s.io/name": "test", "leaderworkerset.sigs.k8s.io/worker-index": "0",
                "leaderworkerset.sigs.k8s.io/template-revision-hash": "1"}},
            "spec": {"schedulerName": scheduler, "containers": []}})
    };
    let after = patched("", "pods", &pod("muster"), &Value::Null);
    assert_eq!(after["metadata"]["annotations"], json!({"muster.dev/pod-group": "test-0-1"}));
    let after = patched_in(Some(NativeVersion::V1alpha2), "", "pods", &pod("muster"), &Value::Null);
    assert_eq!(after["spec"]["schedulingGroup"], json!({"podGroupName": "test-0-1"}));
    let after = patched_in(Some(NativeVersion::V1alpha1), "", "pods", &pod("muster"), &Value::Null);
    assert_eq!(after["spec"]["workloadRef"], json!({"name": "test-0-1", "podGroup": "replica"}));
    assert_eq!(patched("", "pods", &pod("other"), &Value::Null), pod("other"));
    let mut off = pod("muster");
    off["metadata"]["annotations"] = json!({"muster.dev/gang-mode": "Off"});
    assert_eq!(patched("", "pods", &off, &Value::Null), off);
    // Labels of pods of other schedulers are not checked.
    let mut odd = pod("other");
    odd["metadata"]["labels"] = json!({"leaderworkerset.sigs.k8s.io/name": "test"});
    assert_eq!(patched("", "pods", &odd, &Value::Null), odd);
    odd["spec"]["schedulerName"] = json!("muster");
    assert_eq!(patched("", "pods", &odd, &Value::Null), odd, "the scheduler holds it back and reports the reason");
    let plain = json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "muster", "containers": []}});
    assert_eq!(patched("", "pods", &plain, &Value::Null), plain);
}

#[test]
fn deleted_and_unrelated_objects_are_unchanged() {
    let mut terminating = job_of_set(&json!({"muster.dev/gang-scope": "Job"}));
    terminating["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    assert_eq!(patched("batch", "jobs", &terminating, &Value::Null), terminating);
    assert_eq!(review("apps", "deployments", &json!({}), &Value::Null)["allowed"], true);
    assert_eq!(review("batch", "jobs", &json!("no job"), &Value::Null)["allowed"], true);
}
