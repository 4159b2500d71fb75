//! Aggregated discovery: all groups, versions and resources in one document.

use serde_json::{Value, json};

use super::super::negotiation::accepted_ranges;
use super::super::presentation::Document;
use super::super::response::{ApiResponse, encode};
use super::super::state::State;
use super::catalogue::{self, Part, Resource};

/// A version of the document, with its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    version: &'static str,
    media_type: &'static str,
}

const FORMS: [Form; 2] = [
    Form { version: "v2", media_type: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" },
    Form {
        version: "v2beta1",
        media_type: "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    },
];

/// The version that a client prefers, unless it prefers unaggregated discovery.
pub(super) fn wanted(accept: &str) -> Option<Form> {
    for offer in accepted_ranges(accept) {
        let takes_json = ["application/json", "application/*", "*/*"].contains(&offer.media_type);
        match offer.conversion() {
            None if takes_json => return None,
            Some(("APIGroupDiscoveryList", "apidiscovery.k8s.io", version)) if takes_json => {
                let form = FORMS.into_iter().find(|form| form.version == version);
                if form.is_some() {
                    return form;
                }
            }
            _ => {}
        }
    }
    None
}

/// The document of the core group, or of all others.
pub(super) fn respond(state: &State, oldest: bool, form: Form) -> ApiResponse {
    let groups: Vec<Value> = if oldest {
        vec![json!({"metadata": {}, "versions": [version(state, "", "v1")]})]
    } else {
        let group = |group: &catalogue::Group<'_>| {
            let versions: Vec<Value> = group.versions.iter().map(|name| version(state, group.name, name)).collect();
            json!({"metadata": {"name": group.name}, "versions": versions})
        };
        catalogue::groups(state).iter().map(group).collect()
    };
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{}", form.version),
        "metadata": {}, "items": groups,
    });
    ApiResponse::Document(Document { media_type: form.media_type, text: encode(&list) })
}

fn version(state: &State, group: &str, version: &str) -> Value {
    let all = catalogue::resources(state, group, version);
    let resources: Vec<Value> = all.iter().map(|one| resource(one, group, version)).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn resource(resource: &Resource<'_>, group: &str, version: &str) -> Value {
    // kube-apiserver names group and version only of custom kinds.
    let (group, version) = if resource.is_custom { (group, version) } else { ("", "") };
    let mut row = json!({
        "resource": resource.plural,
        "responseKind": {"group": group, "version": version, "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        row["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        row["categories"] = json!(resource.categories);
    }
    let part = |part: &Part<'_>| {
        let (group, version) = part.kind_group_version.unwrap_or((group, version));
        let kind = json!({"group": group, "version": version, "kind": part.kind});
        json!({"subresource": part.name, "responseKind": kind, "verbs": part.verbs})
    };
    if !resource.parts.is_empty() {
        row["subresources"] = resource.parts.iter().map(part).collect();
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_supported_form_is_used() {
        let of = |accept: &str| wanted(accept).map(|form| form.version);
        let (new, old) = (FORMS[0].media_type, FORMS[1].media_type);
        assert_eq!(of(&format!("{new},{old},application/json")), Some("v2"));
        assert_eq!(of(&format!("{old},{new}")), Some("v2beta1"));
        assert_eq!(of(&format!("application/json,{new}")), None);
        assert_eq!(of(&format!("{},{old}", new.replace("v2", "v3"))), Some("v2beta1"));
        assert_eq!(of("application/json;as=Table;g=meta.k8s.io;v=v1"), None);
    }
}
