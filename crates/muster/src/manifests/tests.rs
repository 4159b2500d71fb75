//! Tests of the manifests: every document is valid, and the permissions are exactly those that are listed here.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use muster_controllers::admission::WEBHOOK_RULES;
use muster_playground::{Server, Settings};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

fn options(version: Version) -> Options {
    Options {
        kubernetes_version: version,
        namespace: "gangs".to_owned(),
        image: "registry.example/muster:1".to_owned(),
        scheduler_name: vec!["muster".to_owned(), "gang".to_owned()],
        native_gangs: false,
        restricted_priority_classes: false,
        without_webhook: false,
        webhook_certificate: None,
        without_volcano: false,
        secure_metrics: false,
        jobset_gang_config: false,
    }
}

fn documents(version: Version) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(&options(version)).unwrap()).unwrap()
}

fn find<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// Decodes as the type and encodes again: fields that are lost are unknown to Kubernetes.
fn round_tripped<T: DeserializeOwned + Serialize>(document: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(document.clone()).unwrap()).unwrap()
}

fn rights(rules: &Value) -> BTreeSet<String> {
    let list = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in rules.as_array().unwrap() {
        let names = rule.get("resourceNames").map(|names| format!(" [{}]", list(names).join(","))).unwrap_or_default();
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for verb in list(&rule["verbs"]) {
                    rights.insert(format!("{verb} {resource}.{group}{names}"));
                }
            }
        }
    }
    rights
}

#[tokio::test]
async fn strict_server_accepts_every_document() {
    let server = Server::start(Settings::default());
    let client = server.client();
    for document in documents(Version::V1_37) {
        let kind = document["kind"].as_str().unwrap();
        let path = match kind {
            "ClusterRole" => {
                assert_eq!(round_tripped::<ClusterRole>(&document), document);
                continue;
            }
            "ClusterRoleBinding" => {
                assert_eq!(round_tripped::<ClusterRoleBinding>(&document), document);
                continue;
            }
            "Role" => {
                assert_eq!(round_tripped::<Role>(&document), document);
                continue;
            }
            "RoleBinding" => {
                assert_eq!(round_tripped::<RoleBinding>(&document), document);
                continue;
            }
            "MutatingWebhookConfiguration" => {
                assert_eq!(round_tripped::<MutatingWebhookConfiguration>(&document), document);
                continue;
            }
            "ValidatingAdmissionPolicy" => {
                assert_eq!(round_tripped::<ValidatingAdmissionPolicy>(&document), document);
                continue;
            }
            "ValidatingAdmissionPolicyBinding" => {
                assert_eq!(round_tripped::<ValidatingAdmissionPolicyBinding>(&document), document);
                continue;
            }
            "NetworkPolicy" => {
                assert_eq!(round_tripped::<NetworkPolicy>(&document), document);
                continue;
            }
            "Namespace" => "/api/v1/namespaces",
            "CustomResourceDefinition" => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "ServiceAccount" => "/api/v1/namespaces/gangs/serviceaccounts",
            "ConfigMap" => "/api/v1/namespaces/gangs/configmaps",
            "Service" => "/api/v1/namespaces/gangs/services",
            "Deployment" => "/apis/apps/v1/namespaces/gangs/deployments",
            "PodDisruptionBudget" => "/apis/policy/v1/namespaces/gangs/poddisruptionbudgets",
            other => panic!("{other} is not expected"),
        };
        let request = http::Request::post(format!("{path}?fieldValidation=Strict"))
            .header("content-type", "application/json")
            .body(document.to_string().into_bytes())
            .unwrap();
        let made: Value = client.request(request).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(made["kind"], kind);
        if kind == "Deployment" {
            let mut pod = document["spec"]["template"].clone();
            pod["apiVersion"] = "v1".into();
            pod["kind"] = "Pod".into();
            pod["metadata"]["name"] = "muster-0".into();
            let request = http::Request::post("/api/v1/namespaces/gangs/pods?fieldValidation=Strict")
                .header("content-type", "application/json")
                .body(pod.to_string().into_bytes())
                .unwrap();
            let made: Value = client.request(request).await.unwrap_or_else(|error| panic!("its pod: {error}"));
            assert_eq!(made["spec"]["schedulerName"], "default-scheduler");
        }
    }
}

