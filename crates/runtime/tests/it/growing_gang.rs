//! A gang whose members come one after the other: while they come, nobody is told that some are missing.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::bad_objects::lax;
use crate::world::{World, group, pass, pod};

/// The reason that a pod shows for having no place, if it shows one.
async fn reason(world: &World, name: &str) -> Option<String> {
    let object = world.get(&pod(name, "g")).await;
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let shown: Option<&Value> = list.iter().find(|one| one["type"] == "PodScheduled");
    shown.and_then(|one| Some(one["reason"].as_str()?.to_owned()))
}

/// How many times a pod was said to have failed.
async fn failures(world: &World) -> usize {
    let events: Api<Event> = Api::namespaced(world.server.client(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    events.items.iter().filter(|event| event.reason.as_deref() == Some("FailedScheduling")).count()
}

async fn gang_of(minimum: u32) -> World {
    let world = World::with(&[lax()]).await;
    world.create(group("g", &json!({"policy": {"gang": {"minCount": minimum}}}))).await;
    world
}

#[tokio::test(start_paused = true)]
async fn while_members_come_pods_are_told_nothing() {
    let world = gang_of(20).await;
    for number in 0..12 {
        world.create(pod(&format!("a-{number}"), "g")).await;
        pass(3).await;
    }
    assert_eq!((reason(&world, "a-0").await, failures(&world).await), (None, 0));
    pass(4).await;
    for number in 0..12 {
        assert_eq!(reason(&world, &format!("a-{number}")).await.as_deref(), Some("WaitingForMembers"), "{number}");
    }
    assert_eq!(failures(&world).await, 12);
}

#[tokio::test(start_paused = true)]
async fn after_a_minute_they_are_told_all_the_same() {
    let world = gang_of(100).await;
    for number in 0..24 {
        world.create(pod(&format!("a-{number}"), "g")).await;
        pass(3).await;
    }
    let told = Some("WaitingForMembers".to_owned());
    assert_eq!((reason(&world, "a-0").await, reason(&world, "a-23").await), (told, None));
}
