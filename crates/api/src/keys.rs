//! The words of our API that are not fields: annotations, condition types, reasons, finalizers.
//!
//! Each stands here once, so that those who write one and those who read it cannot differ.
//! It must not know who uses a word or when.

/// Our API group.
pub const GROUP: &str = "muster.dev";
/// The version of our kinds.
pub const VERSION: &str = "v1alpha1";
/// The `schedulerName` of pods that are ours if nothing else is configured.
pub const SCHEDULER_NAME: &str = "muster";

/// Annotations of pods and of the objects that own them.
pub mod annotations {
    /// Names a PodGroup, or with [`WORKLOAD`] a group inside that Workload.
    pub const POD_GROUP: &str = "muster.dev/pod-group";
    /// Names a Workload.
    pub const WORKLOAD: &str = "muster.dev/workload";
    /// Tells replicas of a group inside a Workload apart.
    pub const REPLICA_KEY: &str = "muster.dev/replica-key";
    /// Names a subset of a PodGroup.
    pub const SUBSET: &str = "muster.dev/subset";
    /// How pods of an owner form groups: `Off`, `Gang` or `ReplicatedGang`.
    pub const GANG_MODE: &str = "muster.dev/gang-mode";
    /// On the Job templates of a JobSet: whose pods are one gang, `JobSet`, `ReplicatedJob` or `Job`. Written by our
    /// webhook, since a Job does not show what its JobSet asks for.
    pub const GANG_SCOPE: &str = "muster.dev/gang-scope";
    /// On a Job: how its pods are scheduled, JSON in the shape of `spec.scheduling` of Kubernetes' own Job.
    pub const SCHEDULING: &str = "muster.dev/scheduling";
    /// A JSON resource list: what a group of a kind without such a field needs at the least.
    pub const MIN_RESOURCES: &str = "muster.dev/min-resources";
    /// On a Workload: a JSON resource list, what all its groups need together, where they start one after the other.
    pub const WHOLE_RESOURCES: &str = "muster.dev/whole-resources";
    /// How dear the eviction of a pod is among its equals: an int32, 0 if left out.
    pub const PREEMPTION_COST: &str = "muster.dev/preemption-cost";
}

/// Values of [`annotations::GANG_MODE`].
pub mod gang_mode {
    /// No groups.
    pub const OFF: &str = "Off";
    /// One group for all pods of the owner.
    pub const GANG: &str = "Gang";
    /// One group for each replica.
    pub const REPLICATED_GANG: &str = "ReplicatedGang";
}

/// Types of conditions on our groups. On native groups ours have `NATIVE_PREFIX` before them.
pub mod conditions {
    /// Whether the group has its place.
    pub const POD_GROUP_SCHEDULED: &str = "PodGroupScheduled";
    /// The group has had its minimum. The reason, `WithMinimumN`, remembers which: a later scheduler tells a gang that
    /// lost members from one whose start was cut short.
    pub const STARTED: &str = "Started";
    /// A gang that ran has fewer members than its minimum.
    pub const DEGRADED: &str = "Degraded";
    /// All members have ended and no more are expected.
    pub const COMPLETED: &str = "Completed";
    /// Members have another priority than the group.
    pub const PODS_NOT_MATCHING_PRIORITY: &str = "PodsNotMatchingPriority";
    /// The group is being evicted.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// Upstream's word on native groups: the group had its place at least once.
    pub const POD_GROUP_INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";
    /// The pod's own condition.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// Stands before our own condition types on native groups.
    pub const NATIVE_PREFIX: &str = "muster.dev/";
}

/// Reasons of [`conditions::POD_GROUP_SCHEDULED`].
pub mod group_reasons {
    /// It has its place.
    pub const SCHEDULED: &str = "Scheduled";
    /// Fewer members exist than it needs.
    pub const WAITING_FOR_MEMBERS: &str = "WaitingForMembers";
    /// Members carry scheduling gates.
    pub const GATED: &str = "Gated";
    /// There is no room, and that is certain.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// No room was found in the time there was; there may be some.
    pub const NOT_FOUND_WITHIN_BUDGET: &str = "NotFoundWithinBudget";
    /// It would not fit if the cluster were empty.
    pub const NEVER_FITS: &str = "NeverFits";
    /// Room is being made.
    pub const WAITING_FOR_VICTIMS: &str = "WaitingForVictims";
    /// Some members fit, fewer than it needs.
    pub const COSCHEDULING_NOT_MEET_MIN_MEMBER: &str = "CoschedulingNotMeetMinMember";
    /// It waited longer than it may.
    pub const SCHEDULE_TIMEOUT: &str = "ScheduleTimeout";
    /// What is written is wrong.
    pub const INVALID: &str = "Invalid";
    /// What is written is right and not supported.
    pub const UNSUPPORTED: &str = "Unsupported";
    /// Upstream's word for an error of the scheduler.
    pub const SCHEDULER_ERROR: &str = "SchedulerError";
    /// Upstream's word for an eviction in favour of others.
    pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
}

/// Reasons of a pod's [`conditions::POD_SCHEDULED`].
pub mod pod_reasons {
    /// It lacks room: what autoscalers act on.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// It would fit, its group does not.
    pub const COSCHEDULING_NOT_MEET_MIN_MEMBER: &str = "CoschedulingNotMeetMinMember";
    /// Its group is not there or not ready.
    pub const WAITING_FOR_GROUP: &str = "WaitingForGroup";
    /// Its group lacks members.
    pub const WAITING_FOR_MEMBERS: &str = "WaitingForMembers";
    /// Room is being made.
    pub const WAITING_FOR_VICTIMS: &str = "WaitingForVictims";
    /// The scheduler failed.
    pub const SCHEDULER_ERROR: &str = "SchedulerError";
    /// It carries gates. Written by the API server; never overwritten.
    pub const SCHEDULING_GATED: &str = "SchedulingGated";
}

/// Reasons of events about how pods name their groups.
pub mod events {
    /// The reference changed after the pod was first seen; that has no effect.
    pub const GROUP_REFERENCE_CHANGED: &str = "GroupReferenceChanged";
    /// The pod names groups in more than one way.
    pub const GROUP_REFERENCE_CONFLICT: &str = "GroupReferenceConflict";
}

/// Keeps a native PodGroup from going while pods use it.
pub const POD_GROUP_PROTECTION_FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::check_label_key;

    #[test]
    fn annotations_are_good_keys_of_our_group() {
        use annotations::*;
        let ours = [GANG_MODE, GANG_SCOPE, MIN_RESOURCES, POD_GROUP, PREEMPTION_COST, REPLICA_KEY, SCHEDULING, SUBSET];
        for key in ours.into_iter().chain([WHOLE_RESOURCES, WORKLOAD]) {
            assert_eq!(check_label_key(key), Ok(()));
            assert_eq!(key.split_once('/').map(|(group, _)| group), Some(GROUP));
        }
    }
}
