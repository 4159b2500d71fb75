//! The table of built-in kinds.
//!
//! A kind without further entries is decoded as its type and has neither defaults nor validation beyond its metadata:
//! it exists for clients that need it.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::authentication::v1 as authentication;
use k8s_openapi::api::authorization::v1 as authorization;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::api::node::v1 as node_api;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::api::scheduling::v1 as scheduling;
use k8s_openapi::api::storage::v1 as storage;
use serde_json::{Value, json};

use super::names::NameRule;
use super::typed_decode::decode_as;
use super::{
    Builtin, config_map, copy_field, default_field, definition, definition_validation, event, job, lease, namespace,
    node, persistent_volume, persistent_volume_claim, pod, pod_defaults, pod_disruption_budget, pod_status,
    pod_templates, pod_update, priority_class, rollouts, storage as storage_kinds,
};

/// A kind without a strategy of its own.
pub(super) const PLAIN: Builtin = Builtin {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short_names: &[],
    namespaced: true,
    stored_in: None,
    decode: Ok,
    opaque: None,
    to_stored: None,
    from_stored: None,
    fields: &[],
    field_labels: &[],
    subresources: &[],
    generation: false,
    allows_unconditional_update: true,
    allows_create_on_update: false,
    is_review: false,
    returns_deleted: false,
    orphans_by_default: false,
    name_rule: NameRule::Subdomain,
    set_defaults: |_| {},
    prepare_for_create: |_| {},
    prepare_for_update: |_, _| {},
    prepare_for_status_update: restore_spec,
    validate: |_| Vec::new(),
    validate_update: |_, _| Vec::new(),
    validate_status_update: |_, _| Vec::new(),
    gated: None,
};

/// A kind with `generation` and a `status` subresource.
pub(super) const CONTROLLED: Builtin = Builtin {
    subresources: &["status"],
    generation: true,
    prepare_for_create: clear_status,
    prepare_for_update: restore_status,
    ..PLAIN
};

/// A review, which is cluster-scoped.
const REVIEW: Builtin = Builtin { group: "authorization.k8s.io", namespaced: false, is_review: true, ..PLAIN };

