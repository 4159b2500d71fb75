//! The revisions of a LeaderWorkerSet: the history of its group template, by a key that every object of a group has as
//! a label.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_reflector::Key;

use super::LeaderWorkerSetController;
use super::keys::{NAME, REVISION};
use super::object::{LeaderWorkerSet, data};
use crate::digest;
use crate::owners::{controlled_by, is_controlled_by};
use crate::recorder::EventType;
use crate::revisions::number;

const PREFIX_LENGTH_MAX: usize = 220;

impl LeaderWorkerSetController {
    /// The key of the desired revision, and whether it differs from that of the leaders.
    pub(super) async fn revision(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        leaders: Option<&StatefulSet>,
    ) -> Result<(String, bool), kube::Error> {
        let data = data(lws);
        let present = leaders.and_then(|leaders| leaders.labels().get(REVISION)).cloned();
        let known = present.as_ref().and_then(|present| self.revision_of(key, present));
        if let Some(known) = known {
            let present = present.unwrap_or_default();
            if known.data.0 == data {
                return Ok((present, false));
            }
            let created = self.create_revision(key, lws, None).await?;
            let message = format!("Creating revision with key {created} for updated LWS");
            self.record_event(lws, EventType::Normal, "CreatingRevision", message).await;
            // The hash of another template can collide; then the update waits until it differs.
            let is_updated = created != present;
            return Ok((created, is_updated));
        }
        let created = self.create_revision(key, lws, present.clone()).await?;
        let message = match present {
            None => format!("Creating revision with key {created} for a newly created LeaderWorkerSet"),
            Some(_) => format!("Creating missing revision with key {created} for existing LeaderWorkerSet"),
        };
        self.record_event(lws, EventType::Normal, "CreatingRevision", message).await;
        Ok((created, false))
    }

    /// The revisions of the set itself: those of its StatefulSets have its label too.
    fn own_revisions<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a ControllerRevision> {
        let lws = self.lws.get(key);
        self.revisions.of(key).filter(move |one| lws.is_some_and(|lws| is_controlled_by(*one, &**lws)))
    }

    /// The newest revision with this key.
    pub(super) fn revision_of(&self, key: &Key, revision: &str) -> Option<ControllerRevision> {
        let known = self.own_revisions(key).filter(|one| one.labels().get(REVISION).is_some_and(|own| own == revision));
        known.max_by_key(|one| number(one)).cloned()
    }

    async fn create_revision(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        desired_key: Option<String>,
    ) -> Result<String, kube::Error> {
        let next = self.own_revisions(key).map(number).max().unwrap_or_default() + 1;
        let data = data(lws);
        let hash = digest::short_name(&data, None);
        let revision_key = desired_key.unwrap_or_else(|| hash.clone());
        if self.revision_of(key, &revision_key).is_some_and(|known| known.data.0 == data) {
            // It was created before a later step failed.
            return Ok(revision_key);
        }
        let mut prefix = lws.name_any();
        prefix.truncate(PREFIX_LENGTH_MAX);
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}-{hash}-{next}")),
                labels: Some(BTreeMap::from([
                    (NAME.to_owned(), key.1.clone()),
                    (REVISION.to_owned(), revision_key.clone()),
                ])),
                owner_references: Some(vec![controlled_by(lws)]),
                ..ObjectMeta::default()
            },
            data: RawExtension(data),
            revision: Some(next),
        };
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.0);
        let created = match revisions.create(&PostParams::default(), &revision).await {
            Err(error) if is_conflict(&error) => revisions.get(&revision.name_any()).await?,
            created => created?,
        };
        self.revisions.expectations.expect_write(key, &created);
        Ok(revision_key)
    }

    /// After an update is done, only the newest revision is kept.
    pub(super) async fn delete_old_revisions(&mut self, key: &Key, kept: &str) -> Result<(), kube::Error> {
        let old = self.own_revisions(key).filter(|one| one.labels().get(REVISION).is_none_or(|own| own != kept));
        let old: Vec<ControllerRevision> = old.cloned().collect();
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.0);
        for one in old {
            match revisions.delete(&one.name_any(), &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => self.revisions.expectations.expect_deletion(key, &one),
            }
        }
        Ok(())
    }
}
