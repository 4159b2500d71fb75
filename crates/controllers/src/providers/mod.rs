//! In whose words the gang of a LeaderWorkerSet's replica is written: one file for each scheduler.
//!
//! People who keep their scheduler can so use these controllers alone. A provider decides and writes nothing itself:
//! it is given what there is and answers what is to be written.

mod ensure;
mod muster;
mod scheduler_plugins;
mod volcano;
mod yunikorn;

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::InvalidField;
use muster_api::makers::ProviderName;
use muster_api::makers::leader_worker_set::Replica;
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
    /// The class of the leader's priority; empty if it has none.
    pub priority_class_name: String,
    /// The annotations of the set.
    pub set_annotations: Labels,
}

/// By what a pod joins a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
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

/// The provider of a name.
pub fn provider(name: ProviderName) -> Box<dyn SchedulerProvider> {
    match name {
        ProviderName::Muster => Box::new(muster::Muster),
        ProviderName::Volcano => Box::new(volcano::Volcano),
        ProviderName::SchedulerPlugins => Box::new(scheduler_plugins::SchedulerPlugins),
        ProviderName::YuniKorn => Box::new(yunikorn::YuniKorn),
    }
}
