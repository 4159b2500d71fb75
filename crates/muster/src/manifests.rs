//! `muster manifests`: the manifests that install Muster on a cluster.
//!
//! The RBAC rules grant what is used and nothing else; each rule is in one table with its reason. Muster's own pods use
//! the default scheduler, so that Muster never waits for itself.

mod admission;

use std::io::Write as _;

use anyhow::{Context as _, bail};
use muster_api::crds;
use muster_runtime::config::{Configuration, File, Overrides};
use serde_json::{Value, json};

const NAME: &str = "muster";
const PORT: u16 = 8080;
const READ: &[&str] = &["list", "watch"];
/// A user other than root.
const USER: u32 = 65532;

/// The flags of the command.
#[derive(clap::Args)]
pub struct Options {
    /// The version of the cluster: 1.35, 1.36 or 1.37.
    ///
    /// The status of native PodGroups may only be written where they are served: in 1.36 and 1.37.
    #[arg(long, value_name = "VERSION", default_value = "1.37", value_parser = version)]
    kubernetes_version: Version,
    /// The namespace of Muster.
    #[arg(long, value_name = "NAMESPACE", default_value = "muster-system")]
    namespace: String,
    /// The image; its entry point is the muster binary.
    #[arg(long, default_value = concat!("muster:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Schedule pods with this schedulerName. May be repeated.
    #[arg(long, value_name = "NAME", default_value = muster_api::keys::SCHEDULER_NAME)]
    scheduler_name: Vec<String>,
    /// Write the gangs of JobSets and LeaderWorkerSets as Kubernetes' own Workloads and PodGroups.
    ///
    /// The cluster has to serve them. Only the webhook can set references to such groups, so objects that request a
    /// gang cannot be created while Muster is unavailable (`failurePolicy: Fail`); all others can.
    #[arg(long)]
    native_gangs: bool,
}

/// A supported version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1_35,
    V1_36,
    V1_37,
}

const VERSIONS: [(&str, Version); 3] = [("1.35", Version::V1_35), ("1.36", Version::V1_36), ("1.37", Version::V1_37)];

fn version(text: &str) -> Result<Version, String> {
    let known = VERSIONS.iter().find(|(name, _)| *name == text).map(|(_, version)| *version);
    known.ok_or_else(|| format!("known versions are {}", VERSIONS.map(|(name, _)| name).join(", ")))
}

/// Prints all manifests.
pub fn run(options: &Options) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(text(options)?.as_bytes())?;
    Ok(())
}

/// All manifests in the order in which they can be applied.
fn text(options: &Options) -> anyhow::Result<String> {
    let namespace = &options.namespace;
    let label = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let good = (1..=63).contains(&namespace.len()) && namespace.chars().all(|letter| label(letter) || letter == '-');
    if !good || !namespace.starts_with(label) || !namespace.ends_with(label) {
        bail!("--namespace {namespace:?}: must be lower case letters, digits and -, at most 63");
    }
    if options.image.is_empty() || options.image.contains(char::is_whitespace) {
        bail!("--image {:?}: must be the name of an image", options.image);
    }
    let configuration = configuration(options)?;
    let mut documents = vec![print(&of_namespace(options))?, crds::WORKLOADS.to_owned(), crds::PODGROUPS.to_owned()];
    for manifest in [
        service_account(options),
        cluster_role(options),
        cluster_role_binding(options),
        role(options),
        role_binding(options),
        config_map(options, &configuration),
        deployment(options),
        disruption_budget(options),
        service(options),
        admission::service(options),
        admission::policy(),
        admission::stamp_policy(),
    ]
    .into_iter()
    .chain(admission::policy_bindings())
    // Last: the webhook's Service and Deployment should exist before it is called.
    .chain([admission::configuration(options)])
    {
        documents.push(print(&manifest)?);
    }
    let bodies: Vec<&str> = documents.iter().map(|document| document.trim_start_matches("---\n").trim_end()).collect();
    Ok(format!("---\n{}\n", bodies.join("\n---\n")))
}

