//! CustomResourceDefinitions: their strategy, and the kinds that they define.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::copy_field;
use super::custom::Custom;
use super::typed_decode::{DecodeError, decode_as};

/// A validated definition, ready to be served.
pub(crate) struct Definition {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// The served versions with their strategies, including the storage version.
    pub(crate) versions: Vec<(String, Custom)>,
}

/// Decodes a definition. Limits are floats in its type, and printed without a fraction if they are integers.
pub(super) fn decode(definition: Value) -> Result<Value, DecodeError> {
    let mut decoded = decode_as::<CustomResourceDefinition>(definition)?;
    shorten_numbers(&mut decoded);
    Ok(decoded)
}

fn shorten_numbers(value: &mut Value) {
    /// Above this not every integer is a float.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() <= EXACT_MAX {
                #[allow(clippy::cast_possible_truncation)] // an integer in range
                let whole = float as i64;
                *value = json!(whole);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(shorten_numbers),
        Value::Array(entries) => entries.iter_mut().for_each(shorten_numbers),
        _ => {}
    }
}

/// Fills in the names that are derived from others.
pub(super) fn set_defaults(definition: &mut Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = &mut definition["spec"]["names"];
    let kind = text(&names["kind"]);
    if text(&names["singular"]).is_empty() && !kind.is_empty() {
        names["singular"] = json!(kind.to_lowercase());
    }
    if text(&names["listKind"]).is_empty() && !kind.is_empty() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if definition["spec"]["conversion"].is_null() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    if definition["spec"]["preserveUnknownFields"] == false
        && let Some(spec) = definition["spec"].as_object_mut()
    {
        spec.remove("preserveUnknownFields");
    }
}

/// A new definition has no accepted names yet, only a stored version.
pub(super) fn prepare_for_create(definition: &mut Value) {
    definition["status"] = json!({"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
    add_stored_version(definition);
}

pub(super) fn prepare_for_update(definition: &mut Value, old: &Value) {
    copy_field(definition, "status", old);
    add_stored_version(definition);
}

/// Adds the storage version to `storedVersions`.
fn add_stored_version(definition: &mut Value) {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let mut stored = versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone());
    let Some(name) = stored.next() else { return };
    if let Some(list) = definition.pointer_mut("/status/storedVersions").and_then(Value::as_array_mut)
        && !list.contains(&name)
    {
        list.push(name);
    }
}

/// Whether the kind is served.
pub(crate) fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

impl Definition {
    /// The kinds of a validated definition.
    pub(crate) fn of(definition: &Value) -> Result<Self, FieldError> {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
        let all = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
        let storage = all.iter().find(|version| version["storage"] == true);
        let storage = storage.map(|version| text(&version["name"])).unwrap_or_default();
        let mut versions = Vec::new();
        let needed = |version: &&Value| version["served"] == true || version["storage"] == true;
        for version in all.iter().filter(needed) {
            versions.push((text(&version["name"]), Custom::of(version, &storage, deprecation(spec, version))?));
        }
        Ok(Self {
            group: text(&spec["group"]),
            plural: text(&spec["names"]["plural"]),
            singular: text(&spec["names"]["singular"]),
            kind: text(&spec["names"]["kind"]),
            short_names: list(&spec["names"]["shortNames"]),
            categories: list(&spec["names"]["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            versions,
        })
    }
}

/// The warning for clients of a deprecated version.
fn deprecation(spec: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(written) = version["deprecationWarning"].as_str() {
        return Some(written.to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = |name: &Value| format!("{}/{} {}", text(&spec["group"]), text(name), text(&spec["names"]["kind"]));
    let others = spec["versions"].as_array().into_iter().flatten();
    let good = others.filter(|other| other["served"] == true && other["deprecated"] != true);
    let best = good.max_by_key(|other| version_priority(&text(&other["name"])));
    let advice = best.map(|other| format!("; use {}", named(&other["name"]))).unwrap_or_default();
    Some(format!("{} is deprecated{advice}", named(&version["name"])))
}

/// The order of versions: `v2` before `v1` before `v2beta1`, and all of them before other names.
pub(crate) fn version_priority(version: &str) -> (u8, u64, u64) {
    let shape = version.strip_prefix('v').unwrap_or_default();
    let (major, rest) = shape.split_at(shape.find(|c: char| !c.is_ascii_digit()).unwrap_or(shape.len()));
    let stage = [(3, ""), (2, "beta"), (1, "alpha")].into_iter().find_map(|(rank, stage)| {
        let minor = rest.strip_prefix(stage)?;
        (minor.is_empty() == stage.is_empty()).then_some(())?;
        Some((rank, if minor.is_empty() { 0 } else { minor.parse().ok()? }))
    });
    match (major.parse(), stage) {
        (Ok(major), Some((rank, minor))) => (rank, major, minor),
        _ => (0, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_in_kubernetes() {
        let ordered = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1"];
        let priorities: Vec<_> = ordered.iter().map(|version| version_priority(version)).collect();
        assert!(priorities.windows(2).all(|pair| pair[0] > pair[1]), "{priorities:?}");
    }

    #[test]
    fn deprecation_warning_names_a_newer_version() {
        let spec = json!({"group": "g.io", "names": {"kind": "K"}, "versions": [
            {"name": "v1beta1", "served": true, "deprecated": true},
            {"name": "v1", "served": true}, {"name": "v2", "served": false},
        ]});
        let warning = deprecation(&spec, &spec["versions"][0]);
        assert_eq!(warning.as_deref(), Some("g.io/v1beta1 K is deprecated; use g.io/v1 K"));
        assert_eq!(deprecation(&spec, &spec["versions"][1]), None);
    }
}
