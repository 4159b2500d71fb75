//! The manifests that users create in a simulation, as JSON.
//!
//! Must not depend on the cluster or on randomness.

use serde_json::{Value, json};

use super::server_state::{Amounts, GroupKey, Kind};
use super::volumes::PodVolume;

/// The template of a pod.
#[derive(Clone, Debug)]
pub(super) struct PodPlan {
    pub(super) scheduler: &'static str,
    pub(super) requests: Amounts,
    pub(super) pool: Option<&'static str>,
    pub(super) gated: bool,
    /// How long it runs; forever if `None`.
    pub(super) run_seconds: Option<u64>,
    pub(super) group: Option<(GroupKey, String)>,
    pub(super) volumes: Vec<PodVolume>,
    /// An unsupported field.
    pub(super) unsupported_field: Option<UnsupportedField>,
    pub(super) priority_class: Option<&'static str>,
}

/// Unsupported fields of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum UnsupportedField {
    Claim,
    TwoGroups,
}

impl PodPlan {
    /// Metadata without a name, and the spec.
    fn parts(&self) -> (Value, Value) {
        let mut annotations = json!({"playground.muster.dev/start-seconds": "1"});
        if let Some(seconds) = self.run_seconds {
            annotations["playground.muster.dev/run-seconds"] = seconds.to_string().into();
        }
        let mut requests = json!({"cpu": self.requests.cpu.to_string()});
        let mut resources = json!({});
        if self.requests.gpu > 0 {
            requests["nvidia.com/gpu"] = self.requests.gpu.to_string().into();
            resources["limits"] = json!({"nvidia.com/gpu": self.requests.gpu.to_string()});
        }
        resources["requests"] = requests;
        let mut spec = json!({
            "schedulerName": self.scheduler,
            "containers": [{"name": "c", "image": "example.com/work:1", "resources": resources}],
            "restartPolicy": if self.run_seconds.is_some() { "Never" } else { "Always" },
            "terminationGracePeriodSeconds": 2,
        });
        if let Some(pool) = self.pool {
            spec["nodeSelector"] = json!({"pool": pool});
        }
        if !self.volumes.is_empty() {
            let volumes = self.volumes.iter().enumerate().map(|(number, volume)| volume.object(number));
            spec["volumes"] = volumes.collect();
        }
        if self.gated {
            spec["schedulingGates"] = json!([{"name": "example.com/later"}]);
        }
        if let Some(class) = self.priority_class {
            spec["priorityClassName"] = class.into();
        }
        if let Some((key, subset)) = &self.group {
            join(key, subset, &mut annotations, &mut spec);
        }
        match self.unsupported_field {
            None => {}
            Some(UnsupportedField::TwoGroups) => {
                annotations["muster.dev/pod-group"] = "here".into();
                spec["schedulingGroup"] = json!({"podGroupName": "there"});
            }
            Some(UnsupportedField::Claim) => {
                spec["resourceClaims"] = json!([{"name": "device", "resourceClaimName": "device"}]);
            }
        }
        (json!({"annotations": annotations}), spec)
    }

    pub(super) fn pod(&self, name: &str) -> Value {
        let (mut metadata, spec) = self.parts();
        metadata["name"] = name.into();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }

    pub(super) fn replica_set(&self, name: &str, replicas: u64) -> Value {
        let (mut metadata, spec) = self.parts();
        metadata["labels"] = json!({"set": name});
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"set": name}},
                     "template": {"metadata": metadata, "spec": spec}},
        })
    }
}

fn join(key: &GroupKey, subset: &str, annotations: &mut Value, spec: &mut Value) {
    match key.kind {
        Kind::Native => spec["schedulingGroup"] = json!({"podGroupName": key.object}),
        Kind::PodGroup => annotations["muster.dev/pod-group"] = key.object.as_str().into(),
        Kind::Workload => {
            annotations["muster.dev/workload"] = key.object.as_str().into();
            annotations["muster.dev/pod-group"] = key.group.as_str().into();
        }
    }
    if !key.replica.is_empty() {
        annotations["muster.dev/replica-key"] = key.replica.as_str().into();
    }
    if !subset.is_empty() {
        annotations["muster.dev/subset"] = subset.into();
    }
}

/// The policy of a group, as users write it.
#[derive(Clone, Debug)]
pub(super) enum GroupPlan {
    Gang(u64),
    Basic,
    Subsets(Vec<(String, u64)>),
}

/// The priority of a group, how it is disrupted, and whether it is in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preemptibility {
    pub(super) class: Option<&'static str>,
    /// Its disruption mode is the whole group.
    pub(super) whole: bool,
    /// All members have to be on nodes of one pool.
    pub(super) one_pool: bool,
}

impl Preemptibility {
    fn write(self, kind: Kind, spec: &mut Value) {
        let of_group = match kind {
            Kind::Workload => &mut spec["podGroups"][0],
            Kind::PodGroup | Kind::Native => spec,
        };
        if let Some(class) = self.class {
            of_group["priorityClassName"] = class.into();
        }
        if self.one_pool {
            of_group["topology"] = json!([{"key": "pool", "mode": "Required"}]);
        }
        if self.whole {
            of_group["disruptionMode"] = if kind == Kind::Native { json!({"all": {}}) } else { json!("PodGroup") };
        }
    }
}

/// The collection path of a kind.
pub(super) fn collection_path(kind: Kind) -> &'static str {
    match kind {
        Kind::PodGroup => "/apis/muster.dev/v1alpha1/namespaces/default/podgroups",
        Kind::Workload => "/apis/muster.dev/v1alpha1/namespaces/default/workloads",
        Kind::Native => "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups",
    }
}

/// The object of a group.
pub(super) fn group(
    key: &GroupKey,
    plan: &GroupPlan,
    timeout_seconds: Option<u64>,
    preemptibility: Preemptibility,
) -> Value {
    let (version, kind) = match key.kind {
        Kind::PodGroup => ("muster.dev/v1alpha1", "PodGroup"),
        Kind::Workload => ("muster.dev/v1alpha1", "Workload"),
        Kind::Native => ("scheduling.k8s.io/v1beta1", "PodGroup"),
    };
    let mut spec = match key.kind {
        Kind::Native => json!({"schedulingPolicy": policy(plan)}),
        Kind::Workload => json!({"podGroups": [{"name": key.group, "policy": policy(plan)}]}),
        Kind::PodGroup => group_spec(plan),
    };
    preemptibility.write(key.kind, &mut spec);
    if let (Kind::PodGroup, Some(seconds)) = (key.kind, timeout_seconds) {
        spec["scheduleTimeoutSeconds"] = seconds.into();
    }
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": key.object}, "spec": spec})
}

/// A patch that changes the minimum of a group.
pub(super) fn change(kind: Kind, plan: &GroupPlan) -> Value {
    match kind {
        Kind::Native => json!({"spec": {"schedulingPolicy": policy(plan)}}),
        _ => json!({"spec": group_spec(plan)}),
    }
}

fn group_spec(plan: &GroupPlan) -> Value {
    match plan {
        GroupPlan::Subsets(subsets) => {
            let subsets: Vec<Value> =
                subsets.iter().map(|(name, minimum)| json!({"name": name, "minMember": minimum})).collect();
            json!({"subsets": subsets})
        }
        other => json!({"policy": policy(other)}),
    }
}

fn policy(plan: &GroupPlan) -> Value {
    match plan {
        GroupPlan::Gang(minimum) => json!({"gang": {"minCount": minimum}}),
        GroupPlan::Basic | GroupPlan::Subsets(_) => json!({"basic": {}}),
    }
}
