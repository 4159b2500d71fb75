//! The sets, two for each startup policy, and nodes with capacity for one of each pair.

use muster_playground::components::Shape;
use serde_json::{Value, json};

const GPU: &str = "nvidia.com/gpu";
/// GPUs of a node. A pool has two nodes and a pod requests two GPUs: eight pods fit.
const GPUS: &str = "8";
/// The label with the name of a pod's set.
pub(super) const SET: &str = "set";
/// The number of pods of a set: more than half of the pods that fit in its pool.
pub(super) const SIZE: usize = 5;
pub(super) const JOB_SET: (&str, &str) = ("jobset.x-k8s.io/v1alpha2", "JobSet");
pub(super) const LEADER_WORKER_SET: (&str, &str) = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");

/// The startup policy of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Startup {
    AnyOrder,
    InOrder,
    DependsOn,
    LeaderCreated,
    LeaderReady,
}

/// One pair for each startup policy.
pub(super) const PAIRS: [Startup; 5] =
    [Startup::AnyOrder, Startup::InOrder, Startup::DependsOn, Startup::LeaderCreated, Startup::LeaderReady];

impl Startup {
    pub(super) fn pool(self) -> &'static str {
        match self {
            Startup::AnyOrder => "any-order",
            Startup::InOrder => "in-order",
            Startup::DependsOn => "depends-on",
            Startup::LeaderCreated => "leader-created",
            Startup::LeaderReady => "leader-ready",
        }
    }

    pub(super) fn kind(self) -> (&'static str, &'static str) {
        match self {
            Startup::AnyOrder | Startup::InOrder | Startup::DependsOn => JOB_SET,
            Startup::LeaderCreated | Startup::LeaderReady => LEADER_WORKER_SET,
        }
    }
}

/// A pool of nodes for each pair.
pub fn nodes() -> Shape {
    let capacity = json!({"cpu": "64", "memory": "512Gi", "pods": "110", GPU: GPUS});
    let pool = |startup: &Startup| {
        let name = startup.pool();
        json!({"name": name, "count": 2, "capacity": capacity, "labels": {"pool": name}})
    };
    let pools: Vec<Value> = PAIRS.iter().map(pool).collect();
    Shape::from_value(json!({"pools": pools})).expect("a valid shape")
}

/// One set of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) startup: Startup,
    which: &'static str,
}

impl Set {
    pub(super) fn new(startup: Startup, which: &'static str) -> Self {
        Self { startup, which }
    }

    pub(super) fn name(self) -> String {
        format!("{}-{}", self.startup.pool(), self.which)
    }

    pub(super) fn object(self) -> Value {
        let (api_version, kind) = self.startup.kind();
        let (annotations, spec) = match self.startup.kind() {
            JOB_SET => (json!({"muster.dev/gang-mode": "Gang"}), self.job_set()),
            _ => (json!({}), self.leader_worker_set()),
        };
        json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": self.name(), "annotations": annotations},
            "spec": spec,
        })
    }

    /// A driver and two Jobs of two workers.
    fn job_set(self) -> Value {
        let job = |name: &str, replicas: u32, pods: u32| {
            let mut template = self.template();
            template["spec"]["restartPolicy"] = "Never".into();
            // Deleted pods count as failed; they must not exhaust the backoff limit.
            json!({"name": name, "replicas": replicas, "template": {"spec": {
                "parallelism": pods, "completions": pods, "backoffLimit": 1000, "template": template,
            }}})
        };
        let mut jobs = [job("driver", 1, 1), job("workers", 2, 2)];
        if self.startup == Startup::DependsOn {
            jobs[1]["dependsOn"] = json!([{"name": "driver", "status": "Ready"}]);
        }
        let mut spec = json!({"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 1000}});
        if self.startup == Startup::InOrder {
            spec["startupPolicy"] = json!({"startupPolicyOrder": "InOrder"});
        }
        spec
    }

    /// One replica: a leader and four workers. Set `a` restarts them together, set `b` individually.
    fn leader_worker_set(self) -> Value {
        let startup = if self.startup == Startup::LeaderReady { "LeaderReady" } else { "LeaderCreated" };
        let restart = if self.which == "a" { "RecreateGroupOnPodRestart" } else { "None" };
        json!({
            "replicas": 1, "startupPolicy": startup,
            "leaderWorkerTemplate": {"size": SIZE, "restartPolicy": restart, "workerTemplate": self.template()},
        })
    }

    fn template(self) -> Value {
        json!({
            "metadata": {"labels": {SET: self.name()}},
            "spec": {
                "schedulerName": "muster",
                "nodeSelector": {"pool": self.startup.pool()},
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": "busybox",
                    "resources": {"requests": {GPU: "2"}, "limits": {GPU: "2"}},
                }],
            },
        })
    }
}
