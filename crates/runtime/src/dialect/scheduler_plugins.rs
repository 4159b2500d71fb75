//! The PodGroup of scheduler-plugins (coscheduling), read as it is: a pod names it by a label, the object is the group.
//!
//! Its status has a phase and counters and no room for conditions, so why a group waits is told by events and by its pods.
//! Since when it has had its minimum stands in `scheduleStartTime`: that is what a later process remembers it by. Phases
//! are those that its own controller would write, so that both agree where that one runs, too.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ApiResource;
use muster_api::group::{count, min_resources, schedule_timeout};
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::conditions::STARTED;
use muster_api::names::check_dns_subdomain;
use muster_api::others::scheduler_plugins::{POD_GROUP_LABEL, PodGroup, PodGroupSpec, PodGroupStatus};
use muster_api::resources::list_in_base_units;
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use muster_engine::model::group::Policy;

use super::condition::{Shown, ShownInstance, started, text_of};
use super::draft::{Draft, Flaw, GroupObject, WithoutClass};
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
            groups: draft(&object.spec).map(|draft| vec![(String::new(), draft)]),
            shown: shown(&object),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.refuse_min_resources(&object.metadata);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        let status = printed(status.instances.first()?, &object.shown);
        (text_of(&status) != object.shown.text).then(|| object.merge_patch(&status))
    }
}

fn draft(spec: &PodGroupSpec) -> Result<Draft, Flaw> {
    let path = FieldPath::Root("spec");
    let least = min_resources(&spec.min_resources, &path.child("minResources"))?;
    let timeout = schedule_timeout(&spec.schedule_timeout_seconds, &path.child("scheduleTimeoutSeconds"))?;
    let min_count = count(&spec.min_member, &path.child("minMember"))?.unsigned_abs();
    Ok(Draft {
        schedule_timeout_ms: timeout.map(|seconds| u64::from(seconds) * 1000),
        min_resources: list_in_base_units(&least, &path.child("minResources"))?,
        ranked_by_object: true,
        ..Draft::plain(Policy::Gang { min_count }, WithoutClass::LowestMember)
    })
}

fn shown(object: &PodGroup) -> Shown {
    let status = &object.status;
    // It does not say with which minimum; as far as anybody can tell, with the one that it has.
    let minimum = object.spec.min_member.as_u64().and_then(|minimum| u32::try_from(minimum).ok()).unwrap_or(0);
    let condition = status.schedule_start_time.clone().map(|time| started(minimum, time));
    let instance = ShownInstance { conditions: condition.into_iter().collect() };
    Shown {
        instances: [((String::new(), String::new()), instance)].into(),
        phase: status.phase.clone(),
        may_be_of_others: true,
        text: text_of(status),
        ..Shown::default()
    }
}

fn printed(instance: &InstanceStatus, shown: &Shown) -> PodGroupStatus {
    let counts = &instance.counts;
    let started = Condition::find(&instance.conditions, STARTED).filter(|one| one.is_true());
    let schedule_start_time: Option<Time> = started.and_then(|one| one.last_transition_time.clone());
    let (running, succeeded, failed) = (counts.running, counts.succeeded, counts.failed);
    PodGroupStatus { phase: phase(instance, &shown.phase).to_owned(), running, succeeded, failed, schedule_start_time }
}

/// One word for how the group fares. What has ended stays that when its pods are cleaned up.
fn phase<'a>(instance: &InstanceStatus, shown: &'a str) -> &'a str {
    let counts = &instance.counts;
    // Where gangs are switched off there is no minimum, and still the group has not finished before one of it has.
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
