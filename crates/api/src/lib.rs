//! The edge of Muster: what people write in Kubernetes objects, read exactly and checked.
//!
//! Types called `Written…` hold what stands in an object and are read with serde. Their `validate`
//! gives checked values, in which every name, number and operator is known to be good, or an error
//! that names object, field, value and reason.
//!
//! `wire` has the objects themselves, slim; `pod_group`, `workload` and `crds` are our own kinds,
//! `native` is Kubernetes' own API for groups, `makers` says which pods of a Job, JobSet or
//! LeaderWorkerSet are gangs, and `keys` has the words that are no fields.
//!
//! This crate must not know the engine, do input or output, or depend on a Kubernetes client.

pub mod crds;
pub mod field_error;
pub mod group;
pub mod invalid;
pub mod keys;
pub mod makers;
pub mod names;
pub mod native;
pub mod node_selector;
pub mod others;
pub mod parents;
pub mod pod_group;
pub mod pod_requests;
pub mod quantity;
pub mod resources;
pub mod selector;
pub mod toleration;
pub mod wire;
pub mod workload;
pub mod written_quantity;

mod container_demand;
mod null;
mod pod_demand;
