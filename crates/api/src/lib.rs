//! The API types of Muster: Kubernetes objects, parsed exactly and validated.
//!
//! Types called `Written…` hold fields as written in an object and are read with serde. Their `validate` returns
//! checked values, in which every name, number and operator is valid, or an error that names object, field, value and
//! reason.
//!
//! `wire` has the objects themselves, reduced to the fields that matter; `pod_group`, `workload` and `crds` are our own
//! kinds, `native` is Kubernetes' own API for groups, `owners` has the rules by which pods of Jobs, JobSets and
//! LeaderWorkerSets form gangs, and `keys` has annotation keys, condition types and reasons.
//!
//! This crate must not depend on the engine or a Kubernetes client, and does no I/O.

pub mod crds;
pub mod field_error;
pub mod group;
pub mod group_topology;
pub mod invalid;
pub mod keys;
pub mod later_pods;
pub mod names;
pub mod native;
pub mod node_selector;
pub mod other_schedulers;
pub mod owners;
pub mod parents;
pub mod pod_group;
pub mod pod_requests;
pub mod preemption_cost;
pub mod quantity;
pub mod resolved_priority;
pub mod resources;
pub mod selector;
pub mod toleration;
pub mod wire;
pub mod workload;
pub mod workload_tree;
pub mod written_quantity;

mod container_demand;
mod null;
mod pod_demand;
