//! The table of the kinds that are always served.
//!
//! A kind that is not told otherwise is read as its type, has no defaults and no rules beyond its metadata: it is
//! kept for clients that need it to be there.

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
use super::retype::retype;
use super::{
    Builtin, budget, config_map, definition, definition_check, event, job, keep, lease, namespace, node, pod,
    pod_defaults, pod_status, pod_update, present, priority_class, rollouts, templates,
};

/// A kind without rules of its own.
pub(super) const PLAIN: Builtin = Builtin {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short_names: &[],
    namespaced: true,
    stored_in: None,
    read: Ok,
    opaque: None,
    inward: None,
    outward: None,
    fields: &[],
    field_labels: &[],
    subresources: &[],
    generation: false,
    overwrites: true,
    creates_on_update: false,
    reviews: false,
    returns_deleted: false,
    orphans: false,
    name_rule: NameRule::Subdomain,
    complete: |_| {},
    on_create: |_| {},
    on_update: |_, _| {},
    on_status: keep_spec,
    check: |_| Vec::new(),
    check_update: |_, _| Vec::new(),
    check_status: |_, _| Vec::new(),
};

/// A kind with a spec that is counted and a status that only `status` writes.
pub(super) const CONTROLLED: Builtin =
    Builtin { subresources: &["status"], generation: true, on_create: drop_status, on_update: keep_status, ..PLAIN };

/// A question about clients, which are cluster-wide.
const REVIEW: Builtin = Builtin { group: "authorization.k8s.io", namespaced: false, reviews: true, ..PLAIN };

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
    // The component that speaks, by its old name or its new one.
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
/// What clients of `v1` call the same fields.
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