fn print(manifest: &Value) -> anyhow::Result<String> {
    serde_saphyr::to_string(manifest).context("printing a manifest")
}

/// The configuration file: only values that differ from the defaults, so that defaults follow the version.
fn configuration(options: &Options) -> anyhow::Result<String> {
    let overrides = Overrides {
        scheduler_names: options.scheduler_name.clone(),
        lease_namespace: Some(options.namespace.clone()),
        ..Overrides::default()
    };
    let file = Configuration::new(File::default(), overrides).context("--scheduler-name")?.file;
    let mut short = json!({
        "apiVersion": file.api_version,
        "kind": file.kind,
        "schedulerNames": file.scheduler_names,
        "leaderElection": {"leaseNamespace": file.leader_election.lease_namespace},
        "webhook": {"enabled": true, "certificates": {"namespace": options.namespace}},
    });
    if options.native_gangs {
        short["controllers"] = json!({"jobSets": "Native", "leaderWorkerSets": "Native"});
    }
    print(&short)
}

fn metadata(options: &Options) -> Value {
    json!({"name": NAME, "namespace": options.namespace, "labels": labels()})
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "scheduler"})
}

fn of_namespace(options: &Options) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": options.namespace,
            "labels": {"app.kubernetes.io/name": NAME, "pod-security.kubernetes.io/enforce": "restricted"},
        },
    })
}

fn service_account(options: &Options) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(options)})
}

/// The cluster-wide permissions of Muster. `docs/operations.md` gives the reasons.
fn cluster_rules(options: &Options) -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut rules = vec![
        // Only annotations are patched: the reference of a pod that the webhook did not see.
        rule("", &["pods"], &["get", "list", "watch", "delete", "patch"]),
        rule("", &["pods/binding", "pods/eviction"], &["create"]),
        rule("", &["pods/status"], &["patch"]),
        rule("", &["namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes"], READ),
        rule("", &["replicationcontrollers", "services"], READ),
        rule("apps", &["controllerrevisions", "replicasets", "statefulsets"], READ),
        // Owners whose pods become gangs; also where they are not served.
        rule("batch", &["jobs"], READ),
        rule("jobset.x-k8s.io", &["jobsets"], READ),
        rule("leaderworkerset.x-k8s.io", &["leaderworkersets"], READ),
        rule("policy", &["poddisruptionbudgets"], READ),
        // Also where they are not served: without permission the answer is 403, which does not show that they are not
        // served.
        rule("scheduling.k8s.io", &["podgroups", "priorityclasses", "workloads"], READ),
        rule("muster.dev", &["podgroups"], &["list", "watch", "create", "patch", "delete"]),
        rule("muster.dev", &["workloads"], &["list", "watch", "create", "delete"]),
        rule("muster.dev", &["podgroups/status", "workloads/status"], &["patch"]),
        rule("scheduling.x-k8s.io", &["podgroups"], READ),
        rule("scheduling.x-k8s.io", &["podgroups/status"], &["patch"]),
        // It has no status subresource: writing the status means writing the object.
        rule("scheduling.volcano.sh", &["podgroups"], &["list", "watch", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        json!({
            "apiGroups": ["admissionregistration.k8s.io"], "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": [NAME], "verbs": ["get", "update"],
        }),
    ];
    let has_pod_groups = options.kubernetes_version != Version::V1_35;
    if has_pod_groups {
        rules.push(rule("scheduling.k8s.io", &["podgroups/status"], &["patch"]));
    }
    if options.native_gangs {
        rules.push(rule("scheduling.k8s.io", &["workloads"], &["create", "patch", "delete"]));
    }
    if options.native_gangs && has_pod_groups {
        rules.push(rule("scheduling.k8s.io", &["podgroups"], &["create", "patch", "delete"]));
    }
    rules
}

fn cluster_role(options: &Options) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": NAME, "labels": labels()},
        "rules": cluster_rules(options),
    })
}

