//! Kubernetes' CompositePodGroup (1.37, v1alpha3): a group whose members are PodGroups and further CompositePodGroups,
//! which
//! name it as their parent.
//!
//! No pod names one. Must not depend on other objects: how the groups make up trees is up to the engine.

use kube::core::ApiResource;
use muster_api::invalid::InvalidField;
use muster_api::keys::conditions::COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED;
use muster_api::native::composite_pod_group::{CompositePodGroup, CompositePodGroupSpec};
use muster_api::native::{NativeVersion, validate_composite_pod_group};
use muster_api::wire::Pod;
use muster_engine::model::group::{DisruptionMode, Policy, PreemptionPolicy};

use super::group_object::GroupObject;
use super::native_conditions::{current_status, patch};
use super::native_pod_group::topology;
use super::parsed_group::{NumberBy, Parent, ParsedGroup, PriorityField, WithoutClass};
use super::status::ObjectStatus;
use super::{Dialect, Reference, StatusPatch};

/// The origin of the groups of this dialect.
pub(super) const ORIGIN: &str = "scheduling.k8s.io/CompositePodGroup";

/// `compositepodgroups.scheduling.k8s.io`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeCompositePodGroup;

impl Dialect for NativeCompositePodGroup {
    fn origin(&self) -> &'static str {
        ORIGIN
    }

    fn resource(&self) -> ApiResource {
        NativeVersion::composite_pod_groups()
    }

    fn reference(&self, _: &Pod) -> Option<Result<Reference, InvalidField>> {
        None
    }

    fn read(&self, text: &str) -> GroupObject {
        let object: CompositePodGroup = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return GroupObject::unreadable(text, &error),
        };
        let group = match validate_composite_pod_group(&object).into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(vec![(String::new(), group(&object.spec))]),
        };
        let mut read = GroupObject {
            groups: group,
            current_status: current_status(&object.status.conditions, COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.apply_min_resources(&object.metadata);
        read.apply_disruption_mode(&object.metadata);
        read.apply_later_pods(&object.metadata);
        read.apply_parent(&object.metadata);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        // The kind is a built-in one, but the list of its conditions is merged by type, too.
        patch(object, status, COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED)
    }
}

/// The parent that a group names.
pub(super) fn parent(name: Option<&str>) -> Option<Parent> {
    name.map(|name| Parent { origin: ORIGIN, group: name.to_owned() })
}

fn group(spec: &CompositePodGroupSpec) -> ParsedGroup {
    let all = spec.disruption_mode.as_ref().is_some_and(|mode| mode.all.is_some());
    // The server accepts no count below 1; without a minimum, one group is enough.
    let min_groups = spec.scheduling_policy.gang.as_ref().map_or(1, |gang| gang.min_group_count.unsigned_abs());
    ParsedGroup {
        parent: parent(spec.parent_composite_pod_group_name.as_deref()),
        priority: PriorityField {
            class: Some(spec.priority_class_name.clone()).filter(|name| !name.is_empty()),
            number: spec.priority,
            number_by: NumberBy::Server,
            without_class: WithoutClass::Default,
        },
        preemption_policy: spec.preemption_policy.as_deref().map(|policy| match policy {
            "Never" => PreemptionPolicy::Never,
            _ => PreemptionPolicy::LowerPriority,
        }),
        disruption_mode: if all { DisruptionMode::Group } else { DisruptionMode::Pod },
        topology: topology(spec.scheduling_constraints.as_ref()),
        ..ParsedGroup::with_policy(Policy::Groups { min_groups }, WithoutClass::Default)
    }
}
