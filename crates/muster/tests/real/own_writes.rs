//! What a program with the token of Muster's service account can write on a real API server: what Muster writes, and
//! nothing else that its RBAC rights would allow.

use std::time::Duration;

use muster_api::crds::dialects;
use muster_controlplane::{Profile, Version, required};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::objects::{Gang, nodes, single};
use crate::test_cluster::{Load, TestCluster};

const TIMEOUT: Duration = Duration::from_secs(60);
const POOL: &str = "pool";
const PODS: &str = "/api/v1/namespaces/default/pods";
const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups";
const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/job";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_token_writes_only_what_muster_writes() {
    let cluster = TestCluster::start("own-writes", Load::Half, Profile::Stock, &[]).await;
    let Some(cluster) = cluster else { return };
    its_token_is_held_to_what_muster_writes(cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_token_writes_only_what_muster_writes_on_older_versions() {
    for version in [Version::V1_36, Version::V1_35] {
        let Some(binary) = required(version, "own writes on older versions") else { continue };
        let name = format!("own-writes-{version}");
        let cluster = TestCluster::start_on(&binary, version, &name, Load::Half, (Profile::Stock, &[])).await;
        its_token_is_held_to_what_muster_writes(cluster).await;
    }
}

async fn its_token_is_held_to_what_muster_writes(mut cluster: TestCluster) {
    cluster.kubectl(&["apply", "-f", "-"], dialects::VOLCANO);
    let kind = "crd/podgroups.scheduling.volcano.sh";
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", kind], "");
    cluster.add_nodes(&nodes(POOL, 1)).await;
    cluster.start_replica("only", &json!({}));
    cluster.await_leader("only").await;
    let gang = Gang::new("gang", 2, POOL);
    cluster.create(vec![gang.group()]).await;
    cluster.create(gang.pods()).await;
    cluster.create(vec![single("alone", POOL), single("pending", "nowhere")]).await;
    cluster.until("the gang runs", TIMEOUT, |pods| pods.counts("gang").running == 2).await;
    cluster.until("the pod runs", TIMEOUT, |pods| pods.counts("alone").running == 1).await;
    let group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "volcano"},
        "spec": {"minMember": 2},
    });
    cluster.kubectl(&["create", "-f", "-"], &group.to_string());
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
        "spec": {"suspend": true, "template": template},
    });
    cluster.kubectl(&["create", "-f", "-"], &job.to_string());
    for object in storage() {
        cluster.kubectl(&["create", "-f", "-"], &object.to_string());
    }
    // What Muster would write must not differ from what this test writes.
    assert!(cluster.replica("only").end().success());

    let client = cluster.own_client().await;
    for (path, kind, body) in refused().into_iter().chain(refused_of_storage()) {
        assert_refused(&client, "PATCH", &path, kind, &body).await;
    }
    for (path, kind, body) in allowed().into_iter().chain(allowed_of_storage()) {
        let answer = send(&client, "PATCH", &path, kind, &body).await;
        assert!(answer.is_ok(), "{path} {body}: {answer:?}");
    }
    bindings_carry_stamps_only(&client).await;
    only_the_ca_bundle_of_webhooks_changes(&client).await;
}

/// A volume that is free and one that is reserved; a claim that waits for its consumer and one whose node is selected.
fn storage() -> Vec<Value> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "waits"},
        "provisioner": "example.org/nothing", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let volume = |name: &str, claim: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {"example.org/a": "b"}},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "waits",
                "nfs": {"server": "192.0.2.1", "path": "/"}, "claimRef": claim,
            },
        })
    };
    let claim = |name: &str, annotations: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "waits",
                "resources": {"requests": {"storage": "2Gi"}},
            },
        })
    };
    vec![
        class,
        volume("free", Value::Null),
        volume("named", json!({"namespace": "default", "name": "missing"})),
        claim("unbound", json!({"example.org/a": "b"})),
        claim("selected", json!({"volume.kubernetes.io/selected-node": "pool-0"})),
    ]
}

/// The reference of a volume to a claim.
fn claim_ref(name: &str, uid: Option<&str>) -> Value {
    let mut reference =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name});
    if let Some(uid) = uid {
        reference["uid"] = json!(uid);
        reference["resourceVersion"] = json!("1");
    }
    json!({"spec": {"claimRef": reference}})
}

