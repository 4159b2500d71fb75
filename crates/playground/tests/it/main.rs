//! The server as its clients see it.

mod clients;
mod controllers;
mod fill;
mod kubelets;
mod normal;
mod stories;
