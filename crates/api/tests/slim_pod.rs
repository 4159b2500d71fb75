//! Tests that a pod of a real cluster is reduced: the fields that a scheduler needs are kept, the rest is skipped while
//! reading.

use k8s_openapi::api::core::v1::Pod as WholePod;
use muster_api::pod_requests::pod_requests;
use muster_api::wire::Pod;
use serde_json::{Value, json};

const POD: &str = include_str!("slim_pod/pod.json");

fn slim() -> Pod {
    serde_json::from_str(POD).expect("a pod")
}

#[test]
fn relevant_fields_are_kept() {
    let pod = slim();
    let (spec, status) = (&pod.spec, &pod.status);
    assert_eq!(pod.object_name(), "Pod training/bert-worker-3");
    assert_eq!(pod.metadata.annotations.as_ref().unwrap()["muster.dev/pod-group"], "bert");
    assert_eq!((spec.scheduler_name.as_str(), spec.node_name.as_str()), ("muster", "gpu-17"));
    assert_eq!((spec.priority, spec.priority_class_name.as_str()), (Some(1000), "training"));
    assert_eq!(spec.preemption_policy.as_deref(), Some("PreemptLowerPriority"));
    assert_eq!(spec.scheduling_group.as_ref().unwrap().pod_group_name.as_deref(), Some("bert"));
    assert_eq!(spec.containers[0].ports[0].host_port, 29500);
    assert_eq!(spec.containers[0].ports[0].host_ip, "10.0.0.7");
    assert!(spec.init_containers[0].is_sidecar());
    assert_eq!(spec.node_selector["gpu"], "h100");
    let affinity = spec.affinity.as_ref().unwrap();
    assert!(affinity.node_affinity.as_ref().unwrap().required.is_some());
    assert_eq!(affinity.pod_affinity.as_ref().unwrap().preferred[0].weight, json!(50));
    assert_eq!(affinity.pod_anti_affinity.as_ref().unwrap().required[0].topology_key, "kubernetes.io/hostname");
    assert_eq!(spec.topology_spread_constraints[0].min_domains, Some(2));
    assert_eq!(spec.tolerations.len(), 2);
    assert_eq!(spec.scheduling_gates[0].name, "muster.dev/hold");
    assert_eq!(spec.volumes[0].persistent_volume_claim.as_ref().unwrap().claim_name, "data");
    assert!(spec.volumes[1].ephemeral.is_some());
    assert_eq!(spec.resource_claims[0].resource_claim_template_name.as_deref(), Some("nic"));
    assert_eq!((spec.termination_grace_period_seconds, spec.host_network), (Some(120), true));
    assert_eq!(spec.runtime_class_name.as_deref(), Some("nvidia"));
    assert_eq!((status.phase.as_str(), status.nominated_node_name.as_str()), ("Running", "gpu-17"));
    assert_eq!(status.conditions[0].kind, "PodScheduled");
    assert!(status.start_time.is_some());
    assert!(status.container_statuses[0].allocated_resources.is_some());
    let requests = pod_requests(&pod, true).unwrap().requests;
    assert_eq!((requests["cpu"], requests["nvidia.com/gpu"]), (16_350, 8));
}

#[test]
fn other_fields_are_skipped() {
    let whole = POD.len();
    let written = serde_json::to_string(&slim()).unwrap();
    assert!(whole > 5_000, "{whole} bytes is too small for a realistic pod");
    assert!(written.len() * 2 < whole, "{} of {whole} bytes are left", written.len());
    for gone in [
        "managedFields",
        "fieldsV1",
        "serviceAccountName",
        "env",
        "volumeMounts",
        "livenessProbe",
        "hostIP\":\"10.1",
        "imageID",
        "secret",
    ] {
        assert!(POD.contains(gone) && !written.contains(gone), "{gone}");
    }
}

/// The kept fields equal those of the complete type, field by field.
#[test]
fn kept_fields_are_unchanged() {
    fn check(kept: &Value, whole: &Value, path: &str) {
        match (kept, whole) {
            (Value::Object(kept), Value::Object(whole)) => {
                for (name, value) in kept {
                    check(value, whole.get(name).unwrap_or(&Value::Null), &format!("{path}.{name}"));
                }
            }
            (Value::Array(kept), Value::Array(whole)) => {
                assert_eq!(kept.len(), whole.len(), "{path}");
                for (kept, whole) in kept.iter().zip(whole) {
                    check(kept, whole, path);
                }
            }
            (Value::String(text), Value::Null) if text.is_empty() => {}
            _ => assert_eq!(kept, whole, "{path}"),
        }
    }
    let kept = serde_json::to_value(slim()).unwrap();
    let whole: WholePod = serde_json::from_str(POD).unwrap();
    check(&kept, &serde_json::to_value(&whole).unwrap(), "");
    let again: WholePod = serde_json::from_value(kept).unwrap();
    assert_eq!(again.spec.unwrap().affinity, whole.spec.unwrap().affinity);
}

#[test]
fn null_is_the_same_as_unset() {
    let mut json: Value = serde_json::from_str(POD).unwrap();
    for part in ["spec", "status"] {
        for (_, field) in json[part].as_object_mut().unwrap() {
            *field = Value::Null;
        }
    }
    let pod: Pod = serde_json::from_value(json).unwrap();
    assert_eq!((pod.spec, pod.status), Default::default());
}
