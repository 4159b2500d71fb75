//! Tests of the whole webhook on an in-process API server.

mod calls;
mod rotation;
mod test_cluster;
