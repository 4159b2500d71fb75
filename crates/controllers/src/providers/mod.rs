//! In whose words the gang of a LeaderWorkerSet's replica is written: one file for each scheduler.
//!
//! People who keep their scheduler can so use these controllers alone. A provider decides and writes nothing itself:
//! it is given what there is and answers what is to be written.

mod ensure;
mod muster;
mod native;
mod scheduler_plugins;
mod volcano;
mod yunikorn;

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::InvalidField;
use muster_api::makers::leader_worker_set::Replica;
use muster_api::makers::{Joining, ProviderName};
use muster_api::native::NativeVersion;
use muster_api::resources::BaseUnits;
use muster_api::selector::Labels;
use muster_api::wire::Pod;

use crate::plans::Plan;

/// The gang of a replica, as it should be.
#[derive(Clone, Debug)]
pub struct ReplicaGang {
    /// The namespace.
    pub namespace: String,
    /// Which replica.
    pub replica: Replica,
    /// Its leader: the group goes when that goes.
    pub leader: OwnerReference,
    /// How many pods start together.
    pub min_member: i64,
    /// What the whole replica asks for.
    pub min_resources: BaseUnits,
    /// How many pods ask for that.
    pub pods: i64,
    /// The class of the leader's priority; empty if it has none.
    pub priority_class_name: String,
    /// The annotations of the set.
    pub set_annotations: Labels,
}

/// How a scheduler has the gangs of replicas.
pub trait SchedulerProvider: Debug + Send + Sync {
    /// The kind of its groups; `None` if it has none.
    fn resource(&self) -> Option<ApiResource>;

    /// The name by which pods ask for its scheduler, if that is not ours.
    fn scheduler_name(&self) -> Option<&'static str>;

    /// The name of the group of a replica.
    fn group_name(&self, replica: &Replica) -> String;

    /// What has to be written so that the group of a replica is there as it should be: nothing if it is.
    fn create_pod_group_if_not_exists(&self, gang: &ReplicaGang, current: Option<&DynamicObject>) -> Plan;

    /// By what a pod joins the group of its replica.
    fn inject_pod_group_metadata(&self, replica: &Replica, pod: &Pod) -> Result<Joining, InvalidField>;
}

/// Whether pods that ask for a scheduler by this name are in the gangs of a provider, beside a Muster with these names.
pub(crate) fn gangs_pods_of(provider: &dyn SchedulerProvider, asked: &str, ours: &[String]) -> bool {
    // Muster reads the groups of others, but no words without an object.
    let is_ours = provider.resource().is_some() && ours.iter().any(|name| name == asked);
    is_ours || provider.scheduler_name() == Some(asked)
}

/// The provider of a name, on a cluster that serves this version of groups of its own, if it serves what is needed.
pub fn provider(name: ProviderName, native: Option<NativeVersion>) -> Option<Box<dyn SchedulerProvider>> {
    Some(match name {
        ProviderName::Muster => Box::new(muster::Muster),
        ProviderName::Native => Box::new(native::Native(native?)),
        ProviderName::Volcano => Box::new(volcano::Volcano),
        ProviderName::SchedulerPlugins => Box::new(scheduler_plugins::SchedulerPlugins),
        ProviderName::YuniKorn => Box::new(yunikorn::YuniKorn),
    })
}
