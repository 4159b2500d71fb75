//! What the engine is told. Observations are complete statements: a repeated or late one does no harm.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::budget::BudgetSpec;
use crate::model::group::{GroupKey, GroupSpec};
use crate::model::labels::Labels;
use crate::model::node::NodeSpec;
use crate::model::pod::{PodName, PodSpec};

/// One thing that the host saw happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Observation {
    /// A node is there, new or changed.
    NodeSeen(NodeSpec),
    /// A node is gone.
    NodeGone {
        /// Its name.
        name: String,
    },
    /// A pod is there, new or changed.
    PodSeen(PodSpec),
    /// A pod is gone from the API.
    PodGone {
        /// Its UID.
        uid: String,
    },
    /// A group object is there, new or changed.
    GroupSeen(GroupSpec),
    /// A group object is gone.
    GroupGone {
        /// Which group.
        key: GroupKey,
    },
    /// A disruption budget is there, new or changed.
    BudgetSeen(BudgetSpec),
    /// A disruption budget is gone.
    BudgetGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A namespace is there, new or changed.
    NamespaceSeen {
        /// Its name.
        name: String,
        /// Its labels: what selectors over namespaces look at.
        labels: Labels,
    },
    /// A namespace is gone.
    NamespaceGone {
        /// Its name.
        name: String,
    },
    /// What became of a `Bind` command.
    BindDone {
        /// Which pod.
        pod: Arc<PodName>,
        /// The node that the command named.
        node: Arc<str>,
        /// What became of it.
        outcome: BindOutcome,
    },
    /// What became of an `Evict` command, for one of its pods.
    EvictDone {
        /// Which pod.
        pod: Arc<PodName>,
        /// What became of it.
        outcome: TakeBackOutcome,
    },
    /// What became of a `TakeBack` command.
    TakeBackDone {
        /// Which pod.
        pod: Arc<PodName>,
        /// What became of it.
        outcome: TakeBackOutcome,
    },
}

/// What became of a `Bind` command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindOutcome {
    /// The pod is bound to that node.
    Bound,
    /// It did not happen, and the same may work soon: the server was busy, away, or timed out.
    Transient {
        /// What the server said.
        message: String,
    },
    /// It did not happen, and the same will not work again.
    Refused {
        /// What the server said.
        message: String,
    },
}

/// What became of a `TakeBack` command, or of an `Evict` command for one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakeBackOutcome {
    /// The pod is gone or going.
    Deleted,
    /// It did not happen, and the same may work soon.
    Transient {
        /// What the server said.
        message: String,
    },
    /// The server does not allow it: the pod stays.
    Refused {
        /// What the server said.
        message: String,
    },
}