fn cluster_role_binding(options: &Options) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": options.namespace}],
    })
}

/// The lease and the webhook's certificate: create cannot be restricted by name.
fn role(options: &Options) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": metadata(options),
        "rules": [
            {
                "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                "resourceNames": [NAME], "verbs": ["get", "update"],
            },
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {
                "apiGroups": [""], "resources": ["secrets"],
                "resourceNames": [admission::SERVICE], "verbs": ["get", "update"],
            },
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        ],
    })
}

fn role_binding(options: &Options) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": metadata(options),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": options.namespace}],
    })
}

fn config_map(options: &Options, configuration: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": metadata(options),
        "data": {"config.yaml": configuration},
    })
}

fn deployment(options: &Options) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": metadata(options),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels()},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
            "template": {"metadata": {"labels": labels()}, "spec": pod(options)},
        },
    })
}

fn pod(options: &Options) -> Value {
    json!({
        "schedulerName": "default-scheduler",
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        // Losing one node should not take both replicas; a cluster with one node works too.
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels()},
        }],
        "containers": [container(options)],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    })
}

fn container(options: &Options) -> Value {
    let probe = |path: &str, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "http"},
            "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    json!({
        "name": NAME,
        "image": options.image,
        "args": ["run", "--config=/etc/muster/config.yaml"],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [
            {"name": "http", "containerPort": PORT}, {"name": "webhook", "containerPort": admission::PORT},
        ],
        "livenessProbe": probe("/livez", 3),
        "readinessProbe": probe("/readyz", 1),
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/muster", "readOnly": true}],
    })
}

fn disruption_budget(options: &Options) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": metadata(options),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels()}},
    })
}

fn service(options: &Options) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(options),
        "spec": {"selector": labels(), "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    };
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
            let names =
                rule.get("resourceNames").map(|names| format!(" [{}]", list(names).join(","))).unwrap_or_default();
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
            "get pods.",
            "list controllerrevisions.apps",
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
            "list workloads.muster.dev",
            "list workloads.scheduling.k8s.io",
            "patch events.events.k8s.io",
            "patch podgroups.muster.dev",
            "patch podgroups.scheduling.volcano.sh",
            "patch pods.",
            "update mutatingwebhookconfigurations.admissionregistration.k8s.io [muster]",
            "watch controllerrevisions.apps",
            "watch jobs.batch",
            "watch jobsets.jobset.x-k8s.io",
            "watch leaderworkersets.leaderworkerset.x-k8s.io",
            "patch podgroups/status.muster.dev",
            "patch podgroups/status.scheduling.x-k8s.io",
            "patch pods/status.",
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
            "watch workloads.muster.dev",
            "watch workloads.scheduling.k8s.io",
        ];
        let native = "patch podgroups/status.scheduling.k8s.io";
        for (name, version) in VERSIONS {
            let documents = documents(version);
            let mut expected: BTreeSet<String> = common.iter().map(|right| (*right).to_owned()).collect();
            if version != Version::V1_35 {
                expected.insert(native.to_owned());
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
            assert_eq!(
                hook["rules"][0]["operations"],
                json!(["CREATE"]),
                "updates and deletes never wait for the webhook"
            );
        }
        assert_eq!(hooks[3]["matchConditions"][1]["expression"], r#"object.spec.schedulerName in ["muster","gang"]"#);
    }

    #[test]
    fn webhook_is_called_for_every_kind_that_it_reviews_and_never_blocks_a_group() {
        let documents = documents(Version::V1_37);
        let hooks = find(&documents, "MutatingWebhookConfiguration")["webhooks"].as_array().unwrap();
        for ([group, version, plural], operations) in WEBHOOK_RULES {
            for operation in operations {
                let has =
                    |rule: &Value, field: &str, value: &str| rule[field].as_array().unwrap().contains(&json!(value));
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
        assert_eq!(version("1.34").unwrap_err(), "known versions are 1.35, 1.36, 1.37");
    }
}
