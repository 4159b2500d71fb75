//! The ReplicaSets of a Deployment: finding, creating and scaling them.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams, Preconditions};
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_reflector::Key;
use serde_json::Value;

use super::DeploymentController;
use super::annotations::{revision, set_new_set_annotations, set_replicas_annotations};
use super::numbers::{new_size, size};
use super::status::{NewSetSync, has_deadline};
use crate::digest;
use crate::owners::{controlled_by, error_message, is_controlled_by};
use crate::recorder::EventType;

const TEMPLATE_HASH: &str = "pod-template-hash";
const NAME_LENGTH_MAX: usize = 253;

/// The new set, if it exists, and the old ones, the oldest first.
pub(super) struct Sets {
    pub(super) new: Option<ReplicaSet>,
    pub(super) old: Vec<ReplicaSet>,
}

impl Sets {
    /// Finds the new set: the oldest one with the Deployment's template.
    pub(super) fn of(deployment: &Deployment, mut sets: Vec<ReplicaSet>) -> Self {
        let desired = template_without_hash(&deployment.spec.template);
        let is_new =
            |set: &ReplicaSet| set.spec.template.as_ref().map(template_without_hash).as_ref() == Some(&desired);
        let new = sets.iter().position(is_new).map(|at| sets.remove(at));
        Self { new, old: sets }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.old.iter().chain(&self.new)
    }

    /// The old sets with a desired size above zero.
    pub(super) fn active_old(&self) -> Vec<ReplicaSet> {
        self.old.iter().filter(|set| size(set) > 0).cloned().collect()
    }

    /// Replaces a set with its updated state.
    pub(super) fn put(&mut self, changed: ReplicaSet) {
        let place = self.old.iter_mut().chain(&mut self.new).find(|set| set.uid() == changed.uid());
        if let Some(place) = place {
            *place = changed;
        }
    }
}

/// A template without the hash label that ReplicaSets add.
fn template_without_hash(template: &PodTemplateSpec) -> Value {
    let mut value = serde_json::to_value(template).unwrap_or_default();
    if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    value
}

impl DeploymentController {
    /// Brings the annotations and `minReadySeconds` of the new set up to date.
    pub(super) async fn sync_new_set(
        &mut self,
        key: &Key,
        deployment: &mut Deployment,
        sets: &mut Sets,
    ) -> Result<NewSetSync, kube::Error> {
        let newest_old = sets.old.iter().map(revision).max().unwrap_or_default();
        let Some(new) = &sets.new else { return Ok(NewSetSync::None) };
        let mut changed = new.clone();
        let mut is_changed = set_new_set_annotations(&mut changed, deployment, newest_old);
        let seconds = |value: Option<i32>| value.unwrap_or_default();
        if seconds(new.spec.min_ready_seconds) != seconds(deployment.spec.min_ready_seconds) {
            changed.spec.min_ready_seconds = deployment.spec.min_ready_seconds;
            is_changed = true;
        }
        if is_changed {
            let changed = self.replace(key, &changed).await?;
            sets.put(changed);
            return Ok(NewSetSync::None);
        }
        let number = revision(new).to_string();
        let is_revision_changed =
            super::annotations::set_annotation(deployment.annotations_mut(), super::annotations::REVISION, &number);
        let found = format!("Found new replica set \"{}\"", new.name_any());
        Ok(NewSetSync::UpToDate { is_revision_changed, found })
    }

