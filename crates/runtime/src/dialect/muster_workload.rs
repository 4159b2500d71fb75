//! Muster's Workload: several groups in one object, each of which may have many replicas.
//!
//! A pod names workload, group and replica by annotations. Each (workload, group, replica) is its own gang.

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::annotations::{POD_GROUP, REPLICA_KEY, SUBSET, WORKLOAD};
use muster_api::keys::conditions::{DEGRADED, POD_GROUP_SCHEDULED};
use muster_api::names::{check_dns_label, check_dns_subdomain};
use muster_api::wire::condition::Condition;
use muster_api::wire::workload::{Instances, MAX_GROUPS_IN_STATUS, WorkloadGroupStatus, WorkloadStatus};
use muster_api::wire::{Pod, Workload};
use muster_api::workload::validate_workload;

use super::condition::{CurrentInstance, CurrentStatus, text_of};
use super::group_error::GroupError;
use super::group_object::GroupObject;
use super::muster_pod_group::requires_annotation;
use super::parsed_group::ParsedGroup;
use super::status::{InstanceStatus, ObjectStatus};
use super::{Dialect, Reference, StatusPatch};
use crate::intake::raw::annotation;

/// The origin of its groups.
const ORIGIN: &str = "muster.dev/Workload";

/// `workloads.muster.dev`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MusterWorkload;

impl Dialect for MusterWorkload {
    fn origin(&self) -> &'static str {
        ORIGIN
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<Workload>(&())
    }

    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>> {
        let workload = annotation(pod, WORKLOAD)?;
        let Some(group) = annotation(pod, POD_GROUP) else {
            return Some(Err(requires_annotation(WORKLOAD, workload, POD_GROUP)));
        };
        if let Some(subset) = annotation(pod, SUBSET) {
            let path = FieldPath::Root("metadata.annotations");
            return Some(Err(path.key(SUBSET).invalid(subset, "the groups of a Workload have no subsets")));
        }
        Some(reference(workload, group, annotation(pod, REPLICA_KEY).unwrap_or_default()))
    }

    fn read(&self, text: &str) -> GroupObject {
        let object: Workload = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return GroupObject { is_group: false, ..GroupObject::unreadable(text, &error) },
        };
        let mut read = GroupObject {
            is_group: false,
            groups: parse(&object),
            current_status: current_status(&object.status),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.apply_min_resources(&object.metadata);
        read.apply_disruption_mode(&object.metadata);
        read.apply_later_pods(&object.metadata);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        let status = new_status(status);
        (text_of(&status) != object.current_status.text).then(|| object.merge_patch(&status))
    }
}

fn reference(workload: &str, group: &str, replica: &str) -> Result<Reference, InvalidField> {
    let path = FieldPath::Root("metadata.annotations");
    check_dns_subdomain(workload).map_err(|reason| path.key(WORKLOAD).invalid(workload, reason))?;
    check_dns_label(group).map_err(|reason| path.key(POD_GROUP).invalid(group, reason))?;
    if !replica.is_empty() {
        check_dns_label(replica).map_err(|reason| path.key(REPLICA_KEY).invalid(replica, reason))?;
    }
    Ok(Reference {
        object: workload.to_owned(),
        group: group.to_owned(),
        replica: replica.to_owned(),
        subset: String::new(),
    })
}

fn parse(object: &Workload) -> Result<Vec<(String, ParsedGroup)>, GroupError> {
    let path = FieldPath::Root("spec");
    let workload = validate_workload(&object.spec, &path)?;
    let path = path.child("podGroups");
    let groups = workload.groups.iter().enumerate().map(|(index, (name, group))| {
        let mut parsed = ParsedGroup::of(group, &path.index(index))?;
        parsed.set_parent(workload.parents.get(name).map(String::as_str), ORIGIN);
        Ok((name.clone(), parsed))
    });
    let composite = workload.composite_groups.iter();
    let composite = composite.map(|(name, group)| Ok((name.clone(), ParsedGroup::of_groups(group, ORIGIN))));
    groups.chain(composite).collect()
}

fn current_status(status: &WorkloadStatus) -> CurrentStatus {
    let instances = status.pod_groups.iter().map(|one| {
        let shown = CurrentInstance { conditions: one.conditions.clone() };
        ((one.name.clone(), one.replica_key.clone()), shown)
    });
    CurrentStatus {
        observed_generation: status.observed_generation,
        conditions: status.conditions.clone(),
        instances: instances.collect(),
        is_truncated: status.instances.as_ref().is_some_and(|all| all.total > status.pod_groups.len() as i64),
        text: text_of(status),
        ..CurrentStatus::default()
    }
}

fn is_true(instance: &InstanceStatus, kind: &str) -> bool {
    Condition::find(&instance.conditions, kind).is_some_and(Condition::is_true)
}

/// The order of groups in the status: those with problems first, since the list is bounded.
fn rank(instance: &InstanceStatus) -> u8 {
    match (is_true(instance, DEGRADED), is_true(instance, POD_GROUP_SCHEDULED)) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => 2,
    }
}

fn new_status(status: &ObjectStatus) -> WorkloadStatus {
    let count = |wanted: u8| status.instances.iter().filter(|one| rank(one) == wanted).count() as i64;
    let degraded = count(0);
    let instances = Instances {
        total: status.instances.len() as i64,
        scheduled: status.instances.iter().filter(|one| is_true(one, POD_GROUP_SCHEDULED)).count() as i64,
        waiting: status.instances.iter().filter(|one| !is_true(one, POD_GROUP_SCHEDULED)).count() as i64,
        degraded,
    };
    let mut worst_first: Vec<&InstanceStatus> = status.instances.iter().collect();
    worst_first.sort_by_key(|one| rank(one));
    let pod_groups = worst_first.into_iter().take(MAX_GROUPS_IN_STATUS).map(|one| WorkloadGroupStatus {
        name: one.group.clone(),
        replica_key: one.replica.clone(),
        total: one.counts.total,
        scheduled: one.counts.scheduled,
        running: one.counts.running,
        succeeded: one.counts.succeeded,
        failed: one.counts.failed,
        conditions: one.conditions.clone(),
    });
    WorkloadStatus {
        observed_generation: status.observed_generation,
        conditions: status.conditions.clone(),
        instances: Some(instances),
        pod_groups: pod_groups.collect(),
    }
}
