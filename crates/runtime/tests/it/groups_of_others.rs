//! Several schedulers read the same groups: Muster writes no status of groups without pods of its own.

use muster_runtime::Settings;
use serde_json::{Value, json};

use crate::bad_objects::lax_crd;
use crate::test_cluster::{TestCluster, condition, group, pod, sleep_seconds};

fn native(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})
}

fn member(name: &str, group: &str, scheduler: &str) -> Value {
    let mut pod = pod(name, group);
    pod["metadata"].as_object_mut().unwrap().remove("annotations");
    pod["spec"]["schedulerName"] = scheduler.into();
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    pod
}

#[tokio::test(start_paused = true)]
async fn groups_of_other_schedulers_get_no_status() {
    let cluster = TestCluster::with(&[]).await;
    let gang = json!({"schedulingPolicy": {"gang": {"minCount": 2}}});
    let basic = json!({"schedulingPolicy": {"basic": {}}});
    for (name, spec) in [("gang", &gang), ("basic", &basic), ("late", &gang), ("mixed", &gang)] {
        cluster.create(native(name, spec)).await;
    }
    for name in ["gang", "basic", "mixed"] {
        let mut bound = member(&format!("{name}-0"), name, "other-scheduler");
        bound["spec"]["nodeName"] = "n0".into();
        cluster.create(bound).await;
        cluster.create(member(&format!("{name}-1"), name, "other-scheduler")).await;
    }
    cluster.create(member("mixed-2", "mixed", "muster")).await;
    sleep_seconds(30).await;
    cluster.create(member("late-0", "late", "other-scheduler")).await;
    sleep_seconds(30).await;
    for name in ["gang", "basic", "late"] {
        let conditions = cluster.get(&native(name, &gang)).await["status"]["conditions"].clone();
        assert_eq!(conditions, Value::Null, "{name}");
    }
    let mixed = cluster.get(&native("mixed", &gang)).await;
    assert_eq!(condition(&mixed, "muster.dev/PodGroupScheduled")["reason"], "WaitingForMembers");
    // Once a pod of ours is pending, the group gets a condition.
    cluster.create(member("late-1", "late", "muster")).await;
    sleep_seconds(30).await;
    let late = cluster.get(&native("late", &gang)).await;
    assert_eq!(condition(&late, "muster.dev/PodGroupScheduled")["reason"], "WaitingForMembers");
}

#[tokio::test(start_paused = true)]
async fn two_musters_do_not_overwrite_each_others_status() {
    let mut cluster = TestCluster::with(&[lax_crd()]).await;
    let mut second = Settings::default();
    second.profiles[0].scheduler_names = vec!["second".to_owned()];
    cluster.start_scheduler(&second);
    let gang = json!({"policy": {"gang": {"minCount": 2}}});
    let names = ["of-muster", "of-second"];
    for name in names {
        cluster.create(group(name, &gang)).await;
    }
    // Both report that there are no members.
    sleep_seconds(30).await;
    for (name, scheduler) in names.iter().zip(["muster", "second"]) {
        for index in 0..2 {
            let mut pod = pod(&format!("{name}-{index}"), name);
            pod["spec"]["schedulerName"] = scheduler.into();
            cluster.create(pod).await;
        }
    }
    sleep_seconds(30).await;
    let mut versions = Vec::new();
    for name in names {
        let object = cluster.get(&group(name, &gang)).await;
        assert_eq!(condition(&object, "PodGroupScheduled")["status"], "True", "{name}: {object}");
        versions.push(object["metadata"]["resourceVersion"].clone());
    }
    sleep_seconds(600).await;
    for (name, version) in names.iter().zip(versions) {
        assert_eq!(cluster.get(&group(name, &gang)).await["metadata"]["resourceVersion"], version, "{name}");
    }
}
