//! Carries out the planned actions of a StatefulSet and records events about them.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_reflector::Key;
use serde_json::json;

use super::plan::Action;
use super::{SetRevisions, StatefulSetController, claims, pods};
use crate::owners::error_message;
use crate::pod_record::PodRecord;
use crate::recorder::EventType;

impl StatefulSetController {
    /// Executes the actions in order, up to the first failure.
    pub(super) async fn execute(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        set_revisions: &SetRevisions,
        actions: Vec<Action>,
    ) -> Result<(), kube::Error> {
        for action in actions {
            match action {
                Action::Create { ordinal, is_updated } => {
                    self.create_pod(key, set, set_revisions, ordinal, is_updated).await?;
                }
                Action::CreateClaims { ordinal } => self.create_claims(key, set, ordinal).await?,
                Action::UpdateIdentity(pod) => self.update_identity(key, set, &pod).await?,
                Action::UpdateClaimOwners(claim) => self.update_claim_owners(key, &claim).await?,
                Action::Delete(pod) => self.delete_pod(key, set, &pod).await?,
            }
        }
        Ok(())
    }

    async fn create_pod(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        set_revisions: &SetRevisions,
        ordinal: i32,
        is_updated: bool,
    ) -> Result<(), kube::Error> {
        self.create_claims(key, set, ordinal).await?;
        let revision = if is_updated { &set_revisions.update } else { &set_revisions.current };
        let name = format!("{}-{ordinal}", key.1);
        let pod = match pods::pod_for(set, revision, ordinal) {
            Ok(pod) => pod,
            Err(why) => {
                // As if a webhook rejected it: no pod is created until the set changes.
                self.record_failure(set, "create", &name, &why).await;
                return Ok(());
            }
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        match api.create(&PostParams::default(), &pod).await {
            Ok(created) => {
                self.expectations.pods.expect_write(key, &created);
                self.record_success(set, "create", &name).await;
                Ok(())
            }
            // An earlier pod still exists or the cache is stale: either way it is retried.
            Err(error) if is_conflict(&error) => Err(error),
            Err(error) => {
                self.record_failure(set, "create", &name, &error_message(&error)).await;
                Err(error)
            }
        }
    }

    async fn create_claims(&mut self, key: &Key, set: &StatefulSet, ordinal: i32) -> Result<(), kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.0);
        let pod = format!("{}-{ordinal}", key.1);
        for claim in claims::desired(set, ordinal) {
            let name = claim.name_any();
            if self.claims.find(&key.0, &name).is_some() {
                continue;
            }
            match api.create(&PostParams::default(), &claim).await {
                Ok(created) => {
                    self.expectations.claims.expect_write(key, &created);
                    let message = format!("Create Claim {name} Pod {pod} in StatefulSet {} success", key.1);
                    self.record_event(set, EventType::Normal, "SuccessfulCreate", message).await;
                }
                Err(error) if is_conflict(&error) => {}
                Err(error) => {
                    let message = format!(
                        "Create Claim {name} for Pod {pod} in StatefulSet {} failed error: {}",
                        key.1,
                        error_message(&error)
                    );
                    self.record_event(set, EventType::Warning, "FailedCreate", message).await;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Restores the identity labels of a pod. Its volumes cannot be changed: the server rejects that, and an event
    /// reports it.
    async fn update_identity(&mut self, key: &Key, set: &StatefulSet, pod: &Arc<PodRecord>) -> Result<(), kube::Error> {
        let name = pod.name_any();
        let Some((_, ordinal)) = pods::split_name(&name) else { return Ok(()) };
        let labels: serde_json::Map<String, serde_json::Value> =
            pods::identity(&name, ordinal).into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
        let mut patch = json!({"metadata": {"uid": pod.uid(), "labels": labels}});
        if !claims::are_mounted(set, pod, ordinal) {
            self.create_claims(key, set, ordinal).await?;
            let volumes = claims::names(set, ordinal)
                .map(|(volume, claim)| json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
            patch["spec"] = json!({"volumes": volumes.collect::<Vec<_>>()});
        }
        let api: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        match api.patch(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(updated) => {
                self.expectations.pods.expect_write(key, &updated);
                self.record_success(set, "update", &name).await;
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => {
                self.record_failure(set, "update", &name, &error_message(&error)).await;
                Err(error)
            }
        }
    }

    async fn update_claim_owners(&mut self, key: &Key, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.0);
        match api.replace(&claim.name_any(), &PostParams::default(), claim).await {
            Ok(claim) => self.expectations.claims.expect_write(key, &claim),
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn delete_pod(&mut self, key: &Key, set: &StatefulSet, pod: &Arc<PodRecord>) -> Result<(), kube::Error> {
        let api: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        let only = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        match api.delete(&pod.name_any(), &parameters).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => {
                self.record_failure(set, "delete", &pod.name_any(), &error_message(&error)).await;
                return Err(error);
            }
            _ => {
                self.expectations.pods.expect_deletion(key, &**pod);
                self.record_success(set, "delete", &pod.name_any()).await;
            }
        }
        Ok(())
    }

    async fn record_success(&mut self, set: &StatefulSet, verb: &str, pod: &str) {
        let verb = capitalize(verb);
        let message = format!("{verb} Pod {pod} in StatefulSet {} successful", set.name_any());
        self.record_event(set, EventType::Normal, &format!("Successful{verb}"), message).await;
    }

    async fn record_failure(&mut self, set: &StatefulSet, verb: &str, pod: &str, why: &str) {
        let verb = capitalize(verb);
        let message = format!("{verb} Pod {pod} in StatefulSet {} failed error: {why}", set.name_any());
        self.record_event(set, EventType::Warning, &format!("Failed{verb}"), message).await;
    }
}

fn capitalize(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
