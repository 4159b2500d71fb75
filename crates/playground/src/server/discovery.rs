//! What the server serves, told in the way that clients ask before anything else.
//!
//! The plain form only; the aggregated one that kubectl prefers has its place here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::answer::Answer;
use super::failure::Failure;
use super::state::State;
use crate::kinds::{Kind, Rules};

/// The Kubernetes release whose API this server follows.
const RELEASE: &str = "v1.37.1";

/// Answers a path that names no resource.
pub(crate) fn answer(state: &State, path: &str, is_get: bool) -> Result<Answer, Failure> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let known = match *parts {
        ["version" | "api" | "apis"] | ["api", _] => true,
        ["apis", group] | ["apis", group, _] => state.registry.serves(group),
        _ => false,
    };
    if known && !is_get {
        return Err(Failure::method_not_allowed());
    }
    match *parts {
        [] => {
            let groups = groups(state).into_keys().map(|name| format!("/apis/{name}"));
            let own = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"].map(str::to_owned);
            let paths: BTreeSet<String> = own.into_iter().chain(groups).collect();
            Ok(Answer::value(200, &json!({"paths": paths})))
        }
        ["version"] => Ok(Answer::value(200, &version())),
        ["healthz" | "readyz" | "livez"] | ["healthz" | "readyz" | "livez", "ping"] => {
            Ok(Answer::Text { code: 200, text: "ok".to_owned() })
        }
        ["api"] => Ok(Answer::value(
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        )),
        ["apis"] => {
            let groups: Vec<Value> = groups(state).iter().map(|(name, versions)| group(name, versions)).collect();
            Ok(Answer::value(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})))
        }
        ["apis", name] => {
            let groups = groups(state);
            let Some(versions) = groups.get(name) else { return Ok(Answer::page_not_found()) };
            let mut group = group(name, versions);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Ok(Answer::value(200, &group))
        }
        ["api", version] => resources(state, "", version),
        ["apis", group, version] if known => resources(state, group, version),
        ["api", _, ..] => Err(Failure::no_such_path()),
        ["apis", group, ..] if state.registry.serves(group) => Err(Failure::no_such_path()),
        _ => Ok(Answer::page_not_found()),
    }
}

fn version() -> Value {
    let mut parts = RELEASE.trim_start_matches('v').split('.');
    json!({
        "major": parts.next(), "minor": parts.next(), "gitVersion": format!("{RELEASE}+muster-playground"),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn groups(state: &State) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in state.registry.all().filter(|kind| kind.served && !kind.group.is_empty()) {
        let versions = groups.entry(kind.group.to_string()).or_default();
        if !versions.iter().any(|version| **version == *kind.version) {
            versions.push(kind.version.to_string());
        }
    }
    groups
}

fn group(name: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": name, "preferredVersion": all.first(), "versions": all})
}

fn resources(state: &State, group: &str, version: &str) -> Result<Answer, Failure> {
    let kinds = state.registry.all().filter(|kind| kind.served && *kind.group == *group && *kind.version == *version);
    let resources: Vec<Value> = kinds.flat_map(|kind| rows(kind)).collect();
    if resources.is_empty() {
        return Err(Failure::no_such_path());
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": name, "resources": resources});
    if !group.is_empty() {
        // The oldest group answers as it did before lists had versions.
        list["apiVersion"] = json!("v1");
    }
    Ok(Answer::value(200, &list))
}

/// Two servers of the real one print the same verbs in two orders.
fn verbs(kind: &Kind) -> &'static [&'static str] {
    match kind.rules {
        Rules::Builtin(_) if kind.is_review() => &["create"],
        Rules::Builtin(_) => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        Rules::Custom(_) => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
    }
}

fn rows(kind: &Kind) -> Vec<Value> {
    let mut row = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        row["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        row["categories"] = json!(kind.categories);
    }
    let mut rows = vec![row];
    let mut parts = subresources(kind);
    if matches!(kind.rules, Rules::Builtin(_)) {
        parts.sort_unstable();
    }
    for subresource in parts {
        let verbs: &[&str] = match subresource {
            "binding" | "eviction" => &["create"],
            "log" => &["get"],
            _ => &["get", "patch", "update"],
        };
        let mut row = json!({
            "name": format!("{}/{subresource}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": verbs,
        });
        let other = match subresource {
            "binding" => Some(("", "v1", "Binding")),
            "eviction" => Some(("policy", "v1", "Eviction")),
            "scale" => Some(("autoscaling", "v1", "Scale")),
            _ => None,
        };
        if let Some((group, version, kind)) = other {
            row["kind"] = json!(kind);
            if !group.is_empty() {
                row["group"] = json!(group);
                row["version"] = json!(version);
            }
        }
        rows.push(row);
    }
    rows
}

fn subresources(kind: &Kind) -> Vec<&'static str> {
    match &kind.rules {
        Rules::Builtin(builtin) => builtin.subresources.to_vec(),
        Rules::Custom(_) => ["status", "scale"].into_iter().filter(|name| kind.has_subresource(name)).collect(),
    }
}
