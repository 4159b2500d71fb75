//! The replica sets of a deployment: which is the new one, how one is made, and how one is made larger or smaller.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams, Preconditions};
use muster_playground_client::mirror::Key;
use muster_playground_client::refusal::{is_conflict, is_not_found};
use serde_json::Value;

use super::Keeper;
use super::annotations::{note_revision, note_sizes, revision};
use super::numbers::{new_size, size};
use super::status::{Progress, has_deadline};
use crate::digest;
use crate::owners::{controlled_by, is_controlled_by, told};
use crate::recorder::Tone;

const TEMPLATE_HASH: &str = "pod-template-hash";
const NAME_LENGTH_MAX: usize = 253;

/// The new set, if there is one, and the old ones, the oldest first.
pub(super) struct Sets {
    pub(super) new: Option<ReplicaSet>,
    pub(super) old: Vec<ReplicaSet>,
}

impl Sets {
    /// Tells the new set from the old ones: it is the oldest with the deployment's template.
    pub(super) fn of(deployment: &Deployment, mut sets: Vec<ReplicaSet>) -> Self {
        let wanted = plain(&deployment.spec.template);
        let is_new = |set: &ReplicaSet| set.spec.template.as_ref().map(plain).as_ref() == Some(&wanted);
        let new = sets.iter().position(is_new).map(|at| sets.remove(at));
        Self { new, old: sets }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.old.iter().chain(&self.new)
    }

    /// The old ones that should have pods.
    pub(super) fn active_old(&self) -> Vec<ReplicaSet> {
        self.old.iter().filter(|set| size(set) > 0).cloned().collect()
    }

    /// Takes in what became of a set.
    pub(super) fn put(&mut self, changed: ReplicaSet) {
        let place = self.old.iter_mut().chain(&mut self.new).find(|set| set.uid() == changed.uid());
        if let Some(place) = place {
            *place = changed;
        }
    }
}

/// A template without the label that replica sets add to it.
fn plain(template: &PodTemplateSpec) -> Value {
    let mut value = serde_json::to_value(template).unwrap_or_default();
    if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    value
}

impl Keeper {
    /// Brings the new set up to date with what it takes over from its deployment.
    pub(super) async fn sync_new(
        &mut self,
        key: &Key,
        deployment: &mut Deployment,
        sets: &mut Sets,
    ) -> Result<Progress, kube::Error> {
        let newest_old = sets.old.iter().map(revision).max().unwrap_or_default();
        let Some(new) = &sets.new else { return Ok(Progress::None) };
        let mut changed = new.clone();
        let mut is_news = note_revision(&mut changed, deployment, newest_old);
        let seconds = |value: Option<i32>| value.unwrap_or_default();
        if seconds(new.spec.min_ready_seconds) != seconds(deployment.spec.min_ready_seconds) {
            changed.spec.min_ready_seconds = deployment.spec.min_ready_seconds;
            is_news = true;
        }
        if is_news {
            let changed = self.replace(key, &changed).await?;
            sets.put(changed);
            return Ok(Progress::None);
        }
        let number = revision(new).to_string();
        let is_numbered = super::annotations::put(deployment.annotations_mut(), super::annotations::REVISION, &number);
        let found = format!("Found new replica set \"{}\"", new.name_any());
        Ok(Progress::Known { is_numbered, found })
    }

