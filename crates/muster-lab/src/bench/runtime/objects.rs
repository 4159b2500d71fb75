//! Objects of realistic size and shape: nodes, gangs, and pods of about five kilobytes.

use serde_json::{Value, json};

/// How many applications the pods belong to; pods of one differ only in their names.
const APPLICATIONS: usize = 200;

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

/// A node with capacity for 110 pods.
pub(crate) fn node(number: usize) -> Value {
    let amounts = json!({
        "cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "900Gi", "hugepages-1Gi": "0",
        "hugepages-2Mi": "0", "nvidia.com/gpu": "8",
    });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(number), "labels": {
            "kubernetes.io/hostname": node_name(number), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": "large-8", "topology.kubernetes.io/region": "r1",
            "topology.kubernetes.io/zone": format!("z{}", number % 3), "rack": format!("rack-{:03}", number / 40),
        }},
        "spec": {"podCIDR": format!("10.{}.{}.0/24", number / 256 % 256, number % 256)},
        "status": {
            "capacity": amounts, "allocatable": amounts,
            "addresses": [{"type": "Hostname", "address": node_name(number)}],
            "nodeInfo": {
                "machineID": format!("{number:032x}"), "systemUUID": format!("{number:032x}"), "bootID": "b",
                "kernelVersion": "6.12.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.1.0",
                "kubeletVersion": "v1.37.1", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

/// A PodGroup of Muster whose minimum is all of its pods.
pub(crate) fn gang(name: &str, size: usize) -> Value {
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"policy": {"gang": {"minCount": size}}},
    })
}

/// A pending pod of this scheduler and, optionally, of a gang.
pub(crate) fn waiting_pod(name: &str, scheduler: &str, gang: Option<&str>) -> Value {
    let mut pod = pod(name, 0);
    pod["spec"]["schedulerName"] = json!(scheduler);
    if let Some(gang) = gang {
        pod["metadata"]["annotations"]["muster.dev/pod-group"] = json!(gang);
    }
    pod
}

/// A bound pod of another scheduler.
pub(crate) fn bound_pod(number: usize, node: usize) -> Value {
    let mut pod = pod(&format!("app-{}-7d9c5b8f6d-{number:06}", number % APPLICATIONS), number % APPLICATIONS);
    pod["spec"]["nodeName"] = json!(node_name(node));
    pod
}

fn pod(name: &str, application: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": format!("app-{application}"), "app.kubernetes.io/instance": "production",
                "app.kubernetes.io/version": "4.2.1", "app.kubernetes.io/part-of": "platform",
                "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7d9c5b8f6d", "team": "team-red",
            },
            "annotations": {
                "prometheus.io/scrape": "true", "prometheus.io/port": "9102", "prometheus.io/path": "/metrics",
                "checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                "checksum/secret": "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
            },
        },
        "spec": {
            "containers": [container("main", application), container("proxy", application)],
            "initContainers": [{
                "name": "migrate", "image": "registry.example/migrate:4.2.1", "command": ["/bin/migrate", "--wait"],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/app", "readOnly": true}],
            }],
            "volumes": [
                {"name": "config", "configMap": {"name": format!("app-{application}-config")}},
                {"name": "secret", "secret": {"secretName": format!("app-{application}-secret")}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            ],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": 300},
                {"key": "dedicated", "operator": "Equal", "value": "platform", "effect": "NoSchedule"},
            ],
            "securityContext": {"runAsNonRoot": true, "runAsUser": 10001, "fsGroup": 10001},
            "terminationGracePeriodSeconds": 60, "serviceAccountName": "default",
        },
    })
}

fn container(name: &str, application: usize) -> Value {
    let variables: Vec<Value> = (0..8)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("value-{application}-{number}")}))
        .collect();
    json!({
        "name": name, "image": format!("registry.example/app-{application}/{name}:4.2.1"),
        "args": ["--listen=:8080", "--log-format=json", "--config=/etc/app/config.yaml"],
        "env": variables,
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9102}],
        "resources": {
            "requests": {"cpu": format!("{}m", 250 + application % 4 * 50), "memory": "512Mi"},
            "limits": {"memory": "1Gi"},
        },
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 5},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app", "readOnly": true},
            {"name": "secret", "mountPath": "/etc/secret", "readOnly": true},
            {"name": "scratch", "mountPath": "/var/scratch"}, {"name": "shm", "mountPath": "/dev/shm"},
        ],
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true},
    })
}

/// The `managedFields` of such a pod on a real server.
pub(crate) fn managed_fields() -> String {
    let variables: serde_json::Map<String, Value> = (0..8)
        .map(|number| (format!("k:{{\"name\":\"SETTING_{number}\"}}"), json!({".": {}, "f:name": {}, "f:value": {}})))
        .collect();
    let container = json!({
        ".": {}, "f:args": {}, "f:env": variables, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
        "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}, "f:requests": {".": {}, "f:cpu": {}}},
    });
    json!([{
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:pod-template-hash": {}}, "f:generateName": {}},
            "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": container}, "f:dnsPolicy": {}, "f:tolerations": {}},
        },
    }])
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_a_realistic_size() {
        let bytes = bound_pod(1, 2).to_string().len() + managed_fields().len();
        assert!((4_500..6_500).contains(&bytes), "{bytes}");
    }
}
