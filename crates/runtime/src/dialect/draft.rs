//! What a dialect reads out of an object: groups without their priority, and what the status said.
//!
//! A draft becomes an engine group once the priority classes are known. It must not know any dialect.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::group as written;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::annotations::{MIN_RESOURCES, WHOLE_RESOURCES};
use muster_api::makers::leader_worker_set;
use muster_api::resources::list_in_base_units;
use muster_engine::model::group::{
    DegradedPolicy, DisruptionMode, Policy, PreemptionPolicy, Subset, TopologyConstraint,
};

use serde_json::{Value, json};

use super::StatusPatch;
use super::condition::Shown;

/// An object of a dialect, as far as it matters.
#[derive(Clone, Debug)]
pub(crate) struct GroupObject {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its UID.
    pub(crate) uid: String,
    /// Its version, to tell new news from old.
    pub(crate) resource_version: String,
    /// The generation of its spec; 0 where the server keeps none.
    pub(crate) generation: i64,
    /// When it was made, in milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// Whether the object is the group, and not a list of groups.
    pub(crate) is_group: bool,
    /// The groups that it defines, by name; one without a name if it is the group itself.
    pub(crate) groups: Result<Vec<(String, Draft)>, Flaw>,
    /// What it asks for that changes nothing here; told once.
    pub(crate) unheeded: Vec<String>,
    /// What its status shows.
    pub(crate) shown: Shown,
    /// The leader of a replica that it belongs to, if it belongs to one.
    pub(crate) leader: Option<Leader>,
    /// When the first of its members can have been made; others are left over from an earlier group of its name.
    pub(crate) members_since_ms: Option<u64>,
}

/// The pod that leads a replica of a LeaderWorkerSet, and owns its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    /// The UID of the pod.
    pub(crate) uid: String,
    /// The set.
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

impl Default for Flaw {
    fn default() -> Self {
        Self { kind: FlawKind::Invalid, message: String::new() }
    }
}

/// Why an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// What sort of flaw.
    pub(crate) kind: FlawKind,
    /// The sentence, with field and value.
    pub(crate) message: String,
}

/// What sort of flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlawKind {
    /// It is wrong.
    Invalid,
    /// It is right, and cannot be honoured yet.
    Unsupported,
}

impl Flaw {
    /// Something that cannot be honoured yet.
    pub(crate) fn unsupported(field: &str, value: &impl serde::Serialize) -> Self {
        let error = FieldPath::Root(field).invalid(value, "is not supported yet");
        Self { kind: FlawKind::Unsupported, message: error.to_string() }
    }
}

impl From<InvalidField> for Flaw {
    fn from(error: InvalidField) -> Self {
        Self { kind: FlawKind::Invalid, message: error.to_string() }
    }
}

/// A group whose priority is not looked up yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    /// How it starts.
    pub(crate) policy: Policy,
    /// What it says of its priority.
    pub(crate) priority: PriorityField,
    /// Whether it may preempt, if it says so.
    pub(crate) preemption_policy: Option<PreemptionPolicy>,
    /// How it may be disrupted.
    pub(crate) disruption_mode: DisruptionMode,
    /// How long a start may take, if it says so.
    pub(crate) schedule_timeout_ms: Option<u64>,
    /// What the members' nodes must share.
    pub(crate) topology: Vec<TopologyConstraint>,
    /// What the whole group needs.
    pub(crate) min_resources: BTreeMap<String, i64>,
    /// The Workload all of whose groups need that together; `None` if each does.
    pub(crate) needed_together_in: Option<String>,
    /// What it may do when it has lost members.
    pub(crate) degraded_policy: DegradedPolicy,
    /// Whether pods of parts that it does not know are members all the same.
    pub(crate) open: bool,
    /// Whether its turn is that of the object, and not that of its oldest waiting member.
    pub(crate) ranked_by_object: bool,
}

