//! The objects of a case, as JSON: ready nodes, bound claims, gangs of the native API, their Services, pods.

use serde_json::{Value, json};

use super::cases::{Amounts, Case, Extra, PODS_PER_NODE_MAX};

/// The namespace of pods and gangs.
pub(crate) const NAMESPACE: &str = "default";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const GANGS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CSI_DRIVER: &str = "bench.example.com";
/// How many volumes a node can attach.
const VOLUMES_PER_NODE_MAX: u64 = 40;
const RACK: &str = "example.com/rack";
const RACKS: usize = 50;

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
            RACK: format!("rack-{}", number % RACKS),
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

/// What has to be there before the pods of a case, with the collection paths: the volumes of claims, already bound, as
/// the controllers do not run.
pub(crate) fn storage(case: Case) -> impl Iterator<Item = (&'static str, Value)> {
    let nodes = if case.extra == Extra::Claims { case.nodes } else { 0 };
    let claims = if case.extra == Extra::Claims { case.pods() } else { 0 };
    let csi_nodes = (0..nodes).map(|number| (CSI_NODES, csi_node(&node_name(number))));
    let bound = (0..claims).flat_map(move |number| {
        let name = claim_name(case, number);
        [(VOLUMES, volume(&name)), (CLAIMS, claim(&name))]
    });
    csi_nodes.chain(bound)
}

fn claim_name(case: Case, group: usize) -> String {
    format!("{}-{group}", case.name)
}

fn csi_node(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": [
            {"name": CSI_DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": VOLUMES_PER_NODE_MAX}},
        ]},
    })
}

fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": name},
            "csi": {"driver": CSI_DRIVER, "volumeHandle": name},
        },
    })
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// All Services, gangs and pods of a case with their collection paths, each gang before its pods.
pub(crate) fn waiting(case: Case, scheduler: &'static str) -> impl Iterator<Item = (&'static str, Value)> {
    (0..case.groups).flat_map(move |group| {
        let name = format!("{}-{group}", case.name);
        let gang = (case.size > 0).then(|| (GANGS, gang(&name, case)));
        let member_of = (case.size > 0).then(|| name.clone());
        let service = (case.extra == Extra::Services).then(|| (SERVICES, service(&name, group)));
        let pods = (0..case.size.max(1)).map(move |number| {
            let mut pod = pod(&format!("{name}-{number}"), scheduler, member_of.as_deref(), case.pod);
            add_extra(&mut pod, case, group);
            (PODS, pod)
        });
        service.into_iter().chain(gang).chain(pods)
    })
}

/// Gives a pod what it has beside its requests: what differs by group, differs from every other group.
fn add_extra(pod: &mut Value, case: Case, group: usize) {
    let own = format!("v{group}");
    match case.extra {
        Extra::None | Extra::Rack => return,
        Extra::Claims => {
            let claim = json!({"claimName": claim_name(case, group)});
            pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": claim}]);
            return;
        }
        Extra::BroadPreferences => {
            let others = json!({"matchExpressions": [{"key": "own", "operator": "NotIn", "values": [own]}]});
            let term = json!({
                "labelSelector": others, "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname",
            });
            let preferred = json!([{"weight": 1 + group % 100, "podAffinityTerm": term}]);
            pod["spec"]["affinity"] =
                json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
        }
        Extra::Tolerations => pod["spec"]["tolerations"] = json!([{"key": "own", "value": own}]),
        Extra::Spreads => {
            pod["spec"]["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"own": own}},
            }]);
        }
        Extra::Services => {}
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

fn gang(name: &str, case: Case) -> Value {
    let mut gang = json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": case.size}}},
    });
    if case.extra == Extra::Rack {
        gang["spec"]["schedulingConstraints"] = json!({"topology": [{"key": RACK}]});
    }
    gang
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
            let services = if case.extra == Extra::Services { case.groups } else { 0 };
            assert_eq!(count(SERVICES), services, "{}", case.name);
            let claims: Vec<_> = storage(case).filter(|(to, _)| *to == CLAIMS).map(|(_, claim)| claim).collect();
            let mut used = waiting(case, "muster").map(|(_, pod)| pod["spec"]["volumes"][0].clone());
            used.by_ref().zip(&claims).for_each(|(volume, claim)| {
                assert_eq!(volume["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"]);
            });
            assert_eq!(used.filter(|volume| !volume.is_null()).count(), 0, "{}", case.name);
        }
    }

    #[test]
    fn pods_of_hostile_cases_differ() {
        for case in cases::all(0.01).into_iter().filter(|case| cases::HOSTILE.contains(&case.name)) {
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
