//! The server as its clients see it.

mod clients;
mod controllers;
mod faulty;
mod fill;
mod garbage;
mod kubelets;
mod late;
mod model;
mod muster_kinds;
mod normal;
mod review;
mod sets;
mod stock_cluster;
mod stories;
mod watch_checker;
