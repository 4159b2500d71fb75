//! Native groups are read by several schedulers: those in which no pod of ours has a part are not spoken of.

use serde_json::{Value, json};

use crate::world::{World, condition, pass, pod};

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
