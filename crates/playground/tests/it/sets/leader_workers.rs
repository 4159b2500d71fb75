//! LeaderWorkerSets: groups, restarts, updates.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use muster_playground::clients::leader_worker::definition;
use serde_json::{Value, json};

use super::{World, image_of, is_live, is_ready, pass, template};

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
async fn ready(world: &World) -> Vec<String> {
    let pods = world.pods().await;
    let ready = pods.iter().filter(|pod| is_ready(pod) && is_live(pod));
    ready.map(|pod| format!("{}:{}", pod.name_any(), image_of(pod))).collect()
}

/// The conditions that hold.
async fn holds(world: &World) -> Vec<String> {
    let set = world.get("LeaderWorkerSet", "foo").await;
    let conditions = set["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let held = conditions.iter().filter(|one| one["status"] == "True");
    held.map(|one| one["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_server_takes_the_definition() {
    let server = crate::kubelets::server();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let definition = serde_json::from_value(definition()).expect("a definition");
    definitions.create(&PostParams::default(), &definition).await.expect("it is taken");
}

#[tokio::test(start_paused = true)]
async fn groups_have_a_leader_and_its_workers() {
    let world = World::new().await;
    let mut set = lws(2, 3, &json!({}));
    // What a server would write in another way is no other template.
    let container = &mut set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0];
    container["resources"] = json!({"limits": {"cpu": "1000m"}});
    container["env"] = json!([]);
    world.make("LeaderWorkerSet", set).await;
    pass(20.0).await;
    let expected = ["foo-0:v1", "foo-0-1:v1", "foo-0-2:v1", "foo-1:v1", "foo-1-1:v1", "foo-1-2:v1"];
    assert_eq!(ready(&world).await, expected);
    assert_eq!(world.names("StatefulSet").await, ["foo", "foo-0", "foo-1"]);
    assert_eq!(world.names("Service").await, ["foo"]);

    let (leader, worker) = (world.get("Pod", "foo-1").await, world.get("Pod", "foo-1-2").await);
    let set = world.get("LeaderWorkerSet", "foo").await;
    let revisions = world.list("ControllerRevision").await;
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
    let workers = world.get("StatefulSet", "foo-1").await;
    assert_eq!(workers["metadata"]["ownerReferences"][0]["uid"], leader["metadata"]["uid"]);
    assert_eq!((&workers["spec"]["replicas"], &workers["spec"]["ordinals"]["start"]), (&json!(2), &json!(1)));
    assert_eq!(holds(&world).await, ["Available"]);
    let status = &set["status"];
    assert_eq!(
        (&status["replicas"], &status["readyReplicas"], &status["updatedReplicas"]),
        (&json!(2), &json!(2), &json!(2))
    );
    assert_eq!(status["hpaPodSelector"], format!("{}=foo,{}=0", key("name"), key("worker-index")));
    let told = world.told("foo").await;
    assert!(
        told["GroupsProgressing"].contains(&"Created worker statefulset for leader pod foo-1".to_owned()),
        "{told:?}"
    );
    assert_eq!(told["AllGroupsReady"], ["All replicas are ready, with 2 groups ready of total 2 groups"]);
    world.comes_to_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_scale_makes_and_removes_whole_groups() {
    let world = World::new().await;
    world.make("LeaderWorkerSet", lws(1, 2, &json!({}))).await;
    pass(20.0).await;
    for (replicas, pods) in [(3, 6), (1, 2), (0, 0)] {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        world.api("LeaderWorkerSet").patch_scale("foo", &PatchParams::default(), &patch).await.unwrap();
        pass(30.0).await;
        assert_eq!(ready(&world).await.len(), pods, "{replicas}");
        assert_eq!(world.get("LeaderWorkerSet", "foo").await["status"]["replicas"], replicas);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_wait_for_a_leader_that_is_ready_if_they_should() {
    let world = World::new().await;
    let mut set = lws(1, 2, &json!({"spec": {"startupPolicy": "LeaderReady"}}));
    let slow = json!({"playground.muster.dev/ready-after-seconds": "10"});
    set["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["metadata"]["annotations"] = slow;
    world.make("LeaderWorkerSet", set).await;
    pass(8.0).await;
    assert_eq!(world.names("Pod").await, ["foo-0"]);
    pass(10.0).await;
    assert_eq!(ready(&world).await, ["foo-0:v1", "foo-0-1:v1"]);
}

async fn uids(world: &World) -> Vec<Value> {
    world.list("Pod").await.iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_group_is_made_again_as_a_whole() {
    for (policy, others_change) in
        [("RecreateGroupOnPodRestart", true), ("RecreateGroupAfterStart", true), ("None", false)]
    {
        let world = World::new().await;
        let change = json!({"spec": {"leaderWorkerTemplate": {"restartPolicy": policy}}});
        world.make("LeaderWorkerSet", lws(2, 3, &change)).await;
        pass(20.0).await;
        let before = uids(&world).await;
        world.delete("Pod", "foo-0-2").await;
        pass(30.0).await;
        let after = uids(&world).await;
        assert_eq!(after.len(), 6, "{policy}");
        let changed: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
        let expected = [others_change, others_change, true, false, false, false];
        assert_eq!(changed, expected, "{policy}");
        assert_eq!(ready(&world).await.len(), 6, "{policy}");
        let told = world.told("foo").await;
        assert_eq!(told.contains_key("RecreateGroup"), others_change, "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_goes_group_by_group() {
    let world = World::new().await;
    world.make("LeaderWorkerSet", lws(3, 2, &json!({}))).await;
    pass(30.0).await;
    world.change("LeaderWorkerSet", "foo", images("v2")).await;
    let mut was_updating = false;
    for _ in 0..300 {
        pass(0.2).await;
        let pods = ready(&world).await;
        let whole =
            (0..3).filter(|group| pods.iter().filter(|pod| pod.starts_with(&format!("foo-{group}"))).count() == 2);
        assert!(whole.count() >= 2, "{pods:?}");
        was_updating |= holds(&world).await.contains(&"UpdateInProgress".to_owned());
    }
    assert!(was_updating);
    let pods = ready(&world).await;
    assert!(pods.len() == 6 && pods.iter().all(|pod| pod.ends_with(":v2")), "{pods:?}");
    assert_eq!(holds(&world).await, ["Available"]);
    let revisions = world.list("ControllerRevision").await;
    let own = revisions.iter().filter(|one| one["metadata"]["ownerReferences"][0]["kind"] == "LeaderWorkerSet");
    let own: Vec<&Value> = own.map(|one| &one["metadata"]).collect();
    assert_eq!(own.len(), 1, "old revisions go with the last group: {own:?}, {:?}", world.told("foo").await);
}

#[tokio::test(start_paused = true)]
async fn an_update_can_bring_groups_on_top() {
    let world = World::new().await;
    let rolling = json!({"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}});
    world.make("LeaderWorkerSet", lws(2, 2, &json!({"spec": {"rolloutStrategy": rolling}}))).await;
    pass(30.0).await;
    world.change("LeaderWorkerSet", "foo", images("v2")).await;
    let mut most = 0;
    for _ in 0..300 {
        pass(0.2).await;
        let leaders = ready(&world).await.iter().filter(|pod| pod.matches('-').count() == 1).count();
        assert!(leaders >= 2, "{leaders} leaders");
        most = most.max(world.get("StatefulSet", "foo").await["spec"]["replicas"].as_i64().unwrap());
    }
    assert_eq!(most, 3);
    let pods = ready(&world).await;
    assert_eq!(pods, ["foo-0:v2", "foo-0-1:v2", "foo-1:v2", "foo-1-1:v2"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_size_is_a_new_template() {
    let world = World::new().await;
    world.make("LeaderWorkerSet", lws(2, 2, &json!({}))).await;
    pass(20.0).await;
    world.change("LeaderWorkerSet", "foo", json!({"spec": {"leaderWorkerTemplate": {"size": 3}}})).await;
    pass(60.0).await;
    assert_eq!(ready(&world).await.len(), 6);
    assert_eq!(world.get("Pod", "foo-0-2").await["metadata"]["annotations"][key("size")], "3");
}

#[tokio::test(start_paused = true)]
async fn exclusive_groups_stay_where_their_leader_is() {
    let world = World::new().await;
    let annotations = json!({"metadata": {"annotations": {key("exclusive-topology"): "rack"}}});
    world.make("LeaderWorkerSet", lws(1, 2, &annotations)).await;
    pass(20.0).await;
    let (leader, worker) = (world.get("Pod", "foo-0").await, world.get("Pod", "foo-0-1").await);
    let affinity = &leader["spec"]["affinity"];
    let near = &affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(near["topologyKey"], "rack");
    assert_eq!(worker["spec"]["nodeSelector"]["rack"], "r-1");
}

#[tokio::test(start_paused = true)]
async fn each_group_can_have_its_own_subdomain() {
    let world = World::new().await;
    let network = json!({"spec": {"networkConfig": {"subdomainPolicy": "UniquePerReplica"}}});
    world.make("LeaderWorkerSet", lws(2, 2, &network)).await;
    pass(20.0).await;
    assert_eq!(world.names("Service").await, ["foo-0", "foo-1"]);
    let worker = world.get("Pod", "foo-1-1").await;
    assert_eq!(worker["spec"]["subdomain"], "foo-1");
    assert_eq!(worker["spec"]["containers"][0]["env"][0]["value"], "foo-1.foo-1.default");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused() {
    let world = World::new().await;
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
        let refused = world.api("LeaderWorkerSet").create(&PostParams::default(), &object).await;
        let why = refused.map(|_| ()).expect_err(&change.to_string()).to_string();
        assert!(why.contains(field), "{change}: {why}");
    }
    // What is wrong in a template is found when its pods are to be made, and told.
    let wrong = json!({"spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": {"contaners": []}}}}});
    world.make("LeaderWorkerSet", lws(1, 2, &wrong)).await;
    pass(5.0).await;
    let told = world.told("foo").await;
    assert!(told["FailedCreate"][0].contains("unknown field \"spec.template.spec.contaners\""), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_takes_its_workers_along_and_comes_back() {
    for policy in ["RecreateGroupOnPodRestart", "None"] {
        let world = World::new().await;
        let change = json!({"spec": {"leaderWorkerTemplate": {"restartPolicy": policy}}});
        world.make("LeaderWorkerSet", lws(2, 3, &change)).await;
        pass(20.0).await;
        let (before, workers) = (uids(&world).await, world.get("StatefulSet", "foo-0").await);
        assert_eq!(workers["metadata"]["ownerReferences"][0]["kind"], "Pod");
        world.delete("Pod", "foo-0").await;
        pass(60.0).await;
        let again = world.get("StatefulSet", "foo-0").await;
        assert_ne!(again["metadata"]["uid"], workers["metadata"]["uid"], "{policy}");
        let leader = world.get("Pod", "foo-0").await;
        assert_eq!(again["metadata"]["ownerReferences"][0]["uid"], leader["metadata"]["uid"], "{policy}");
        let expected = ["foo-0:v1", "foo-0-1:v1", "foo-0-2:v1", "foo-1:v1", "foo-1-1:v1", "foo-1-2:v1"];
        assert_eq!(ready(&world).await, expected, "{policy}");
        let after = uids(&world).await;
        let changed: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
        assert_eq!(changed, [true, true, true, false, false, false], "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn groups_below_the_partition_keep_their_template() {
    let world = World::new().await;
    let partition =
        |count: i32| json!({"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": {"partition": count}}}});
    world.make("LeaderWorkerSet", lws(3, 2, &partition(2))).await;
    pass(30.0).await;
    world.change("LeaderWorkerSet", "foo", images("v2")).await;
    pass(60.0).await;
    assert_eq!(ready(&world).await, ["foo-0:v1", "foo-0-1:v1", "foo-1:v1", "foo-1-1:v1", "foo-2:v2", "foo-2-1:v2"]);
    let hash =
        async |name: &str| world.get("Pod", name).await["metadata"]["labels"][key("template-revision-hash")].clone();
    assert_ne!(hash("foo-0").await, hash("foo-2").await);
    // One that comes back below it is of the old template, with its workers.
    world.delete("Pod", "foo-0").await;
    pass(60.0).await;
    assert_eq!(&ready(&world).await[..2], ["foo-0:v1", "foo-0-1:v1"]);
    assert_eq!(hash("foo-0").await, hash("foo-0-1").await);
    world.change("LeaderWorkerSet", "foo", partition(0)).await;
    pass(90.0).await;
    assert!(ready(&world).await.iter().all(|pod| pod.ends_with(":v2")));
}
