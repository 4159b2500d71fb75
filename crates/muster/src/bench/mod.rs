//! `muster bench`: one file or folder for each thing that is measured.

pub(crate) mod engine;
pub(crate) mod runtime;
pub(crate) mod server;
