//! JSON patches (RFC 6902), as lenient as kube-apiserver's library.
//!
//! `replace` creates a missing field, a missing `value` is null, a missing field equals null in `test`, negative
//! indices count from the end, and anything before the first slash of a path is ignored. Must not depend on objects or
//! kinds.

use serde_json::{Map, Value};

use super::json_syntax::DEPTH_MAX;

/// The patch does not apply to the document. kube-apiserver does not report why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoesNotApply;

/// The error of a patch that cannot be decoded.
pub(crate) fn decode_error(patch: &Value) -> Option<String> {
    let wrong = |value: &Value, into: &str| format!("json: cannot unmarshal {} into Go {into}", go_type(value));
    let operations = match patch {
        Value::Null => return None,
        Value::Array(operations) => operations,
        other => return Some(wrong(other, "value of type []handlers.jsonPatchOp")),
    };
    operations.iter().find_map(|operation| match operation {
        Value::Null => None,
        Value::Object(fields) => ["op", "path", "from"].into_iter().find_map(|field| match fields.get(field) {
            None | Some(Value::Null | Value::String(_)) => None,
            Some(other) => Some(wrong(other, &format!("struct field jsonPatchOp.{field} of type string"))),
        }),
        other => Some(wrong(other, "value of type handlers.jsonPatchOp")),
    })
}

/// How Go's decoder names the type of a value.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Unknown fields of operations, as strict decoding reports them.
pub(crate) fn unknown_fields(patch: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        let fields = operation.as_object().into_iter().flatten().map(|(field, _)| field);
        let unknown_names = fields.filter(|field| !["op", "path", "from", "value"].contains(&field.as_str()));
        unknown.extend(unknown_names.map(|field| format!("[{index}].{field}")));
    }
    unknown
}

/// The most bytes of all copies of one patch.
const COPIED_MAX: usize = 3 * 1024 * 1024;

/// Applies a decoded patch. After an error the document is in an undefined state.
pub(crate) fn apply(document: &mut Value, patch: &Value) -> Result<(), DoesNotApply> {
    let mut left = COPIED_MAX;
    patch.as_array().into_iter().flatten().try_for_each(|operation| apply_one(document, operation, &mut left))
}

/// `left` is the number of bytes that may still be copied.
fn apply_one(document: &mut Value, operation: &Value, left: &mut usize) -> Result<(), DoesNotApply> {
    let place = |field: &str| operation[field].as_str().ok_or(DoesNotApply);
    let value = || operation.get("value").cloned().unwrap_or_default();
    match operation["op"].as_str() {
        Some("add") => {
            let added = value();
            find(document, not_too_deep(place("path")?, &added)?)?.add(added)
        }
        Some("remove") => find(document, place("path")?)?.remove().map(drop),
        Some("replace") => replace(document, place("path")?, value()),
        Some("test") => test(document, place("path")?, &value()),
        Some("move") => {
            let moved = find(document, place("from")?)?.remove()?;
            find(document, not_too_deep(place("path")?, &moved)?)?.add(moved)
        }
        Some("copy") => {
            let copied = find(document, place("from")?)?.get()?.cloned().unwrap_or_default();
            *left = left.checked_sub(copied.to_string().len()).ok_or(DoesNotApply)?;
            find(document, not_too_deep(place("path")?, &copied)?)?.add(copied)
        }
        _ => Err(DoesNotApply),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), DoesNotApply> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(DoesNotApply);
        }
        *document = value;
        return Ok(());
    }
    find(document, not_too_deep(path, &value)?)?.set(value)
}

/// The path, if the value there does not exceed the maximum depth of a body: code that reads it later recurses.
fn not_too_deep<'a>(path: &'a str, value: &Value) -> Result<&'a str, DoesNotApply> {
    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(entries) => 1 + entries.iter().map(depth).max().unwrap_or_default(),
            Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
            _ => 0,
        }
    }
    let above = path.bytes().filter(|byte| *byte == b'/').count();
    if above + depth(value) > DEPTH_MAX { Err(DoesNotApply) } else { Ok(path) }
}

fn test(document: &mut Value, path: &str, value: &Value) -> Result<(), DoesNotApply> {
    let found = if path.is_empty() { Some(&*document) } else { find(document, path)?.get()? };
    if found.unwrap_or(&Value::Null) == value { Ok(()) } else { Err(DoesNotApply) }
}

/// A location in a document: its parent, and its name there.
enum Location<'a> {
    Field(&'a mut Map<String, Value>, String),
    Entry(&'a mut Vec<Value>, String),
}

fn find<'a>(document: &'a mut Value, path: &str) -> Result<Location<'a>, DoesNotApply> {
    let (_, inner) = path.split_once('/').ok_or(DoesNotApply)?;
    let mut steps: Vec<String> = inner.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let last = steps.pop().ok_or(DoesNotApply)?;
    let mut holder = document;
    for step in steps {
        holder = match holder {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(entries) => {
                let index = index(&step, entries.len())?;
                entries.get_mut(index)
            }
            _ => None,
        }
        .ok_or(DoesNotApply)?;
    }
    match holder {
        Value::Object(fields) => Ok(Location::Field(fields, last)),
        Value::Array(entries) => Ok(Location::Entry(entries, last)),
        _ => Err(DoesNotApply),
    }
}