/// What a group says of its priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriorityField {
    /// Its class.
    pub(crate) class: Option<String>,
    /// The number beside the class.
    pub(crate) number: Option<i32>,
    /// What is done with a number that the class does not give.
    pub(crate) mismatch: Mismatch,
    /// What counts if it names no class.
    pub(crate) without_class: WithoutClass,
}

/// Whose priority a group has that names no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutClass {
    /// That of the cluster's default class.
    Default,
    /// The one that all members must share.
    SharedByMembers,
    /// The lowest of its members: the object cannot name a class.
    LowestMember,
}

/// What is done with a number that the class does not give. It is never believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The object is invalid.
    Refused,
    /// The class counts. The server filled in the number when the object was made.
    ClassCounts,
}

impl Draft {
    /// The least number of members in all; none for a basic group.
    pub(crate) fn minimum(&self) -> u32 {
        match &self.policy {
            Policy::Gang { min_count } => *min_count,
            Policy::Basic { .. } => 0,
            Policy::Subsets(subsets) => {
                subsets.iter().fold(0, |sum: u32, subset| sum.saturating_add(subset.min_member))
            }
        }
    }

    /// A group with this policy and nothing else to say.
    pub(crate) fn plain(policy: Policy, without_class: WithoutClass) -> Self {
        Self {
            policy,
            priority: PriorityField { class: None, number: None, mismatch: Mismatch::ClassCounts, without_class },
            preemption_policy: None,
            disruption_mode: DisruptionMode::Pod,
            schedule_timeout_ms: None,
            topology: Vec::new(),
            min_resources: BTreeMap::new(),
            needed_together_in: None,
            degraded_policy: DegradedPolicy::Replace,
            open: false,
            ranked_by_object: false,
        }
    }

    /// The draft of a group of our own kinds. `path` is where its fields stand.
    pub(crate) fn of(group: &written::Group, path: &FieldPath<'_>) -> Result<Self, Flaw> {
        let min_resources = list_in_base_units(&group.min_resources, &path.child("minResources"))?;
        let subsets = matches!(group.policy, written::Policy::Subsets(_));
        Ok(Self {
            policy: policy(&group.policy),
            priority: PriorityField {
                class: group.priority_class_name.clone(),
                number: group.priority,
                mismatch: Mismatch::Refused,
                without_class: if subsets { WithoutClass::SharedByMembers } else { WithoutClass::Default },
            },
            preemption_policy: group.preemption_policy.map(|policy| match policy {
                written::PreemptionPolicy::Never => PreemptionPolicy::Never,
                written::PreemptionPolicy::PreemptLowerPriority => PreemptionPolicy::LowerPriority,
            }),
            disruption_mode: match group.disruption_mode {
                written::DisruptionMode::Pod => DisruptionMode::Pod,
                written::DisruptionMode::PodGroup => DisruptionMode::Group,
            },
            schedule_timeout_ms: None,
            topology: Vec::new(),
            min_resources,
            needed_together_in: None,
            degraded_policy: match group.degraded_policy {
                written::DegradedPolicy::Replace => DegradedPolicy::Replace,
                written::DegradedPolicy::Requorum => DegradedPolicy::Requorum,
                written::DegradedPolicy::Evict => DegradedPolicy::Evict,
            },
            open: false,
            ranked_by_object: subsets,
        })
    }
}

/// What an annotation says that a group needs in all: a list of resources as JSON.
fn min_resources(text: &str, key: &str) -> Result<BTreeMap<String, i64>, InvalidField> {
    let annotations = FieldPath::Root("metadata.annotations");
    let path = annotations.key(key);
    let written = serde_json::from_str(text)
        .map_err(|error| path.invalid(text, format_args!("must be a list of resources as JSON: {error}")))?;
    list_in_base_units(&written::min_resources(&written, &path)?, &path)
}

