//! The cases: a gang with volumes of each kind, and what happens while they are bound.
//!
//! Must not depend on how processes die.

use muster_playground::components::Shape;
use serde_json::{Value, json};

/// The name of the gang.
pub(super) const GANG: &str = "gang";
/// Its size: one member for each node.
pub(super) const MEMBERS: usize = 3;

/// What a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Each member has a claim that is provisioned for its node, one that is bound to an existing volume of its node,
    /// and all share a claim that is provisioned before the others.
    Bound,
    /// The same, and one of the volumes is refused the first time.
    Refused,
    /// The same, and a pod of higher priority needs one of the nodes for a while.
    TakenOver,
}

impl Case {
    /// All cases.
    pub const ALL: [Self; 3] = [Self::Bound, Self::Refused, Self::TakenOver];

    /// The objects, each with the path of its collection, in the order in which they are created.
    pub(super) fn objects(self) -> Vec<(&'static str, Value)> {
        let mut objects = classes();
        for member in 0..MEMBERS {
            objects.push(("/api/v1/persistentvolumes", existing_volume(member)));
            let refuse = if self == Self::Refused && member == 1 { "1" } else { "0" };
            objects.push((CLAIMS, claim(&format!("made-{member}"), "ReadWriteOnce", "made", refuse)));
            objects.push((CLAIMS, claim(&format!("existing-{member}"), "ReadWriteOnce", "existing", "0")));
        }
        objects.push((CLAIMS, claim("shared", "ReadWriteMany", "shared", "0")));
        let group = json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": GANG},
            "spec": {"policy": {"gang": {"minCount": MEMBERS}}},
        });
        objects.push(("/apis/muster.dev/v1alpha1/namespaces/default/podgroups", group));
        objects.extend((0..MEMBERS).map(|number| (PODS, member(number))));
        objects
    }

    /// What is created three seconds later.
    pub(super) fn later_objects(self) -> Vec<(&'static str, Value)> {
        if self != Self::TakenOver {
            return Vec::new();
        }
        let mut pod = pod("important", &[]);
        pod["spec"]["priorityClassName"] = "high".into();
        pod["metadata"]["annotations"] = json!({"playground.muster.dev/run-seconds": "30"});
        pod["spec"]["restartPolicy"] = "Never".into();
        vec![(PODS, pod)]
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// Nodes that hold one member each.
pub(super) fn nodes() -> Shape {
    let pool = json!({"name": "n", "count": MEMBERS, "capacity": {"cpu": "2", "memory": "16Gi", "pods": "110"}});
    Shape::from_json(&json!({"pools": [pool]}).to_string()).expect("a valid shape")
}

fn classes() -> Vec<(&'static str, Value)> {
    let class = |name: &str, provisioner: &str, topology: &str, seconds: &str| {
        let parameters =
            json!({"playground.muster.dev/topology": topology, "playground.muster.dev/delay-seconds": seconds});
        let is_fake = provisioner == "fake.muster.dev";
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
            "parameters": if is_fake { parameters } else { Value::Null },
        });
        ("/apis/storage.k8s.io/v1/storageclasses", class)
    };
    let high = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
    });
    vec![
        class("made", "fake.muster.dev", "hostname", "5"),
        class("shared", "fake.muster.dev", "none", "2"),
        class("existing", "kubernetes.io/no-provisioner", "", ""),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", high),
    ]
}

fn existing_volume(node: usize) -> Value {
    let is_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [format!("n-{node}")]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("existing-{node}")},
        "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "existing",
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [is_node]}]}},
        },
    })
}

fn claim(name: &str, mode: &str, class: &str, refuse: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": {"playground.muster.dev/refuse": refuse}},
        "spec": {"accessModes": [mode], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn member(number: usize) -> Value {
    let claims = [format!("made-{number}"), format!("existing-{number}"), "shared".to_owned()];
    let mut pod = pod(&format!("member-{number}"), &claims);
    pod["metadata"]["annotations"] = json!({"muster.dev/pod-group": GANG});
    pod
}

/// A pod that needs a whole node.
fn pod(name: &str, claims: &[String]) -> Value {
    let volume = |claim: &String| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "schedulerName": "muster", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "2"}}}],
            "volumes": claims.iter().map(volume).collect::<Vec<Value>>(),
        },
    })
}
