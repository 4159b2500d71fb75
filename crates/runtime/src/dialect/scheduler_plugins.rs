//! The PodGroup of scheduler-plugins (coscheduling): a pod names it by a label, the object is the group.
//!
//! Its status has a phase and counters but no conditions, so events and the pods' conditions explain why a group waits.
//! `scheduleStartTime` is the time when the start was decided that gave it its minimum: a later process knows from it
//! that the group has started, and which of its members belong to that start. Phases are those that its own controller
//! would write, so that both agree where that one runs too.

use kube::core::ApiResource;
use muster_api::group::{count, min_resources, schedule_timeout};
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::names::check_dns_subdomain;
use muster_api::other_schedulers::scheduler_plugins::{POD_GROUP_LABEL, PodGroup, PodGroupSpec, PodGroupStatus};
use muster_api::resources::list_in_base_units;
use muster_api::wire::Pod;
use muster_engine::model::group::Policy;

use super::condition::{CurrentInstance, CurrentStatus, text_of};
use super::group_error::GroupError;
use super::group_object::GroupObject;
use super::parsed_group::{ParsedGroup, WithoutClass};
use super::recorded_start;
use super::status::{InstanceStatus, ObjectStatus};
use super::{Dialect, Reference, StatusPatch};

const PENDING: &str = "Pending";
const SCHEDULING: &str = "Scheduling";
const RUNNING: &str = "Running";
const FINISHED: &str = "Finished";
const FAILED: &str = "Failed";

/// `podgroups.scheduling.x-k8s.io`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulerPlugins;

impl Dialect for SchedulerPlugins {
    fn origin(&self) -> &'static str {
        "scheduling.x-k8s.io/PodGroup"
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<PodGroup>(&())
    }

    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>> {
        let name = pod.metadata.labels.as_ref()?.get(POD_GROUP_LABEL).filter(|name| !name.is_empty())?;
        let path = FieldPath::Root("metadata.labels");
        if let Err(reason) = check_dns_subdomain(name) {
            return Some(Err(path.key(POD_GROUP_LABEL).invalid(name, reason)));
        }
        Some(Ok(Reference::to_object(name)))
    }

    fn read(&self, text: &str) -> GroupObject {
        let object: PodGroup = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return GroupObject::unreadable(text, &error),
        };
        let mut read = GroupObject {
            groups: parse(&object.spec).map(|group| vec![(String::new(), group)]),
            current_status: current_status(&object),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.refuse_min_resources(&object.metadata);
        read.apply_disruption_mode(&object.metadata);
        read.apply_later_pods(&object.metadata);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        let status = new_status(status.instances.first()?, &object.current_status);
        (text_of(&status) != object.current_status.text).then(|| object.merge_patch(&status))
    }
}

fn parse(spec: &PodGroupSpec) -> Result<ParsedGroup, GroupError> {
    let path = FieldPath::Root("spec");
    let least = min_resources(&spec.min_resources, &path.child("minResources"))?;
    let timeout = match &spec.schedule_timeout_seconds {
        // As in scheduler-plugins, where mpi-operator writes it by default.
        zero if zero.as_i64() == Some(0) => None,
        written => schedule_timeout(written, &path.child("scheduleTimeoutSeconds"))?,
    };
    let min_count = count(&spec.min_member, &path.child("minMember"))?.unsigned_abs();
    Ok(ParsedGroup {
        schedule_timeout_ms: timeout.map(|seconds| u64::from(seconds) * 1000),
        min_resources: list_in_base_units(&least, &path.child("minResources"))?,
        ranked_by_object: true,
        ..ParsedGroup::with_policy(Policy::Gang { min_count }, WithoutClass::LowestMember)
    })
}

fn current_status(object: &PodGroup) -> CurrentStatus {
    let status = &object.status;
    // The minimum at the start is not recorded; its members are stamped with it.
    let condition = status.schedule_start_time.as_ref().map(recorded_start::started);
    let instance = CurrentInstance { conditions: condition.into_iter().collect() };
    CurrentStatus {
        instances: [((String::new(), String::new()), instance)].into(),
        phase: status.phase.clone(),
        may_be_written_by_others: true,
        text: text_of(status),
        ..CurrentStatus::default()
    }
}

fn new_status(instance: &InstanceStatus, shown: &CurrentStatus) -> PodGroupStatus {
    let counts = &instance.counts;
    let schedule_start_time = recorded_start::decided(&instance.conditions);
    let (running, succeeded, failed) = (counts.running, counts.succeeded, counts.failed);
    PodGroupStatus { phase: phase(instance, &shown.phase).to_owned(), running, succeeded, failed, schedule_start_time }
}

/// The phase of the group. A finished group stays finished when its pods are cleaned up.
fn phase<'a>(instance: &InstanceStatus, shown: &'a str) -> &'a str {
    let counts = &instance.counts;
    // Without gang scheduling there is no minimum; still a group has not finished before one of its pods has.
    let minimum = i64::from(instance.minimum).max(1);
    let ended = [FINISHED, FAILED].contains(&shown);
    match () {
        () if counts.total == 0 && ended => shown,
        () if instance.policy.is_empty() || counts.total < minimum => PENDING,
        () if counts.succeeded >= minimum => FINISHED,
        () if counts.failed > 0 && counts.failed + counts.running + counts.succeeded >= minimum => FAILED,
        () if counts.succeeded + counts.running >= minimum => RUNNING,
        () => SCHEDULING,
    }
}
