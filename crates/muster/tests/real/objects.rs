//! Test objects: nodes with GPUs, gangs of either kind, and pods that request one GPU each.

use muster_controlplane::Version;
use muster_playground::components::Shape;
use serde_json::{Value, json};

use crate::pod_recorder::{GANG, GPU};

/// Kubernetes' own groups in 1.37, and in 1.36.
pub(crate) const V1BETA1: &str = "scheduling.k8s.io/v1beta1";
pub(crate) const V1ALPHA2: &str = "scheduling.k8s.io/v1alpha2";
/// The node label that pods select.
const POOL: &str = "pool";
/// How many GPUs a node has.
pub(crate) const GPUS: i64 = 8;

/// Nodes with eight GPUs each, in a pool.
pub(crate) fn nodes(pool: &str, count: u32) -> Shape {
    let capacity = json!({"cpu": "64", "memory": "512Gi", "pods": "110", GPU: GPUS.to_string()});
    let pool = json!({"name": pool, "count": count, "capacity": capacity, "labels": {POOL: pool}});
    Shape::from_value(json!({"pools": [pool]})).expect("a valid shape")
}

/// A gang whose pods request one GPU each; its minimum is all of them.
#[derive(Clone, Debug)]
pub(crate) struct Gang {
    pub(crate) name: String,
    pub(crate) size: usize,
    pool: String,
    scheduler: String,
    /// The version of Kubernetes' own API, if it is used.
    native: Option<Version>,
    timeout_seconds: Option<u32>,
}

impl Gang {
    /// A gang in Muster's API for the nodes of a pool.
    pub(crate) fn new(name: &str, size: usize, pool: &str) -> Self {
        Self {
            name: name.to_owned(),
            size,
            pool: pool.to_owned(),
            scheduler: "muster".to_owned(),
            native: None,
            timeout_seconds: None,
        }
    }

    /// The same in Kubernetes' own API.
    pub(crate) fn native(self) -> Self {
        self.native_of(Version::V1_37)
    }

    /// The same in the API of a version of Kubernetes.
    pub(crate) fn native_of(mut self, version: Version) -> Self {
        self.native = Some(version);
        self
    }

    /// The same for another scheduler.
    pub(crate) fn scheduled_by(mut self, name: &str) -> Self {
        name.clone_into(&mut self.scheduler);
        self
    }

    /// The same with another deadline for its start.
    pub(crate) fn starting_within(mut self, seconds: u32) -> Self {
        self.timeout_seconds = Some(seconds);
        self
    }

    /// The object of the group.
    pub(crate) fn group(&self) -> Value {
        let policy = json!({"gang": {"minCount": self.size}});
        let (api_version, kind, spec) = match self.native {
            None => {
                let spec = json!({"policy": policy, "scheduleTimeoutSeconds": self.timeout_seconds});
                ("muster.dev/v1alpha1", "PodGroup", spec)
            }
            Some(Version::V1_37) => (V1BETA1, "PodGroup", json!({"schedulingPolicy": policy})),
            Some(Version::V1_36) => (V1ALPHA2, "PodGroup", json!({"schedulingPolicy": policy})),
            Some(Version::V1_35) => (
                "scheduling.k8s.io/v1alpha1",
                "Workload",
                json!({"podGroups": [{"name": self.name, "policy": policy}]}),
            ),
        };
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": self.name}, "spec": spec})
    }

    /// Its pods, without a controller.
    pub(crate) fn pods(&self) -> Vec<Value> {
        let pod = |number: usize| {
            let mut pod = self.template();
            pod["apiVersion"] = "v1".into();
            pod["kind"] = "Pod".into();
            pod["metadata"]["name"] = format!("{}-{number}", self.name).into();
            pod
        };
        (0..self.size).map(pod).collect()
    }

    /// A controller that creates its pods: `ReplicaSet` or `StatefulSet`.
    pub(crate) fn controller(&self, kind: &str) -> Value {
        let mut controller = json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": self.name},
            "spec": {
                "replicas": self.size,
                "selector": {"matchLabels": {GANG: self.name}},
                "template": self.template(),
            },
        });
        if kind == "StatefulSet" {
            controller["spec"]["podManagementPolicy"] = "Parallel".into();
            controller["spec"]["serviceName"] = self.name.clone().into();
        }
        controller
    }

    fn template(&self) -> Value {
        let mut template = pod_template(&self.name, &self.scheduler, &self.pool);
        match self.native {
            None => template["metadata"]["annotations"] = json!({"muster.dev/pod-group": self.name}),
            Some(Version::V1_37 | Version::V1_36) => {
                template["spec"]["schedulingGroup"] = json!({"podGroupName": self.name});
            }
            Some(Version::V1_35) => {
                template["spec"]["workloadRef"] = json!({"name": self.name, "podGroup": self.name});
            }
        }
        template
    }
}

/// A pod without a group.
pub(crate) fn single(name: &str, pool: &str) -> Value {
    let mut pod = pod_template(name, "muster", pool);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod
}

/// A controller of pods without a group, scheduled by kube-scheduler.
pub(crate) fn kube_scheduler_singles(name: &str, count: usize, pool: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {GANG: name}},
            "template": pod_template(name, "default-scheduler", pool),
        },
    })
}

fn pod_template(label: &str, scheduler: &str, pool: &str) -> Value {
    json!({
        "metadata": {"labels": {GANG: label}},
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": {POOL: pool},
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "busybox",
                "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}},
            }],
        },
    })
}
