//! Writes the status of pods and groups, and events.

use std::future::Future;

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use muster_api::wire::Pod;
use muster_engine::model::pod::PodName;
use serde_json::Value;

use super::RequestContext;
use super::outcome::WriteOutcome;
use crate::dialect::StatusPatch;
use crate::intake::group_index::ObjectKey;
use crate::intake::raw::RawObject;

impl RequestContext {
    pub(super) async fn pod_status(&self, pod: &PodName, patch: &Value) -> WriteOutcome {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
        self.write(("patch", "pods/status"), pods.patch_status(&pod.name, &parameters, &patch), |_| None).await
    }

    pub(super) async fn group_status(
        &self,
        object: &ObjectKey,
        resource: &ApiResource,
        patch: StatusPatch,
    ) -> WriteOutcome {
        let api: Api<RawObject> = Api::namespaced_with(self.client.clone(), &object.namespace, resource);
        let parameters = PatchParams::default();
        let text = |object: RawObject| Some(object.text.get().to_owned());
        let patch = match patch {
            StatusPatch::Merge(body) => Patch::Merge(body),
            StatusPatch::Strategic(body) => Patch::Strategic(body),
            StatusPatch::OfObject(body) => {
                let patch = Patch::Merge(body);
                return self.write(("patch", "groups"), api.patch(&object.name, &parameters, &patch), text).await;
            }
        };
        self.write(("patch", "groups/status"), api.patch_status(&object.name, &parameters, &patch), text).await
    }

    pub(super) async fn event(&self, namespace: &str, name: &str, body: &Value, again: bool) -> WriteOutcome {
        let resource = ApiResource {
            group: "events.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "events.k8s.io/v1".to_owned(),
            kind: "Event".to_owned(),
            plural: "events".to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        if again {
            let (parameters, patch) = (PatchParams::default(), Patch::Merge(body));
            return self.write(("patch", "events"), api.patch(name, &parameters, &patch), |_| None).await;
        }
        let event: DynamicObject = match serde_json::from_value(body.clone()) {
            Ok(event) => event,
            Err(error) => return WriteOutcome::Refused(error.to_string()),
        };
        self.write(("create", "events"), api.create(&PostParams::default(), &event), |_| None).await
    }

    async fn write<T>(
        &self,
        what: (&'static str, &'static str),
        request: impl Future<Output = kube::Result<T>>,
        text: impl FnOnce(T) -> Option<String>,
    ) -> WriteOutcome {
        let Some(deadline) = self.deadline() else {
            return WriteOutcome::Later { message: "this process may not write any more".to_owned(), after: None };
        };
        match self.send(what, deadline, request).await {
            Ok(object) => WriteOutcome::Written(text(object)),
            Err(failure) => failure.into(),
        }
    }
}
