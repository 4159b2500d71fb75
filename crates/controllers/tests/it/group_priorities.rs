//! The priorities of groups on a server that calls the webhook, with classes that come and go.

use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use muster_api::wire::{PodGroup, Workload};
use muster_controllers::{PriorityClasses, Settings, WatchAges};
use muster_playground_server::Server;
use serde_json::{Value, json};

use crate::test_cluster::{pass, webhook};

/// A server with Muster's kinds, which calls the webhook.
async fn server() -> Server {
    let server = Server::start(muster_playground_server::Settings::default());
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    for (plural, kind) in [("workloads", "Workload"), ("podgroups", "PodGroup")] {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "metadata": {"name": format!("{plural}.muster.dev")},
            "spec": {
                "group": "muster.dev", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema}}],
            },
        });
        definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }
    let classes = PriorityClasses::watch(&server.client(), &WatchAges::default());
    classes.synced().await;
    server.set_webhook(Some(webhook(Settings::default(), classes)));
    server
}

async fn create_class(server: &Server, name: &str, value: i32) {
    let class = json!({"metadata": {"name": name}, "value": value});
    let classes: Api<PriorityClass> = Api::all(server.client());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    pass(1).await;
}

async fn delete_class(server: &Server, name: &str) {
    let classes: Api<PriorityClass> = Api::all(server.client());
    classes.delete(name, &DeleteParams::default()).await.unwrap();
    pass(1).await;
}

/// The object that is stored, or why it was refused.
fn answer(result: kube::Result<DynamicObject>) -> Result<Value, String> {
    match result {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

fn group(name: &str, number: &Value) -> Value {
    let mut group = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"policy": {"gang": {"minCount": 2}}, "priorityClassName": "high"},
    });
    if !number.is_null() {
        group["spec"]["priority"] = number.clone();
    }
    group
}

#[tokio::test(start_paused = true)]
async fn number_is_that_of_the_class_at_creation_and_stays() {
    let server = server().await;
    let groups: Api<DynamicObject> =
        Api::namespaced_with(server.client(), "default", &ApiResource::erase::<PodGroup>(&()));
    let create = async |object: Value| {
        answer(groups.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await)
    };
    let change = async |body: Value| answer(groups.patch("g", &PatchParams::default(), &Patch::Merge(body)).await);
    let early = create(group("early", &Value::Null)).await.unwrap();
    assert_eq!(early["spec"]["priority"], Value::Null, "the class is not known yet");
    create_class(&server, "high", 1000).await;
    let wrong = create(group("g", &json!(7))).await.unwrap_err();
    assert!(wrong.contains("PodGroup default/g: spec.priority: 7: PriorityClass high has 1000"), "{wrong}");
    let created = create(group("g", &Value::Null)).await.unwrap();
    assert_eq!(created["spec"]["priority"], 1000);

    delete_class(&server, "high").await;
    let changed = change(json!({"spec": {"policy": {"gang": {"minCount": 3}}}})).await.unwrap();
    assert_eq!(
        (&changed["spec"]["priority"], &changed["spec"]["policy"]["gang"]["minCount"]),
        (&json!(1000), &json!(3))
    );
    create_class(&server, "high", 5).await;
    let changed = change(json!({"metadata": {"labels": {"team": "ml"}}})).await.unwrap();
    assert_eq!(changed["spec"]["priority"], 1000);

    // The scheduler has recorded the number: no other one is accepted, and one that is left out is put back.
    let condition = json!({"type": "PriorityResolved", "status": "True", "reason": "Resolved",
        "message": "The priority is 1000, of PriorityClass high.", "lastTransitionTime": "2030-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [condition]}});
    groups.patch_status("g", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let refused = change(json!({"spec": {"priority": 5}})).await.unwrap_err();
    assert!(refused.contains("spec.priority: 5: the priority was resolved when the group was created, and is 1000"));
    let mut replaced = created;
    replaced["spec"].as_object_mut().unwrap().remove("priority");
    replaced["metadata"] = json!({"name": "g", "resourceVersion": changed_version(&groups).await});
    let replacement = serde_json::from_value(replaced).unwrap();
    let replaced = answer(groups.replace("g", &PostParams::default(), &replacement).await).unwrap();
    assert_eq!(replaced["spec"]["priority"], 1000);
    assert_eq!(create(group("late", &Value::Null)).await.unwrap()["spec"]["priority"], 5);
    groups.delete("g", &DeleteParams::default()).await.unwrap();
}

async fn changed_version(groups: &Api<DynamicObject>) -> Value {
    json!(groups.get("g").await.unwrap().metadata.resource_version)
}

#[tokio::test(start_paused = true)]
async fn wrong_number_from_before_the_webhook_can_be_corrected() {
    let server = server().await;
    create_class(&server, "high", 1000).await;
    let hook = PriorityClasses::watch(&server.client(), &WatchAges::default());
    hook.synced().await;
    server.set_webhook(None);
    let workloads: Api<DynamicObject> =
        Api::namespaced_with(server.client(), "default", &ApiResource::erase::<Workload>(&()));
    let with_number = |number: i32| {
        let groups = json!([{"name": "a", "policy": {"gang": {"minCount": 2}}, "priorityClassName": "high", "priority": number}]);
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "w"}, "spec": {"podGroups": groups}})
    };
    let wrong = serde_json::from_value(with_number(7)).unwrap();
    workloads.create(&PostParams::default(), &wrong).await.unwrap();
    server.set_webhook(Some(webhook(Settings::default(), hook)));
    let change = async |body: Value| answer(workloads.patch("w", &PatchParams::default(), &Patch::Merge(body)).await);
    change(json!({"metadata": {"labels": {"team": "ml"}}})).await.unwrap();
    let refused = change(json!({"spec": with_number(8)["spec"]})).await.unwrap_err();
    assert!(refused.contains("Workload default/w: spec.podGroups[0].priority: 8: PriorityClass high has 1000"));
    let mended = change(json!({"spec": with_number(1000)["spec"]})).await.unwrap();
    assert_eq!(mended["spec"]["podGroups"][0]["priority"], 1000);
}
