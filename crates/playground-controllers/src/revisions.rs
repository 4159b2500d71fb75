//! ControllerRevisions: the history of a set's template, so that pods of an older one can be recreated.
//!
//! Invariant: equal data is one revision; the newest has the highest number.
//! Must not depend on what the data means.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use muster_playground_client::api_errors::is_conflict;
use serde_json::Value;

use super::digest;
use super::owners::controlled_by;

const HASH: &str = "controller.kubernetes.io/hash";
const PREFIX_LENGTH_MAX: usize = 223;

/// The revisions with the newest last.
pub(crate) fn sorted(mut revisions: Vec<ControllerRevision>) -> Vec<ControllerRevision> {
    revisions.sort_by_key(|one| (number(one), one.metadata.creation_timestamp.clone(), one.name_any()));
    revisions
}

/// The revision number.
pub(crate) fn number(revision: &ControllerRevision) -> i64 {
    revision.revision.unwrap_or_default()
}

/// A revision to create.
pub(crate) struct NewRevision {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) data: Value,
}

/// The result of [`ensure`].
pub(crate) struct Outcome {
    pub(crate) newest: ControllerRevision,
    /// Whether it was written.
    pub(crate) is_new: bool,
    pub(crate) collisions: i32,
}

/// Finds the revision with equal data and makes it the newest, or creates it.
pub(crate) async fn ensure<O: Resource<DynamicType = ()>>(
    api: &Api<ControllerRevision>,
    owner: &O,
    revisions: &[ControllerRevision],
    new: NewRevision,
    collisions: i32,
) -> Result<Outcome, kube::Error> {
    let next = revisions.last().map_or(1, |newest| number(newest) + 1);
    match revisions.iter().rfind(|one| one.data.0 == new.data) {
        Some(same) if revisions.last().is_some_and(|newest| newest.data.0 == same.data.0) => {
            let newest = revisions.last().cloned().unwrap_or_else(|| same.clone());
            Ok(Outcome { newest, is_new: false, collisions })
        }
        Some(same) => {
            let renumbered = ControllerRevision { revision: Some(next), ..same.clone() };
            let newest = api.replace(&same.name_any(), &PostParams::default(), &renumbered).await?;
            Ok(Outcome { newest, is_new: true, collisions })
        }
        None => create(api, owner, new, next, collisions).await,
    }
}

/// Creates a revision. On a hash collision the next name is tried.
async fn create<O: Resource<DynamicType = ()>>(
    api: &Api<ControllerRevision>,
    owner: &O,
    new: NewRevision,
    number: i64,
    mut collisions: i32,
) -> Result<Outcome, kube::Error> {
    loop {
        let hash = digest::short_name(&new.data, Some(collisions));
        let mut prefix = owner.name_any();
        prefix.truncate(PREFIX_LENGTH_MAX);
        let mut labels = new.labels.clone();
        labels.insert(HASH.to_owned(), hash.clone());
        let name = format!("{prefix}-{hash}");
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(labels),
                annotations: Some(new.annotations.clone()).filter(|annotations| !annotations.is_empty()),
                owner_references: Some(vec![controlled_by(owner)]),
                ..ObjectMeta::default()
            },
            data: RawExtension(new.data.clone()),
            revision: Some(number),
        };
        match api.create(&PostParams::default(), &revision).await {
            Err(error) if is_conflict(&error) => {
                let existing = api.get(&name).await?;
                if existing.data.0 == new.data {
                    return Ok(Outcome { newest: existing, is_new: true, collisions });
                }
                collisions += 1;
            }
            created => return Ok(Outcome { newest: created?, is_new: true, collisions }),
        }
    }
}
