//! A pod's resource lists, validated and with Kubernetes' defaults applied.
//!
//! The API server applies defaults when a pod is created: a missing request is the limit, and pod-level requests follow
//! from the containers (as of Kubernetes 1.37). Objects that did not pass a real API server, as in tests, scenarios and
//! the in-process server, lack them, so they are applied here again. On defaulted objects this changes nothing, with
//! one exception: before 1.37 a pod with pod-level requests but no pod-level limits had no defaults for the other
//! pod-level requests. That can change its score, never its requests.
//!
//! Invariant: every list here is valid. Must not depend on how lists are combined into requests.

use crate::container_demand::{ContainerResources, Overflow, Role, aggregate};
use crate::invalid::{FieldPath, InvalidField};
use crate::resources::{Place, ResourceList, WrittenResources, is_huge_pages, is_pod_level, validate};
use crate::wire::container::{Container, Requirements};
use crate::wire::pod::Pod;
use crate::wire::pod_status::PodStatus;

const SPEC: FieldPath<'static> = FieldPath::Root("spec");
const STATUS: FieldPath<'static> = FieldPath::Root("status");

/// A pod's validated lists.
pub(crate) struct PodDemand {
    pub(crate) containers: Vec<ContainerDemand>,
    /// Pod-level requests; may be empty.
    pub(crate) pod_level: ResourceList,
    pub(crate) overhead: ResourceList,
    /// The kubelet's status, if it is used.
    pub(crate) reported: Option<Reported>,
}

/// A container's validated lists.
pub(crate) struct ContainerDemand {
    pub(crate) role: Role,
    pub(crate) requests: ResourceList,
    limits: ResourceList,
    /// The `allocatedResources`, if reported.
    pub(crate) allocated: Option<ResourceList>,
    /// The actuated requests, if reported.
    pub(crate) actuated: Option<ResourceList>,
}

/// The pod-level status that the kubelet reports.
pub(crate) struct Reported {
    /// The requested resize is infeasible on this node.
    pub(crate) resize_is_infeasible: bool,
    /// Whether `status.resources` is set, even without requests.
    pub(crate) has_resources: bool,
    pub(crate) actuated: Option<ResourceList>,
    pub(crate) allocated: Option<ResourceList>,
}

impl PodDemand {
    /// Validates a pod's lists. The status is read only if `use_status` is set.
    pub(crate) fn read(pod: &Pod, use_status: bool) -> Result<PodDemand, InvalidField> {
        let status = use_status.then_some(&pod.status);
        let mut containers = Vec::new();
        let path = SPEC.child("containers");
        for (index, one) in pod.spec.containers.iter().enumerate() {
            let path = path.index(index);
            containers.push(ContainerDemand::read(one, Role::Main, status, &path)?);
        }
        let path = SPEC.child("initContainers");
        for (index, one) in pod.spec.init_containers.iter().enumerate() {
            let role = if one.is_sidecar() { Role::Sidecar } else { Role::Init };
            containers.push(ContainerDemand::read(one, role, status, &path.index(index))?);
        }
        let pod_level = match &pod.spec.resources {
            None => ResourceList::new(),
            Some(written) => pod_level_requests(written, &containers)?,
        };
        Ok(PodDemand {
            containers,
            pod_level,
            overhead: validate(&pod.spec.overhead, Place::Container, &SPEC.child("overhead"))?,
            reported: status.map(Reported::read).transpose()?,
        })
    }
}

impl ContainerDemand {
    fn read(
        container: &Container,
        role: Role,
        status: Option<&PodStatus>,
        path: &FieldPath<'_>,
    ) -> Result<ContainerDemand, InvalidField> {
        let path = path.child("resources");
        let (mut requests, limits) = read_requirements(&container.resources, Place::Container, &path)?;
        for (name, &limit) in &limits {
            requests.entry(name.clone()).or_insert(limit);
        }
        let mut demand = ContainerDemand { role, requests, limits, allocated: None, actuated: None };
        if let Some(status) = status {
            demand.read_status(&container.name, status)?;
        }
        Ok(demand)
    }

    fn read_status(&mut self, name: &str, status: &PodStatus) -> Result<(), InvalidField> {
        let Some((field, index, reported)) = status.of_container(name) else {
            return Ok(());
        };
        let path = STATUS.child(field);
        let path = path.index(index);
        let allocated = reported.allocated_resources.as_ref();
        self.allocated = read_optional(allocated, &path.child("allocatedResources"))?;
        let actuated = reported.resources.as_ref().and_then(|both| both.requests.as_ref());
        let path = path.child("resources");
        self.actuated = read_optional(actuated, &path.child("requests"))?;
        Ok(())
    }
}

impl Reported {
    fn read(status: &PodStatus) -> Result<Reported, InvalidField> {
        let requests = status.resources.as_ref().and_then(|both| both.requests.as_ref());
        let path = STATUS.child("resources");
        Ok(Reported {
            resize_is_infeasible: status.is_resize_infeasible(),
            has_resources: status.resources.is_some(),
            actuated: read_optional(requests, &path.child("requests"))?,
            allocated: read_optional(status.allocated_resources.as_ref(), &STATUS.child("allocatedResources"))?,
        })
    }
}

/// The pod-level requests with their defaults: for cpu and memory the sum of the containers' requests, else the
/// pod-level limit; for huge pages the pod-level limit, else the containers' limits.
fn pod_level_requests(written: &Requirements, containers: &[ContainerDemand]) -> Result<ResourceList, InvalidField> {
    let path = SPEC.child("resources");
    let (mut requests, limits) = read_requirements(written, Place::Pod, &path)?;
    if requests.is_empty() && limits.is_empty() {
        return Ok(requests);
    }
    let of_requests = sum(containers, |container| &container.requests)?;
    let of_limits = sum(containers, |container| &container.limits)?;
    let from_requests = of_requests.into_iter().filter(|(name, _)| is_pod_level(name) && !is_huge_pages(name));
    let from_limits = of_limits.into_iter().filter(|(name, _)| is_huge_pages(name));
    for (name, amount) in from_requests.chain(limits).chain(from_limits) {
        requests.entry(name).or_insert(amount);
    }
    Ok(requests)
}

fn sum<'a>(
    containers: &'a [ContainerDemand],
    list: impl Fn(&'a ContainerDemand) -> &'a ResourceList,
) -> Result<ResourceList, InvalidField> {
    let resources =
        containers.iter().map(|container| ContainerResources { role: container.role, list: list(container) });
    aggregate(resources, &ResourceList::new()).map_err(|overflow| total_overflow(&overflow))
}

/// The error for a total of the pod that is out of range.
pub(crate) fn total_overflow(overflow: &Overflow) -> InvalidField {
    SPEC.invalid(
        &overflow.addend.to_string(),
        format_args!("makes the pod's total of {} larger than a 64 bit integer holds", overflow.resource),
    )
}

fn read_requirements(
    written: &Requirements,
    place: Place,
    path: &FieldPath<'_>,
) -> Result<(ResourceList, ResourceList), InvalidField> {
    let read = |list: &Option<WrittenResources>, field: &str| match list {
        None => Ok(ResourceList::new()),
        Some(list) => validate(list, place, &path.child(field)),
    };
    Ok((read(&written.requests, "requests")?, read(&written.limits, "limits")?))
}

fn read_optional(
    written: Option<&WrittenResources>,
    path: &FieldPath<'_>,
) -> Result<Option<ResourceList>, InvalidField> {
    written.map(|list| validate(list, Place::Container, path)).transpose()
}
