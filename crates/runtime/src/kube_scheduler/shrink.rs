//! Shrinks a failing case: removes everything without which it still fails.
//!
//! Must not depend on what a case means; an invalid case does not fail.

use serde_json::Value;

/// A failing case from which nothing can be removed.
pub(super) fn shrink(mut case: Value, mut fails: impl FnMut(&Value) -> bool) -> Value {
    loop {
        let before = case.clone();
        let mut next = 0;
        while let Some(path) = paths(&case, "").get(next) {
            let mut smaller = case.clone();
            remove(&mut smaller, path);
            if fails(&smaller) {
                case = smaller;
            } else {
                next += 1;
            }
        }
        if case == before {
            return case;
        }
    }
}

/// Pointers to all inner values, outer ones first.
fn paths(value: &Value, prefix: &str) -> Vec<String> {
    let keys: Vec<String> = match value {
        Value::Array(items) => (0..items.len()).map(|index| index.to_string()).collect(),
        Value::Object(fields) => fields.keys().map(|key| key.replace('~', "~0").replace('/', "~1")).collect(),
        _ => Vec::new(),
    };
    let here = keys.iter().map(|key| format!("{prefix}/{key}"));
    let below = keys.iter().flat_map(|key| {
        let path = format!("/{key}");
        value.pointer(&path).map(|inner| paths(inner, &format!("{prefix}{path}"))).unwrap_or_default()
    });
    here.chain(below).collect()
}

fn remove(value: &mut Value, path: &str) {
    let Some((parent, key)) = path.rsplit_once('/') else { return };
    match value.pointer_mut(parent) {
        Some(Value::Array(items)) => {
            let index: usize = key.parse().expect("a pointer into a list");
            items.remove(index);
        }
        Some(Value::Object(fields)) => {
            fields.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        _ => {}
    }
}

#[test]
fn irrelevant_values_are_removed() {
    let case = serde_json::json!({"nodes": [{"a/b": 1}, {"a/b": 2, "c": [3, 4]}], "pod": {"x": {"y": 0}}});
    let small = shrink(case, |case| case.to_string().contains('4'));
    assert_eq!(small, serde_json::json!({"nodes": [{"c": [4]}]}));
}