/// Patches of volumes and claims that RBAC allows and Muster never sends.
fn refused_of_storage() -> Vec<Patch> {
    let annotated = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let of_volume = [
        ("free", json!({"metadata": {"labels": {"app": "other"}}})),
        ("free", json!({"metadata": {"finalizers": ["example.org/stay"]}})),
        ("free", json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})),
        ("free", json!({"spec": {"capacity": {"storage": "9Gi"}}})),
        ("free", annotated("example.org/a", json!("c"))),
        ("free", annotated("pv.kubernetes.io/bound-by-controller", json!("no"))),
        ("free", claim_ref("unbound", None)),
        // An administrator has named another claim, or takes the name away.
        ("named", claim_ref("unbound", Some("1"))),
        ("named", json!({"spec": {"claimRef": null}})),
    ];
    let of_claim = [
        ("unbound", json!({"metadata": {"labels": {"app": "other"}}})),
        ("unbound", json!({"metadata": {"finalizers": []}})),
        ("unbound", json!({"spec": {"volumeName": "free"}})),
        ("unbound", annotated("example.org/a", Value::Null)),
        ("unbound", annotated("pv.kubernetes.io/bind-completed", json!("yes"))),
        ("selected", annotated("volume.kubernetes.io/selected-node", json!("pool-1"))),
        ("selected", annotated("volume.kubernetes.io/selected-node", Value::Null)),
    ];
    let of_volume = of_volume.map(|(name, body)| (format!("{VOLUMES}/{name}"), MERGE, body));
    let of_claim = of_claim.map(|(name, body)| (format!("{CLAIMS}/{name}"), MERGE, body));
    of_volume.into_iter().chain(of_claim).collect()
}

/// Patches of volumes and claims as Muster sends them.
fn allowed_of_storage() -> Vec<Patch> {
    let reserved = |claim: &str| {
        let mut body = claim_ref(claim, Some("7c5a2f0e-0000-4000-8000-000000000001"));
        body["metadata"] = json!({"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}});
        body
    };
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "pool-0"}}});
    vec![
        (format!("{VOLUMES}/free?dryRun=All"), MERGE, reserved("unbound")),
        (format!("{VOLUMES}/named?dryRun=All"), MERGE, reserved("missing")),
        (format!("{CLAIMS}/unbound?dryRun=All"), MERGE, selected.clone()),
        // Written before, and by a response that was lost.
        (format!("{CLAIMS}/selected?dryRun=All"), MERGE, selected),
    ]
}

