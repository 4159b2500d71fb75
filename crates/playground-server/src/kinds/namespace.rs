//! Namespaces: active until they are deleted, then terminating until they are empty.

use serde_json::{Value, json};

pub(super) fn complete(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    if !name.is_null() {
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
}

/// A new namespace is active, whatever the client wrote.
pub(super) fn on_create(namespace: &mut Value) {
    namespace["status"] = json!({"phase": "Active"});
    namespace["spec"]["finalizers"] = json!(["kubernetes"]);
}

pub(super) fn on_update(namespace: &mut Value, old: &Value) {
    namespace["status"] = old["status"].clone();
    namespace["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
}

pub(super) fn on_status(namespace: &mut Value, old: &Value) {
    namespace["spec"] = old["spec"].clone();
}