fn policy(policy: &written::Policy) -> Policy {
    // A checked count is from 1 to the largest i32.
    let count = |count: i32| count.unsigned_abs();
    match policy {
        written::Policy::Gang { min_count } => Policy::Gang { min_count: count(*min_count) },
        written::Policy::Basic { desired_count } => Policy::Basic { desired_count: desired_count.map(count) },
        written::Policy::Subsets(subsets) => Policy::Subsets(
            subsets
                .iter()
                .map(|subset| Subset { name: subset.name.clone(), min_member: count(subset.min_member) })
                .collect(),
        ),
    }
}

impl GroupObject {
    /// An object of which only the metadata is known so far.
    pub(crate) fn with_metadata(metadata: &ObjectMeta) -> Self {
        let created = metadata.creation_timestamp.as_ref();
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or(0),
            created_ms: created.map_or(0, |time| crate::clock::millis(time.0)),
            is_group: true,
            groups: Err(Flaw::default()),
            unheeded: Vec::new(),
            shown: Shown::default(),
            leader: Leader::of(metadata),
            members_since_ms: None,
        }
    }

    /// An object whose text cannot be read as its kind.
    pub(crate) fn unreadable(text: &str, error: &serde_json::Error) -> Self {
        let metadata = crate::intake::raw::metadata_of(text);
        let message = format!("the object cannot be read: {error}");
        Self { groups: Err(Flaw { kind: FlawKind::Invalid, message }), ..Self::with_metadata(&metadata) }
    }

    /// Takes what an annotation says that each group of the object needs in all, for kinds that have no field for it.
    pub(crate) fn take_min_resources(&mut self, metadata: &ObjectMeta) {
        let Some(text) = metadata.annotations.as_ref().and_then(|all| all.get(MIN_RESOURCES)) else { return };
        let Ok(groups) = &mut self.groups else { return };
        match min_resources(text, MIN_RESOURCES) {
            Ok(least) => groups.iter_mut().for_each(|(_, draft)| draft.min_resources.clone_from(&least)),
            Err(error) => self.groups = Err(error.into()),
        }
    }

    /// Takes what an annotation says that all groups of a Workload need together: the object's own groups, or those
    /// that were made from it as this one was.
    pub(crate) fn take_whole_resources(&mut self, metadata: &ObjectMeta, workload: Option<&str>) {
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
            Ok(whole) => groups.iter_mut().for_each(|(_, draft)| {
                draft.min_resources.clone_from(&whole);
                draft.needed_together_in = Some(workload.clone());
            }),
            Err(error) => self.groups = Err(error.into()),
        }
    }

    /// Refuses the annotation on a kind that has a field for it.
    pub(crate) fn refuse_min_resources(&mut self, metadata: &ObjectMeta) {
        let Some(text) = metadata.annotations.as_ref().and_then(|all| all.get(MIN_RESOURCES)) else { return };
        if self.groups.is_ok() {
            let path = FieldPath::Root("metadata.annotations");
            let error = path.key(MIN_RESOURCES).invalid(text, "belongs into spec.minResources, which this kind has");
            self.groups = Err(error.into());
        }
    }

    /// A merge patch of the status, for kinds whose lists no server merges: it is refused if somebody else wrote first.
    /// What is shown and is not to be shown any more is removed by name, since a merge keeps what it is not told of.
    pub(crate) fn merge_patch(&self, status: &impl serde::Serialize) -> StatusPatch {
        let mut status = json!(status);
        let shown: Value = serde_json::from_str(&self.shown.text).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_longer_shown_is_removed_by_name() {
        let mut object = GroupObject::with_metadata(&ObjectMeta::default());
        object.shown.text = r#"{"conditions": [], "podGroups": [{"name": "w"}]}"#.to_owned();
        let StatusPatch::Merge(patch) = object.merge_patch(&json!({"conditions": []})) else { panic!("a merge") };
        assert_eq!(patch["status"], json!({"conditions": [], "podGroups": null}));
    }
}
