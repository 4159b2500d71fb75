//! Groups are read by several schedulers: those in which no pod of ours has a part are not spoken of.

use muster_runtime::Settings;
use serde_json::{Value, json};

use crate::bad_objects::lax;
use crate::world::{World, condition, group, pass, pod};

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
async fn groups_of_other_schedulers_are_not_spoken_of() {
    let world = World::with(&[]).await;
    let gang = json!({"schedulingPolicy": {"gang": {"minCount": 2}}});
    let basic = json!({"schedulingPolicy": {"basic": {}}});
    for (name, spec) in [("gang", &gang), ("basic", &basic), ("late", &gang), ("mixed", &gang)] {
        world.create(native(name, spec)).await;
    }
    for name in ["gang", "basic", "mixed"] {
        let mut bound = member(&format!("{name}-0"), name, "somebody-else");
        bound["spec"]["nodeName"] = "n0".into();
        world.create(bound).await;
        world.create(member(&format!("{name}-1"), name, "somebody-else")).await;
    }
    world.create(member("mixed-2", "mixed", "muster")).await;
    pass(30).await;
    world.create(member("late-0", "late", "somebody-else")).await;
    pass(30).await;
    for name in ["gang", "basic", "late"] {
        let conditions = world.get(&native(name, &gang)).await["status"]["conditions"].clone();
        assert_eq!(conditions, Value::Null, "{name}");
    }
    let mixed = world.get(&native("mixed", &gang)).await;
    assert_eq!(condition(&mixed, "muster.dev/PodGroupScheduled")["reason"], "WaitingForMembers");
    // Once a pod of ours asks for a place, it is told how things are.
    world.create(member("late-1", "late", "muster")).await;
    pass(30).await;
    let late = world.get(&native("late", &gang)).await;
    assert_eq!(condition(&late, "muster.dev/PodGroupScheduled")["reason"], "WaitingForMembers");
}

#[tokio::test(start_paused = true)]
async fn two_musters_do_not_take_back_each_others_words() {
    let mut world = World::with(&[lax()]).await;
    let mut second = Settings::default();
    second.profiles[0].scheduler_names = vec!["second".to_owned()];
    world.start_scheduler(&second);
    let gang = json!({"policy": {"gang": {"minCount": 2}}});
    let names = ["of-muster", "of-second"];
    for name in names {
        world.create(group(name, &gang)).await;
    }
    // Both say that nobody is there.
    pass(30).await;
    for (name, scheduler) in names.iter().zip(["muster", "second"]) {
        for index in 0..2 {
            let mut pod = pod(&format!("{name}-{index}"), name);
            pod["spec"]["schedulerName"] = scheduler.into();
            world.create(pod).await;
        }
    }
    pass(30).await;
    let mut versions = Vec::new();
    for name in names {
        let object = world.get(&group(name, &gang)).await;
        assert_eq!(condition(&object, "PodGroupScheduled")["status"], "True", "{name}: {object}");
        versions.push(object["metadata"]["resourceVersion"].clone());
    }
    pass(600).await;
    for (name, version) in names.iter().zip(versions) {
        assert_eq!(world.get(&group(name, &gang)).await["metadata"]["resourceVersion"], version, "{name}");
    }
}
