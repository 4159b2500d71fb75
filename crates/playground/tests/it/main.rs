//! The server as its clients see it.

mod clients;
mod controllers;
mod fill;
pub(crate) mod kubelets;
mod late;
mod normal;
mod stories;
