//! What a dialect reads from an object: its groups, and the current status.
//!
//! Must not depend on any dialect.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::annotations::{DISRUPTION_MODE, LATER_PODS, MIN_RESOURCES, PARENT_COMPOSITE_POD_GROUP};
use muster_api::resolved_priority::ResolvedPriority;
use muster_api::resources::list_in_base_units;
use muster_api::wire::Pod;
use muster_api::{group, later_pods, preemption_cost};
use serde_json::{Value, json};

use super::StatusPatch;
use super::condition::CurrentStatus;
use super::group_error::GroupError;
use super::made_for::MadeFor;
use super::native_composite;
use super::parsed_group::{ParsedGroup, ParsedLaterPods};

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
    /// The owner that it was made for, if there is one.
    pub(crate) made_for: Option<MadeFor>,
    /// The earliest creation time of its members; older pods are left over from an earlier group of its name.
    pub(crate) members_since_ms: Option<u64>,
    /// The cost of evicting one of its groups that its owner declares.
    pub(crate) preemption_cost: Result<i32, GroupError>,
    /// The priorities of its groups as far as they are resolved, by name.
    pub(crate) priorities: BTreeMap<String, ResolvedPriority>,
}

impl GroupObject {
    /// An object with its metadata only.
    pub(crate) fn with_metadata(metadata: &ObjectMeta) -> Self {
        let created = metadata.creation_timestamp.as_ref();
        let cost = preemption_cost::declared(metadata.annotations.as_ref());
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
            made_for: MadeFor::of(metadata),
            members_since_ms: None,
            preemption_cost: cost.map(Option::unwrap_or_default).map_err(GroupError::from),
            priorities: BTreeMap::new(),
        }
    }

    /// An object whose text cannot be parsed.
    pub(crate) fn unreadable(text: &str, error: &serde_json::Error) -> Self {
        let metadata = muster_reflector::metadata_of(text);
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

    /// Applies the annotation with the pods that the owner creates later.
    pub(crate) fn apply_later_pods(&mut self, metadata: &ObjectMeta) {
        let Some(text) = metadata.annotations.as_ref().and_then(|all| all.get(LATER_PODS)) else { return };
        let Ok(groups) = &mut self.groups else { return };
        match later_pods(text) {
            Ok(later) => groups.iter_mut().for_each(|(_, group)| group.later.clone_from(&later)),
            Err(error) => self.groups = Err(error.into()),
        }
    }

    /// Applies the annotation with the parent, which controllers hand down. A field takes precedence.
    pub(crate) fn apply_parent(&mut self, metadata: &ObjectMeta) {
        let annotated = |key: &&str| metadata.annotations.as_ref()?.get(*key);
        let Some(parent) = PARENT_COMPOSITE_POD_GROUP.iter().find_map(annotated) else { return };
        for (_, group) in self.groups.iter_mut().flatten().filter(|(_, group)| group.parent.is_none()) {
            group.parent = native_composite::parent(Some(parent));
        }
    }

    /// Applies the annotation with the disruption mode. It takes precedence over a field, which cannot be changed.
    pub(crate) fn apply_disruption_mode(&mut self, metadata: &ObjectMeta) {
        let Some(text) = metadata.annotations.as_ref().and_then(|all| all.get(DISRUPTION_MODE)) else { return };
        let Ok(groups) = &mut self.groups else { return };
        if let Err(error) = apply_disruption_mode(groups, text) {
            self.groups = Err(error.into());
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

/// The pods that an owner creates later, each with its template.
fn later_pods(text: &str) -> Result<Vec<Vec<ParsedLaterPods>>, InvalidField> {
    let read = |part: later_pods::LaterPods| {
        // Its range was checked.
        let count = u32::try_from(part.count).unwrap_or(0);
        ParsedLaterPods { group: part.group, count, pod: Arc::new(Pod { spec: part.pod, ..Pod::default() }) }
    };
    let stages = later_pods::read(text)?;
    Ok(stages.into_iter().map(|stage| stage.into_iter().map(read).collect()).collect())
}

/// Sets the mode of all groups, or of those that a JSON object names.
fn apply_disruption_mode(groups: &mut [(String, ParsedGroup)], text: &str) -> Result<(), InvalidField> {
    let annotations = FieldPath::Root("metadata.annotations");
    let path = annotations.key(DISRUPTION_MODE);
    if !text.trim_start().starts_with('{') {
        let mode = group::DisruptionMode::read(text, &path)?;
        return groups.iter_mut().try_for_each(|(_, group)| group.set_disruption_mode(mode, &path));
    }
    let by_name: BTreeMap<String, String> = serde_json::from_str(text)
        .map_err(|error| path.invalid(text, format_args!("must be a mode or a JSON object of modes: {error}")))?;
    for (name, mode) in &by_name {
        let path = path.key(name);
        let mode = group::DisruptionMode::read(mode, &path)?;
        match groups.iter_mut().find(|(one, _)| one == name) {
            Some((_, group)) => group.set_disruption_mode(mode, &path)?,
            None => return Err(path.invalid(mode.as_str(), "there is no group of this name")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use muster_engine::model::group::{DisruptionMode, Policy};

    use super::super::parsed_group::WithoutClass;
    use super::*;

    #[test]
    fn annotated_disruption_mode_is_for_all_groups_or_for_those_it_names() {
        use DisruptionMode::{Group, Pod};
        let modes = |text: &str| {
            let group = |name: &str, policy: Policy| {
                (name.to_owned(), ParsedGroup::with_policy(policy, WithoutClass::LowestMember))
            };
            let gang = || Policy::Gang { min_count: 2 };
            let mut object = GroupObject::with_metadata(&ObjectMeta::default());
            object.groups = Ok(vec![group("a", gang()), group("b", gang())]);
            let annotations = [(DISRUPTION_MODE.to_owned(), text.to_owned())].into();
            object.apply_disruption_mode(&ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() });
            let groups = object.groups.map_err(|error| error.message)?;
            Ok::<_, String>(groups.iter().map(|(_, group)| group.disruption_mode).collect::<Vec<_>>())
        };
        assert_eq!(modes("PodGroup"), Ok(vec![Group, Group]));
        assert_eq!(modes("Pod"), Ok(vec![Pod, Pod]));
        assert_eq!(modes(r#"{"b": "PodGroup"}"#), Ok(vec![Pod, Group]));
        let error = |text: &str| modes(text).unwrap_err();
        assert!(error("All").contains("must be Pod or PodGroup"));
        assert!(error(r#"{"c": "Pod"}"#).contains("there is no group of this name"));
        assert!(error(r#"{"a": 1}"#).contains("must be a mode or a JSON object of modes"));
    }

    #[test]
    fn basic_group_cannot_be_evicted_whole() {
        let path = FieldPath::Root("x");
        let basic = Policy::Basic { desired_count: None };
        let mut group = ParsedGroup::with_policy(basic, WithoutClass::LowestMember);
        let error = group.set_disruption_mode(group::DisruptionMode::PodGroup, &path).unwrap_err();
        assert!(error.to_string().contains("needs a gang policy"), "{error}");
        group.set_disruption_mode(group::DisruptionMode::Pod, &path).unwrap();
    }

    #[test]
    fn removed_status_fields_are_set_to_null() {
        let mut object = GroupObject::with_metadata(&ObjectMeta::default());
        object.current_status.text = r#"{"conditions": [], "podGroups": [{"name": "w"}]}"#.to_owned();
        let StatusPatch::Merge(patch) = object.merge_patch(&json!({"conditions": []})) else { panic!("a merge") };
        assert_eq!(patch["status"], json!({"conditions": [], "podGroups": null}));
    }
}
