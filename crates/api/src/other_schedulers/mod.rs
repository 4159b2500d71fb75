//! PodGroups of other schedulers, as existing clusters have them.
//!
//! These are plain types; the code that reads them decides which fields are supported.

pub mod scheduler_plugins;
pub mod volcano;
