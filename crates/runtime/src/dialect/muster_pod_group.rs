//! Muster's PodGroup: a pod names it by an annotation, the object is the group.

use kube::core::ApiResource;
use muster_api::group::Policy;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::annotations::{POD_GROUP, REPLICA_KEY, SUBSET, WORKLOAD};
use muster_api::names::{check_dns_label, check_dns_subdomain};
use muster_api::pod_group::validate_pod_group;
use muster_api::wire::condition::Condition;
use muster_api::wire::pod_group::{PodGroupStatus, PodGroupSummary, SubsetStatus};
use muster_api::wire::{Pod, PodGroup};

use super::condition::{CurrentInstance, CurrentStatus, is_ours, text_of};
use super::group_error::GroupError;
use super::group_object::GroupObject;
use super::parsed_group::ParsedGroup;
use super::status::{InstanceStatus, ObjectStatus};
use super::{Dialect, Reference, StatusPatch};
use crate::intake::raw::annotation;

/// `podgroups.muster.dev`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MusterPodGroup;

impl Dialect for MusterPodGroup {
    fn origin(&self) -> &'static str {
        "muster.dev/PodGroup"
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<PodGroup>(&())
    }

    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>> {
        if annotation(pod, WORKLOAD).is_some() {
            return None;
        }
        match (annotation(pod, POD_GROUP), annotation(pod, SUBSET), annotation(pod, REPLICA_KEY)) {
            (None, None, None) => None,
            (None, Some(subset), _) => Some(Err(requires_annotation(SUBSET, subset, POD_GROUP))),
            (_, _, Some(key)) => Some(Err(requires_annotation(REPLICA_KEY, key, WORKLOAD))),
            (Some(name), subset, None) => Some(reference(name, subset)),
        }
    }

    fn read(&self, text: &str) -> GroupObject {
        let object: PodGroup = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return GroupObject::unreadable(text, &error),
        };
        let mut read = GroupObject {
            groups: parse(&object).map(|group| vec![(String::new(), group)]),
            current_status: current_status(&object.status),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.refuse_min_resources(&object.metadata);
        read.apply_disruption_mode(&object.metadata);
        read.apply_later_pods(&object.metadata);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        let status = new_status(status, &object.current_status.conditions);
        (text_of(&status) != object.current_status.text).then(|| object.merge_patch(&status))
    }
}

/// The error for an annotation that requires another one.
pub(super) fn requires_annotation(key: &str, value: &str, needed: &str) -> InvalidField {
    let path = FieldPath::Root("metadata.annotations");
    path.key(key).invalid(value, format_args!("means nothing without the annotation {needed}"))
}

fn reference(name: &str, subset: Option<&str>) -> Result<Reference, InvalidField> {
    let path = FieldPath::Root("metadata.annotations");
    check_dns_subdomain(name).map_err(|reason| path.key(POD_GROUP).invalid(name, reason))?;
    if let Some(subset) = subset {
        check_dns_label(subset).map_err(|reason| path.key(SUBSET).invalid(subset, reason))?;
    }
    Ok(Reference { subset: subset.unwrap_or_default().to_owned(), ..Reference::to_object(name) })
}

fn parse(object: &PodGroup) -> Result<ParsedGroup, GroupError> {
    let path = FieldPath::Root("spec");
    let written = validate_pod_group(&object.spec, &path)?;
    let mut group = ParsedGroup::of(&written, &path)?;
    if matches!(written.policy, Policy::Gang { .. } | Policy::Subsets(_)) {
        group.schedule_timeout_ms = written.schedule_timeout_seconds.map(|seconds| u64::from(seconds) * 1000);
    }
    Ok(group)
}

fn current_status(status: &PodGroupStatus) -> CurrentStatus {
    let instance = CurrentInstance { conditions: status.conditions.clone() };
    CurrentStatus {
        observed_generation: status.observed_generation,
        conditions: status.conditions.clone(),
        instances: [((String::new(), String::new()), instance)].into(),
        text: text_of(status),
        ..CurrentStatus::default()
    }
}

fn new_status(status: &ObjectStatus, shown: &[Condition]) -> PodGroupStatus {
    let empty = InstanceStatus::default();
    let instance = status.instances.first().unwrap_or(&empty);
    let subsets = instance.subsets.iter().map(|(name, counts)| SubsetStatus {
        name: name.clone(),
        // Finished pods are counted separately.
        total: counts.total - counts.succeeded - counts.failed,
        scheduled_available: counts.would_fit,
        scheduled_unavailable: counts.no_room,
        running: counts.running,
        succeeded: counts.succeeded,
        failed: counts.failed,
    });
    PodGroupStatus {
        observed_generation: status.observed_generation,
        // A merge patch replaces the whole list, so the conditions of other writers are repeated.
        conditions: instance.conditions.iter().chain(shown.iter().filter(|one| !is_ours(&one.kind))).cloned().collect(),
        summary: (!instance.policy.is_empty()).then(|| PodGroupSummary {
            policy: instance.policy.to_owned(),
            minimum: i64::from(instance.minimum),
            scheduled: instance.counts.scheduled,
            running: instance.counts.running,
        }),
        subsets: subsets.collect(),
    }
}
