//! Muster on real control planes: what holds on the playground must hold there.
//!
//! `tools/controlplane/build` builds the programs, `make test` calls it. Time is real here, so scenarios are spread over
//! several planes, and `selection` has what each tier of tests plays.

mod audit;
mod beside_kube_scheduler;
mod cluster;
mod examples;
mod failover;
mod kinds;
mod objects;
mod outages;
mod own_rights;
mod programme;
mod replica;
mod rounds;
mod scenarios;
mod selection;
mod stage;
mod webhook;
mod witness;
