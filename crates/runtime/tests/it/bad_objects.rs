//! Invalid objects that a server without our schema accepts: they get a clear condition and never cause a crash or a
//! stuck watch.

use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, condition, group, pod, sleep_seconds};

/// A CRD of our PodGroup that validates nothing.
pub(crate) fn lax_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.muster.dev"},
        "spec": {
            "group": "muster.dev", "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_group_is_reported_and_does_not_block_others() {
    let cluster = TestCluster::with(&[lax_crd()]).await;
    for (name, spec) in [
        ("text", json!("gang")),
        ("list", json!({"policy": [1, 2]})),
        ("absurd", json!({"policy": {"gang": {"minCount": 1e30}}})),
        ("negative", json!({"policy": {"gang": {"minCount": -3}}})),
        ("nothing", json!({})),
        ("none", Value::Null),
        ("subsets", json!({"subsets": [{"name": "a", "minMember": "three"}]})),
        ("timeout", json!({"policy": {"gang": {"minCount": 1}}, "scheduleTimeoutSeconds": 0})),
    ] {
        cluster.create(group(name, &spec)).await;
        cluster.create(pod(name, name)).await;
    }
    cluster.create(group("good", &json!({"policy": {"gang": {"minCount": 1}}}))).await;
    cluster.create(pod("good", "good")).await;
    sleep_seconds(10).await;
    for name in ["text", "list", "absurd", "negative", "nothing", "none", "subsets", "timeout"] {
        let object = cluster.get(&group(name, &json!({}))).await;
        let scheduled = condition(&object, "PodGroupScheduled");
        assert_eq!((&scheduled["status"], &scheduled["reason"]), (&json!("False"), &json!("Invalid")), "{name}");
        let object = cluster.get(&pod(name, name)).await;
        let pending = condition(&object, "PodScheduled");
        assert_eq!(pending["reason"], "WaitingForGroup", "{name}");
        assert!(pending["message"].as_str().unwrap().contains("cannot be used: "), "{pending}");
        assert!(object["spec"].get("nodeName").is_none());
    }
    let good = cluster.get(&pod("good", "good")).await;
    assert_eq!(good["spec"]["nodeName"], "n0");
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_a_kind_that_is_not_installed_yet() {
    let cluster = TestCluster::with(&[]).await;
    cluster.create(pod("early", "g")).await;
    sleep_seconds(10).await;
    let waiting = cluster.get(&pod("early", "g")).await;
    assert_eq!(condition(&waiting, "PodScheduled")["reason"], "WaitingForGroup");
    let definition = serde_json::from_value(lax_crd()).unwrap();
    let api =
        kube::Api::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>::all(
            cluster.server.client(),
        );
    api.create(&kube::api::PostParams::default(), &definition).await.unwrap();
    cluster.create(group("g", &json!({"policy": {"gang": {"minCount": 1}}}))).await;
    sleep_seconds(60).await;
    assert_eq!(cluster.get(&pod("early", "g")).await["spec"]["nodeName"], "n0");
}
