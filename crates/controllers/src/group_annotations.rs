//! The annotations of group objects that follow their owner: written with the object, and kept current.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Adds the change of an annotation to a merge patch, if the object needs another value or none.
pub(crate) fn correct(patch: &mut Value, current: Option<&BTreeMap<String, String>>, key: &str, needed: Option<&str>) {
    if current.and_then(|all| all.get(key)).map(String::as_str) != needed {
        patch["metadata"]["annotations"][key] = json!(needed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "muster.dev/disruption-mode";

    #[test]
    fn outdated_annotation_is_replaced_or_removed() {
        let has = |mode: &str| BTreeMap::from([(KEY.to_owned(), mode.to_owned())]);
        let of = |current: Option<&BTreeMap<String, String>>, needed: Option<&str>| {
            let mut patch = json!({});
            correct(&mut patch, current, KEY, needed);
            patch.pointer("/metadata/annotations").cloned()
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(&has("Pod")), Some("Pod")), None);
        assert_eq!(of(Some(&has("Pod")), None), Some(json!({KEY: null})));
        assert_eq!(of(None, Some("Pod")), Some(json!({KEY: "Pod"})));
    }
}
