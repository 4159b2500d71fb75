//! How what was planned for a stateful set is done, and said in events.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use muster_playground_client::mirror::Key;
use muster_playground_client::refusal::{is_conflict, is_not_found};
use serde_json::json;

use super::plan::Deed;
use super::{Keeper, Templates, claims, pods};
use crate::owners::told;
use crate::pod_card::PodCard;
use crate::recorder::Tone;

impl Keeper {
    /// Does one thing after the other, up to the first that fails.
    pub(super) async fn act(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        templates: &Templates,
        deeds: Vec<Deed>,
    ) -> Result<(), kube::Error> {
        for deed in deeds {
            match deed {
                Deed::Make { number, is_updated } => self.make(key, set, templates, number, is_updated).await?,
                Deed::MakeClaims { number } => self.make_claims(key, set, number).await?,
                Deed::Mend(pod) => self.mend(key, set, &pod).await?,
                Deed::Rehome(claim) => self.rehome(key, &claim).await?,
                Deed::Delete(pod) => self.delete(key, set, &pod).await?,
            }
        }
        Ok(())
    }

    async fn make(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        templates: &Templates,
        number: i32,
        is_updated: bool,
    ) -> Result<(), kube::Error> {
        self.make_claims(key, set, number).await?;
        let revision = if is_updated { &templates.update } else { &templates.current };
        let name = format!("{}-{number}", key.1);
        let pod = match pods::pod_for(set, revision, number) {
            Ok(pod) => pod,
            Err(why) => {
                // As a webhook that refuses it: nothing is made until the set is another.
                self.say_failed(set, "create", &name, &why).await;
                return Ok(());
            }
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        match api.create(&PostParams::default(), &pod).await {
            Ok(made) => {
                self.unseen.pods.wrote(key, &made);
                self.say_done(set, "create", &name).await;
                Ok(())
            }
            // An earlier one is not gone yet, or the view is late: either way it is tried again.
            Err(error) if is_conflict(&error) => Err(error),
            Err(error) => {
                self.say_failed(set, "create", &name, &told(&error)).await;
                Err(error)
            }
        }
    }

    async fn make_claims(&mut self, key: &Key, set: &StatefulSet, number: i32) -> Result<(), kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.0);
        let pod = format!("{}-{number}", key.1);
        for claim in claims::wanted(set, number) {
            let name = claim.name_any();
            if self.claims.get(&(key.0.clone(), name.clone())).is_some() {
                continue;
            }
            match api.create(&PostParams::default(), &claim).await {
                Ok(made) => {
                    self.unseen.claims.wrote(key, &made);
                    let message = format!("Create Claim {name} Pod {pod} in StatefulSet {} success", key.1);
                    self.say(set, Tone::Normal, "SuccessfulCreate", message).await;
                }
                Err(error) if is_conflict(&error) => {}
                Err(error) => {
                    let message = format!(
                        "Create Claim {name} for Pod {pod} in StatefulSet {} failed error: {}",
                        key.1,
                        told(&error)
                    );
                    self.say(set, Tone::Warning, "FailedCreate", message).await;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gives a pod its labels again. Its volumes cannot be changed: the server says so, and that is told.
    async fn mend(&mut self, key: &Key, set: &StatefulSet, pod: &Arc<PodCard>) -> Result<(), kube::Error> {
        let name = pod.name_any();
        let Some((_, number)) = pods::split_name(&name) else { return Ok(()) };
        let labels: serde_json::Map<String, serde_json::Value> =
            pods::identity(&name, number).into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
        let mut patch = json!({"metadata": {"uid": pod.uid(), "labels": labels}});
        if !claims::are_used(set, pod, number) {
            self.make_claims(key, set, number).await?;
            let volumes = claims::names(set, number)
                .map(|(volume, claim)| json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
            patch["spec"] = json!({"volumes": volumes.collect::<Vec<_>>()});
        }
        let api: Api<PodCard> = Api::namespaced(self.client.clone(), &key.0);
        match api.patch(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(mended) => {
                self.unseen.pods.wrote(key, &mended);
                self.say_done(set, "update", &name).await;
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => {
                self.say_failed(set, "update", &name, &told(&error)).await;
                Err(error)
            }
        }
    }

    async fn rehome(&mut self, key: &Key, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.0);
        match api.replace(&claim.name_any(), &PostParams::default(), claim).await {
            Ok(claim) => self.unseen.claims.wrote(key, &claim),
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn delete(&mut self, key: &Key, set: &StatefulSet, pod: &Arc<PodCard>) -> Result<(), kube::Error> {
        let api: Api<PodCard> = Api::namespaced(self.client.clone(), &key.0);
        let only = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        match api.delete(&pod.name_any(), &parameters).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => {
                self.say_failed(set, "delete", &pod.name_any(), &told(&error)).await;
                return Err(error);
            }
            _ => {
                self.unseen.pods.deleted(key, &**pod);
                self.say_done(set, "delete", &pod.name_any()).await;
            }
        }
        Ok(())
    }

    async fn say_done(&mut self, set: &StatefulSet, verb: &str, pod: &str) {
        let verb = capital(verb);
        let message = format!("{verb} Pod {pod} in StatefulSet {} successful", set.name_any());
        self.say(set, Tone::Normal, &format!("Successful{verb}"), message).await;
    }

    async fn say_failed(&mut self, set: &StatefulSet, verb: &str, pod: &str, why: &str) {
        let verb = capital(verb);
        let message = format!("{verb} Pod {pod} in StatefulSet {} failed error: {why}", set.name_any());
        self.say(set, Tone::Warning, &format!("Failed{verb}"), message).await;
    }
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
