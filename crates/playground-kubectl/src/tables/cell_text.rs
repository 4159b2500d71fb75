//! Parts of objects that many cells show: names, containers, labels, selectors, conditions.

use serde_json::{Value, json};

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";

pub(super) fn name(object: &Value) -> Value {
    json!(text(&object["metadata"]["name"]))
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A string, or a default if it is absent.
pub(super) fn text_or<'a>(value: &'a Value, absent: &'a str) -> &'a str {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or(absent)
}

pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The number of entries of a list or map.
pub(super) fn count(value: &Value) -> usize {
    value.as_array().map(Vec::len).or_else(|| value.as_object().map(serde_json::Map::len)).unwrap_or_default()
}

/// A number or a string, as text.
pub(super) fn to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The strings of a list, in one line.
pub(super) fn joined(values: &Value) -> String {
    list(values).iter().map(text).collect::<Vec<_>>().join(",")
}

/// Names and images of a pod template's containers.
pub(super) fn containers(template: &Value) -> [Value; 2] {
    let all = list(&template["spec"]["containers"]);
    ["name", "image"].map(|field| json!(all.iter().map(|one| text(&one[field])).collect::<Vec<_>>().join(",")))
}

/// Labels in one line.
pub(super) fn labels(labels: &Value) -> String {
    let all: Vec<String> =
        labels.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value))).collect();
    if all.is_empty() { NONE.to_owned() } else { all.join(",") }
}

/// A label selector in one line, its requirements sorted by key; empty if it has none.
pub(super) fn selector_text(selector: &Value) -> String {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut all: Vec<(&str, String)> =
        equal.map(|(key, value)| (key.as_str(), format!("{key}={}", text(value)))).collect();
    for expression in list(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values: Vec<&str> = list(&expression["values"]).iter().map(text).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        all.push((key, shown));
    }
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(",")
}

/// The same, with `<none>` for an empty selector.
pub(super) fn selector(selector: &Value) -> String {
    if selector.is_null() {
        return NONE.to_owned();
    }
    let shown = selector_text(selector);
    if shown.is_empty() { NONE.to_owned() } else { shown }
}

/// The first condition of a type.
pub(super) fn condition<'a>(object: &'a Value, of_type: &str) -> Option<&'a Value> {
    list(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == of_type)
}

/// Whether a condition is true.
pub(super) fn holds(object: &Value, of_type: &str) -> bool {
    condition(object, of_type).is_some_and(|condition| condition["status"] == "True")
}

/// At most three entries, and the number of the others.
pub(super) fn first_few(all: &[String], absent: &str) -> String {
    const SHOWN_MAX: usize = 3;
    match all.len() {
        0 => absent.to_owned(),
        count if count > SHOWN_MAX => format!("{} + {} more...", all[..SHOWN_MAX].join(","), count - SHOWN_MAX),
        _ => all.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_one_line() {
        let written = json!({
            "matchLabels": {"z": "1", "b": "2"},
            "matchExpressions": [
                {"key": "m", "operator": "NotIn", "values": ["y", "x"]},
                {"key": "a", "operator": "Exists"},
                {"key": "c", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(selector(&written), "a,b=2,!c,m notin (x,y),z=1");
        assert_eq!(selector(&json!({})), "<none>");
        assert_eq!(selector(&Value::Null), "<none>");
    }

    #[test]
    fn long_lists_are_cut() {
        let all: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        assert_eq!(first_few(&all, NONE), "a,b,c + 2 more...");
        assert_eq!(first_few(&all[..3], NONE), "a,b,c");
        assert_eq!(first_few(&[], NONE), "<none>");
    }
}