const SCALED: &[&str] = &["status", "scale"];
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    // The reporting component, in the old or the new field.
    "source.component|reportingComponent",
    "type",
];
const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "source",
    "type",
];
/// The names of the same fields in `v1`.
const CORE_EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// All built-in kinds.
pub(super) const BUILTINS: &[Builtin] = &[
    Builtin {
        kind: "Pod",
        plural: "pods",
        short_names: &["po"],
        decode: decode_as::<core::Pod>,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork=false",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        subresources: &["status", "binding", "eviction", "log"],
        generation: true,
        returns_deleted: true,
        set_defaults: pod_defaults::set_defaults,
        prepare_for_create: pod::prepare_for_create,
        prepare_for_update: pod::prepare_for_update,
        prepare_for_status_update: |pod, old| {
            pod::prepare_for_status_update(pod, old);
            pod_status::set_defaults(pod);
        },
        validate: pod::validate,
        validate_update: pod_update::validate,
        validate_status_update: pod_status::validate_update,
        ..PLAIN
    },
    Builtin {
        kind: "Node",
        plural: "nodes",
        short_names: &["no"],
        namespaced: false,
        decode: decode_as::<core::Node>,
        fields: &["spec.unschedulable=false"],
        subresources: &["status"],
        set_defaults: node::set_defaults,
        prepare_for_create: node::prepare_for_create,
        prepare_for_update: node::prepare_for_update,
        prepare_for_status_update: node::prepare_for_status_update,
        validate: node::validate,
        validate_update: node::validate_update,
        validate_status_update: node::validate_update,
        ..PLAIN
    },
    Builtin {
        kind: "Namespace",
        plural: "namespaces",
        short_names: &["ns"],
        namespaced: false,
        decode: decode_as::<core::Namespace>,
        fields: &["status.phase"],
        subresources: &["status"],
        returns_deleted: true,
        name_rule: NameRule::Label,
        set_defaults: namespace::set_defaults,
        prepare_for_create: namespace::prepare_for_create,
        prepare_for_update: namespace::prepare_for_update,
        prepare_for_status_update: namespace::prepare_for_status_update,
        ..PLAIN
    },
    Builtin {
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        decode: event::decode::<core::Event>,
        fields: EVENT_FIELDS,
        field_labels: CORE_EVENT_FIELDS,
        allows_create_on_update: true,
        name_rule: NameRule::PathSegment,
        set_defaults: event::set_defaults,
        validate: |new| event::validate(new, event::Api::Core),
        validate_update: |new, _| event::validate(new, event::Api::Core),
        ..PLAIN
    },
    Builtin {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        stored_in: Some(""),
        decode: event::decode::<events::Event>,
        to_stored: Some(event::to_stored),
        from_stored: Some(event::from_stored),
        fields: EVENT_FIELDS,
        field_labels: NEW_EVENT_FIELDS,
        allows_create_on_update: true,
        set_defaults: event::set_defaults,
        validate: event::validate_new,
        validate_update: event::validate_new_update,
        ..PLAIN
    },
    Builtin {
        kind: "ConfigMap",
        plural: "configmaps",
        short_names: &["cm"],
        decode: decode_as::<core::ConfigMap>,
        validate: config_map::validate,
        validate_update: config_map::validate_update,
        ..PLAIN
    },
    Builtin {
        kind: "Secret",
        plural: "secrets",
        decode: decode_as::<core::Secret>,
        fields: &["type"],
        set_defaults: |secret| default_field(secret, "type", "Opaque".into()),
        ..PLAIN
    },
    Builtin {
        kind: "Service",
        plural: "services",
        short_names: &["svc"],
        decode: decode_as::<core::Service>,
        subresources: &["status"],
        allows_create_on_update: true,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short_names: &["sa"],
        decode: decode_as::<core::ServiceAccount>,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        kind: "Endpoints",
        plural: "endpoints",
        short_names: &["ep"],
        decode: decode_as::<core::Endpoints>,
        allows_create_on_update: true,
        ..PLAIN
    },
    Builtin {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        short_names: &["pvc"],
        decode: decode_as::<core::PersistentVolumeClaim>,
        subresources: &["status"],
        returns_deleted: true,
        set_defaults: persistent_volume_claim::set_defaults,
        prepare_for_create: persistent_volume_claim::prepare_for_create,
        prepare_for_update: persistent_volume_claim::prepare_for_update,
        validate: persistent_volume_claim::validate,
        validate_update: persistent_volume_claim::validate_update,
        validate_status_update: persistent_volume_claim::validate_status_update,
        ..PLAIN
    },
    Builtin {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        short_names: &["pv"],
        namespaced: false,
        decode: decode_as::<core::PersistentVolume>,
        subresources: &["status"],
        returns_deleted: true,
        set_defaults: persistent_volume::set_defaults,
        prepare_for_create: persistent_volume::prepare_for_create,
        prepare_for_update: restore_status,
        validate: persistent_volume::validate,
        validate_update: persistent_volume::validate_update,
        ..PLAIN
    },
    Builtin {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        short_names: &["rc"],
        decode: decode_as::<core::ReplicationController>,
        fields: &["status.replicas"],
        subresources: SCALED,
        set_defaults: pod_templates::set_replicas_defaults,
        orphans_by_default: true,
        ..CONTROLLED
    },
    Builtin {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        short_names: &["quota"],
        decode: decode_as::<core::ResourceQuota>,
        subresources: &["status"],
        returns_deleted: true,
        prepare_for_update: restore_status,
        ..PLAIN
    },
    Builtin {
        kind: "LimitRange",
        plural: "limitranges",
        short_names: &["limits"],
        decode: decode_as::<core::LimitRange>,
        allows_create_on_update: true,
        ..PLAIN
    },
    Builtin {
        kind: "PodTemplate",
        plural: "podtemplates",
        decode: decode_as::<core::PodTemplate>,
        returns_deleted: true,
        set_defaults: pod_templates::set_template_defaults,
        ..PLAIN
    },
    Builtin {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        short_names: &["rs"],
        decode: pod_templates::decode::<apps::ReplicaSet>,
        subresources: SCALED,
        set_defaults: pod_templates::set_replicas_defaults,
        prepare_for_create: pod_templates::no_replicas,
        validate: pod_templates::validate,
        validate_update: pod_templates::validate_selector_unchanged,
        ..CONTROLLED
    },
    Builtin {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        short_names: &["deploy"],
        decode: pod_templates::decode::<apps::Deployment>,
        subresources: SCALED,
        set_defaults: rollouts::set_deployment_defaults,
        validate: rollouts::validate_deployment,
        validate_update: rollouts::validate_deployment_update,
        ..CONTROLLED
    },
    Builtin {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        short_names: &["sts"],
        decode: pod_templates::decode::<apps::StatefulSet>,
        subresources: SCALED,
        name_rule: NameRule::Label,
        set_defaults: rollouts::set_stateful_defaults,
        prepare_for_create: rollouts::prepare_stateful,
        validate: rollouts::validate_stateful,
        validate_update: rollouts::validate_stateful_update,
        ..CONTROLLED
    },
    Builtin {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        short_names: &["ds"],
        decode: pod_templates::decode::<apps::DaemonSet>,
        set_defaults: pod_templates::set_daemon_defaults,
        validate: pod_templates::validate,
        ..CONTROLLED
    },
    Builtin {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        decode: decode_as::<apps::ControllerRevision>,
        opaque: Some("data"),
        validate: rollouts::validate_revision,
        validate_update: rollouts::validate_revision_update,
        ..PLAIN
    },
    Builtin {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        decode: decode_as::<batch::Job>,
        fields: &["status.succeeded=0"],
        field_labels: &["status.successful"],
        set_defaults: job::set_defaults,
        prepare_for_create: job::prepare_for_create,
        validate: job::validate,
        validate_update: job::validate_update,
        orphans_by_default: true,
        ..CONTROLLED
    },
    Builtin {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        short_names: &["cj"],
        decode: decode_as::<batch::CronJob>,
        set_defaults: job::set_cron_defaults,
        ..CONTROLLED
    },
    Builtin {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        short_names: &["pdb"],
        decode: decode_as::<policy::PodDisruptionBudget>,
        allows_unconditional_update: false,
        set_defaults: pod_disruption_budget::set_defaults,
        prepare_for_create: pod_disruption_budget::prepare_for_create,
        validate: pod_disruption_budget::validate,
        validate_update: |new, _| pod_disruption_budget::validate(new),
        validate_status_update: pod_disruption_budget::validate_status_update,
        ..CONTROLLED
    },
    Builtin {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short_names: &["pc"],
        namespaced: false,
        decode: decode_as::<scheduling::PriorityClass>,
        generation: false,
        set_defaults: priority_class::set_defaults,
        prepare_for_create: |class| class["metadata"]["generation"] = 1.into(),
        validate: priority_class::validate,
        validate_update: priority_class::validate_update,
        ..PLAIN
    },
    Builtin {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        decode: lease::decode,
        allows_unconditional_update: false,
        allows_create_on_update: true,
        set_defaults: lease::set_defaults,
        validate: lease::validate,
        validate_update: |new, _| lease::validate(new),
        ..PLAIN
    },
    Builtin {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short_names: &["crd", "crds"],
        namespaced: false,
        decode: definition::decode,
        allows_unconditional_update: false,
        set_defaults: definition::set_defaults,
        prepare_for_create: definition::prepare_for_create,
        prepare_for_update: definition::prepare_for_update,
        validate: definition_validation::validate,
        validate_update: definition_validation::validate_update,
        ..CONTROLLED
    },
    Builtin {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        namespaced: false,
        decode: decode_as::<node_api::RuntimeClass>,
        allows_unconditional_update: false,
        allows_create_on_update: true,
        ..PLAIN
    },
    Builtin {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        decode: decode_as::<discovery::EndpointSlice>,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "StorageClass",
        plural: "storageclasses",
        short_names: &["sc"],
        namespaced: false,
        decode: decode_as::<storage::StorageClass>,
        returns_deleted: true,
        set_defaults: storage_kinds::set_class_defaults,
        validate: storage_kinds::validate_class,
        validate_update: storage_kinds::validate_class_update,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "CSINode",
        plural: "csinodes",
        namespaced: false,
        decode: decode_as::<storage::CSINode>,
        subresources: &["status"],
        allows_unconditional_update: false,
        returns_deleted: true,
        set_defaults: storage_kinds::set_node_defaults,
        prepare_for_status_update: storage_kinds::prepare_for_status_update,
        validate: storage_kinds::validate_node,
        validate_update: storage_kinds::validate_node_update,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "CSIDriver",
        plural: "csidrivers",
        namespaced: false,
        decode: decode_as::<storage::CSIDriver>,
        allows_unconditional_update: false,
        returns_deleted: true,
        set_defaults: storage_kinds::set_driver_defaults,
        prepare_for_update: storage_kinds::prepare_driver_for_update,
        validate: storage_kinds::validate_driver,
        validate_update: storage_kinds::validate_driver_update,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        decode: storage_kinds::decode_capacity,
        allows_unconditional_update: false,
        validate: storage_kinds::validate_capacity,
        validate_update: storage_kinds::validate_capacity_update,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        namespaced: false,
        decode: decode_as::<storage::VolumeAttachment>,
        subresources: &["status"],
        allows_unconditional_update: false,
        returns_deleted: true,
        set_defaults: storage_kinds::set_attachment_defaults,
        prepare_for_create: storage_kinds::prepare_attachment_for_create,
        prepare_for_update: restore_status,
        prepare_for_status_update: storage_kinds::prepare_for_status_update,
        validate: storage_kinds::validate_attachment,
        validate_update: storage_kinds::validate_attachment_update,
        ..PLAIN
    },
    Builtin {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        plural: "resourceclaims",
        decode: decode_as::<resource::ResourceClaim>,
        returns_deleted: true,
        ..CONTROLLED
    },
    Builtin {
        group: "resource.k8s.io",
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        decode: decode_as::<resource::ResourceClaimTemplate>,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        plural: "resourceslices",
        namespaced: false,
        decode: decode_as::<resource::ResourceSlice>,
        fields: &["spec.nodeName", "spec.driver"],
        generation: true,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        group: "resource.k8s.io",
        kind: "DeviceClass",
        plural: "deviceclasses",
        namespaced: false,
        decode: decode_as::<resource::DeviceClass>,
        generation: true,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        decode: decode_as::<authorization::SelfSubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        decode: decode_as::<authorization::SelfSubjectRulesReview>,
        ..REVIEW
    },
    Builtin {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        decode: decode_as::<authorization::SubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        decode: decode_as::<authorization::LocalSubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        decode: decode_as::<authentication::TokenReview>,
        ..REVIEW
    },
    Builtin {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        decode: decode_as::<authentication::SelfSubjectReview>,
        ..REVIEW
    },
];

fn clear_status(value: &mut Value) {
    value["status"] = json!({});
}

/// The status cannot be changed through the object.
fn restore_status(value: &mut Value, old: &Value) {
    copy_field(value, "status", old);
}

/// Only the status, labels and annotations can be changed through `status`.
fn restore_spec(value: &mut Value, old: &Value) {
    copy_field(value, "spec", old);
}