/// All of them.
pub(super) const BUILTINS: &[Builtin] = &[
    Builtin {
        kind: "Pod",
        plural: "pods",
        short_names: &["po"],
        read: retype::<core::Pod>,
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
        complete: pod_defaults::complete,
        on_create: pod::on_create,
        on_update: pod::on_update,
        on_status: |pod, old| {
            pod::on_status(pod, old);
            pod_status::complete(pod);
        },
        check: pod::check,
        check_update: pod_update::check,
        check_status: pod_status::check_update,
        ..PLAIN
    },
    Builtin {
        kind: "Node",
        plural: "nodes",
        short_names: &["no"],
        namespaced: false,
        read: retype::<core::Node>,
        fields: &["spec.unschedulable=false"],
        subresources: &["status"],
        complete: node::complete,
        on_create: node::on_create,
        on_update: node::on_update,
        on_status: node::on_status,
        check: node::check,
        check_update: node::check_update,
        check_status: node::check_update,
        ..PLAIN
    },
    Builtin {
        kind: "Namespace",
        plural: "namespaces",
        short_names: &["ns"],
        namespaced: false,
        read: retype::<core::Namespace>,
        fields: &["status.phase"],
        subresources: &["status"],
        returns_deleted: true,
        name_rule: NameRule::Label,
        complete: namespace::complete,
        on_create: namespace::on_create,
        on_update: namespace::on_update,
        on_status: namespace::on_status,
        ..PLAIN
    },
    Builtin {
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        read: event::read::<core::Event>,
        fields: EVENT_FIELDS,
        field_labels: CORE_EVENT_FIELDS,
        creates_on_update: true,
        name_rule: NameRule::PathSegment,
        complete: event::complete,
        check: |new| event::check(new, event::Api::Core),
        check_update: |new, _| event::check(new, event::Api::Core),
        ..PLAIN
    },
    Builtin {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        stored_in: Some(""),
        read: event::read::<events::Event>,
        inward: Some(event::inward),
        outward: Some(event::outward),
        fields: EVENT_FIELDS,
        field_labels: NEW_EVENT_FIELDS,
        creates_on_update: true,
        complete: event::complete,
        check: event::check_new,
        check_update: event::check_new_update,
        ..PLAIN
    },
    Builtin {
        kind: "ConfigMap",
        plural: "configmaps",
        short_names: &["cm"],
        read: retype::<core::ConfigMap>,
        check: config_map::check,
        check_update: config_map::check_update,
        ..PLAIN
    },
    Builtin {
        kind: "Secret",
        plural: "secrets",
        read: retype::<core::Secret>,
        fields: &["type"],
        complete: |secret| present(secret, "type", "Opaque".into()),
        ..PLAIN
    },
    Builtin {
        kind: "Service",
        plural: "services",
        short_names: &["svc"],
        read: retype::<core::Service>,
        subresources: &["status"],
        creates_on_update: true,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short_names: &["sa"],
        read: retype::<core::ServiceAccount>,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        kind: "Endpoints",
        plural: "endpoints",
        short_names: &["ep"],
        read: retype::<core::Endpoints>,
        creates_on_update: true,
        ..PLAIN
    },
    Builtin {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        short_names: &["pvc"],
        read: retype::<core::PersistentVolumeClaim>,
        subresources: &["status"],
        returns_deleted: true,
        complete: rollouts::complete_claim,
        on_create: rollouts::new_claim,
        on_update: keep_status,
        ..PLAIN
    },
    Builtin {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        short_names: &["pv"],
        namespaced: false,
        read: retype::<core::PersistentVolume>,
        subresources: &["status"],
        returns_deleted: true,
        on_update: keep_status,
        ..PLAIN
    },
    Builtin {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        short_names: &["rc"],
        read: retype::<core::ReplicationController>,
        fields: &["status.replicas"],
        subresources: SCALED,
        complete: templates::complete_replicas,
        orphans: true,
        ..CONTROLLED
    },
    Builtin {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        short_names: &["quota"],
        read: retype::<core::ResourceQuota>,
        subresources: &["status"],
        returns_deleted: true,
        on_update: keep_status,
        ..PLAIN
    },
    Builtin {
        kind: "LimitRange",
        plural: "limitranges",
        short_names: &["limits"],
        read: retype::<core::LimitRange>,
        creates_on_update: true,
        ..PLAIN
    },
    Builtin {
        kind: "PodTemplate",
        plural: "podtemplates",
        read: retype::<core::PodTemplate>,
        returns_deleted: true,
        complete: templates::complete_template,
        ..PLAIN
    },
    Builtin {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        short_names: &["rs"],
        read: templates::read::<apps::ReplicaSet>,
        subresources: SCALED,
        complete: templates::complete_replicas,
        on_create: templates::no_replicas,
        check: templates::check,
        check_update: templates::check_selector_kept,
        ..CONTROLLED
    },
    Builtin {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        short_names: &["deploy"],
        read: templates::read::<apps::Deployment>,
        subresources: SCALED,
        complete: rollouts::complete_deployment,
        check: rollouts::check_deployment,
        check_update: rollouts::check_deployment_update,
        ..CONTROLLED
    },
    Builtin {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        short_names: &["sts"],
        read: templates::read::<apps::StatefulSet>,
        subresources: SCALED,
        name_rule: NameRule::Label,
        complete: rollouts::complete_stateful,
        on_create: rollouts::new_stateful,
        check: rollouts::check_stateful,
        check_update: rollouts::check_stateful_update,
        ..CONTROLLED
    },
    Builtin {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        short_names: &["ds"],
        read: templates::read::<apps::DaemonSet>,
        complete: templates::complete_daemon,
        check: templates::check,
        ..CONTROLLED
    },
    Builtin {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        read: retype::<apps::ControllerRevision>,
        opaque: Some("data"),
        check: rollouts::check_revision,
        check_update: rollouts::check_revision_update,
        ..PLAIN
    },
    Builtin {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        read: retype::<batch::Job>,
        fields: &["status.succeeded=0"],
        field_labels: &["status.successful"],
        complete: job::complete,
        on_create: job::on_create,
        check: job::check,
        check_update: job::check_update,
        orphans: true,
        ..CONTROLLED
    },
    Builtin {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        short_names: &["cj"],
        read: retype::<batch::CronJob>,
        complete: job::complete_cron,
        ..CONTROLLED
    },
    Builtin {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        short_names: &["pdb"],
        read: retype::<policy::PodDisruptionBudget>,
        overwrites: false,
        complete: budget::complete,
        on_create: budget::on_create,
        check: budget::check,
        check_update: |new, _| budget::check(new),
        check_status: budget::check_status,
        ..CONTROLLED
    },
    Builtin {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short_names: &["pc"],
        namespaced: false,
        read: retype::<scheduling::PriorityClass>,
        generation: false,
        complete: priority_class::complete,
        on_create: |class| class["metadata"]["generation"] = 1.into(),
        check: priority_class::check,
        check_update: priority_class::check_update,
        ..PLAIN
    },
    Builtin {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        read: lease::read,
        overwrites: false,
        creates_on_update: true,
        complete: lease::complete,
        check: lease::check,
        check_update: |new, _| lease::check(new),
        ..PLAIN
    },
    Builtin {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short_names: &["crd", "crds"],
        namespaced: false,
        read: definition::read,
        overwrites: false,
        complete: definition::complete,
        on_create: definition::on_create,
        on_update: definition::on_update,
        check: definition_check::check,
        check_update: definition_check::check_update,
        ..CONTROLLED
    },
    Builtin {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        namespaced: false,
        read: retype::<node_api::RuntimeClass>,
        overwrites: false,
        creates_on_update: true,
        ..PLAIN
    },
    Builtin {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        read: retype::<discovery::EndpointSlice>,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "StorageClass",
        plural: "storageclasses",
        short_names: &["sc"],
        namespaced: false,
        read: retype::<storage::StorageClass>,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "CSINode",
        plural: "csinodes",
        namespaced: false,
        read: retype::<storage::CSINode>,
        overwrites: false,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "CSIDriver",
        plural: "csidrivers",
        namespaced: false,
        read: retype::<storage::CSIDriver>,
        overwrites: false,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        read: retype::<storage::CSIStorageCapacity>,
        overwrites: false,
        ..PLAIN
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        namespaced: false,
        read: retype::<storage::VolumeAttachment>,
        subresources: &["status"],
        overwrites: false,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        plural: "resourceclaims",
        read: retype::<resource::ResourceClaim>,
        returns_deleted: true,
        ..CONTROLLED
    },
    Builtin {
        group: "resource.k8s.io",
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        read: retype::<resource::ResourceClaimTemplate>,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        plural: "resourceslices",
        namespaced: false,
        read: retype::<resource::ResourceSlice>,
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
        read: retype::<resource::DeviceClass>,
        generation: true,
        returns_deleted: true,
        ..PLAIN
    },
    Builtin {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        read: retype::<authorization::SelfSubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        read: retype::<authorization::SelfSubjectRulesReview>,
        ..REVIEW
    },
    Builtin {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        read: retype::<authorization::SubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        read: retype::<authorization::LocalSubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        read: retype::<authentication::TokenReview>,
        ..REVIEW
    },
    Builtin {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        read: retype::<authentication::SelfSubjectReview>,
        ..REVIEW
    },
];

fn drop_status(value: &mut Value) {
    value["status"] = json!({});
}

/// The status is not changed through the object.
fn keep_status(value: &mut Value, old: &Value) {
    keep(value, "status", old);
}

/// Nothing but the status changes through `status`, labels and annotations aside.
fn keep_spec(value: &mut Value, old: &Value) {
    keep(value, "spec", old);
}
