//! LeaderWorkerSets: groups, restarts, updates.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use muster_playground::components::leader_worker::definition;
use serde_json::{Value, json};

use super::{TestCluster, image_of, is_live, is_ready, pass, template};

const PREFIX: &str = "leaderworkerset.sigs.k8s.io";

fn lws(replicas: i32, size: i32, change: &Value) -> Value {
    let mut set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "foo"},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {
            "size": size, "workerTemplate": template("w", "v1"), "leaderTemplate": template("l", "v1"),
        }},
    });
    json_patch::merge(&mut set, change);
    set
}

fn key(name: &str) -> String {
    format!("{PREFIX}/{name}")
}

fn images(name: &str) -> Value {
    let containers = json!({"spec": {"containers": [{"name": "c", "image": name}]}});
    json!({"spec": {"leaderWorkerTemplate": {"leaderTemplate": containers, "workerTemplate": containers}}})
}

/// Names and images of the pods that are ready.
async fn ready(cluster: &TestCluster) -> Vec<String> {
    let pods = cluster.pods().await;
    let ready = pods.iter().filter(|pod| is_ready(pod) && is_live(pod));
    ready.map(|pod| format!("{}:{}", pod.name_any(), image_of(pod))).collect()
}

/// The conditions that are true.
async fn holds(cluster: &TestCluster) -> Vec<String> {
    let set = cluster.get("LeaderWorkerSet", "foo").await;
    let conditions = set["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let held = conditions.iter().filter(|one| one["status"] == "True");
    held.map(|one| one["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn server_accepts_the_definition() {
    let server = crate::kubelets::server();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let definition = serde_json::from_value(definition()).expect("a definition");
    definitions.create(&PostParams::default(), &definition).await.expect("it is taken");
}

#[tokio::test(start_paused = true)]
async fn groups_have_a_leader_and_its_workers() {
    let cluster = TestCluster::new().await;
    let mut set = lws(2, 3, &json!({}));
    // A field that the server normalizes does not make another template.
    let container = &mut set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0];
    container["resources"] = json!({"limits": {"cpu": "1000m"}});
    container["env"] = json!([]);
    cluster.create("LeaderWorkerSet", set).await;
    pass(20.0).await;
    let expected = ["foo-0:v1", "foo-0-1:v1", "foo-0-2:v1", "foo-1:v1", "foo-1-1:v1", "foo-1-2:v1"];
    assert_eq!(ready(&cluster).await, expected);
    assert_eq!(cluster.names("StatefulSet").await, ["foo", "foo-0", "foo-1"]);
    assert_eq!(cluster.names("Service").await, ["foo"]);

    let (leader, worker) = (cluster.get("Pod", "foo-1").await, cluster.get("Pod", "foo-1-2").await);
    let set = cluster.get("LeaderWorkerSet", "foo").await;
    let revisions = cluster.list("ControllerRevision").await;
    let own = revisions.iter().find(|one| one["metadata"]["ownerReferences"][0]["kind"] == "LeaderWorkerSet").unwrap();
    for (pod, group, index) in [(&leader, "1", "0"), (&worker, "1", "2")] {
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels[key("name")], "foo");
        assert_eq!((&labels[key("group-index")], &labels[key("worker-index")]), (&json!(group), &json!(index)));
        assert_eq!(labels[key("group-key")], leader["metadata"]["labels"][key("group-key")]);
        assert_eq!(labels[key("template-revision-hash")], own["metadata"]["labels"][key("template-revision-hash")]);
        assert_eq!(pod["metadata"]["annotations"][key("size")], "3");
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        assert_eq!(env[0], json!({"name": "LWS_LEADER_ADDRESS", "value": "foo-1.foo.default"}));
        assert_eq!(env[2], json!({"name": "LWS_WORKER_INDEX", "value": index}));
    }
    assert_eq!(worker["metadata"]["annotations"][key("leader-name")], "foo-1");
    let workers = cluster.get("StatefulSet", "foo-1").await;
    assert_eq!(workers["metadata"]["ownerReferences"][0]["uid"], leader["metadata"]["uid"]);
    assert_eq!((&workers["spec"]["replicas"], &workers["spec"]["ordinals"]["start"]), (&json!(2), &json!(1)));
    assert_eq!(holds(&cluster).await, ["Available"]);
    let status = &set["status"];
    assert_eq!(
        (&status["replicas"], &status["readyReplicas"], &status["updatedReplicas"]),
        (&json!(2), &json!(2), &json!(2))
    );
    assert_eq!(status["hpaPodSelector"], format!("{}=foo,{}=0", key("name"), key("worker-index")));
    let messages = cluster.event_messages("foo").await;
    assert!(
        messages["GroupsProgressing"].contains(&"Created worker statefulset for leader pod foo-1".to_owned()),
        "{messages:?}"
    );
    assert_eq!(messages["AllGroupsReady"], ["All replicas are ready, with 2 groups ready of total 2 groups"]);
    cluster.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_creates_and_removes_whole_groups() {
    let cluster = TestCluster::new().await;
    cluster.create("LeaderWorkerSet", lws(1, 2, &json!({}))).await;
    pass(20.0).await;
    for (replicas, pods) in [(3, 6), (1, 2), (0, 0)] {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        cluster.api("LeaderWorkerSet").patch_scale("foo", &PatchParams::default(), &patch).await.unwrap();
        pass(30.0).await;
        assert_eq!(ready(&cluster).await.len(), pods, "{replicas}");
        assert_eq!(cluster.get("LeaderWorkerSet", "foo").await["status"]["replicas"], replicas);
    }
}

#[tokio::test(start_paused = true)]
async fn leader_ready_policy_delays_workers() {
    let cluster = TestCluster::new().await;
    let mut set = lws(1, 2, &json!({"spec": {"startupPolicy": "LeaderReady"}}));
    let slow = json!({"playground.muster.dev/ready-after-seconds": "10"});
    set["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["metadata"]["annotations"] = slow;
    cluster.create("LeaderWorkerSet", set).await;
    pass(8.0).await;
    assert_eq!(cluster.names("Pod").await, ["foo-0"]);
    pass(10.0).await;
    assert_eq!(ready(&cluster).await, ["foo-0:v1", "foo-0-1:v1"]);
}

async fn uids(cluster: &TestCluster) -> Vec<Value> {
    cluster.list("Pod").await.iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn group_is_recreated_as_a_whole() {
    for (policy, others_change) in
        [("RecreateGroupOnPodRestart", true), ("RecreateGroupAfterStart", true), ("None", false)]
    {
        let cluster = TestCluster::new().await;
        let change = json!({"spec": {"leaderWorkerTemplate": {"restartPolicy": policy}}});
        cluster.create("LeaderWorkerSet", lws(2, 3, &change)).await;
        pass(20.0).await;
        let before = uids(&cluster).await;
        cluster.delete("Pod", "foo-0-2").await;
        pass(30.0).await;
        let after = uids(&cluster).await;
        assert_eq!(after.len(), 6, "{policy}");
        let changed: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
        let expected = [others_change, others_change, true, false, false, false];
        assert_eq!(changed, expected, "{policy}");
        assert_eq!(ready(&cluster).await.len(), 6, "{policy}");
        let messages = cluster.event_messages("foo").await;
        assert_eq!(messages.contains_key("RecreateGroup"), others_change, "{messages:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn update_proceeds_group_by_group() {
    let cluster = TestCluster::new().await;
    cluster.create("LeaderWorkerSet", lws(3, 2, &json!({}))).await;
    pass(30.0).await;
    cluster.change("LeaderWorkerSet", "foo", images("v2")).await;
    let mut was_updating = false;
    for _ in 0..300 {
        pass(0.2).await;
        let pods = ready(&cluster).await;
        let whole =
            (0..3).filter(|group| pods.iter().filter(|pod| pod.starts_with(&format!("foo-{group}"))).count() == 2);
        assert!(whole.count() >= 2, "{pods:?}");
        was_updating |= holds(&cluster).await.contains(&"UpdateInProgress".to_owned());
    }
    assert!(was_updating);
    let pods = ready(&cluster).await;
    assert!(pods.len() == 6 && pods.iter().all(|pod| pod.ends_with(":v2")), "{pods:?}");
    assert_eq!(holds(&cluster).await, ["Available"]);
    let revisions = cluster.list("ControllerRevision").await;
    let own = revisions.iter().filter(|one| one["metadata"]["ownerReferences"][0]["kind"] == "LeaderWorkerSet");
    let own: Vec<&Value> = own.map(|one| &one["metadata"]).collect();
    assert_eq!(
        own.len(),
        1,
        "old revisions are deleted with the last group: {own:?}, {:?}",
        cluster.event_messages("foo").await
    );
}

#[tokio::test(start_paused = true)]
async fn update_can_add_surge_groups() {
    let cluster = TestCluster::new().await;
    let rolling = json!({"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}});
    cluster.create("LeaderWorkerSet", lws(2, 2, &json!({"spec": {"rolloutStrategy": rolling}}))).await;
    pass(30.0).await;
    cluster.change("LeaderWorkerSet", "foo", images("v2")).await;
    let mut most = 0;
    for _ in 0..300 {
        pass(0.2).await;
        let leaders = ready(&cluster).await.iter().filter(|pod| pod.matches('-').count() == 1).count();
        assert!(leaders >= 2, "{leaders} leaders");
        most = most.max(cluster.get("StatefulSet", "foo").await["spec"]["replicas"].as_i64().unwrap());
    }
    assert_eq!(most, 3);
    let pods = ready(&cluster).await;
    assert_eq!(pods, ["foo-0:v2", "foo-0-1:v2", "foo-1:v2", "foo-1-1:v2"]);
}

#[tokio::test(start_paused = true)]
async fn changed_size_is_a_new_template() {
    let cluster = TestCluster::new().await;
    cluster.create("LeaderWorkerSet", lws(2, 2, &json!({}))).await;
    pass(20.0).await;
    cluster.change("LeaderWorkerSet", "foo", json!({"spec": {"leaderWorkerTemplate": {"size": 3}}})).await;
    pass(60.0).await;
    assert_eq!(ready(&cluster).await.len(), 6);
    assert_eq!(cluster.get("Pod", "foo-0-2").await["metadata"]["annotations"][key("size")], "3");
}

#[tokio::test(start_paused = true)]
async fn exclusive_groups_stay_in_their_leaders_domain() {
    let cluster = TestCluster::new().await;
    let annotations = json!({"metadata": {"annotations": {key("exclusive-topology"): "rack"}}});
    cluster.create("LeaderWorkerSet", lws(1, 2, &annotations)).await;
    pass(20.0).await;
    let (leader, worker) = (cluster.get("Pod", "foo-0").await, cluster.get("Pod", "foo-0-1").await);
    let affinity = &leader["spec"]["affinity"];
    let near = &affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(near["topologyKey"], "rack");
    assert_eq!(worker["spec"]["nodeSelector"]["rack"], "r-1");
}

#[tokio::test(start_paused = true)]
async fn each_group_can_have_its_own_subdomain() {
    let cluster = TestCluster::new().await;
    let network = json!({"spec": {"networkConfig": {"subdomainPolicy": "UniquePerReplica"}}});
    cluster.create("LeaderWorkerSet", lws(2, 2, &network)).await;
    pass(20.0).await;
    assert_eq!(cluster.names("Service").await, ["foo-0", "foo-1"]);
    let worker = cluster.get("Pod", "foo-1-1").await;
    assert_eq!(worker["spec"]["subdomain"], "foo-1");
    assert_eq!(worker["spec"]["containers"][0]["env"][0]["value"], "foo-1.foo-1.default");
}

#[tokio::test(start_paused = true)]
async fn invalid_sets_are_rejected() {
    let cluster = TestCluster::new().await;
    let sub =
        |size: i32, change: Value| json!({"spec": {"leaderWorkerTemplate": {"size": size, "subGroupPolicy": change}}});
    let rolling = |surge: Value, missing: Value| json!({"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxSurge": surge, "maxUnavailable": missing}}}});
    for (change, field) in [
        (json!({"metadata": {"name": "1foo"}}), "metadata.name"),
        (json!({"spec": {"replicas": -1}}), "spec.replicas"),
        (json!({"spec": {"leaderWorkerTemplate": {"size": 0}}}), "spec.leaderWorkerTemplate.size"),
        (json!({"spec": {"leaderWorkerTemplate": {"restartPolicy": "Default"}}}), "restartPolicy"),
        (sub(6, json!({"subGroupSize": 4})), "subGroupSize"),
        (sub(4, json!({"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"})), "subGroupSize"),
        (rolling(json!(0), json!(0)), "maxUnavailable"),
        (rolling(json!("x%"), json!(1)), "maxSurge"),
        (rolling(json!("0%"), json!("0%")), "maxUnavailable"),
    ] {
        let object = serde_json::from_value(lws(2, 2, &change)).unwrap();
        let refused = cluster.api("LeaderWorkerSet").create(&PostParams::default(), &object).await;
        let why = refused.map(|_| ()).expect_err(&change.to_string()).to_string();
        assert!(why.contains(field), "{change}: {why}");
    }
    // An invalid template is found when its pods are created, and reported.
    let wrong = json!({"spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": {"contaners": []}}}}});
    cluster.create("LeaderWorkerSet", lws(1, 2, &wrong)).await;
    pass(5.0).await;
    let messages = cluster.event_messages("foo").await;
    assert!(messages["FailedCreate"][0].contains("unknown field \"spec.template.spec.contaners\""), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn deleted_leader_deletes_its_workers_and_is_recreated() {
    for policy in ["RecreateGroupOnPodRestart", "None"] {
        let cluster = TestCluster::new().await;
        let change = json!({"spec": {"leaderWorkerTemplate": {"restartPolicy": policy}}});
        cluster.create("LeaderWorkerSet", lws(2, 3, &change)).await;
        pass(20.0).await;
        let (before, workers) = (uids(&cluster).await, cluster.get("StatefulSet", "foo-0").await);
        assert_eq!(workers["metadata"]["ownerReferences"][0]["kind"], "Pod");
        cluster.delete("Pod", "foo-0").await;
        pass(60.0).await;
        let again = cluster.get("StatefulSet", "foo-0").await;
        assert_ne!(again["metadata"]["uid"], workers["metadata"]["uid"], "{policy}");
        let leader = cluster.get("Pod", "foo-0").await;
        assert_eq!(again["metadata"]["ownerReferences"][0]["uid"], leader["metadata"]["uid"], "{policy}");
        let expected = ["foo-0:v1", "foo-0-1:v1", "foo-0-2:v1", "foo-1:v1", "foo-1-1:v1", "foo-1-2:v1"];
        assert_eq!(ready(&cluster).await, expected, "{policy}");
        let after = uids(&cluster).await;
        let changed: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
        assert_eq!(changed, [true, true, true, false, false, false], "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn groups_below_the_partition_keep_their_template() {
    let cluster = TestCluster::new().await;
    let partition =
        |count: i32| json!({"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": {"partition": count}}}});
    cluster.create("LeaderWorkerSet", lws(3, 2, &partition(2))).await;
    pass(30.0).await;
    cluster.change("LeaderWorkerSet", "foo", images("v2")).await;
    pass(60.0).await;
    assert_eq!(ready(&cluster).await, ["foo-0:v1", "foo-0-1:v1", "foo-1:v1", "foo-1-1:v1", "foo-2:v2", "foo-2-1:v2"]);
    let hash =
        async |name: &str| cluster.get("Pod", name).await["metadata"]["labels"][key("template-revision-hash")].clone();
    assert_ne!(hash("foo-0").await, hash("foo-2").await);
    // A recreated leader below it has the old template, as do its workers.
    cluster.delete("Pod", "foo-0").await;
    pass(60.0).await;
    assert_eq!(&ready(&cluster).await[..2], ["foo-0:v1", "foo-0-1:v1"]);
    assert_eq!(hash("foo-0").await, hash("foo-0-1").await);
    cluster.change("LeaderWorkerSet", "foo", partition(0)).await;
    pass(90.0).await;
    assert!(ready(&cluster).await.iter().all(|pod| pod.ends_with(":v2")));
}
