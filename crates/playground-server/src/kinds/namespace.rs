//! Namespaces: active until deleted, then terminating until empty.

use serde_json::{Value, json};

pub(super) fn set_defaults(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    if !name.is_null() {
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
}

/// A new namespace is active, no matter what the client sent.
pub(super) fn prepare_for_create(namespace: &mut Value) {
    namespace["status"] = json!({"phase": "Active"});
    namespace["spec"]["finalizers"] = json!(["kubernetes"]);
}

pub(super) fn prepare_for_update(namespace: &mut Value, old: &Value) {
    namespace["status"] = old["status"].clone();
    namespace["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
}

pub(super) fn prepare_for_status_update(namespace: &mut Value, old: &Value) {
    namespace["spec"] = old["spec"].clone();
}
