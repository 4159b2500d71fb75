//! Unaggregated discovery: a list of groups, and a document for each version of each group.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::response::ApiResponse;
use super::super::state::State;
use super::super::status_error::StatusError;
use super::catalogue::{self, Group, Resource};

/// All valid paths.
pub(super) fn paths(state: &State, has_openapi: bool) -> ApiResponse {
    let own = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"];
    let mut paths: BTreeSet<String> = own.map(str::to_owned).into();
    if has_openapi {
        paths.insert("/openapi/v3".to_owned());
    }
    for group in catalogue::groups(state) {
        paths.insert(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{version}", group.name)));
    }
    ApiResponse::value(200, &json!({"paths": paths}))
}

/// The versions of the core group.
pub(super) fn versions() -> ApiResponse {
    ApiResponse::value(200, &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}))
}

pub(super) fn groups(state: &State) -> ApiResponse {
    let groups: Vec<Value> = catalogue::groups(state).iter().map(entry).collect();
    ApiResponse::value(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

pub(super) fn group(state: &State, name: &str) -> Option<ApiResponse> {
    let groups = catalogue::groups(state);
    let mut group = groups.iter().find(|group| group.name == name).map(entry)?;
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    Some(ApiResponse::value(200, &group))
}

fn entry(group: &Group<'_>) -> Value {
    let name = group.name;
    let entry = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let all: Vec<Value> = group.versions.iter().map(entry).collect();
    json!({"name": name, "preferredVersion": all.first(), "versions": all})
}

pub(super) fn resources(state: &State, group: &str, version: &str) -> Result<ApiResponse, StatusError> {
    let resources: Vec<Value> = catalogue::resources(state, group, version).iter().flat_map(rows).collect();
    if resources.is_empty() {
        return Err(StatusError::no_such_path());
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": name, "resources": resources});
    if !group.is_empty() {
        // The core group has the form from before lists had versions.
        list["apiVersion"] = json!("v1");
    }
    Ok(ApiResponse::value(200, &list))
}

fn rows(resource: &Resource<'_>) -> Vec<Value> {
    let mut row = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        row["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        row["categories"] = json!(resource.categories);
    }
    let mut rows = vec![row];
    for part in &resource.parts {
        let mut row = json!({
            "name": format!("{}/{}", resource.plural, part.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": part.kind, "verbs": part.verbs,
        });
        if let Some((group, version)) = part.kind_group_version {
            row["group"] = json!(group);
            row["version"] = json!(version);
        }
        rows.push(row);
    }
    rows
}
