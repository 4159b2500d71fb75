//! Objects that a server without our schema lets through: a clear condition, never a crash, never a stuck watch.

use serde_json::{Value, json};

use crate::world::{World, condition, group, pass, pod};

/// A definition of our PodGroup that checks nothing.
pub(crate) fn lax() -> Value {
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
async fn a_group_that_cannot_be_read_says_so_and_stops_nobody() {
    let world = World::with(&[lax()]).await;
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
        world.create(group(name, &spec)).await;
        world.create(pod(name, name)).await;
    }
    world.create(group("good", &json!({"policy": {"gang": {"minCount": 1}}}))).await;
    world.create(pod("good", "good")).await;
    pass(10).await;
    for name in ["text", "list", "absurd", "negative", "nothing", "none", "subsets", "timeout"] {
        let object = world.get(&group(name, &json!({}))).await;
        let scheduled = condition(&object, "PodGroupScheduled");
        assert_eq!((&scheduled["status"], &scheduled["reason"]), (&json!("False"), &json!("Invalid")), "{name}");
        let object = world.get(&pod(name, name)).await;
        let waits = condition(&object, "PodScheduled");
        assert_eq!(waits["reason"], "WaitingForGroup", "{name}");
        assert!(waits["message"].as_str().unwrap().contains("cannot be used: "), "{waits}");
        assert!(object["spec"].get("nodeName").is_none());
    }
    let good = world.get(&pod("good", "good")).await;
    assert_eq!(good["spec"]["nodeName"], "n0");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_installed_is_waited_for() {
    let world = World::with(&[]).await;
    world.create(pod("early", "g")).await;
    pass(10).await;
    let waiting = world.get(&pod("early", "g")).await;
    assert_eq!(condition(&waiting, "PodScheduled")["reason"], "WaitingForGroup");
    let definition = serde_json::from_value(lax()).unwrap();
    let api =
        kube::Api::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>::all(
            world.server.client(),
        );
    api.create(&kube::api::PostParams::default(), &definition).await.unwrap();
    world.create(group("g", &json!({"policy": {"gang": {"minCount": 1}}}))).await;
    pass(60).await;
    assert_eq!(world.get(&pod("early", "g")).await["spec"]["nodeName"], "n0");
}
