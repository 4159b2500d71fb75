//! The CustomResourceDefinition of LeaderWorkerSets: exactly the fields that the playground's controller implements.
//!
//! Names and meanings are those of leaderworkerset.x-k8s.io/v1; what upstream's webhooks default and reject is
//! expressed as defaults and rules.

use serde_json::{Value, json};

/// The CustomResourceDefinition, as JSON.
pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "leaderworkersets.leaderworkerset.x-k8s.io"},
        "spec": {
            "group": "leaderworkerset.x-k8s.io",
            "scope": "Namespaced",
            "names": {
                "kind": "LeaderWorkerSet", "listKind": "LeaderWorkerSetList",
                "plural": "leaderworkersets", "singular": "leaderworkerset", "shortNames": ["lws"],
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": root()},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.hpaPodSelector",
                }},
                "additionalPrinterColumns": [
                    {"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"},
                    {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Up-to-date", "type": "integer", "jsonPath": ".status.updatedReplicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn root() -> Value {
    let mut root = object(&json!({
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec(),
        "status": status(),
    }));
    root["required"] = json!(["spec"]);
    root["description"] =
        json!("Groups of pods, each with a leader and its workers, that are created, updated and restarted as one.");
    root["x-kubernetes-validations"] = json!([{
        "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63",
        "message": "metadata.name must be a DNS label that begins with a letter: it is the name of a service",
    }]);
    root
}

fn spec() -> Value {
    let mut spec = object(&json!({
        "replicas": {
            "type": "integer", "format": "int32", "minimum": 0, "maximum": 1_000_000, "default": 1,
            "description": "The number of groups.",
        },
        "leaderWorkerTemplate": group_template(),
        "rolloutStrategy": rollout_strategy(),
        "startupPolicy": {
            "type": "string", "enum": ["LeaderCreated", "LeaderReady"], "default": "LeaderCreated",
            "description": "Whether workers are created with their leader or when it is ready.",
        },
        "networkConfig": network_config(),
    }));
    spec["required"] = json!(["leaderWorkerTemplate"]);
    spec["x-kubernetes-validations"] = json!([
        {
            "rule": "self.replicas * self.leaderWorkerTemplate.size <= 2147483647",
            "message": "replicas times size must not be more than 2147483647",
        },
    ]);
    spec
}

fn group_template() -> Value {
    let mut template = object(&json!({
        "leaderTemplate": pod_template("The leader's pod; default: the worker template."),
        "workerTemplate": pod_template("The pod of each worker."),
        "size": {
            "type": "integer", "format": "int32", "minimum": 1, "default": 1,
            "description": "The number of pods of a group, including its leader.",
        },
        "restartPolicy": {
            "type": "string", "default": "RecreateGroupOnPodRestart",
            "enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"],
            "description": "What happens to a group when one of its containers restarts or one of its pods is deleted.",
        },
        "subGroupPolicy": subgroup_policy(),
        "volumeClaimTemplates": {
            "type": "array",
            "description": "PersistentVolumeClaims of each pod.",
            "items": {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": template_metadata(true),
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
                "required": ["metadata", "spec"],
            },
        },
        "persistentVolumeClaimRetentionPolicy": object(&json!({
            "whenDeleted": {"type": "string", "enum": ["Retain", "Delete"], "default": "Retain"},
            "whenScaled": {"type": "string", "enum": ["Retain", "Delete"], "default": "Retain"},
        })),
    }));
    template["required"] = json!(["workerTemplate"]);
    template["x-kubernetes-validations"] = json!([
        {
            "rule": "!has(self.subGroupPolicy) || self.size >= self.subGroupPolicy.subGroupSize",
            "message": "subGroupPolicy.subGroupSize must not be larger than size",
        },
        {
            "rule": "!has(self.subGroupPolicy) || self.size % self.subGroupPolicy.subGroupSize == 0 \
                     || (self.size - 1) % self.subGroupPolicy.subGroupSize == 0",
            "message": "size or size - 1 must be a multiple of subGroupPolicy.subGroupSize",
        },
        {
            "rule": "!has(self.subGroupPolicy) || self.subGroupPolicy.subGroupPolicyType != 'LeaderExcluded' \
                     || (self.size - 1) % self.subGroupPolicy.subGroupSize == 0",
            "message": "size - 1 must be a multiple of subGroupPolicy.subGroupSize if the leader is excluded",
        },
        {
            "rule": "has(self.subGroupPolicy) == has(oldSelf.subGroupPolicy)",
            "message": "subGroupPolicy can neither be added nor removed",
        },
    ]);
    template
}

fn subgroup_policy() -> Value {
    let mut policy = object(&json!({
        "subGroupPolicyType": {
            "type": "string", "enum": ["LeaderWorker", "LeaderExcluded"], "default": "LeaderWorker",
            "description": "Whether the leader is in the first subgroup or in none.",
        },
        "subGroupSize": {
            "type": "integer", "format": "int32", "minimum": 1,
            "description": "The number of pods of a subgroup.",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "subGroupSize cannot be changed"}],
        },
    }));
    policy["required"] = json!(["subGroupSize"]);
    policy["description"] = json!("How each group is divided into subgroups.");
    policy
}

