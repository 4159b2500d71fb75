//! Integration tests of the scheduler on the in-process server, for setups that a scenario file cannot express.

mod bad_objects;
mod churn;
mod groups_of_others;
mod growing_gang;
mod test_cluster;
