//! What the engine asks its host to do. A command names objects by what the API needs, never by an id.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::diagnosis::Diagnosis;
use crate::model::group::GroupKey;
use crate::model::pod::PodName;

/// One thing to do. Outcomes of `Bind`, `TakeBack` and `Evict` come back as observations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Bind the pod to the node.
    Bind {
        /// Which pod.
        pod: Arc<PodName>,
        /// The node's name.
        node: Arc<str>,
    },
    /// Delete a bound member of a gang that did not come together; its controller will make it again.
    /// The UID must be a precondition of the delete.
    TakeBack {
        /// Which pod.
        pod: Arc<PodName>,
    },
    /// Keep a node free for the pod: those who are in its way there are leaving.
    Nominate {
        /// Which pod.
        pod: Arc<PodName>,
        /// The node's name.
        node: Arc<str>,
    },
    /// Evict these pods for somebody else, all or none as far as that can be told beforehand. The UIDs must be
    /// preconditions. The outcome comes back for each pod.
    Evict {
        /// Which pods.
        pods: Vec<Arc<PodName>>,
        /// The group that is evicted whole, if it is one.
        group: Option<GroupKey>,
        /// For whom.
        by: Arc<Subject>,
    },
    /// The pod shows that it is evicted for others, and it is not.
    Spare {
        /// Which pod.
        pod: Arc<PodName>,
    },
    /// The pod's nomination no longer stands.
    ClearNomination {
        /// Which pod.
        pod: Arc<PodName>,
    },
    /// Say how things are with a pod or a group. Sent when the answer changes.
    Report(Box<Report>),
}

/// How things are with a pod or a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of whom.
    pub subject: Subject,
    /// How things are.
    pub diagnosis: Diagnosis,
    /// For a group that does not fit, or that waits for others to leave: what each waiting member is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<(Arc<PodName>, MemberVerdict)>,
}

/// Whom a report is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Subject {
    /// A pod that is scheduled alone, or that its group has no place for.
    Pod(Arc<PodName>),
    /// A group.
    Group(GroupKey),
}

/// What a waiting member of a group that does not fit is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberVerdict {
    /// There is no room for this pod: what an autoscaler acts on.
    NoRoom,
    /// There is no room for this pod, and room would not help: another member that its group needs is larger than any node
    /// there is.
    InVain,
    /// This pod would fit; its group does not. Or a place is kept free for it.
    WouldFit,
    /// It came after the plan of its group was made, and is looked at when that is done.
    NotTried,
}
