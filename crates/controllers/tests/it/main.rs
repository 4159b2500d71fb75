//! Tests of the controllers on the playground's server, with its controllers for Jobs, JobSets and LeaderWorkerSets.

mod faults;
mod group_priorities;
mod native;
mod owner_condition;
mod preemption_cost;
mod test_cluster;
