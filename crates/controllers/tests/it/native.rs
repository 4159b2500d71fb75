//! The expected objects for native groups, derived from the owners without the code under test.

use std::collections::BTreeMap;

use muster_api::native::NativeVersion;
use serde_json::{Value, json};

use crate::test_cluster::TestCluster;

/// The owner and the minimums of each object, by name.
type Found = BTreeMap<String, (Value, Value)>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

fn label(object: &Value, key: &str) -> String {
    text(&object["metadata"]["labels"][key])
}

pub(crate) async fn check(cluster: &TestCluster, version: NativeVersion, seed: u64) {
    let inline = version == NativeVersion::V1alpha1;
    let pods = cluster.list("v1", "Pod").await;
    let (mut workloads, mut groups) = (Found::new(), Found::new());
    let gang = |count: i64| json!({"gang": {"minCount": count}});
    for set in cluster.list("jobset.x-k8s.io/v1alpha2", "JobSet").await {
        let whole = set["metadata"]["annotations"]["muster.dev/gang-mode"] == "Gang";
        let (group, minimum) = if whole { (format!("pg-{}", name(&set)), 4) } else { ("pg-workers".to_owned(), 2) };
        let (workload, uid) = (format!("w-{}", name(&set)), set["metadata"]["uid"].clone());
        workloads.insert(workload.clone(), (uid.clone(), json!([[group, gang(minimum)]])));
        let in_set: Vec<&Value> =
            pods.iter().filter(|pod| label(pod, "jobset.sigs.k8s.io/jobset-name") == name(&set)).collect();
        assert_eq!(in_set.len(), 4, "seed {seed}: pods of {}", name(&set));
        for pod in in_set {
            let index = label(pod, "jobset.sigs.k8s.io/job-index");
            if inline {
                let mut reference = json!({"name": workload, "podGroup": group});
                if !whole {
                    reference["podGroupReplicaKey"] = json!(index);
                }
                assert_eq!(pod["spec"]["workloadRef"], reference, "seed {seed}: {}", name(pod));
                continue;
            }
            let own = if whole { format!("{workload}.{group}") } else { format!("{workload}.{group}.{index}") };
            assert_eq!(pod["spec"]["schedulingGroup"]["podGroupName"], own, "seed {seed}: {}", name(pod));
            groups.insert(own, (uid.clone(), gang(minimum)));
        }
    }
    for pod in pods.iter().filter(|pod| !label(pod, "leaderworkerset.sigs.k8s.io/name").is_empty()) {
        let part = |key: &str| label(pod, &format!("leaderworkerset.sigs.k8s.io/{key}"));
        let group = format!("{}-{}-{}", part("name"), part("group-index"), part("template-revision-hash"));
        let spec = &pod["spec"];
        let reference = if inline { &spec["workloadRef"]["name"] } else { &spec["schedulingGroup"]["podGroupName"] };
        assert_eq!(*reference, group, "seed {seed}: {}", name(pod));
        let uid = pod["metadata"]["uid"].clone();
        match part("worker-index").as_str() {
            "0" if inline => drop(workloads.insert(group, (uid, json!([["replica", gang(2)]])))),
            "0" => drop(groups.insert(group, (uid, gang(2)))),
            _ => {}
        }
    }
    let api_version = format!("scheduling.k8s.io/{}", version.name());
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"].clone();
    let (list, policy) = if inline { ("podGroups", "policy") } else { ("podGroupTemplates", "schedulingPolicy") };
    let minimums = |object: &Value| -> Value {
        let groups = object["spec"][list].as_array().cloned().unwrap_or_default();
        groups.iter().map(|group| json!([group["name"], group[policy]])).collect()
    };
    let found = cluster.list(&api_version, "Workload").await;
    let found: Found = found.iter().map(|one| (name(one), (owner(one), minimums(one)))).collect();
    assert_eq!(found, workloads, "seed {seed}: Workloads");
    if !inline {
        let found = cluster.list(&api_version, "PodGroup").await;
        let of = |one: &Value| (name(one), (owner(one), one["spec"]["schedulingPolicy"].clone()));
        let found: Found = found.iter().map(of).collect();
        assert_eq!(found, groups, "seed {seed}: PodGroups");
    }
}
