//! OpenAPI v3: what may be asked of the server, and what objects look like, for clients that read it before they ask.
//!
//! kubectl looks here for the options of a patch (so that it leaves validation and dry runs to the server) and for the
//! words of `explain`. There is one document for each version of each group.

mod builtin;
mod custom;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::state::State;
use crate::kinds::{Kind, Rules};

/// Answers what follows `/openapi/v3`: nothing for the index, `api/v1` or `apis/GROUP/VERSION` for a document.
pub(super) fn answer(state: &State, path: &[&str]) -> Answer {
    let (group, version) = match *path {
        [] => return Answer::value(200, &index(state)),
        ["api", version] => ("", version),
        ["apis", group, version] => (group, version),
        _ => return Answer::page_not_found(),
    };
    let kinds = kinds(state, group, version);
    if kinds.is_empty() {
        return Answer::page_not_found();
    }
    Answer::value(200, &document(group, version, &kinds))
}

/// The form in which kubectl asks for the old document.
pub(crate) const OLD_FORM: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The document of the version before, which says nothing: `swagger: "2.0"`, as protobuf. kubectl asks for it about
/// kinds that it does not find in the others, and goes on if they are not there either.
pub(super) fn old() -> Answer {
    Answer::Document { media_type: OLD_FORM, text: bytes::Bytes::from_static(b"\x0a\x032.0") }
}

fn kinds<'a>(state: &'a State, group: &str, version: &str) -> Vec<&'a Arc<Kind>> {
    let served = state.registry.all().filter(|kind| kind.served);
    served.filter(|kind| *kind.group == *group && *kind.version == *version).collect()
}

/// Where the documents are. Each address carries a hash that changes when its document does.
fn index(state: &State) -> Value {
    let served = state.registry.all().filter(|kind| kind.served);
    let versions: BTreeSet<(&str, &str)> = served.map(|kind| (&*kind.group, &*kind.version)).collect();
    let paths: BTreeMap<String, Value> = versions
        .into_iter()
        .map(|(group, version)| {
            let path = prefix(group, version);
            let hash = hash(&kinds(state, group, version));
            (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash:016X}")}))
        })
        .collect();
    json!({ "paths": paths })
}

/// `api/v1`, or `apis/GROUP/VERSION`.
fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Built-in kinds change with the program, custom ones with their definition.
fn hash(kinds: &[&Arc<Kind>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    for kind in kinds {
        (&kind.group, &kind.version, &kind.kind, &kind.plural, kind.namespaced).hash(&mut hasher);
        if let Rules::Custom(custom) = &kind.rules {
            (custom.status, custom.scale.is_some(), custom.written_schema.to_string()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn document(group: &str, version: &str, kinds: &[&Arc<Kind>]) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    builtin::describe_metadata(&mut generator);
    let (mut schemas, mut paths, mut names) = (Map::new(), Map::new(), Vec::new());
    for kind in kinds {
        let name = match &kind.rules {
            Rules::Builtin(_) => builtin::describe(&mut generator, group, version, &kind.kind),
            Rules::Custom(custom) => {
                let name = custom::schema_name(group, version, &kind.kind);
                schemas.insert(name.clone(), custom::schema(&custom.written_schema));
                Some(name)
            }
        };
        paths::add(&mut paths, kind, name.as_deref());
        names.extend(name.map(|name| (name, kind)));
    }
    schemas.extend(generator.take_definitions(true));
    for (name, kind) in names {
        // Readers look for a kind's schema by this.
        schemas[&name]["x-kubernetes-group-version-kind"] =
            json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": format!("v{}", env!("CARGO_PKG_VERSION"))},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

#[cfg(test)]
mod tests;
