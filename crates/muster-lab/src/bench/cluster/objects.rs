//! The objects of a case, as JSON: ready nodes, gangs of the native API, their Services, pods.

use serde_json::{Value, json};

use super::cases::{Amounts, Case, Differ, PODS_PER_NODE_MAX};

/// The namespace of pods and gangs.
pub(crate) const NAMESPACE: &str = "default";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const GANGS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups";

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

/// A ready node.
pub(crate) fn node(number: usize, amounts: Amounts) -> Value {
    let name = node_name(number);
    let mut capacity = resource_list(amounts);
    capacity["pods"] = json!(PODS_PER_NODE_MAX.to_string());
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
        }},
        "status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// All Services, gangs and pods of a case with their collection paths, each gang before its pods.
pub(crate) fn waiting(case: Case, scheduler: &'static str) -> impl Iterator<Item = (&'static str, Value)> {
    (0..case.groups).flat_map(move |group| {
        let name = format!("{}-{group}", case.name);
        let gang = (case.size > 0).then(|| (GANGS, gang(&name, case.size)));
        let member_of = (case.size > 0).then(|| name.clone());
        let service = (case.differ == Differ::Services).then(|| (SERVICES, service(&name, group)));
        let pods = (0..case.size.max(1)).map(move |number| {
            let mut pod = pod(&format!("{name}-{number}"), scheduler, member_of.as_deref(), case.pod);
            make_different(&mut pod, case.differ, group);
            (PODS, pod)
        });
        service.into_iter().chain(gang).chain(pods)
    })
}

/// Gives the pods of a group what those of no other group have.
fn make_different(pod: &mut Value, differ: Differ, group: usize) {
    let own = format!("v{group}");
    match differ {
        Differ::No => return,
        Differ::BroadPreferences => {
            let others = json!({"matchExpressions": [{"key": "own", "operator": "NotIn", "values": [own]}]});
            let term = json!({
                "labelSelector": others, "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname",
            });
            let preferred = json!([{"weight": 1 + group % 100, "podAffinityTerm": term}]);
            pod["spec"]["affinity"] =
                json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
        }
        Differ::Tolerations => pod["spec"]["tolerations"] = json!([{"key": "own", "value": own}]),
        Differ::Spreads => {
            pod["spec"]["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"own": own}},
            }]);
        }
        Differ::Services => {}
    }
    pod["metadata"]["labels"]["own"] = json!(own);
}

/// A headless Service of the pods of a group: schedulers spread them by default.
fn service(name: &str, group: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"own": format!("v{group}")}, "ports": [{"port": 80}]},
    })
}

fn gang(name: &str, size: usize) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    })
}

/// A pending pod of this scheduler and, optionally, of a gang.
pub(crate) fn pod(name: &str, scheduler: &str, gang: Option<&str>, amounts: Amounts) -> Value {
    let requests = resource_list(amounts);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {
            "schedulerName": scheduler, "terminationGracePeriodSeconds": 0,
            // Extended resources need a limit; most training pods have one that equals the request.
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests, "limits": requests}}],
        },
    });
    if let Some(gang) = gang {
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": gang});
    }
    pod
}

fn resource_list(amounts: Amounts) -> Value {
    let mut requests = json!({"cpu": format!("{}m", amounts.cpu_milli), "memory": format!("{}Mi", amounts.memory_mib)});
    if amounts.gpus > 0 {
        requests["nvidia.com/gpu"] = json!(amounts.gpus.to_string());
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cluster::cases;

    #[test]
    fn case_has_its_pods_and_gangs() {
        for case in cases::all(0.01) {
            let count = |path| waiting(case, "muster").filter(|(to, _)| *to == path).count();
            let gangs = if case.size > 0 { case.groups } else { 0 };
            assert_eq!((count(PODS), count(GANGS)), (case.pods(), gangs), "{}", case.name);
            let services = if case.differ == Differ::Services { case.groups } else { 0 };
            assert_eq!(count(SERVICES), services, "{}", case.name);
        }
    }

    #[test]
    fn pods_of_hostile_cases_differ() {
        for case in cases::all(0.01).into_iter().filter(|case| case.differ != Differ::No) {
            let pods = waiting(case, "muster").filter(|(path, _)| *path == PODS).map(|(_, mut pod)| {
                pod["metadata"]["name"] = Value::Null;
                pod.to_string()
            });
            let different: std::collections::BTreeSet<String> = pods.collect();
            assert_eq!(different.len(), case.groups, "{}", case.name);
        }
    }

    #[test]
    fn members_name_their_gang() {
        let case = Case { groups: 1, size: 2, ..cases::all(1.0)[1] };
        let objects: Vec<_> = waiting(case, "muster").map(|(_, object)| object).collect();
        assert_eq!(objects[0]["metadata"]["name"], objects[1]["spec"]["schedulingGroup"]["podGroupName"]);
        assert_eq!(objects[0]["spec"]["schedulingPolicy"]["gang"]["minCount"], 2);
    }
}
