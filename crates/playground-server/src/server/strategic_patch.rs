//! Strategic merge patches: merge patches that merge some lists element by element.
//!
//! Which lists are merged by which key is defined by the Go types of the built-in kinds; here it is a table by the name
//! of the list, which is unambiguous for the served kinds. Must not depend on kinds.

use serde_json::{Map, Value};

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    #[error("Unknown patch type found: {0}")]
    Directive(String),
    #[error("map: {0} does not contain declared merge key: {1}")]
    NoKey(String, &'static str),
    #[error("the patch has a list where {0} has none")]
    NoList(String),
}

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    Replace,
    /// As a set of strings.
    Set,
    /// By this field of its elements.
    Key(&'static str),
}

fn strategy(path: &[&str]) -> Strategy {
    let Some(name) = path.last() else { return Strategy::Replace };
    match *name {
        "finalizers" if path.first() == Some(&"metadata") => Strategy::Set,
        "podCIDRs" => Strategy::Set,
        "conditions" | "addresses" => Strategy::Key("type"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "imagePullSecrets"
        | "schedulingGates"
        | "volumes"
        | "resourceClaims"
        | "resourceClaimStatuses"
        | "allocatedResourcesStatus"
        | "secrets" => Strategy::Key("name"),
        "ownerReferences" | "reservedFor" => Strategy::Key("uid"),
        "podIPs" | "hostIPs" | "hostAliases" => Strategy::Key("ip"),
        // Ports of containers or of a service.
        "ports" if path.len() > 2 => Strategy::Key("containerPort"),
        "ports" => Strategy::Key("port"),
        "topologySpreadConstraints" => Strategy::Key("topologyKey"),
        "volumeDevices" => Strategy::Key("devicePath"),
        "volumeMounts" => Strategy::Key("mountPath"),
        _ => Strategy::Replace,
    }
}

/// Applies a patch to an object. After an error the object is in an undefined state.
pub(crate) fn apply(object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), PatchError> {
    merge(object, patch, &mut Vec::new())
}

fn merge<'a>(
    object: &mut Map<String, Value>,
    patch: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
) -> Result<(), PatchError> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(directive) if *directive == "replace" => {
            object.clone_from(patch);
            object.remove(DIRECTIVE);
            return Ok(());
        }
        Some(directive) if *directive == "delete" => {
            object.clear();
            return Ok(());
        }
        Some(other) => return Err(PatchError::Directive(other.to_string())),
    }
    if let Some(kept) = patch.get(RETAIN).and_then(Value::as_array) {
        object.retain(|key, _| kept.iter().any(|name| *name == **key));
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        path.push(key);
        merge_field(object, key, value, patch.get(&format!("{ORDER}{key}")), path)?;
        path.pop();
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE) {
            let gone = value.as_array().ok_or_else(|| PatchError::NoList(list.to_owned()))?;
            if let Some(entries) = object.get_mut(list).and_then(Value::as_array_mut) {
                entries.retain(|entry| !gone.contains(entry));
            }
        }
        if let (Some(list), Some(order)) = (key.strip_prefix(ORDER), value.as_array())
            && !patch.contains_key(list)
        {
            path.push(list);
            reorder(object.get_mut(list), order, strategy(path));
            path.pop();
        }
    }
    Ok(())
}

fn merge_field<'a>(
    object: &mut Map<String, Value>,
    key: &str,
    value: &'a Value,
    order: Option<&Value>,
    path: &mut Vec<&'a str>,
) -> Result<(), PatchError> {
    match (object.get_mut(key), value) {
        (_, Value::Null) => drop(object.remove(key)),
        (Some(Value::Object(inner)), Value::Object(patch)) => merge(inner, patch, path)?,
        (Some(Value::Array(entries)), Value::Array(patch)) => {
            let order = order.and_then(Value::as_array).unwrap_or(patch);
            *entries = match strategy(path) {
                Strategy::Replace => patch.clone(),
                Strategy::Set => merge_set(entries, patch, order),
                Strategy::Key(by) => merge_list(entries, patch, order, by, path)?,
            };
        }
        _ => match without_directives(value) {
            Some(value) => drop(object.insert(key.to_owned(), value)),
            None => drop(object.remove(key)),
        },
    }
    Ok(())
}

/// Changes only the order of a list.
fn reorder(list: Option<&mut Value>, order: &[Value], strategy: Strategy) {
    let Some(entries) = list.and_then(Value::as_array_mut) else { return };
    let before = std::mem::take(entries);
    *entries = match strategy {
        Strategy::Replace => before,
        Strategy::Set => sorted(before.clone(), &before, order, |a, b| a == b),
        Strategy::Key(by) => sorted(before.clone(), &before, order, |a, b| a[by] == b[by]),
    };
}

