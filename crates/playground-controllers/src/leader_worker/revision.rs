//! The revisions of a LeaderWorkerSet: what its groups are made of, by a key that every object of a group carries.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use muster_playground_client::mirror::Key;
use muster_playground_client::refusal::{is_conflict, is_not_found};

use super::Keeper;
use super::keys::{NAME, REVISION};
use super::object::{LeaderWorkerSet, data};
use crate::digest;
use crate::owners::{controlled_by, is_controlled_by};
use crate::recorder::Tone;
use crate::revisions::number;

const PREFIX_LENGTH_MAX: usize = 220;

impl Keeper {
    /// The key of the revision that the groups should have, and whether it is another than the leaders have.
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
            let made = self.make_revision(key, lws, None).await?;
            let message = format!("Creating revision with key {made} for updated LWS");
            self.say(lws, Tone::Normal, "CreatingRevision", message).await;
            // The hash of another template can be the same by chance; then the update is put off until it differs.
            let is_updated = made != present;
            return Ok((made, is_updated));
        }
        let made = self.make_revision(key, lws, present.clone()).await?;
        let message = match present {
            None => format!("Creating revision with key {made} for a newly created LeaderWorkerSet"),
            Some(_) => format!("Creating missing revision with key {made} for existing LeaderWorkerSet"),
        };
        self.say(lws, Tone::Normal, "CreatingRevision", message).await;
        Ok((made, false))
    }

    /// The revisions of the set itself: those of its stateful sets carry its name too.
    fn own_revisions<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a ControllerRevision> {
        let lws = self.lws.get(key);
        self.revisions.of(key).filter(move |one| lws.is_some_and(|lws| is_controlled_by(*one, &**lws)))
    }

    /// The newest revision with this key.
    pub(super) fn revision_of(&self, key: &Key, revision: &str) -> Option<ControllerRevision> {
        let known = self.own_revisions(key).filter(|one| one.labels().get(REVISION).is_some_and(|own| own == revision));
        known.max_by_key(|one| number(one)).cloned()
    }

    async fn make_revision(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        wanted_key: Option<String>,
    ) -> Result<String, kube::Error> {
        let next = self.own_revisions(key).map(number).max().unwrap_or_default() + 1;
        let data = data(lws);
        let hash = digest::short_name(&data, None);
        let revision_key = wanted_key.unwrap_or_else(|| hash.clone());
        if self.revision_of(key, &revision_key).is_some_and(|known| known.data.0 == data) {
            // It was made before something else failed.
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
        let made = match revisions.create(&PostParams::default(), &revision).await {
            Err(error) if is_conflict(&error) => revisions.get(&revision.name_any()).await?,
            made => made?,
        };
        self.revisions.unseen.wrote(key, &made);
        Ok(revision_key)
    }

    /// After an update is done, only the newest revision is kept.
    pub(super) async fn forget_revisions(&mut self, key: &Key, kept: &str) -> Result<(), kube::Error> {
        let old = self.own_revisions(key).filter(|one| one.labels().get(REVISION).is_none_or(|own| own != kept));
        let old: Vec<ControllerRevision> = old.cloned().collect();
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.0);
        for one in old {
            match revisions.delete(&one.name_any(), &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => self.revisions.unseen.deleted(key, &one),
            }
        }
        Ok(())
    }
}