#[test]
fn permissions_are_exactly_these() {
    let common = [
        "create events.events.k8s.io",
        "create podgroups.muster.dev",
        "create pods/binding.",
        "create pods/eviction.",
        "create workloads.muster.dev",
        "delete podgroups.muster.dev",
        "delete pods.",
        "delete workloads.muster.dev",
        "get mutatingwebhookconfigurations.admissionregistration.k8s.io [muster]",
        "get persistentvolumeclaims.",
        "get persistentvolumes.",
        "get pods.",
        "list compositepodgroups.scheduling.k8s.io",
        "list controllerrevisions.apps",
        "list csidrivers.storage.k8s.io",
        "list csinodes.storage.k8s.io",
        "list csistoragecapacities.storage.k8s.io",
        "list jobs.batch",
        "list jobsets.jobset.x-k8s.io",
        "list leaderworkersets.leaderworkerset.x-k8s.io",
        "list namespaces.",
        "list nodes.",
        "list persistentvolumeclaims.",
        "list persistentvolumes.",
        "list poddisruptionbudgets.policy",
        "list podgroups.muster.dev",
        "list podgroups.scheduling.k8s.io",
        "list podgroups.scheduling.volcano.sh",
        "list podgroups.scheduling.x-k8s.io",
        "list pods.",
        "list priorityclasses.scheduling.k8s.io",
        "list replicasets.apps",
        "list replicationcontrollers.",
        "list services.",
        "list statefulsets.apps",
        "list storageclasses.storage.k8s.io",
        "list volumeattachments.storage.k8s.io",
        "list workloads.muster.dev",
        "list workloads.scheduling.k8s.io",
        "patch events.events.k8s.io",
        "patch jobs/status.batch",
        "patch jobsets/status.jobset.x-k8s.io",
        "patch leaderworkersets/status.leaderworkerset.x-k8s.io",
        "patch persistentvolumeclaims.",
        "patch persistentvolumes.",
        "patch podgroups.muster.dev",
        "patch podgroups.scheduling.volcano.sh",
        "patch pods.",
        "update mutatingwebhookconfigurations.admissionregistration.k8s.io [muster]",
        "watch compositepodgroups.scheduling.k8s.io",
        "watch controllerrevisions.apps",
        "watch csidrivers.storage.k8s.io",
        "watch csinodes.storage.k8s.io",
        "watch csistoragecapacities.storage.k8s.io",
        "watch jobs.batch",
        "watch jobsets.jobset.x-k8s.io",
        "watch leaderworkersets.leaderworkerset.x-k8s.io",
        "patch podgroups/status.muster.dev",
        "patch podgroups/status.scheduling.x-k8s.io",
        "patch pods/status.",
        "patch workloads.muster.dev",
        "patch workloads/status.muster.dev",
        "watch namespaces.",
        "watch nodes.",
        "watch persistentvolumeclaims.",
        "watch persistentvolumes.",
        "watch poddisruptionbudgets.policy",
        "watch podgroups.muster.dev",
        "watch podgroups.scheduling.k8s.io",
        "watch podgroups.scheduling.volcano.sh",
        "watch podgroups.scheduling.x-k8s.io",
        "watch pods.",
        "watch priorityclasses.scheduling.k8s.io",
        "watch replicasets.apps",
        "watch replicationcontrollers.",
        "watch services.",
        "watch statefulsets.apps",
        "watch storageclasses.storage.k8s.io",
        "watch volumeattachments.storage.k8s.io",
        "watch workloads.muster.dev",
        "watch workloads.scheduling.k8s.io",
    ];
    let native = "patch podgroups/status.scheduling.k8s.io";
    for (name, version) in VERSIONS {
        let documents = documents(version);
        let mut expected: BTreeSet<String> = common.iter().map(|right| (*right).to_owned()).collect();
        if version != Version::V1_35 {
            expected.insert(native.to_owned());
            expected.insert("patch compositepodgroups/status.scheduling.k8s.io".to_owned());
        }
        assert_eq!(rights(&find(&documents, "ClusterRole")["rules"]), expected, "{name}");
        let lease = [
            "create leases.coordination.k8s.io",
            "create secrets.",
            "get leases.coordination.k8s.io [muster]",
            "get secrets. [muster-webhook]",
            "update leases.coordination.k8s.io [muster]",
            "update secrets. [muster-webhook]",
        ];
        assert!(rights(&find(&documents, "Role")["rules"]).iter().eq(lease.iter()), "{name}");
    }
}