    /// Makes the new set. Answers `None` if another one has its name, which is then noted.
    pub(super) async fn make_new(
        &mut self,
        key: &Key,
        deployment: &mut Deployment,
        sets: &Sets,
    ) -> Result<Option<ReplicaSet>, kube::Error> {
        let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
        let mut set = new_set(deployment, collisions);
        set.spec.replicas = Some(new_size(deployment, sets.all().chain([&set]), &set));
        let newest_old = sets.old.iter().map(revision).max().unwrap_or_default();
        note_revision(&mut set, deployment, newest_old);
        note_sizes(&mut set, deployment);
        let made = match self.sets_api(key).create(&PostParams::default(), &set).await {
            Ok(made) => {
                self.unseen.wrote(key, &made);
                let (name, count) = (made.name_any(), size(&made));
                if count > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {count}");
                    self.say(deployment, Tone::Normal, "ScalingReplicaSet", message).await;
                }
                let said = format!("Created new replica set \"{name}\"");
                self.progress(deployment, "True", "NewReplicaSetCreated", said);
                made
            }
            Err(error) if is_conflict(&error) => match self.twin(key, deployment, &set).await? {
                Some(twin) => twin,
                None => return Ok(None),
            },
            Err(error) => {
                let message = format!("Failed to create new replica set \"{}\": {}", set.name_any(), told(&error));
                if has_deadline(deployment) {
                    self.progress(deployment, "False", "ReplicaSetCreateError", message.clone());
                    // The failure itself is the greater trouble.
                    let _ = self.write_status(key, deployment).await;
                }
                self.say(deployment, Tone::Warning, "ReplicaSetCreateError", message).await;
                return Err(error);
            }
        };
        let number = revision(&made).to_string();
        super::annotations::put(deployment.annotations_mut(), super::annotations::REVISION, &number);
        Ok(Some(made))
    }

    /// The set that has the name of the one to be made: it is that one already, or its hash is the same by chance, which
    /// is counted so that the next one has another.
    async fn twin(
        &mut self,
        key: &Key,
        deployment: &mut Deployment,
        set: &ReplicaSet,
    ) -> Result<Option<ReplicaSet>, kube::Error> {
        let twin = self.sets_api(key).get(&set.name_any()).await?;
        let same = twin.spec.template.as_ref().map(plain) == set.spec.template.as_ref().map(plain);
        if same && is_controlled_by(&twin, deployment) {
            self.unseen.wrote(key, &twin);
            return Ok(Some(twin));
        }
        let status = deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
        self.write_status(key, deployment).await?;
        Ok(None)
    }

    /// Writes a set as it should be.
    pub(super) async fn replace(&mut self, key: &Key, set: &ReplicaSet) -> Result<ReplicaSet, kube::Error> {
        let written = self.sets_api(key).replace(&set.name_any(), &PostParams::default(), set).await?;
        self.unseen.wrote(key, &written);
        Ok(written)
    }

    /// Makes a set larger or smaller. Answers whether it was another size before.
    pub(super) async fn resize(
        &mut self,
        key: &Key,
        deployment: &Deployment,
        sets: &mut Sets,
        set: &ReplicaSet,
        wanted: i32,
    ) -> Result<bool, kube::Error> {
        let mut changed = set.clone();
        changed.spec.replicas = Some(wanted);
        let is_noted = note_sizes(&mut changed, deployment);
        let was = size(set);
        if was == wanted && !is_noted {
            return Ok(false);
        }
        let changed = self.replace(key, &changed).await?;
        let name = changed.name_any();
        sets.put(changed);
        if was != wanted {
            let way = if was < wanted { "up" } else { "down" };
            let message = format!("Scaled {way} replica set {name} from {was} to {wanted}");
            self.say(deployment, Tone::Normal, "ScalingReplicaSet", message).await;
        }
        Ok(was != wanted)
    }

    /// Deletes the oldest of the old sets that are too many to remember.
    pub(super) async fn clean_up(
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
        let many = old.len().saturating_sub(limit.max(0) as usize);
        old.sort_by_key(|set| (revision(set), set.metadata.creation_timestamp.clone(), set.name_any()));
        for set in old.into_iter().take(many) {
            let status = set.status.clone().unwrap_or_default();
            let is_told = status.observed_generation.unwrap_or_default() >= set.metadata.generation.unwrap_or_default();
            if status.replicas != 0 || size(set) != 0 || !is_told {
                continue;
            }
            let only = Preconditions { uid: set.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::background() };
            match self.sets_api(key).delete(&set.name_any(), &parameters).await {
                Err(error) if !is_not_found(&error) && !is_conflict(&error) => return Err(error),
                _ => self.unseen.deleted(key, set),
            }
        }
        Ok(())
    }
}

/// A set for the deployment's template, without pods.
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
