//! Schemas of the built-in kinds, derived from their Rust types.
//!
//! The types lack the merge keys of lists; clients that need them bring their own.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::authentication::v1 as authentication;
use k8s_openapi::api::authorization::v1 as authorization;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::api::node::v1 as node;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::api::scheduling::v1 as scheduling;
use k8s_openapi::api::scheduling::v1alpha3 as alpha_groups;
use k8s_openapi::api::scheduling::v1beta1 as groups;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};

/// Adds the schema of ObjectMeta.
pub(super) fn describe_metadata(generator: &mut SchemaGenerator) {
    generator.subschema_for::<ObjectMeta>();
}

/// The name of that schema.
pub(super) fn metadata_name() -> String {
    ObjectMeta::schema_name().into_owned()
}

fn add<T: JsonSchema>(generator: &mut SchemaGenerator) -> String {
    generator.subschema_for::<T>();
    T::schema_name().into_owned()
}

/// Adds the schema of a kind and of all its parts. Returns its name.
pub(super) fn describe(generator: &mut SchemaGenerator, group: &str, version: &str, kind: &str) -> Option<String> {
    let add = match (group, version, kind) {
        ("", "v1", kind) => of_core(kind)?,
        ("apps", "v1", "ControllerRevision") => add::<apps::ControllerRevision>,
        ("apps", "v1", "DaemonSet") => add::<apps::DaemonSet>,
        ("apps", "v1", "Deployment") => add::<apps::Deployment>,
        ("apps", "v1", "ReplicaSet") => add::<apps::ReplicaSet>,
        ("apps", "v1", "StatefulSet") => add::<apps::StatefulSet>,
        ("authentication.k8s.io" | "authorization.k8s.io", "v1", kind) => of_reviews(kind)?,
        ("batch", "v1", "CronJob") => add::<batch::CronJob>,
        ("batch", "v1", "Job") => add::<batch::Job>,
        ("coordination.k8s.io", "v1", "Lease") => add::<coordination::Lease>,
        ("discovery.k8s.io", "v1", "EndpointSlice") => add::<discovery::EndpointSlice>,
        ("events.k8s.io", "v1", "Event") => add::<events::Event>,
        ("node.k8s.io", "v1", "RuntimeClass") => add::<node::RuntimeClass>,
        ("policy", "v1", "PodDisruptionBudget") => add::<policy::PodDisruptionBudget>,
        ("scheduling.k8s.io", "v1", "PriorityClass") => add::<scheduling::PriorityClass>,
        ("scheduling.k8s.io", "v1beta1", "PodGroup") => add::<groups::PodGroup>,
        ("scheduling.k8s.io", "v1beta1", "Workload") => add::<groups::Workload>,
        ("scheduling.k8s.io", "v1alpha3", "PodGroup") => add::<alpha_groups::PodGroup>,
        ("scheduling.k8s.io", "v1alpha3", "Workload") => add::<alpha_groups::Workload>,
        ("resource.k8s.io", "v1", kind) => of_resource(kind)?,
        ("storage.k8s.io", "v1", kind) => of_storage(kind)?,
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition") => add::<apiextensions::CustomResourceDefinition>,
        _ => return None,
    };
    Some(add(generator))
}

fn of_core(kind: &str) -> Option<fn(&mut SchemaGenerator) -> String> {
    Some(match kind {
        "ConfigMap" => add::<core::ConfigMap>,
        "Endpoints" => add::<core::Endpoints>,
        "Event" => add::<core::Event>,
        "LimitRange" => add::<core::LimitRange>,
        "Namespace" => add::<core::Namespace>,
        "Node" => add::<core::Node>,
        "PersistentVolume" => add::<core::PersistentVolume>,
        "PersistentVolumeClaim" => add::<core::PersistentVolumeClaim>,
        "Pod" => add::<core::Pod>,
        "PodTemplate" => add::<core::PodTemplate>,
        "ReplicationController" => add::<core::ReplicationController>,
        "ResourceQuota" => add::<core::ResourceQuota>,
        "Secret" => add::<core::Secret>,
        "Service" => add::<core::Service>,
        "ServiceAccount" => add::<core::ServiceAccount>,
        _ => return None,
    })
}

fn of_reviews(kind: &str) -> Option<fn(&mut SchemaGenerator) -> String> {
    Some(match kind {
        "LocalSubjectAccessReview" => add::<authorization::LocalSubjectAccessReview>,
        "SelfSubjectAccessReview" => add::<authorization::SelfSubjectAccessReview>,
        "SelfSubjectReview" => add::<authentication::SelfSubjectReview>,
        "SelfSubjectRulesReview" => add::<authorization::SelfSubjectRulesReview>,
        "SubjectAccessReview" => add::<authorization::SubjectAccessReview>,
        "TokenReview" => add::<authentication::TokenReview>,
        _ => return None,
    })
}

fn of_resource(kind: &str) -> Option<fn(&mut SchemaGenerator) -> String> {
    Some(match kind {
        "DeviceClass" => add::<resource::DeviceClass>,
        "ResourceClaim" => add::<resource::ResourceClaim>,
        "ResourceClaimTemplate" => add::<resource::ResourceClaimTemplate>,
        "ResourceSlice" => add::<resource::ResourceSlice>,
        _ => return None,
    })
}

fn of_storage(kind: &str) -> Option<fn(&mut SchemaGenerator) -> String> {
    Some(match kind {
        "CSIDriver" => add::<storage::CSIDriver>,
        "CSINode" => add::<storage::CSINode>,
        "CSIStorageCapacity" => add::<storage::CSIStorageCapacity>,
        "StorageClass" => add::<storage::StorageClass>,
        "VolumeAttachment" => add::<storage::VolumeAttachment>,
        _ => return None,
    })
}
