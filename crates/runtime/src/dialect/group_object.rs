//! What a dialect reads from an object: its groups, and the current status.
//!
//! Must not depend on any dialect.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::group;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::annotations::{MIN_RESOURCES, WHOLE_RESOURCES};
use muster_api::owners::leader_worker_set;
use muster_api::resolved_priority::ResolvedPriority;
use muster_api::resources::list_in_base_units;
use serde_json::{Value, json};

use super::StatusPatch;
use super::condition::CurrentStatus;
use super::group_error::GroupError;
use super::parsed_group::ParsedGroup;
use crate::preemption_cost;

/// A group object, independent of its dialect.
#[derive(Clone, Debug)]
pub(crate) struct GroupObject {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its resource version, to detect outdated events.
    pub(crate) resource_version: String,
    /// The generation of its spec; 0 where the server keeps none.
    pub(crate) generation: i64,
    /// Its creation time, in milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// Whether the object is one group, not a list of groups.
    pub(crate) is_group: bool,
    /// The groups that it defines, by name; one with an empty name if it is the group itself.
    pub(crate) groups: Result<Vec<(String, ParsedGroup)>, GroupError>,
    /// Fields that Muster ignores; an event reports them once.
    pub(crate) ignored_fields: Vec<String>,
    /// Its current status.
    pub(crate) current_status: CurrentStatus,
    /// The leader of the replica that it belongs to, if there is one.
    pub(crate) leader: Option<Leader>,
    /// The earliest creation time of its members; older pods are left over from an earlier group of its name.
    pub(crate) members_since_ms: Option<u64>,
    /// The cost of evicting one of its groups that its owner declares.
    pub(crate) preemption_cost: Result<i32, GroupError>,
    /// The priorities of its groups as far as they are resolved, by name.
    pub(crate) priorities: BTreeMap<String, ResolvedPriority>,
}

/// The leader pod of a LeaderWorkerSet replica, which owns its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    /// The UID of the pod.
    pub(crate) uid: String,
    /// The name of the LeaderWorkerSet.
    pub(crate) set: String,
}

impl Leader {
    fn of(metadata: &ObjectMeta) -> Option<Self> {
        let set = metadata.labels.as_ref()?.get(leader_worker_set::labels::NAME)?.clone();
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "Pod")?;
        Some(Self { uid: owner.uid.clone(), set })
    }
}

impl GroupObject {
    /// An object with its metadata only.
    pub(crate) fn with_metadata(metadata: &ObjectMeta) -> Self {
        let created = metadata.creation_timestamp.as_ref();
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or(0),
            created_ms: created.map_or(0, |time| muster_clock::millis(time.0)),
            is_group: true,
            groups: Ok(Vec::new()),
            ignored_fields: Vec::new(),
            current_status: CurrentStatus::default(),
            leader: Leader::of(metadata),
            members_since_ms: None,
            preemption_cost: preemption_cost::declared(metadata.annotations.as_ref()).map_err(GroupError::from),
            priorities: BTreeMap::new(),
        }
    }

    /// An object whose text cannot be parsed.
    pub(crate) fn unreadable(text: &str, error: &serde_json::Error) -> Self {
        let metadata = crate::intake::raw::metadata_of(text);
        let message = format!("the object cannot be read: {error}");
        Self { groups: Err(GroupError::invalid(message)), ..Self::with_metadata(&metadata) }
    }

    /// Applies the annotation with the total resources of each group, for kinds that have no field for it.
    pub(crate) fn apply_min_resources(&mut self, metadata: &ObjectMeta) {
        let Some(text) = metadata.annotations.as_ref().and_then(|all| all.get(MIN_RESOURCES)) else { return };
        let Ok(groups) = &mut self.groups else { return };
        match min_resources(text, MIN_RESOURCES) {
            Ok(least) => groups.iter_mut().for_each(|(_, group)| group.min_resources.clone_from(&least)),
            Err(error) => self.groups = Err(error.into()),
        }
    }

    /// Applies the annotation with the total resources of all groups of a Workload: the object's own groups, or those
    /// that were created from the Workload like this one.
    pub(crate) fn apply_whole_resources(&mut self, metadata: &ObjectMeta, workload: Option<&str>) {
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        let Some(text) = annotation(WHOLE_RESOURCES) else { return };
        let Ok(groups) = &mut self.groups else { return };
        if annotation(MIN_RESOURCES).is_some() {
            let path = FieldPath::Root("metadata.annotations");
            let reason = format!("only one of it and {MIN_RESOURCES} may be set");
            self.groups = Err(path.key(WHOLE_RESOURCES).invalid(text, reason).into());
            return;
        }
        let workload = workload.unwrap_or(&self.name).to_owned();
        match min_resources(text, WHOLE_RESOURCES) {
            Ok(whole) => groups.iter_mut().for_each(|(_, group)| {
                group.min_resources.clone_from(&whole);
                group.shared_in_workload = Some(workload.clone());
            }),
            Err(error) => self.groups = Err(error.into()),
        }
    }

    /// Rejects the annotation on a kind that has a field for it.
    pub(crate) fn refuse_min_resources(&mut self, metadata: &ObjectMeta) {
        let Some(text) = metadata.annotations.as_ref().and_then(|all| all.get(MIN_RESOURCES)) else { return };
        if self.groups.is_ok() {
            let path = FieldPath::Root("metadata.annotations");
            let error = path.key(MIN_RESOURCES).invalid(text, "belongs into spec.minResources, which this kind has");
            self.groups = Err(error.into());
        }
    }

    /// A merge patch of the status, for kinds whose lists the server does not merge: it fails if another writer was
    /// first. Fields that are no longer in the status are set to null, since a merge keeps omitted fields.
    pub(crate) fn merge_patch(&self, status: &impl serde::Serialize) -> StatusPatch {
        let mut status = json!(status);
        let shown: Value = serde_json::from_str(&self.current_status.text).unwrap_or_default();
        for field in shown.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if status.get(field).is_none() {
                status[field.as_str()] = Value::Null;
            }
        }
        StatusPatch::Merge(json!({
            "metadata": {"uid": self.uid, "resourceVersion": self.resource_version},
            "status": status,
        }))
    }
}

/// The total resources of a group from an annotation: a list of resources as JSON.
fn min_resources(text: &str, key: &str) -> Result<BTreeMap<String, i64>, InvalidField> {
    let annotations = FieldPath::Root("metadata.annotations");
    let path = annotations.key(key);
    let written = serde_json::from_str(text)
        .map_err(|error| path.invalid(text, format_args!("must be a list of resources as JSON: {error}")))?;
    list_in_base_units(&group::min_resources(&written, &path)?, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_status_fields_are_set_to_null() {
        let mut object = GroupObject::with_metadata(&ObjectMeta::default());
        object.current_status.text = r#"{"conditions": [], "podGroups": [{"name": "w"}]}"#.to_owned();
        let StatusPatch::Merge(patch) = object.merge_patch(&json!({"conditions": []})) else { panic!("a merge") };
        assert_eq!(patch["status"], json!({"conditions": [], "podGroups": null}));
    }
}
