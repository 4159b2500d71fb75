//! The scheduler providers of KEP-407: how each supported scheduler represents the gang of a LeaderWorkerSet's replica.
//!
//! They make it possible to use these controllers with another scheduler. A provider only decides: it gets the current
//! object and returns the writes.

mod ensure;
mod muster;
mod native;
mod scheduler_plugins;
mod volcano;
pub mod yunikorn;

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject};
use muster_api::group::DisruptionMode;
use muster_api::invalid::InvalidField;
use muster_api::native::NativeVersion;
use muster_api::owners::leader_worker_set::Replica;
use muster_api::owners::{Membership, ProviderName};
use muster_api::resources::BaseUnits;
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use muster_api::wire::pod::PodSpec;

use crate::reconcile::Plan;

/// The desired gang of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaGang {
    /// The namespace.
    pub namespace: String,
    /// The replica.
    pub replica: Replica,
    /// The leader pod, which owns the group object.
    pub leader: OwnerReference,
    /// The minimum number of pods that start together.
    pub min_member: i64,
    /// The requests of the whole replica.
    pub min_resources: BaseUnits,
    /// The number of pods that `min_resources` covers.
    pub pods: i64,
    /// The number of pods of the replica.
    pub size: i64,
    /// What its workers require, if they are created only after their leader runs.
    pub later_worker: Option<PodSpec>,
    /// The leader's `priorityClassName`; may be empty.
    pub priority_class_name: String,
    /// Whether its pods are evicted individually or together.
    pub disruption_mode: DisruptionMode,
    /// The cost of evicting the replica, if the set declares one.
    pub preemption_cost: Option<i32>,
    /// The annotations of the set.
    pub set_annotations: Labels,
}

/// How a scheduler represents the gangs of replicas.
pub trait SchedulerProvider: Debug + Send + Sync {
    /// The kind of its group objects; `None` if it has none.
    fn resource(&self) -> Option<ApiResource>;

    /// The `schedulerName` of its scheduler, if that is not Muster.
    fn scheduler_name(&self) -> Option<&'static str>;

    /// The name of the group of a replica.
    fn group_name(&self, replica: &Replica) -> String;

    /// The writes that bring the group of a replica to the desired state; none if it is there already.
    fn create_pod_group_if_not_exists(&self, gang: &ReplicaGang, current: Option<&DynamicObject>) -> Plan;

    /// The labels, annotations and fields by which a pod joins the group of its replica.
    fn inject_pod_group_metadata(&self, replica: &Replica, pod: &Pod) -> Result<Membership, InvalidField>;
}

/// Whether a provider makes gangs of pods with this `schedulerName`: it is the provider's own, or one of Muster's,
/// which schedules the group objects of all providers.
pub(crate) fn handles_scheduler(
    provider: &dyn SchedulerProvider,
    scheduler_name: &str,
    muster_names: &[String],
) -> bool {
    // Muster reads the group objects of other schedulers, but no annotations without an object.
    let is_muster = provider.resource().is_some() && muster_names.iter().any(|name| name == scheduler_name);
    is_muster || provider.scheduler_name() == Some(scheduler_name)
}

/// The provider with this name; `None` if it needs native groups and the cluster serves none.
pub fn provider(name: ProviderName, native: Option<NativeVersion>) -> Option<Box<dyn SchedulerProvider>> {
    Some(match name {
        ProviderName::Muster => Box::new(muster::Muster),
        ProviderName::Native => Box::new(native::Native(native?)),
        ProviderName::Volcano => Box::new(volcano::Volcano),
        ProviderName::SchedulerPlugins => Box::new(scheduler_plugins::SchedulerPlugins),
        ProviderName::YuniKorn => Box::new(yunikorn::YuniKorn),
    })
}
