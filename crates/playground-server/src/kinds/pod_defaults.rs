//! The defaults of pod specs.

use serde_json::{Map, Value, json};

/// Applies the defaults of a pod. Some apply to pods only, not to templates.
pub(super) fn set_defaults(pod: &mut Value) {
    super::default_field(pod, "spec", json!({}));
    let spec = &mut pod["spec"];
    set_spec_defaults(spec);
    super::default_field(spec, "enableServiceLinks", json!(true));
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = json!(1);
    }
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            requests_from_limits(&mut container["resources"]);
            if host_network {
                use_host_ports(container);
            }
        }
    }
}

/// With `hostNetwork`, host ports default to container ports.
fn use_host_ports(container: &mut Value) {
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let number = port["containerPort"].clone();
        super::default_field(port, "hostPort", number);
    }
}

/// Applies the defaults of a pod spec, also in a template.
pub(super) fn set_spec_defaults(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else { return };
    // Disabled by default in kube-apiserver, so it is dropped.
    fields.remove("evictionResponders");
    // An empty list is the same as none.
    fields.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    for (field, value) in [
        ("dnsPolicy", json!("ClusterFirst")),
        ("restartPolicy", json!("Always")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        fields.entry(field).or_insert(value);
    }
    drop_false(fields, &["hostNetwork", "hostPID", "hostIPC"]);
    // The deprecated name of the service account is kept in addition to the new one.
    if let Some(account) = fields.get("serviceAccountName").or_else(|| fields.get("serviceAccount")).cloned() {
        fields.insert("serviceAccountName".to_owned(), account.clone());
        fields.insert("serviceAccount".to_owned(), account);
    }
    for list in ["containers", "initContainers"] {
        for container in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            set_container_defaults(container);
        }
    }
    for volume in fields.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        set_volume_defaults(volume);
    }
}

fn drop_false(fields: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        if fields.get(*name) == Some(&Value::Bool(false)) {
            fields.remove(*name);
        }
    }
}

fn set_container_defaults(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default().to_owned();
    let Some(fields) = container.as_object_mut() else { return };
    for (field, value) in [
        ("imagePullPolicy", json!(pull_policy(&image))),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("resources", json!({})),
    ] {
        fields.entry(field).or_insert(value);
    }
    for port in fields.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        super::default_field(port, "protocol", json!("TCP"));
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = fields.get_mut(probe).and_then(Value::as_object_mut) else { continue };
        for (field, value) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            probe.entry(field).or_insert(json!(value));
        }
        probe.get_mut("httpGet").into_iter().for_each(set_get_defaults);
    }
    for hook in ["postStart", "preStop"] {
        let hook = fields.get_mut("lifecycle").and_then(|hooks| hooks.get_mut(hook));
        hook.and_then(|hook| hook.get_mut("httpGet")).into_iter().for_each(set_get_defaults);
    }
    for variable in fields.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef").and_then(Value::as_object_mut) {
            field.entry("apiVersion").or_insert(json!("v1"));
        }
    }
}

fn set_get_defaults(get: &mut Value) {
    super::default_field(get, "scheme", json!("HTTP"));
    super::default_field(get, "path", json!("/"));
}

fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map_or("latest", |(_, tag)| tag);
    if !last.contains('@') && tag == "latest" { "Always" } else { "IfNotPresent" }
}

fn requests_from_limits(resources: &mut Value) {
    let limits = resources["limits"].as_object().cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let Some(resources) = resources.as_object_mut() else { return };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if let Some(requests) = requests.as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn set_volume_defaults(volume: &mut Value) {
    let Some(fields) = volume.as_object_mut() else { return };
    if fields.len() == 1 {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = fields.get_mut(source).and_then(Value::as_object_mut) {
            source.entry("defaultMode").or_insert(json!(420));
        }
    }
    if let Some(claim) = fields.get_mut("ephemeral").and_then(|source| source.get_mut("volumeClaimTemplate")) {
        super::persistent_volume_claim::set_spec_defaults(&mut claim["spec"]);
    }
    if let Some(path) = fields.get_mut("hostPath").and_then(Value::as_object_mut) {
        path.entry("type").or_insert(json!(""));
    }
}

/// Pod-level requests default to pod-level limits.
pub(super) fn pod_level_requests(spec: &mut Value) {
    if spec["resources"]["limits"].is_object() {
        requests_from_limits(&mut spec["resources"]);
    }
}

/// Adds the default tolerations for nodes that are not ready or unreachable, as the admission plugin does.
pub(crate) fn tolerate_lost_nodes(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerations = pod["spec"]["tolerations"].as_array();
        let tolerated = tolerations.into_iter().flatten().any(|toleration| {
            let of_key = |wanted: &str| toleration["key"].as_str().is_none_or(|key| key.is_empty() || key == wanted);
            let of_effect =
                toleration["effect"].as_str().is_none_or(|effect| effect.is_empty() || effect == "NoExecute");
            of_key(key) && of_effect
        });
        if !tolerated {
            let added = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            match pod["spec"]["tolerations"].as_array_mut() {
                Some(list) => list.push(added),
                None => pod["spec"]["tolerations"] = json!([added]),
            }
        }
    }
}
