//! Tests of Muster on real control planes: what holds on the playground must hold there.
//!
//! `tools/controlplane/build` builds the control planes; `make test` calls it. Time is real here, so scenarios are
//! spread over several control planes, and `selection` decides what each tier runs.

mod audit;
mod beside_kube_scheduler;
mod cluster;
mod examples;
mod failover;
mod kinds;
mod objects;
mod outages;
mod own_rights;
mod own_writes;
mod pod_recorder;
mod priority_classes;
mod replica;
mod rounds;
mod scenarios;
mod selection;
mod test_cluster;
mod test_queue;
mod webhook;
