//! Inserts values of earlier responses into later requests of a recording: `${step.path}`, and `{"$from": step, "$set":
//! …}`.

use std::collections::BTreeMap;

use serde_json::Value;

type Answers = BTreeMap<String, Value>;

/// `a.b[0].c`; a key with dots in it is written `a['x.y/z']`.
pub(crate) fn lookup<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = value;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let (key, after) = quoted.split_once("']")?;
            (value, rest) = (value.get(key)?, after);
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']')?;
            (value, rest) = (value.get(index.parse::<usize>().ok()?)?, after);
        } else if let Some(after) = rest.strip_prefix('.') {
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            (value, rest) = (value.get(&rest[..end])?, &rest[end..]);
        }
    }
    Some(value)
}

/// Resolves all references of a request.
pub(crate) fn fill(value: &Value, answers: &Answers) -> Value {
    match value {
        Value::String(text) => fill_text(text, answers),
        Value::Array(entries) => entries.iter().map(|entry| fill(entry, answers)).collect(),
        Value::Object(fields) => match fields.get("$from").and_then(Value::as_str) {
            Some(step) => edit(answers[step].clone(), value, answers),
            None => fields.iter().map(|(key, value)| (key.clone(), fill(value, answers))).collect(),
        },
        other => other.clone(),
    }
}

fn fill_text(text: &str, answers: &Answers) -> Value {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let inside = &rest[start + 2..start + length];
        let (step, path) = inside.split_once('.').unwrap_or((inside, ""));
        let found = lookup(&answers[step], path).cloned().unwrap_or_default();
        if start == 0 && start + length + 1 == text.len() && out.is_empty() {
            return found;
        }
        out.push_str(&rest[..start]);
        out.push_str(&found.as_str().map_or_else(|| found.to_string(), str::to_owned));
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    out.into()
}

fn edit(mut base: Value, spec: &Value, answers: &Answers) -> Value {
    for (pointer, value) in spec["$set"].as_object().into_iter().flatten() {
        let value = fill(value, answers);
        let mut at = &mut base;
        let steps: Vec<String> =
            pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        for step in &steps[..steps.len() - 1] {
            at = match at {
                Value::Array(entries) => &mut entries[step.parse::<usize>().unwrap()],
                other => &mut other[step],
            };
        }
        let last = &steps[steps.len() - 1];
        match at {
            Value::Array(entries) if last == "-" => entries.push(value),
            Value::Array(entries) => entries[last.parse::<usize>().unwrap()] = value,
            other => other[last] = value,
        }
    }
    for pointer in spec["$remove"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        match base.pointer_mut(parent) {
            Some(Value::Object(fields)) => drop(fields.remove(&last.replace("~1", "/").replace("~0", "~"))),
            Some(Value::Array(entries)) => drop(entries.remove(last.parse().unwrap())),
            _ => {}
        }
    }
    base
}
