//! What the playground's clients of the API share: a local cache fed by a watch, tasks in the background, conditions.
//!
//! They use `kube::Client` and nothing else, so that they run against a real cluster too.
//! It must not know the API server of the playground, nor what any client does with what it sees.

pub mod conditions;
pub mod mirror;
pub mod refusal;
pub mod seen;
pub mod task;
