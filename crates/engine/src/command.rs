//! Commands: the actions that the engine requests from its host. A command refers to objects as the API needs it, never
//! by an id.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::diagnosis::Diagnosis;
use crate::model::group::GroupKey;
use crate::model::pod::{PodName, StartStamp};
use crate::model::storage::ClaimName;
use crate::model::subject::Subject;

/// A command. Outcomes of `Bind`, `RollBack` and `Evict` are reported as observations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Bind the pod to the node.
    Bind {
        /// Which pod.
        pod: Arc<PodName>,
        /// The node's name.
        node: Arc<str>,
        /// The start of its group, to be stamped on the pod.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<Arc<StartStamp>>,
    },
    /// Reserve a volume for a claim: set its `claimRef`, if its version is still this one. The volume controller binds
    /// the two then.
    ReserveVolume {
        /// Which claim.
        claim: Arc<ClaimName>,
        /// The version of the claim that was decided on.
        claim_version: String,
        /// The name of the volume.
        volume: Arc<str>,
        /// The version of the volume that was decided on.
        version: String,
    },
    /// Select the node for which the volume of a claim is provisioned (`volume.kubernetes.io/selected-node`), if the
    /// version of the claim is still this one.
    SelectNode {
        /// Which claim.
        claim: Arc<ClaimName>,
        /// The version of the claim that was decided on.
        version: String,
        /// The node's name.
        node: Arc<str>,
    },
    /// Delete a bound member of a gang whose start was not confirmed, to roll back its bind; its controller recreates
    /// it. The UID must be a precondition of the delete.
    #[serde(rename = "TakeBack")]
    RollBack {
        /// Which pod.
        pod: Arc<PodName>,
    },
    /// Nominate the node for the pod: its victims there are leaving.
    Nominate {
        /// Which pod.
        pod: Arc<PodName>,
        /// The node's name.
        node: Arc<str>,
    },
    /// Evict these pods by preemption, all or none as far as that can be known in advance. The UIDs must be
    /// preconditions. The outcome is reported for each pod.
    Evict {
        /// Which pods.
        pods: Vec<Arc<PodName>>,
        /// The group that is evicted as a whole, if it is one.
        group: Option<GroupKey>,
        /// The preemptor.
        by: Arc<Subject>,
    },
    /// The pod is marked as a target of preemption but is not evicted: remove the mark.
    #[serde(rename = "Spare")]
    ClearDisruptionMark {
        /// Which pod.
        pod: Arc<PodName>,
    },
    /// Clear the pod's nomination.
    ClearNomination {
        /// Which pod.
        pod: Arc<PodName>,
    },
    /// Report the diagnosis of a pod or group. Sent when it changes.
    Report(Box<Report>),
}

/// The diagnosis of a pod or group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The pod or group.
    pub subject: Subject,
    /// The diagnosis.
    pub diagnosis: Diagnosis,
    /// For a group that is unschedulable or waits for victims: the verdict for each waiting member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<(Arc<PodName>, MemberVerdict)>,
}

/// The verdict for a waiting member of an unschedulable group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberVerdict {
    /// This pod does not fit; an autoscaler should act on it.
    NoRoom,
    /// This pod does not fit, and more capacity would not help: another required member is larger than any node.
    #[serde(rename = "InVain")]
    ScaleUpWouldNotHelp,
    /// This pod would fit but its group does not, or it is nominated.
    WouldFit,
    /// Created after the plan of its group was made; considered after that.
    NotTried,
}
