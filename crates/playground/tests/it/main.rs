//! The server as its clients see it.

mod admission;
mod bodies;
mod clients;
mod controllers;
mod faulty;
mod fill;
mod front;
mod garbage;
mod job_answers;
mod job_storm;
mod jobs;
mod jobsets;
mod killed;
mod kubectl_reads;
mod kubelets;
mod late;
mod model;
mod muster_kinds;
mod native_versions;
mod normal;
mod review;
mod sets;
mod stock_cluster;
mod stories;
mod watch_checker;
mod wire;