#[test]
fn secure_metrics_have_permissions_configuration_and_ports() {
    let mut options = options(Version::V1_37);
    options.secure_metrics = true;
    let secured: Vec<Value> = serde_saphyr::from_multiple(&text(&options).unwrap()).unwrap();
    let of = |documents: &[Value]| rights(&find(documents, "ClusterRole")["rules"]);
    let (secured_rights, plain) = (of(&secured), of(&documents(Version::V1_37)));
    let more: Vec<&String> = secured_rights.difference(&plain).collect();
    assert_eq!(more, ["create subjectaccessreviews.authorization.k8s.io", "create tokenreviews.authentication.k8s.io"]);
    let config = find(&secured, "ConfigMap")["data"]["config.yaml"].as_str().unwrap();
    let made = Configuration::new(File::read(config).unwrap(), Overrides::default()).unwrap();
    let port = made.secure_metrics.unwrap().listen.port();
    let container = &find(&secured, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"][2], json!({"name": "https-metrics", "containerPort": port}));
    assert_eq!(find(&secured, "Service")["spec"]["ports"][1]["targetPort"], "https-metrics");
    let admitted = find(&secured, "NetworkPolicy")["spec"]["ingress"][0]["ports"].as_array().unwrap();
    assert!(admitted.iter().any(|admitted| admitted["port"] == "https-metrics"), "{admitted:?}");
}

#[test]
fn native_gangs_have_permissions_configuration_and_required_webhooks() {
    let mut options = options(Version::V1_37);
    options.native_gangs = true;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text(&options).unwrap()).unwrap();
    let rights = rights(&find(&documents, "ClusterRole")["rules"]);
    for kind in ["podgroups", "workloads"] {
        for verb in ["create", "delete", "patch"] {
            assert!(rights.contains(&format!("{verb} {kind}.scheduling.k8s.io")), "{verb} {kind}: {rights:?}");
        }
    }
    let config = find(&documents, "ConfigMap")["data"]["config.yaml"].as_str().unwrap();
    let file = File::read(config).unwrap();
    assert!(Configuration::new(file, Overrides::default()).unwrap().settings.ganged.are_native());
    let hooks = &find(&documents, "MutatingWebhookConfiguration")["webhooks"];
    let is_waited_for = |hook: &&Value| hook["failurePolicy"] == "Fail";
    let waited_for = hooks.as_array().unwrap().iter().filter(is_waited_for);
    let names: Vec<&str> = waited_for.clone().map(|hook| hook["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["jobsets.muster.dev", "jobs-of-jobsets.muster.dev", "pods.muster.dev"]);
    for hook in waited_for {
        assert_eq!(hook["rules"][0]["operations"], json!(["CREATE"]), "updates and deletes never wait for the webhook");
    }
    assert_eq!(hooks[3]["matchConditions"][1]["expression"], r#"object.spec.schedulerName in ["muster","gang"]"#);
}

#[test]
fn webhook_is_called_for_every_kind_that_it_reviews_and_never_blocks_a_group() {
    let documents = documents(Version::V1_37);
    let hooks = find(&documents, "MutatingWebhookConfiguration")["webhooks"].as_array().unwrap();
    for ([group, version, plural], operations) in WEBHOOK_RULES {
        for operation in operations {
            let has = |rule: &Value, field: &str, value: &str| rule[field].as_array().unwrap().contains(&json!(value));
            let is_called = |hook: &&Value| {
                let rule = &hook["rules"][0];
                let is_version = has(rule, "apiGroups", group) && has(rule, "apiVersions", version);
                is_version && has(rule, "resources", plural) && has(rule, "operations", operation)
            };
            let called: Vec<&Value> = hooks.iter().filter(is_called).collect();
            assert!(!called.is_empty(), "{operation} {plural}");
            let blocks = |hook: &&&Value| hook["failurePolicy"] != "Ignore";
            assert_eq!(called.iter().filter(blocks).count(), 0, "{operation} {plural}");
        }
    }
}

#[test]
fn configuration_is_readable_and_fits_the_permissions() {
    let documents = documents(Version::V1_37);
    let text = find(&documents, "ConfigMap")["data"]["config.yaml"].as_str().unwrap();
    let made = Configuration::new(File::read(text).unwrap(), Overrides::default()).unwrap();
    assert_eq!(made.settings.scheduler_names().collect::<Vec<_>>(), ["muster", "gang"]);
    let lease = made.lease.unwrap();
    assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("gangs", NAME));
    assert_eq!(made.listen.port(), PORT);
}

#[test]
fn invalid_flags_are_rejected() {
    let with = |change: fn(&mut Options)| {
        let mut options = options(Version::V1_37);
        change(&mut options);
        format!("{:#}", text(&options).unwrap_err())
    };
    assert!(with(|options| options.namespace = "A.b".to_owned()).starts_with("--namespace \"A.b\""));
    assert!(with(|options| options.image = String::new()).starts_with("--image \"\""));
    let twice = with(|options| options.scheduler_name = vec!["a".to_owned(), "a".to_owned()]);
    assert!(twice.starts_with("--scheduler-name: schedulerNames: \"a\": is duplicated"), "{twice}");
    let secret = with(|options| options.webhook_certificate = Some("A b".to_owned()));
    assert!(secret.starts_with("--webhook-certificate \"A b\""), "{secret}");
    assert_eq!(version("1.34").unwrap_err(), "known versions are 1.35, 1.36, 1.37");
}

/// The names of documents of a kind.
fn names<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a str> {
    let of_kind = documents.iter().filter(|document| document["kind"] == kind);
    of_kind.map(|document| document["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn every_policy_is_in_force_and_fails_closed() {
    let documents = documents(Version::V1_37);
    let policies = names(&documents, "ValidatingAdmissionPolicy");
    assert_eq!(policies, names(&documents, "ValidatingAdmissionPolicyBinding"));
    for policy in documents.iter().filter(|document| document["kind"] == "ValidatingAdmissionPolicy") {
        assert_eq!(policy["spec"]["failurePolicy"], "Fail", "{policy}");
    }
}

#[test]
fn all_users_may_use_priority_classes_unless_that_is_restricted() {
    let everyone = "muster-priority-classes-everyone";
    let controllers = "muster-priority-classes-controllers";
    let mut options = options(Version::V1_37);
    for (restricted, expected) in [(false, vec![NAME, controllers, everyone]), (true, vec![NAME, controllers])] {
        options.restricted_priority_classes = restricted;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text(&options).unwrap()).unwrap();
        assert_eq!(names(&documents, "ClusterRoleBinding"), expected);
        let is_role =
            |one: &&Value| one["kind"] == "ClusterRole" && one["metadata"]["name"] == "muster-priority-classes";
        let role = documents.iter().find(is_role).unwrap();
        assert!(rights(&role["rules"]).iter().eq(["use priorityclasses.scheduling.k8s.io"]), "{role}");
        let is_binding = |one: &&Value| one["kind"] == "ClusterRoleBinding" && one["metadata"]["name"] == controllers;
        let subjects = &documents.iter().find(is_binding).unwrap()["subjects"];
        assert_eq!(subjects[0], json!({"kind": "ServiceAccount", "namespace": "gangs", "name": NAME}));
    }
}

/// The documents with changed flags.
fn documents_with(change: fn(&mut Options)) -> Vec<Value> {
    let mut options = options(Version::V1_37);
    change(&mut options);
    serde_saphyr::from_multiple(&text(&options).unwrap()).unwrap()
}

/// The rights of both roles of Muster's account.
fn own_rights(documents: &[Value]) -> BTreeSet<String> {
    let of_cluster = rights(&find(documents, "ClusterRole")["rules"]);
    of_cluster.into_iter().chain(rights(&find(documents, "Role")["rules"])).collect()
}

/// What is only there for the certificate that Muster creates itself.
const CERTIFICATE_RIGHTS: [&str; 5] = [
    "create secrets.",
    "get mutatingwebhookconfigurations.admissionregistration.k8s.io [muster]",
    "get secrets. [muster-webhook]",
    "update mutatingwebhookconfigurations.admissionregistration.k8s.io [muster]",
    "update secrets. [muster-webhook]",
];

#[test]
fn without_the_webhook_nothing_of_it_is_left() {
    let (all, without) = (documents(Version::V1_37), documents_with(|options| options.without_webhook = true));
    let (all, rights) = (own_rights(&all), own_rights(&without));
    assert!(all.difference(&rights).eq(CERTIFICATE_RIGHTS), "{:?}", all.difference(&rights));
    assert!(rights.is_subset(&all));
    assert!(names(&without, "MutatingWebhookConfiguration").is_empty());
    assert_eq!(names(&without, "Service"), [NAME]);
    let container = &find(&without, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"].as_array().unwrap().len(), 1);
    assert_eq!(find(&without, "NetworkPolicy")["spec"]["ingress"][0]["ports"].as_array().unwrap().len(), 1);
    let text = find(&without, "ConfigMap")["data"]["config.yaml"].as_str().unwrap();
    let made = Configuration::new(File::read(text).unwrap(), Overrides::default()).unwrap();
    assert!(made.webhook.is_none());
    // The policies of the API server do not depend on it.
    assert!(names(&without, "ValidatingAdmissionPolicy").contains(&"muster-gang-modes"));
}

#[test]
fn certificate_in_a_secret_is_mounted_and_needs_no_rights() {
    let given = documents_with(|options| options.webhook_certificate = Some("from-cert-manager".to_owned()));
    let all = own_rights(&documents(Version::V1_37));
    assert!(all.difference(&own_rights(&given)).eq(CERTIFICATE_RIGHTS));
    assert_eq!(names(&given, "MutatingWebhookConfiguration"), [NAME]);
    let text = find(&given, "ConfigMap")["data"]["config.yaml"].as_str().unwrap();
    let made = Configuration::new(File::read(text).unwrap(), Overrides::default()).unwrap();
    let folder = made.webhook.unwrap().1.folder.unwrap();
    let pod = &find(&given, "Deployment")["spec"]["template"]["spec"];
    let mount = json!({"name": "certificates", "mountPath": folder, "readOnly": true});
    assert!(pod["containers"][0]["volumeMounts"].as_array().unwrap().contains(&mount), "{pod}");
    let volume = json!({"name": "certificates", "secret": {"secretName": "from-cert-manager"}});
    assert!(pod["volumes"].as_array().unwrap().contains(&volume), "{pod}");
}

#[test]
fn without_volcano_its_groups_are_only_read() {
    let without = documents_with(|options| options.without_volcano = true);
    let (all, rights) = (own_rights(&documents(Version::V1_37)), own_rights(&without));
    assert!(all.difference(&rights).eq(["patch podgroups.scheduling.volcano.sh"]));
    // Without the right to list, the answer would be 403 instead of 404, and the scheduler would wait for it.
    assert!(rights.contains("list podgroups.scheduling.volcano.sh"));
    assert!(!names(&without, "ValidatingAdmissionPolicy").contains(&"muster-own-volcano-writes"));
}
