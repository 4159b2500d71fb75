//! Observations: the engine's input. They are complete and idempotent: a repeated or late one does no harm.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::budget::BudgetSpec;
use crate::model::group::{GroupKey, GroupSpec};
use crate::model::labels::Labels;
use crate::model::node::NodeSpec;
use crate::model::pod::{PodName, PodSpec};
use crate::model::storage::{ClaimName, StorageObservation, StorageWriteOutcome};

/// An observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Observation {
    /// A node exists, new or changed.
    NodeSeen(NodeSpec),
    /// A node is gone.
    NodeGone {
        /// Its name.
        name: String,
    },
    /// A pod exists, new or changed.
    PodSeen(PodSpec),
    /// A pod is gone from the API.
    PodGone {
        /// Its UID.
        uid: String,
    },
    /// A group object exists, new or changed.
    GroupSeen(GroupSpec),
    /// A group object is gone.
    GroupGone {
        /// Which group.
        key: GroupKey,
    },
    /// A disruption budget exists, new or changed.
    BudgetSeen(BudgetSpec),
    /// A disruption budget is gone.
    BudgetGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A namespace exists, new or changed.
    NamespaceSeen {
        /// Its name.
        name: String,
        /// Its labels, for namespace selectors.
        labels: Labels,
    },
    /// A namespace is gone.
    NamespaceGone {
        /// Its name.
        name: String,
    },
    /// An object of storage has changed.
    Storage(Box<StorageObservation>),
    /// The outcome of a `ReserveVolume` or `SelectNode` command for this claim.
    StorageWriteDone {
        /// Which claim.
        claim: Arc<ClaimName>,
        /// The outcome.
        outcome: StorageWriteOutcome,
    },
    /// The outcome of a `Bind` command.
    BindDone {
        /// Which pod.
        pod: Arc<PodName>,
        /// The node of the command.
        node: Arc<str>,
        /// The outcome.
        outcome: BindOutcome,
    },
    /// The outcome of an `Evict` command for one of its pods.
    EvictDone {
        /// Which pod.
        pod: Arc<PodName>,
        /// The outcome.
        outcome: DeleteOutcome,
    },
    /// The outcome of a `RollBack` command.
    #[serde(rename = "TakeBackDone")]
    RollBackDone {
        /// Which pod.
        pod: Arc<PodName>,
        /// The outcome.
        outcome: DeleteOutcome,
    },
}

/// The outcome of a `Bind` command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindOutcome {
    /// The pod is bound to that node.
    Bound,
    /// It failed, and a retry may succeed: the server was busy, unreachable, or timed out.
    Transient {
        /// The error.
        message: String,
    },
    /// It failed, and a retry would fail too.
    Refused {
        /// The error.
        message: String,
    },
}

/// The outcome of a `RollBack` command, or of an `Evict` command for one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeleteOutcome {
    /// The pod is terminating or gone.
    Deleted,
    /// It failed, and a retry may succeed.
    Transient {
        /// The error.
        message: String,
    },
    /// The server does not allow it: the pod stays.
    Refused {
        /// The error.
        message: String,
    },
}
