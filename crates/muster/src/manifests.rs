//! `muster manifests`: the manifests that install Muster on a cluster.
//!
//! Muster's own pods use the default scheduler, so that Muster never waits for itself.

mod admission;
mod gang_config;
mod own_writes;
mod policy;
mod priority_classes;
mod rbac;
mod secure_metrics;

use std::io::Write as _;

use anyhow::{Context as _, bail};
use muster_api::crds;
use muster_runtime::config::{Configuration, File, Overrides};
use serde_json::{Value, json};

const NAME: &str = "muster";
const PORT: u16 = 8080;
/// Where the Secret with the webhook's certificate is mounted.
const CERTIFICATES: &str = "/etc/muster-certificates";
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
    /// Leave out the binding that lets all authenticated users use all PriorityClasses in groups.
    ///
    /// Grant the verb `use` on single classes to users, or in namespaces, instead.
    #[arg(long)]
    restricted_priority_classes: bool,
    /// Leave out the webhook: its Service and configuration, and the rights for its certificate.
    #[arg(long, conflicts_with_all = ["native_gangs", "webhook_certificate"])]
    without_webhook: bool,
    /// Serve the webhook with the certificate in this Secret of Muster's namespace (`tls.crt`, `tls.key`), for example of
    /// cert-manager, which also has to write the `caBundle`. Leaves out the rights to do that.
    #[arg(long, value_name = "SECRET")]
    webhook_certificate: Option<String>,
    /// Leave out the right to write Volcano's PodGroups, for clusters that have none.
    #[arg(long)]
    without_volcano: bool,
    /// Serve metrics over TLS, to clients that the API server authenticates and authorises.
    #[arg(long)]
    secure_metrics: bool,
    /// Print a JSON patch that adds the field `gangConfig` to the CRD of JobSets, instead of manifests.
    ///
    /// Apply it with `kubectl patch crd jobsets.jobset.x-k8s.io --type=json --patch "$(muster manifests
    /// --jobset-gang-config)"`, again after each update of JobSet. Without it the annotation `muster.dev/gang-mode` says
    /// the same.
    #[arg(long, exclusive = true)]
    jobset_gang_config: bool,
}

impl Options {
    /// Whether Muster creates the certificate of its webhook, and writes the `caBundle` of the configuration.
    fn creates_certificate(&self) -> bool {
        !self.without_webhook && self.webhook_certificate.is_none()
    }
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
    let text = if options.jobset_gang_config { format!("{:#}\n", gang_config::patch()) } else { text(options)? };
    std::io::stdout().lock().write_all(text.as_bytes())?;
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
    if let Some(secret) = &options.webhook_certificate
        && let Err(reason) = muster_api::names::check_dns_subdomain(secret)
    {
        bail!("--webhook-certificate {secret:?}: {reason}");
    }
    for manifest in [
        service_account(options),
        rbac::cluster_role(options),
        rbac::cluster_role_binding(options),
        rbac::role(options),
        rbac::role_binding(options),
        config_map(options, &configuration),
        deployment(options),
        disruption_budget(options),
        service(options),
        network_policy(options),
        admission::policy(),
        admission::stamp_policy(),
    ]
    .into_iter()
    .chain(admission::policy_bindings())
    .chain(priority_classes::documents(options))
    .chain(own_writes::documents(options))
    // Last: the webhook's Service and Deployment should exist before it is called.
    .chain(admission::webhook(options))
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
    });
    if !options.without_webhook {
        let certificates = match &options.webhook_certificate {
            Some(_) => json!({"folder": CERTIFICATES}),
            None => json!({"namespace": options.namespace}),
        };
        short["webhook"] = json!({"enabled": true, "certificates": certificates});
    }
    if options.native_gangs {
        short["controllers"] = json!({"jobSets": "Native", "leaderWorkerSets": "Native"});
    }
    if options.secure_metrics {
        short["metrics"] = secure_metrics::settings();
    }
    print(&short)
}

fn metadata(options: &Options) -> Value {
    json!({"name": NAME, "namespace": options.namespace, "labels": labels()})
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "scheduler"})
}

/// The user name of Muster's service account in requests.
fn user_name(options: &Options) -> String {
    format!("system:serviceaccount:{}:{NAME}", options.namespace)
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
    let mut volumes = vec![json!({"name": "config", "configMap": {"name": NAME}})];
    if let Some(secret) = &options.webhook_certificate {
        volumes.push(json!({"name": "certificates", "secret": {"secretName": secret}}));
    }
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
        "volumes": volumes,
    })
}

fn container(options: &Options) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "http"},
            "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    let mut ports = vec![json!({"name": "http", "containerPort": PORT})];
    if !options.without_webhook {
        ports.push(json!({"name": "webhook", "containerPort": admission::PORT}));
    }
    ports.extend(options.secure_metrics.then(secure_metrics::container_port));
    let mut mounts = vec![json!({"name": "config", "mountPath": "/etc/muster", "readOnly": true})];
    if options.webhook_certificate.is_some() {
        mounts.push(json!({"name": "certificates", "mountPath": CERTIFICATES, "readOnly": true}));
    }
    json!({
        "name": NAME,
        "image": options.image,
        "args": ["run", "--config=/etc/muster/config.yaml"],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": ports,
        // Liveness counts only after the first success, so that a slow start does not end the container.
        "startupProbe": probe("/livez", 2, 150),
        "livenessProbe": probe("/livez", 10, 3),
        "readinessProbe": probe("/readyz", 10, 1),
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    })
}

fn disruption_budget(options: &Options) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": metadata(options),
        // Replicas that are not ready protect nothing: a node with them can be drained.
        "spec": {
            "minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels()},
        },
    })
}

/// Only the ports of metrics and of the webhook can be reached. Where the API server is, which Muster calls and which calls
/// the webhook, differs between clusters, so neither peers nor outgoing connections are limited.
fn network_policy(options: &Options) -> Value {
    let port = |name: &str| json!({"protocol": "TCP", "port": name});
    let mut ports = vec![port("http")];
    if !options.without_webhook {
        ports.push(port("webhook"));
    }
    ports.extend(options.secure_metrics.then(|| port(secure_metrics::PORT_NAME)));
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata(options),
        "spec": {
            "podSelector": {"matchLabels": labels()}, "policyTypes": ["Ingress"],
            "ingress": [{"ports": ports}],
        },
    })
}

fn service(options: &Options) -> Value {
    let mut ports = vec![json!({"name": "http", "port": PORT, "targetPort": "http"})];
    ports.extend(options.secure_metrics.then(secure_metrics::service_port));
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(options),
        "spec": {"selector": labels(), "ports": ports},
    })
}

#[cfg(test)]
mod tests;