/// A new value: its nulls are dropped, and so are directives with what they apply to.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, value)| !key.starts_with('$') && !value.is_null());
            Some(kept.filter_map(|(key, value)| Some((key.clone(), without_directives(value)?))).collect())
        }
        Value::Array(entries) => Some(entries.iter().filter_map(without_directives).collect()),
        other => Some(other.clone()),
    }
}

fn merge_set(entries: &[Value], patch: &[Value], order: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for entry in entries.iter().chain(patch) {
        if !merged.contains(entry) {
            merged.push(entry.clone());
        }
    }
    sorted(merged, entries, order, |a, b| a == b)
}

fn merge_list<'a>(
    entries: &[Value],
    patch: &'a [Value],
    order: &[Value],
    by: &'static str,
    path: &mut Vec<&'a str>,
) -> Result<Vec<Value>, PatchError> {
    let same = move |a: &Value, b: &Value| a[by] == b[by];
    let mut merged = entries.to_vec();
    let is = |entry: &Value, directive: &str| entry[DIRECTIVE] == *directive;
    if patch.iter().any(|entry| is(entry, "replace")) {
        return Ok(patch.iter().filter(|entry| entry[DIRECTIVE].is_null()).cloned().collect());
    }
    for entry in patch {
        if entry[by].is_null() {
            return Err(PatchError::NoKey(entry.to_string(), by));
        }
        if is(entry, "delete") {
            merged.retain(|old| !same(old, entry));
            continue;
        }
        match (merged.iter_mut().find(|old| same(old, entry)), entry) {
            (Some(Value::Object(old)), Value::Object(entry)) => merge(old, entry, path)?,
            _ => merged.extend(without_directives(entry)),
        }
    }
    Ok(sorted(merged, entries, order, same))
}

/// The order of the patch for the elements that it names; the others keep their place relative to them.
fn sorted(merged: Vec<Value>, before: &[Value], order: &[Value], same: impl Fn(&Value, &Value) -> bool) -> Vec<Value> {
    let place = |list: &[Value], value: &Value| list.iter().position(|entry| same(entry, value));
    let (mut named, rest): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|value| place(order, value).is_some());
    named.sort_by_key(|value| place(order, value));
    let mut out = Vec::new();
    let mut named = named.into_iter().peekable();
    for value in rest {
        // Elements that are new to the server come before existing ones.
        while let Some(next) = named.next_if(|next| match (place(before, &value), place(before, next)) {
            (Some(value), Some(next)) => value >= next,
            _ => true,
        }) {
            out.push(next);
        }
        out.push(value);
    }
    out.extend(named);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(object: &Value, patch: &Value) -> Result<Value, PatchError> {
        let mut object = object.as_object().cloned().unwrap();
        apply(&mut object, patch.as_object().unwrap())?;
        Ok(Value::Object(object))
    }

    #[test]
    fn lists_with_merge_keys_are_merged() {
        let object = json!({
            "metadata": {"finalizers": ["a"], "labels": {"x": "1"}},
            "spec": {"containers": [{"name": "c", "image": "i", "command": ["x"]}], "tolerations": [{"key": "k"}]},
            "status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]},
        });
        for (patch, pointer, expected) in [
            (json!({"metadata": {"finalizers": ["b"]}}), "/metadata/finalizers", json!(["b", "a"])),
            (json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}), "/metadata/finalizers", json!([])),
            (json!({"metadata": {"labels": {"$patch": "replace", "y": "2"}}}), "/metadata/labels", json!({"y": "2"})),
            (
                json!({"spec": {"containers": [{"name": "c", "image": "j"}]}}),
                "/spec/containers",
                json!([{"name": "c", "image": "j", "command": ["x"]}]),
            ),
            (json!({"spec": {"tolerations": [{"key": "n"}]}}), "/spec/tolerations", json!([{"key": "n"}])),
            (
                json!({"status": {"conditions": [{"type": "C", "status": "True"}, {"type": "B", "status": "False"}]}}),
                "/status/conditions",
                json!([{"type": "C", "status": "True"}, {"type": "A", "status": "True"}, {"type": "B", "status": "False"}]),
            ),
            (
                json!({"status": {"conditions": [{"type": "A", "$patch": "delete"}]}}),
                "/status/conditions",
                json!([{"type": "B", "status": "True"}]),
            ),
            (
                json!({"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}], "phase": "x"}}),
                "/status/conditions",
                json!([{"type": "B", "status": "True"}, {"type": "A", "status": "True"}]),
            ),
            (json!({"spec": {"$retainKeys": ["tolerations"]}}), "/spec", json!({"tolerations": [{"key": "k"}]})),
        ] {
            assert_eq!(patched(&object, &patch).unwrap().pointer(pointer), Some(&expected), "{patch}");
        }
        let nameless = json!({"spec": {"containers": [{"image": "j"}]}});
        assert!(matches!(patched(&object, &nameless), Err(PatchError::NoKey(_, "name"))));
        assert!(matches!(patched(&object, &json!({"spec": {"$patch": "x"}})), Err(PatchError::Directive(_))));
    }
}
