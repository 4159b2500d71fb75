//! The subject of a report, or a preemptor: a pod or a group, as the API names it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::group::GroupKey;
use super::pod::PodName;

/// The subject of a report, or a preemptor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Subject {
    /// A pod without a group, or one that its group excludes.
    Pod(Arc<PodName>),
    /// A group.
    Group(GroupKey),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "pod {pod}"),
            Self::Group(key) => write!(f, "podgroup {key}"),
        }
    }
}
