//! Path elements of lists and maps, and how they are printed.

use muster_playground_schema::go_text::quoted;
use muster_playground_schema::types::{List, Relation, Types};
use serde_json::{Map, Value};

use super::field_set::go_json;

/// The path element of a field.
pub(crate) fn of_field(name: &str) -> String {
    format!("f:{name}")
}

/// Why an element of a list has no path element, with the messages of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPathElement {
    #[error("invalid indexing of non-associative list")]
    AtomicList,
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    #[error("associative list with keys may not have {0}")]
    NoMap(&'static str),
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    NoKeys(String),
}

/// The path element of an element of an associative list; or why it has none.
pub(crate) fn of_entry(types: &Types, list: &List, entry: &Value) -> Result<String, NoPathElement> {
    match &list.relation {
        Relation::Atomic => Err(NoPathElement::AtomicList),
        Relation::Set => match entry {
            Value::Object(_) => Err(NoPathElement::MapInSet),
            Value::Array(_) => Err(NoPathElement::ListInSet),
            Value::Null => Err(NoPathElement::NullInSet),
            scalar => Ok(format!("v:{}", go_json(scalar))),
        },
        Relation::Keyed(keys) => {
            let Value::Object(fields) = entry else {
                let what = if entry.is_null() { "a null element" } else { "non-map elements" };
                return Err(NoPathElement::NoMap(what));
            };
            // One string key is by far the most common case.
            if let [key] = &**keys
                && let Some(Value::String(text)) = fields.get(key)
                && !text.contains(['"', '\\', '<', '>', '&'])
                && !text.contains(char::is_control)
            {
                return Ok(format!("k:{{\"{key}\":\"{text}\"}}"));
            }
            keyed(types, list, keys, fields)
        }
    }
}

fn keyed(types: &Types, list: &List, keys: &[String], fields: &Map<String, Value>) -> Result<String, NoPathElement> {
    let mut named = Map::new();
    for key in keys {
        if let Some(value) = fields.get(key).or_else(|| types.key_default(list, key)) {
            named.insert(key.clone(), value.clone());
        }
    }
    if named.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
        return Err(NoPathElement::NoKeys(keys.join(" ")));
    }
    Ok(format!("k:{}", go_json(&Value::Object(named))))
}

/// The elements of a list; empty if it is null or absent.
pub(crate) fn entries(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A path element as printed: `.name`, `[key="value"]` or `[="value"]`.
pub(crate) fn shown(path_element: &str) -> String {
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let text = |value: &Value| match value {
        Value::String(text) => quoted(text),
        other => other.to_string(),
    };
    match path_element.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("v:", entry)) => format!("[={}]", text(&value(entry))),
        Some(("k:", keys)) => {
            let keys = value(keys);
            let keys = keys.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value)));
            format!("[{}]", keys.collect::<Vec<_>>().join(","))
        }
        Some((_, rest)) => format!("[{rest}]"),
        None => path_element.to_owned(),
    }
}

/// A path as printed.
pub(crate) fn shown_path(path: &[String]) -> String {
    path.iter().map(|path_element| shown(path_element)).collect()
}