fn template_metadata(with_name: bool) -> Value {
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let mut metadata = object(&json!({"labels": map, "annotations": map}));
    if with_name {
        metadata["properties"]["name"] = json!({"type": "string"});
        metadata["required"] = json!(["name"]);
    }
    metadata
}

/// Pods are validated by the server when they are created: their fields are not repeated here.
fn pod_template(description: &str) -> Value {
    let mut template = object(&json!({
        "metadata": template_metadata(false),
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }));
    template["required"] = json!(["spec"]);
    template["description"] = json!(description);
    template
}

fn count_or_share(description: &str, default: i32) -> Value {
    json!({
        "x-kubernetes-int-or-string": true, "default": default, "description": description,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 0 : self.matches('^([0-9]{1,2}|100)%$')",
            "message": "must be a count from 0 or a percentage from 0% to 100%",
        }],
    })
}

fn rollout_strategy() -> Value {
    let mut rolling = object(&json!({
        "partition": {
            "type": "integer", "format": "int32", "minimum": 0, "default": 0,
            "description": "Groups below this index keep their template.",
        },
        "maxUnavailable": count_or_share("How many groups may be unavailable during an update.", 1),
        "maxSurge": count_or_share("How many groups above the desired number an update may create.", 0),
    }));
    let default = json!({"partition": 0, "maxUnavailable": 1, "maxSurge": 0});
    rolling["default"] = default.clone();
    rolling["x-kubernetes-validations"] = json!([{
        "rule": "!(self.maxUnavailable in [0, '0%'] && self.maxSurge in [0, '0%'])",
        "message": "maxUnavailable must not be 0 when maxSurge is 0",
    }]);
    let mut strategy = object(&json!({
        "type": {"type": "string", "enum": ["RollingUpdate"], "default": "RollingUpdate"},
        "rollingUpdateConfiguration": rolling,
    }));
    strategy["default"] = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": default});
    strategy
}

fn network_config() -> Value {
    let mut config = object(&json!({
        "subdomainPolicy": {
            "type": "string", "enum": ["Shared", "UniquePerReplica"], "default": "Shared",
            "description": "Whether there is one headless service for all groups or one for each.",
        },
    }));
    config["default"] = json!({"subdomainPolicy": "Shared"});
    config
}

fn status() -> Value {
    let count = json!({"type": "integer", "format": "int32"});
    let text = json!({"type": "string"});
    let mut condition = object(&json!({
        "type": text, "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": text, "message": text,
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
    }));
    condition["required"] = json!(["type", "status", "reason", "message", "lastTransitionTime"]);
    object(&json!({
        "conditions": {
            "type": "array", "items": condition,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        },
        "readyReplicas": count,
        "updatedReplicas": count,
        "replicas": count,
        "hpaPodSelector": text,
        "observedGeneration": {"type": "integer", "format": "int64"},
    }))
}
