//! Tests of the small controllers through the API, under virtual time.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use muster_playground::components::{
    Budgets, KubeletSettings, Kubelets, NodeLifecycle, NodeLifecycleSettings, Replicas,
};
use muster_playground::{Server, Settings};
use serde_json::{Value, json};

use crate::kubelets::{create_pod, kubelets, pass, phase, server, status};
use crate::late_client;

fn lifecycle(server: &Server) -> NodeLifecycle {
    NodeLifecycle::start(server.client(), NodeLifecycleSettings::default(), server.clock())
}

async fn taints(client: &Client, node: &str) -> Vec<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let taints = nodes.get(node).await.unwrap().spec.unwrap_or_default().taints.unwrap_or_default();
    let mut taints: Vec<String> = taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    taints.sort();
    taints
}

async fn ready_of(client: &Client, node: &str) -> (String, String, String) {
    let nodes: Api<Node> = Api::all(client.clone());
    let conditions = nodes.get(node).await.unwrap().status.unwrap().conditions.unwrap_or_default();
    let ready = conditions.into_iter().find(|one| one.type_ == "Ready").unwrap();
    (ready.status, ready.reason.unwrap_or_default(), ready.message.unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn new_node_loses_its_taint_when_ready() {
    let server = server();
    let client = server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let own = json!({"metadata": {"name": "n-0"}, "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}});
    nodes.create(&PostParams::default(), &serde_json::from_value(own).unwrap()).await.unwrap();
    let _lifecycle = lifecycle(&server);
    pass(5.0).await;
    assert_eq!(taints(&client, "n-0").await, ["mine:NoSchedule", "node.kubernetes.io/not-ready:NoSchedule"]);
    let _kubelets = kubelets(&server, 1);
    pass(1.0).await;
    assert_eq!(taints(&client, "n-0").await, ["mine:NoSchedule"]);
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes.patch("n-0", &PatchParams::default(), &cordon(true)).await.unwrap();
    pass(1.0).await;
    assert_eq!(taints(&client, "n-0").await, ["mine:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"]);
    nodes.patch("n-0", &PatchParams::default(), &cordon(false)).await.unwrap();
    pass(3600.0).await;
    assert_eq!(taints(&client, "n-0").await, ["mine:NoSchedule"], "an hour later it is still well");
}

#[tokio::test(start_paused = true)]
async fn silent_node_is_lost_its_pods_are_evicted_and_it_recovers() {
    let server = server();
    let client = server.client();
    let _lifecycle = lifecycle(&server);
    let kubelets = kubelets(&server, 2);
    pass(1.0).await;
    create_pod(&client, "default", &json!({})).await;
    let toleration = |seconds: Value| {
        json!({"spec": {"tolerations": [
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds},
        ]}})
    };
    create_pod(&client, "patient", &toleration(Value::Null)).await;
    create_pod(&client, "hasty", &toleration(json!(10))).await;
    pass(5.0).await;
    kubelets.kill("n-0").await.unwrap();
    pass(29.0).await;
    assert_eq!(ready_of(&client, "n-0").await.0, "True");
    pass(15.0).await;
    let unknown = ("Unknown".into(), "NodeStatusUnknown".into(), "Kubelet stopped posting node status.".into());
    assert_eq!(ready_of(&client, "n-0").await, unknown);
    let expected = ["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"];
    assert_eq!(taints(&client, "n-0").await, expected);
    assert_eq!(ready_of(&client, "n-1").await.0, "True");
    let is_ready = |status: &Value| {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    assert!(!is_ready(&status(&client, "patient").await), "it serves no traffic");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pass(10.0).await;
    let hasty = pods.get("hasty").await.unwrap();
    assert!(hasty.metadata.deletion_timestamp.is_some());
    let conditions = hasty.status.unwrap().conditions.unwrap();
    let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!((&*target.status, target.reason.as_deref()), ("True", Some("DeletionByTaintManager")));
    assert!(pods.get("default").await.unwrap().metadata.deletion_timestamp.is_none());
    pass(300.0).await;
    assert!(pods.get("default").await.unwrap().metadata.deletion_timestamp.is_some(), "five minutes are the default");
    assert!(pods.get("patient").await.unwrap().metadata.deletion_timestamp.is_none());
    kubelets.revive("n-0").await.unwrap();
    pass(3.0).await;
    assert_eq!(ready_of(&client, "n-0").await.0, "True");
    assert_eq!(taints(&client, "n-0").await, [""; 0]);
    assert_eq!((phase(&client, "hasty").await, phase(&client, "default").await), ("gone".into(), "gone".into()));
    assert!(is_ready(&status(&client, "patient").await), "it is ready again");
}

#[tokio::test(start_paused = true)]
async fn no_execute_taint_evicts_pods_at_once() {
    let server = server();
    let client = server.client();
    let _lifecycle = lifecycle(&server);
    let _kubelets = kubelets(&server, 1);
    pass(1.0).await;
    create_pod(&client, "p", &json!({})).await;
    create_pod(&client, "q", &json!({"spec": {"tolerations": [{"operator": "Exists"}]}})).await;
    pass(3.0).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let taint = Patch::Merge(json!({"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}}));
    nodes.patch("n-0", &PatchParams::default(), &taint).await.unwrap();
    pass(3.0).await;
    assert_eq!((phase(&client, "p").await, phase(&client, "q").await), ("gone".into(), "Running".into()));
    create_pod(&client, "r", &json!({})).await;
    pass(3.0).await;
    assert_ne!(phase(&client, "r").await, "Running");
}

async fn replica_set(client: &Client, replicas: i32) -> Api<ReplicaSet> {
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
            "spec": {"nodeName": "n-0", "containers": [{"name": "c", "image": "i"}]},
        }},
    });
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    sets
}

async fn web_pods(client: &Client) -> Vec<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.list(&ListParams::default().labels("app=web")).await.unwrap().items
}

async fn scale(sets: &Api<ReplicaSet>, replicas: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    sets.patch("web", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn set_has_its_desired_pods() {
    let server = server();
    let client = server.client();
    let _replicas = Replicas::start(server.client(), server.clock());
    let _kubelets = kubelets(&server, 1);
    let sets = replica_set(&client, 3).await;
    pass(3.0).await;
    let first = web_pods(&client).await;
    assert_eq!(first.len(), 3);
    let owner = &first[0].owner_references()[0];
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("ReplicaSet", "web", Some(true)));
    assert!(first[0].name_any().starts_with("web-") && first[0].annotations()["a"] == "b");
    let observed = sets.get("web").await.unwrap();
    let counts = |set: &ReplicaSet| {
        let status = set.status.clone().unwrap();
        (status.replicas, status.ready_replicas, status.available_replicas)
    };
    assert_eq!(counts(&observed), (3, Some(3), Some(3)));
    assert_eq!(observed.status.as_ref().unwrap().observed_generation, observed.metadata.generation);

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete(&first[0].name_any(), &DeleteParams::default()).await.unwrap();
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    pods.patch_status(&first[1].name_any(), &PatchParams::default(), &failed).await.unwrap();
    pass(5.0).await;
    let second = web_pods(&client).await;
    let running = |pods: &[Pod]| -> BTreeSet<String> {
        let running = pods.iter().filter(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running"));
        running.map(ResourceExt::name_any).collect()
    };
    assert_eq!((second.len(), running(&second).len()), (4, 3), "the failed one stays to be looked at");

    scale(&sets, 5).await;
    // The newest pods are not ready yet and are deleted first.
    pass(0.5).await;
    scale(&sets, 3).await;
    pass(5.0).await;
    assert_eq!(running(&web_pods(&client).await), running(&second));
    scale(&sets, 0).await;
    pass(5.0).await;
    assert_eq!(running(&web_pods(&client).await).len(), 0);
    assert_eq!(counts(&sets.get("web").await.unwrap()).0, 0);
}

#[tokio::test(start_paused = true)]
async fn late_watch_causes_no_surplus_pods() {
    for seed in 0..10 {
        let start = "2026-01-01T00:00:00Z".parse().expect("a date");
        let server = Server::start(Settings { start: Some(start), seed, ..Settings::default() });
        let client = server.client();
        let late = late_client::client(&server, Duration::from_secs(2));
        let _replicas = Replicas::start(late, server.clock());
        let sets = replica_set(&client, 0).await;
        let mut random = muster_playground::random::Random::new(seed);
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        for _ in 0..30 {
            scale(&sets, random.below(12) as i32).await;
            if random.per_mille(300)
                && let Some(pod) = web_pods(&client).await.first()
            {
                pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
            }
            if random.per_mille(300) {
                // The watch cannot resume and has to relist.
                server.compact();
            }
            pass(random.below(50) as f64 / 10.0).await;
            let active = active(&client).await;
            assert!(active <= 11, "seed {seed}: {active} pods, at most 11 were desired");
        }
        scale(&sets, 7).await;
        pass(60.0).await;
        let revision = server.revision();
        pass(600.0).await;
        assert_eq!(active(&client).await, 7, "seed {seed}");
        assert_eq!(server.revision(), revision, "seed {seed}: all is well and still it writes");
    }
}

async fn active(client: &Client) -> usize {
    web_pods(client).await.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
}

#[tokio::test(start_paused = true)]
async fn late_event_is_handled_once() {
    let server = server();
    let client = server.client();
    let late = late_client::client(&server, Duration::from_secs(3));
    let _replicas = Replicas::start(late.clone(), server.clock());
    let shape = crate::kubelets::shape(1);
    let _kubelets = Kubelets::start(late, &shape, KubeletSettings::default(), server.clock()).expect("kubelets");
    let sets = replica_set(&client, 5).await;
    // Every event makes the set dirty while others are still in flight.
    let mut most = 0;
    for _ in 0..100 {
        pass(0.2).await;
        most = most.max(active(&client).await);
    }
    assert_eq!(most, 5);
    scale(&sets, 2).await;
    let mut least = 5;
    for _ in 0..100 {
        pass(0.2).await;
        least = least.min(active(&client).await);
    }
    assert_eq!(least, 2, "no more are deleted than are too many");
    let left = web_pods(&client).await;
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running")));
}

async fn budget(client: &Client, spec: Value) -> Api<PodDisruptionBudget> {
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
    let mut budget = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    for (key, value) in spec.as_object().unwrap() {
        budget["spec"][key] = value.clone();
    }
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    budgets
}

/// Expected, desired and healthy pods, allowed disruptions, and the reason.
async fn budget_status(budgets: &Api<PodDisruptionBudget>) -> (i32, i32, i32, i32, String) {
    let budget = budgets.get("web").await.unwrap();
    let status = budget.status.unwrap();
    assert_eq!(status.observed_generation, budget.metadata.generation);
    let condition = status.conditions.unwrap().remove(0);
    assert_eq!(condition.type_, "DisruptionAllowed");
    (
        status.expected_pods.unwrap(),
        status.desired_healthy.unwrap(),
        status.current_healthy.unwrap(),
        status.disruptions_allowed.unwrap(),
        condition.reason,
    )
}

#[tokio::test(start_paused = true)]
async fn budget_counts_as_specified() {
    for (spec, expected) in [
        (json!({"minAvailable": 2}), (3, 2, 3, 1, "SufficientPods")),
        (json!({"minAvailable": 3}), (3, 3, 3, 0, "InsufficientPods")),
        (json!({"minAvailable": "50%"}), (3, 2, 3, 1, "SufficientPods")),
        (json!({"maxUnavailable": 2}), (3, 1, 3, 2, "SufficientPods")),
        (json!({"maxUnavailable": "34%"}), (3, 1, 3, 2, "SufficientPods")),
        (json!({"maxUnavailable": 9}), (3, 0, 3, 3, "SufficientPods")),
        (json!({"maxUnavailable": 0}), (3, 3, 3, 0, "InsufficientPods")),
    ] {
        let server = server();
        let client = server.client();
        let clock = server.clock();
        let _clients = (Replicas::start(server.client(), clock), Budgets::start(server.client(), clock));
        let _kubelets = kubelets(&server, 1);
        let _sets = replica_set(&client, 3).await;
        let budgets = budget(&client, spec.clone()).await;
        pass(5.0).await;
        let observed = budget_status(&budgets).await;
        let (a, b, c, d, reason) = expected;
        assert_eq!(observed, (a, b, c, d, reason.to_owned()), "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_without_controller_are_counted_as_upstream() {
    for (spec, expected) in [
        (json!({"minAvailable": 1}), (2, 1, 2, 1, "SufficientPods")),
        // No controller sets the number of pods: none are expected, and no disruption is allowed.
        (json!({"maxUnavailable": 1}), (0, 0, 2, 0, "InsufficientPods")),
        (json!({"minAvailable": "50%"}), (0, 0, 2, 0, "InsufficientPods")),
    ] {
        let server = server();
        let client = server.client();
        let _budgets = Budgets::start(server.client(), server.clock());
        let _kubelets = kubelets(&server, 1);
        for name in ["a", "b"] {
            create_pod(&client, name, &json!({"metadata": {"labels": {"app": "web"}}})).await;
        }
        let budgets = budget(&client, spec.clone()).await;
        pass(5.0).await;
        let (a, b, c, d, reason) = expected;
        assert_eq!(budget_status(&budgets).await, (a, b, c, d, reason.to_owned()), "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn budget_with_unscalable_owner_allows_no_disruption() {
    let server = server();
    let client = server.client();
    let _budgets = Budgets::start(server.client(), server.clock());
    let _kubelets = kubelets(&server, 1);
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    let map = maps.create(&PostParams::default(), &map).await.unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": map.uid(), "controller": true}]);
    let budgets = budget(&client, json!({"maxUnavailable": 1})).await;
    create_pod(&client, "a", &json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": owner}})).await;
    pass(5.0).await;
    let status = budgets.get("web").await.unwrap().status.unwrap();
    assert_eq!(status.disruptions_allowed, Some(0));
    let condition = &status.conditions.unwrap()[0];
    assert_eq!((&*condition.reason, &*condition.message), ("SyncFailed", "found no controllers for pod \"a\""));
}

#[tokio::test(start_paused = true)]
async fn evictions_wait_for_the_budget_and_replicas_are_recreated() {
    let server = server();
    let client = server.client();
    let clock = server.clock();
    let _clients = (Replicas::start(server.client(), clock), Budgets::start(server.client(), clock));
    let _kubelets = kubelets(&server, 1);
    let _sets = replica_set(&client, 3).await;
    let budgets = budget(&client, json!({"minAvailable": 2})).await;
    pass(5.0).await;
    let names: Vec<String> = web_pods(&client).await.iter().map(ResourceExt::name_any).collect();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.evict(&names[0], &EvictParams::default()).await.expect("the first may go");
    let refused = pods.evict(&names[1], &EvictParams::default()).await.expect_err("the second may not");
    let kube::Error::Api(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal.code, 429);
    pass(0.2).await;
    assert_eq!(budget_status(&budgets).await.3, 0, "the new pod is not ready yet");
    pass(5.0).await;
    assert_eq!(budget_status(&budgets).await, (3, 2, 3, 1, "SufficientPods".to_owned()));
    assert_eq!(budgets.get("web").await.unwrap().status.unwrap().disrupted_pods.unwrap_or_default().len(), 0);
    pods.evict(&names[1], &EvictParams::default()).await.expect("now it may");
    pass(5.0).await;
    let now: Vec<String> = web_pods(&client).await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(now.len(), 3);
    assert!(!now.contains(&names[0]) && !now.contains(&names[1]) && now.contains(&names[2]));
}

#[tokio::test(start_paused = true)]
async fn ineffective_eviction_expires_after_two_minutes() {
    let server = server();
    let client = server.client();
    let _budgets = Budgets::start(server.client(), server.clock());
    let _kubelets = kubelets(&server, 1);
    for name in ["a", "b"] {
        create_pod(&client, name, &json!({"metadata": {"labels": {"app": "web"}}})).await;
    }
    let budgets = budget(&client, json!({"minAvailable": 1})).await;
    pass(5.0).await;
    let granted = Patch::Merge(
        json!({"status": {"disruptionsAllowed": 0, "disruptedPods": {"a": "2026-01-01T00:00:05Z", "gone": "2026-01-01T00:00:05Z"}}}),
    );
    budgets.patch_status("web", &PatchParams::default(), &granted).await.unwrap();
    pass(100.0).await;
    assert_eq!(budget_status(&budgets).await, (2, 1, 1, 0, "InsufficientPods".to_owned()));
    let left = budgets.get("web").await.unwrap().status.unwrap().disrupted_pods.unwrap();
    assert_eq!(left.into_keys().collect::<Vec<_>>(), ["a"]);
    pass(25.0).await;
    assert_eq!(budget_status(&budgets).await, (2, 1, 2, 1, "SufficientPods".to_owned()));
}
