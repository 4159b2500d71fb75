//! PodGroups of other schedulers, as they stand in the API: what clusters have already.
//!
//! Only what they say is here. What of it is honoured is for those to know who read them.

pub mod scheduler_plugins;
pub mod volcano;