    /// Creates the new set. Returns `None` on a name collision, which is then counted.
    pub(super) async fn create_new_set(
        &mut self,
        key: &Key,
        deployment: &mut Deployment,
        sets: &Sets,
    ) -> Result<Option<ReplicaSet>, kube::Error> {
        let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
        let mut set = new_set(deployment, collisions);
        set.spec.replicas = Some(new_size(deployment, sets.all().chain([&set]), &set));
        let newest_old = sets.old.iter().map(revision).max().unwrap_or_default();
        set_new_set_annotations(&mut set, deployment, newest_old);
        set_replicas_annotations(&mut set, deployment);
        let created = match self.sets_api(key).create(&PostParams::default(), &set).await {
            Ok(created) => {
                self.expectations.expect_write(key, &created);
                let (name, count) = (created.name_any(), size(&created));
                if count > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {count}");
                    self.record_event(deployment, EventType::Normal, "ScalingReplicaSet", message).await;
                }
                let message = format!("Created new replica set \"{name}\"");
                self.set_progress_condition(deployment, "True", "NewReplicaSetCreated", message);
                created
            }
            Err(error) if is_conflict(&error) => match self.resolve_name_conflict(key, deployment, &set).await? {
                Some(existing) => existing,
                None => return Ok(None),
            },
            Err(error) => {
                let message =
                    format!("Failed to create new replica set \"{}\": {}", set.name_any(), error_message(&error));
                if has_deadline(deployment) {
                    self.set_progress_condition(deployment, "False", "ReplicaSetCreateError", message.clone());
                    // The error of the creation is the one to return.
                    let _ = self.write_status(key, deployment).await;
                }
                self.record_event(deployment, EventType::Warning, "ReplicaSetCreateError", message).await;
                return Err(error);
            }
        };
        let number = revision(&created).to_string();
        super::annotations::set_annotation(deployment.annotations_mut(), super::annotations::REVISION, &number);
        Ok(Some(created))
    }

    /// Resolves a name conflict: the existing set is the new one, or its hash collides, which is counted so that the
    /// next name differs.
    async fn resolve_name_conflict(
        &mut self,
        key: &Key,
        deployment: &mut Deployment,
        set: &ReplicaSet,
    ) -> Result<Option<ReplicaSet>, kube::Error> {
        let existing = self.sets_api(key).get(&set.name_any()).await?;
        let same = existing.spec.template.as_ref().map(template_without_hash)
            == set.spec.template.as_ref().map(template_without_hash);
        if same && is_controlled_by(&existing, deployment) {
            self.expectations.expect_write(key, &existing);
            return Ok(Some(existing));
        }
        let status = deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
        self.write_status(key, deployment).await?;
        Ok(None)
    }

    /// Writes an updated set.
    pub(super) async fn replace(&mut self, key: &Key, set: &ReplicaSet) -> Result<ReplicaSet, kube::Error> {
        let written = self.sets_api(key).replace(&set.name_any(), &PostParams::default(), set).await?;
        self.expectations.expect_write(key, &written);
        Ok(written)
    }

    /// Scales a set. Returns whether its size changed.
    pub(super) async fn scale_set(
        &mut self,
        key: &Key,
        deployment: &Deployment,
        sets: &mut Sets,
        set: &ReplicaSet,
        desired: i32,
    ) -> Result<bool, kube::Error> {
        let mut changed = set.clone();
        changed.spec.replicas = Some(desired);
        let is_annotated = set_replicas_annotations(&mut changed, deployment);
        let was = size(set);
        if was == desired && !is_annotated {
            return Ok(false);
        }
        let changed = self.replace(key, &changed).await?;
        let name = changed.name_any();
        sets.put(changed);
        if was != desired {
            let direction = if was < desired { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {name} from {was} to {desired}");
            self.record_event(deployment, EventType::Normal, "ScalingReplicaSet", message).await;
        }
        Ok(was != desired)
    }

    /// Deletes the oldest old sets beyond `revisionHistoryLimit`.
    pub(super) async fn clean_up_history(
        &mut self,
        key: &Key,
        deployment: &Deployment,
        sets: &Sets,
    ) -> Result<(), kube::Error> {
        let Some(limit) = deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else {
            return Ok(());
        };
        let mut old: Vec<&ReplicaSet> =
            sets.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
        let surplus = old.len().saturating_sub(limit.max(0) as usize);
        old.sort_by_key(|set| (revision(set), set.metadata.creation_timestamp.clone(), set.name_any()));
        for set in old.into_iter().take(surplus) {
            let status = set.status.clone().unwrap_or_default();
            let is_observed =
                status.observed_generation.unwrap_or_default() >= set.metadata.generation.unwrap_or_default();
            if status.replicas != 0 || size(set) != 0 || !is_observed {
                continue;
            }
            let only = Preconditions { uid: set.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::background() };
            match self.sets_api(key).delete(&set.name_any(), &parameters).await {
                Err(error) if !is_not_found(&error) && !is_conflict(&error) => return Err(error),
                _ => self.expectations.expect_deletion(key, set),
            }
        }
        Ok(())
    }
}

/// Builds a set for the Deployment's template, with zero replicas.
fn new_set(deployment: &Deployment, collisions: Option<i32>) -> ReplicaSet {
    let mut template = deployment.spec.template.clone();
    let value = serde_json::to_value(&template).unwrap_or_default();
    let hash = digest::short_name(&value, collisions);
    let metadata = template.metadata.get_or_insert_default();
    metadata.labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.clone());
    let labels = metadata.labels.clone();
    let mut selector = deployment.spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.clone());
    let mut name = deployment.name_any();
    name.truncate(NAME_LENGTH_MAX - 1 - hash.len());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: deployment.namespace(),
            labels,
            owner_references: Some(vec![controlled_by(deployment)]),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: deployment.spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: None,
    }
}
