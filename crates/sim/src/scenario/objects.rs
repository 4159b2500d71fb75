//! Access to objects of any kind by apiVersion, kind, namespace and name.
//!
//! Every error names the object and the server's message. Must not depend on scenarios.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PatchParams, PostParams};
use kube::core::GroupVersion;
use kube::discovery::{self, Scope};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;

use super::model::ObjectName;
use super::step_error::StepError;

/// How long a creation waits for an object of the same name that is being deleted.
const GONE_WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Access to objects of any kind.
pub(super) struct Objects {
    client: Client,
    kinds: BTreeMap<(String, String), (ApiResource, Scope)>,
}

/// An object that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CreatedObject {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty for cluster-scoped kinds.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

pub(super) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

impl Objects {
    pub(super) fn new(client: Client) -> Self {
        Self { client, kinds: BTreeMap::new() }
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The API of a kind, namespaced if the kind is.
    pub(super) async fn api(
        &mut self,
        api_version: &str,
        kind: &str,
        namespace: &str,
    ) -> Result<(Api<DynamicObject>, Scope), StepError> {
        let key = (api_version.to_owned(), kind.to_owned());
        if !self.kinds.contains_key(&key) {
            let version: GroupVersion =
                api_version.parse().map_err(|_| StepError::ApiVersion(api_version.to_owned()))?;
            let full = GroupVersionKind::gvk(&version.group, &version.version, kind);
            let found = discovery::pinned_kind(&self.client, &full).await;
            let (resource, capabilities) = found.map_err(|error| StepError::UnknownKind {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                error,
            })?;
            self.kinds.insert(key.clone(), (resource, capabilities.scope));
        }
        let (resource, scope) = &self.kinds[&key];
        let api = match scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, resource),
            Scope::Cluster => Api::all_with(self.client.clone(), resource),
        };
        Ok((api, scope.clone()))
    }

    /// Creates an object. Waits first for one of the same name that is being deleted.
    pub(super) async fn create(&mut self, manifest: &Value) -> Result<CreatedObject, StepError> {
        let (api, scope, object, shown) = self.read(manifest).await?;
        let until = Instant::now() + GONE_WITHIN;
        loop {
            match api.create(&PostParams::default(), &object).await {
                Ok(created) => return Ok(created_object(manifest, &scope, &created)),
                Err(error) if is_conflict(&error) && Instant::now() < until && is_terminating(&api, &object).await => {
                    tokio::time::sleep(POLL_EVERY).await;
                }
                Err(error) => return Err(StepError::request(format!("create {shown}"), error)),
            }
        }
    }

    /// Creates an object, or changes the existing one by a merge patch. Returns the object if it was created.
    pub(super) async fn apply(&mut self, manifest: &Value) -> Result<Option<CreatedObject>, StepError> {
        let (api, _, object, shown) = self.read(manifest).await?;
        let Some(name) = object.metadata.name.clone() else { return self.create(manifest).await.map(Some) };
        match api.get_opt(&name).await {
            Ok(Some(there)) if there.metadata.deletion_timestamp.is_none() => {
                let patch = kube::api::Patch::Merge(manifest);
                let changed = api.patch(&name, &PatchParams::default(), &patch).await;
                changed.map(|_| None).map_err(|error| StepError::request(format!("patch {shown}"), error))
            }
            Ok(_) => self.create(manifest).await.map(Some),
            Err(error) => Err(StepError::request(format!("get {shown}"), error)),
        }
    }

    async fn read(
        &mut self,
        manifest: &Value,
    ) -> Result<(Api<DynamicObject>, Scope, DynamicObject, String), StepError> {
        let object: DynamicObject = serde_json::from_value(manifest.clone()).map_err(StepError::Manifest)?;
        let (api_version, kind) =
            object.types.as_ref().map(|types| (types.api_version.clone(), types.kind.clone())).unwrap_or_default();
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let (api, scope) = self.api(&api_version, &kind, &namespace).await?;
        let shown = match scope {
            Scope::Namespaced => format!("{kind} {namespace}/{}", object.name_any()),
            Scope::Cluster => format!("{kind} {}", object.name_any()),
        };
        Ok((api, scope, object, shown))
    }

    /// All objects that match a name.
    pub(super) async fn find(&mut self, name: &ObjectName) -> Result<Vec<DynamicObject>, StepError> {
        let (api, _) = self.api(&name.api_version, &name.kind, &name.namespace).await?;
        let found = if name.name.is_plain() {
            api.get_opt(name.name.text()).await.map(|object| object.into_iter().collect())
        } else {
            let listed = api.list(&ListParams::default()).await;
            listed.map(|list| list.items.into_iter().filter(|one| name.name.matches(&one.name_any())).collect())
        };
        found.map_err(|error| StepError::request(format!("read {} {}", name.kind, name.name.text()), error))
    }

    /// Deletes an object; it is no error if it does not exist.
    pub(super) async fn delete(&mut self, created: &CreatedObject, at_once: bool) -> Result<(), StepError> {
        let (api, _) = self.api(&created.api_version, &created.kind, &created.namespace).await?;
        // Like kubectl: without it, the API server leaves the pods of a deleted Job.
        let parameters = DeleteParams::background();
        let parameters = if at_once { parameters.grace_period(0) } else { parameters };
        match api.delete(&created.name, &parameters).await {
            Err(error) if !is_not_found(&error) => {
                Err(StepError::request(format!("delete {} {}", created.kind, created.name), error))
            }
            _ => Ok(()),
        }
    }
}

fn created_object(manifest: &Value, scope: &Scope, created: &DynamicObject) -> CreatedObject {
    let text = |field: &str| manifest[field].as_str().unwrap_or_default().to_owned();
    let namespace = if *scope == Scope::Namespaced { created.namespace().unwrap_or_default() } else { String::new() };
    CreatedObject {
        api_version: text("apiVersion"),
        kind: text("kind"),
        namespace,
        name: created.name_any(),
        uid: created.uid().unwrap_or_default(),
    }
}

async fn is_terminating(api: &Api<DynamicObject>, object: &DynamicObject) -> bool {
    match api.get_opt(&object.name_any()).await {
        Ok(Some(there)) => there.metadata.deletion_timestamp.is_some(),
        // It was deleted between the two requests.
        Ok(None) => true,
        Err(_) => false,
    }
}