/// An index that may count from the end, below `length`.
fn index(text: &str, length: usize) -> Result<usize, DoesNotApply> {
    let written: i64 = text.parse().map_err(|_| DoesNotApply)?;
    let counted = if written < 0 { written + length as i64 } else { written };
    usize::try_from(counted).ok().filter(|index| *index < length).ok_or(DoesNotApply)
}

impl<'a> Location<'a> {
    /// The value; a missing field is `None`, a missing element an error.
    fn get(self) -> Result<Option<&'a Value>, DoesNotApply> {
        match self {
            Location::Field(fields, key) => Ok(fields.get(&key)),
            Location::Entry(entries, key) => index(&key, entries.len()).map(|index| entries.get(index)),
        }
    }

    fn add(self, value: Value) -> Result<(), DoesNotApply> {
        match self {
            Location::Field(fields, key) => drop(fields.insert(key, value)),
            Location::Entry(entries, key) if key == "-" => entries.push(value),
            Location::Entry(entries, key) => entries.insert(index(&key, entries.len() + 1)?, value),
        }
        Ok(())
    }

    fn set(self, value: Value) -> Result<(), DoesNotApply> {
        match self {
            Location::Field(fields, key) => drop(fields.insert(key, value)),
            Location::Entry(entries, key) => {
                let index = index(&key, entries.len())?;
                entries[index] = value;
            }
        }
        Ok(())
    }

    fn remove(self) -> Result<Value, DoesNotApply> {
        match self {
            Location::Field(fields, key) => fields.remove(&key).ok_or(DoesNotApply),
            Location::Entry(entries, key) => Ok(entries.remove(index(&key, entries.len())?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(document: &Value, operation: &Value) -> Option<Value> {
        let mut document = document.clone();
        apply(&mut document, &json!([operation])).ok().map(|()| document)
    }

    #[test]
    fn operations_are_as_lenient_as_kube_apiserver() {
        let document = json!({"a": {"b": 1}, "l": [1, 2]});
        let op = |op: &str, path: &str, value: Value| json!({"op": op, "path": path, "value": value});
        let path = |op: &str, path: &str| json!({"op": op, "path": path});
        for (operation, expected) in [
            (op("add", "/a/c", json!(2)), Some(json!({"a": {"b": 1, "c": 2}, "l": [1, 2]}))),
            (op("add", "/l/-", json!(3)), Some(json!({"a": {"b": 1}, "l": [1, 2, 3]}))),
            (op("add", "/l/-1", json!(3)), Some(json!({"a": {"b": 1}, "l": [1, 2, 3]}))),
            (op("add", "/l/0", json!(3)), Some(json!({"a": {"b": 1}, "l": [3, 1, 2]}))),
            (op("add", "/l/3", json!(3)), None),
            (op("add", "/x/y", json!(3)), None),
            (op("add", "a/x", json!(3)), Some(json!({"a": {"b": 1}, "l": [1, 2], "x": 3}))),
            (op("add", "", json!({})), None),
            (op("replace", "", json!({})), Some(json!({}))),
            (op("replace", "/a/x", json!(3)), Some(json!({"a": {"b": 1, "x": 3}, "l": [1, 2]}))),
            (op("replace", "/l/5", json!(3)), None),
            (op("test", "/a/b", json!(1)), Some(document.clone())),
            (op("test", "/a/b", json!(2)), None),
            (op("test", "/a/x", Value::Null), Some(document.clone())),
            (path("remove", "/a"), Some(json!({"l": [1, 2]}))),
            (path("remove", "/l/-1"), Some(json!({"a": {"b": 1}, "l": [1]}))),
            (path("remove", "/x"), None),
            (path("foo", "/x"), None),
            (json!({"op": "move", "from": "/a/b", "path": "/c"}), Some(json!({"a": {}, "c": 1, "l": [1, 2]}))),
            (
                json!({"op": "copy", "from": "/l", "path": "/a/l"}),
                Some(json!({"a": {"b": 1, "l": [1, 2]}, "l": [1, 2]})),
            ),
            (json!({"op": "copy", "path": "/a/l"}), None),
            (Value::Null, None),
        ] {
            assert_eq!(patched(&document, &operation), expected, "{operation}");
        }
    }

    #[test]
    fn decode_errors_are_those_of_go() {
        assert_eq!(decode_error(&json!([{"op": "add"}, null])), None);
        let why = decode_error(&json!({})).unwrap();
        assert_eq!(why, "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
        assert_eq!(unknown_fields(&json!([{"op": "add", "x": 1}])), ["[0].x"]);
    }
}
