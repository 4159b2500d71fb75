//! Tests of the server through its API.

mod admission;
mod body_encodings;
mod connection_limits;
mod controllers;
mod crash_recovery;
mod faults;
mod fuzz;
mod job_answers;
mod job_faults;
mod jobs;
mod jobsets;
mod kube_rs;
mod kubectl_reads;
mod kubelets;
mod late_client;
mod model;
mod muster_kinds;
mod native_versions;
mod normalize;
mod raw_http;
mod recorded_answers;
mod references;
mod regressions;
mod sets;
mod stock_cluster;
mod watch_checker;