type Patch = (String, &'static str, Value);

/// Patches that RBAC allows and Muster never sends.
fn refused() -> Vec<Patch> {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "alone", "uid": "0"});
    let condition = |kind: &str, status: &str, reason: &str| json!({"status": {"conditions": [{"type": kind, "status": status, "reason": reason}]}});
    let of_pod = [
        ("gang-0", json!({"metadata": {"labels": {"app": "other"}}})),
        ("gang-0", json!({"metadata": {"labels": {"gang": null}}})),
        ("gang-0", json!({"metadata": {"annotations": {"muster.dev/preemption-cost": "-5"}}})),
        ("gang-0", json!({"metadata": {"annotations": {"muster.dev/pod-group": "other"}}})),
        ("gang-0", json!({"metadata": {"annotations": {"muster.dev/pod-group": null}}})),
        ("gang-0", json!({"metadata": {"annotations": {"muster.dev/start": null}}})),
        // A pod that runs joins no group.
        ("alone", json!({"metadata": {"annotations": {"muster.dev/pod-group": "gang"}}})),
        ("pending", json!({"metadata": {"annotations": {"muster.dev/subset": "a"}}})),
        ("pending", json!({"metadata": {"finalizers": ["example.org/stay"]}})),
        ("pending", json!({"metadata": {"ownerReferences": [owner]}})),
        ("pending", json!({"spec": {"activeDeadlineSeconds": 1}})),
        ("pending", json!({"spec": {"containers": [{"name": "main", "image": "other"}]}})),
    ];
    let of_status = [
        ("gang-0", json!({"status": {"phase": "Failed"}})),
        ("gang-0", json!({"status": {"reason": "Evicted", "message": "other"}})),
        ("pending", json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}})),
        ("gang-0", condition("Ready", "False", "Other")),
        ("gang-0", condition("example.org/Checked", "True", "Other")),
        ("gang-0", condition("DisruptionTarget", "True", "EvictionByEvictionAPI")),
        ("gang-0", json!({"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}})),
        ("pending", condition("PodScheduled", "True", "Other")),
        ("pending", json!({"metadata": {"labels": {"app": "other"}}})),
        ("pending", json!({"metadata": {"annotations": {"muster.dev/pod-group": "gang"}}})),
    ];
    let mut patches: Vec<Patch> = Vec::new();
    patches.extend(of_pod.map(|(pod, body)| (format!("{PODS}/{pod}"), STRATEGIC, body)));
    patches.extend(of_status.map(|(pod, body)| (format!("{PODS}/{pod}/status"), STRATEGIC, body)));
    let of_job = [
        json!({"status": {"active": 3}}),
        condition("example.org/Other", "True", "Other"),
        json!({"metadata": {"labels": {"app": "other"}}}),
        json!({"metadata": {"finalizers": ["example.org/stay"]}}),
    ];
    patches.extend(of_job.map(|body| (format!("{JOB}/status"), STRATEGIC, body)));
    for body in [
        json!({"spec": {"queue": "other"}}),
        json!({"metadata": {"labels": {"app": "other"}}}),
        json!({"metadata": {"annotations": {"volcano.sh/task-topology": "other"}}}),
    ] {
        patches.push((format!("{GROUPS}/volcano"), MERGE, body));
    }
    patches
}

/// Patches as Muster sends them.
fn allowed() -> Vec<Patch> {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "lastProbeTime": null,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = |pod: &str, status: Value| (format!("{PODS}/{pod}/status"), STRATEGIC, json!({"status": status}));
    vec![
        status(
            "pending",
            json!({"conditions": [condition("PodScheduled", "False", "WaitingForVictims")], "nominatedNodeName": "n"}),
        ),
        status("pending", json!({"nominatedNodeName": null})),
        status("gang-0", json!({"conditions": [condition("DisruptionTarget", "True", "PreemptionByScheduler")]})),
        status("gang-0", json!({"conditions": [condition("DisruptionTarget", "False", "NotEvicted")]})),
        (format!("{PODS}/pending"), MERGE, json!({"metadata": {"annotations": {"muster.dev/pod-group": "gang"}}})),
        (
            format!("{JOB}/status"),
            STRATEGIC,
            json!({"status": {"conditions": [condition("muster.dev/GangScheduled", "False", "Unschedulable")]}}),
        ),
        (format!("{GROUPS}/volcano"), MERGE, json!({"status": {"phase": "Inqueue", "running": 0}})),
        (format!("{GROUPS}/volcano"), MERGE, json!({"metadata": {"annotations": {"muster.dev/preemption-cost": "7"}}})),
    ]
}

/// Sends a request; an error is the message of the API server.
async fn send(client: &kube::Client, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value, String> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(body.to_string().into_bytes()).expect("a request");
    match client.request::<Value>(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// A request is refused by a policy, which takes effect with a delay. A dry run, so that nothing is stored until then.
async fn assert_refused(client: &kube::Client, method: &str, path: &str, kind: &str, body: &Value) {
    let path = format!("{path}?dryRun=All");
    let until = Instant::now() + TIMEOUT;
    let mut answer = send(client, method, &path, kind, body).await;
    while answer.is_ok() && Instant::now() < until {
        sleep(Duration::from_millis(100)).await;
        answer = send(client, method, &path, kind, body).await;
    }
    let is_refused = answer.as_ref().is_err_and(|why| why.contains("Muster's service account"));
    assert!(is_refused, "{method} {path} {body}: {answer:?}");
}

/// The API server copies labels and annotations of a Binding to the pod.
async fn bindings_carry_stamps_only(client: &kube::Client) {
    let binding = |metadata: Value| json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "pool-0"}});
    let path = format!("{PODS}/pending/binding");
    for mut metadata in [json!({"annotations": {"example.org/a": "b"}}), json!({"labels": {"app": "other"}})] {
        metadata["name"] = "pending".into();
        assert_refused(client, "POST", &path, "application/json", &binding(metadata)).await;
    }
    let stamped = binding(json!({"name": "pending", "annotations": {"muster.dev/start": "{}"}}));
    let answer = send(client, "POST", &format!("{path}?dryRun=All"), "application/json", &stamped).await;
    assert!(answer.is_ok(), "{answer:?}");
}

async fn only_the_ca_bundle_of_webhooks_changes(client: &kube::Client) {
    let current = send(client, "GET", WEBHOOKS, "application/json", &json!({})).await.expect("its configuration");
    let changed = |change: fn(&mut Value)| {
        let mut changed = current.clone();
        change(&mut changed);
        changed
    };
    let others = [
        changed(|one| one["webhooks"][0]["clientConfig"]["url"] = "https://example.org/".into()),
        changed(|one| one["webhooks"][0]["failurePolicy"] = "Fail".into()),
        changed(|one| one["webhooks"][0]["namespaceSelector"] = json!({})),
        changed(|one| one["webhooks"] = json!([])),
        changed(|one| one["metadata"]["labels"]["app"] = "other".into()),
    ];
    for body in others {
        assert_refused(client, "PUT", WEBHOOKS, "application/json", &body).await;
    }
    // Muster's own bundle was written before; without one the API server trusts its usual authorities.
    let emptied = changed(|one| {
        for webhook in one["webhooks"].as_array_mut().expect("webhooks") {
            webhook["clientConfig"].as_object_mut().expect("a map").remove("caBundle");
        }
    });
    let answer = send(client, "PUT", WEBHOOKS, "application/json", &emptied).await;
    assert!(answer.is_ok(), "{answer:?}");
}
