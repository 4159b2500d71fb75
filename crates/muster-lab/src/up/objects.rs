//! Creation of objects of any kind.

use anyhow::Context as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::core::TypeMeta;
use serde_json::Value;

/// Creates an object; an existing one is not changed.
pub(super) async fn create(client: &kube::Client, object: &Value) -> anyhow::Result<()> {
    let (api, object, name) = typed(client, object)?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error).context(name),
    }
}

/// Creates an object or updates the existing one. Returns whether it is new.
pub(super) async fn install(client: &kube::Client, object: &Value) -> anyhow::Result<bool> {
    let (api, typed, name) = typed(client, object)?;
    match api.create(&PostParams::default(), &typed).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let own_name = typed.metadata.name.as_deref().unwrap_or_default();
            let change = Patch::Merge(object);
            let patched = api.patch(own_name, &PatchParams::default(), &change).await;
            patched.map(|_| false).context(name)
        }
        other => other.map(|_| true).context(name),
    }
}

fn typed(client: &kube::Client, object: &Value) -> anyhow::Result<(Api<DynamicObject>, DynamicObject, String)> {
    let object: DynamicObject = serde_json::from_value(object.clone()).context("an object without metadata")?;
    let TypeMeta { api_version, kind } = object.types.clone().context("an object without kind")?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let name = format!("{kind} {}", object.metadata.name.as_deref().unwrap_or_default());
    let api = match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, object, name))
}
