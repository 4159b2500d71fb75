//! `muster-lab bench`: one file or folder for each benchmark.

pub(crate) mod cluster;
pub(crate) mod controllers;
pub(crate) mod engine;
pub(crate) mod null_binder;
pub(crate) mod playground;
mod process;
pub(crate) mod runtime;
pub(crate) mod serve;
pub(crate) mod server;
