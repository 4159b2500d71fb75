//! Constants of our API: annotation keys, condition types, reasons, finalizers.
//!
//! Each is defined once, so that writers and readers cannot differ. Must not depend on their use.

/// Our API group.
pub const GROUP: &str = "muster.dev";
/// The version of our kinds.
pub const VERSION: &str = "v1alpha1";
/// The default `schedulerName` of Muster.
pub const SCHEDULER_NAME: &str = "muster";

/// Annotations of pods and of the objects that own them.
pub mod annotations {
    /// Names a PodGroup, or with [`WORKLOAD`] a group inside that Workload.
    pub const POD_GROUP: &str = "muster.dev/pod-group";
    /// Names a Workload.
    pub const WORKLOAD: &str = "muster.dev/workload";
    /// Distinguishes replicas of a group inside a Workload.
    pub const REPLICA_KEY: &str = "muster.dev/replica-key";
    /// Names a subset of a PodGroup.
    pub const SUBSET: &str = "muster.dev/subset";
    /// How pods of an owner form groups: `Off`, `Gang` or `ReplicatedGang`.
    pub const GANG_MODE: &str = "muster.dev/gang-mode";
    /// On the Job templates of a JobSet: the gang scope, `JobSet`, `ReplicatedJob` or `Job`. Written by our webhook,
    /// since a Job does not show the gang mode of its JobSet.
    pub const GANG_SCOPE: &str = "muster.dev/gang-scope";
    /// On a Job: how its pods are scheduled, JSON in the format of `spec.scheduling` of Kubernetes' own Job.
    pub const SCHEDULING: &str = "muster.dev/scheduling";
    /// A JSON resource list: the minimum resources of a group whose kind has no such field.
    pub const MIN_RESOURCES: &str = "muster.dev/min-resources";
    /// The CompositePodGroup that a group is a part of, as controllers of Kubernetes hand it down, and as KEP-6089
    /// spells it.
    pub const PARENT_COMPOSITE_POD_GROUP: [&str; 2] =
        ["scheduling.k8s.io/parent-compositepodgroup", "scheduling.k8s.io/parent-composite-podgroup"];
    /// On a group object: the pods that its owner creates only after others run, JSON. See `later_pods`.
    pub const LATER_PODS: &str = "muster.dev/later-pods";
    /// On an owner, and on group objects whose field cannot be changed or does not exist: whether the pods of a gang
    /// are
    /// evicted individually or together, `Pod` or `PodGroup`. On a Workload it can be a JSON object by group name.
    pub const DISRUPTION_MODE: &str = "muster.dev/disruption-mode";
    /// The cost of evicting a pod, compared to others of the same priority: an int32, 0 by default.
    pub const PREEMPTION_COST: &str = "muster.dev/preemption-cost";
    /// The rank of a pod among the members of its group: an index that counts instead of that of its owner.
    pub const RANK: &str = "muster.dev/rank";
    /// On a JobSet or its replicated Jobs, written by our webhook in the place of JobSet's own annotation: the node label
    /// of which each Job has a domain for itself.
    pub const EXCLUSIVE_TOPOLOGY: &str = "muster.dev/exclusive-topology";
    /// Written on a member of a group when it is bound: the start of the group that the bind belongs to, and what the
    /// group's object said. Not for users.
    pub const START: &str = "muster.dev/start";
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
    /// Whether the group is scheduled.
    pub const POD_GROUP_SCHEDULED: &str = "PodGroupScheduled";
    /// The group has reached its minimum. The reason, `WithMinimumN`, records which: after a restart the scheduler can
    /// distinguish a gang that lost members from one whose start was interrupted.
    pub const STARTED: &str = "Started";
    /// A gang that ran has fewer members than its minimum.
    pub const DEGRADED: &str = "Degraded";
    /// All members have finished and no more are expected.
    pub const COMPLETED: &str = "Completed";
    /// Members have another priority than the group.
    pub const PODS_NOT_MATCHING_PRIORITY: &str = "PodsNotMatchingPriority";
    /// The object cannot be used any more. What it said before holds for members that have nodes.
    pub const UNUSABLE: &str = "Unusable";
    /// The priority of a group was resolved: it does not follow later changes of PriorityClasses.
    pub const PRIORITY_RESOLVED: &str = "PriorityResolved";
    /// The group is being evicted.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// The upstream condition on native groups: the group was scheduled at least once.
    pub const POD_GROUP_INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";
    /// The same on native groups of groups.
    pub const COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED: &str = "CompositePodGroupInitiallyScheduled";
    /// The pod's own condition.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// On Jobs, JobSets and LeaderWorkerSets: whether the gangs of their pods are scheduled.
    pub const GANG_SCHEDULED: &str = "muster.dev/GangScheduled";
    /// The prefix of our own condition types on native groups.
    pub const NATIVE_PREFIX: &str = "muster.dev/";
}

/// Reasons of [`conditions::POD_GROUP_SCHEDULED`].
pub mod group_reasons {
    /// It is scheduled.
    pub const SCHEDULED: &str = "Scheduled";
    /// Fewer members exist than it needs.
    pub const WAITING_FOR_MEMBERS: &str = "WaitingForMembers";
    /// Members have scheduling gates.
    pub const GATED: &str = "Gated";
    /// There is no room, which is proven.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// No room was found within the search budget; there may be some.
    pub const NOT_FOUND_WITHIN_BUDGET: &str = "NotFoundWithinBudget";
    /// It would not fit into an empty cluster.
    pub const NEVER_FITS: &str = "NeverFits";
    /// Victims are being evicted for it.
    pub const WAITING_FOR_VICTIMS: &str = "WaitingForVictims";
    /// Volumes are being bound or provisioned for it, or a claim cannot be used.
    pub const WAITING_FOR_VOLUMES: &str = "WaitingForVolumes";
    /// Some members fit, fewer than it needs.
    pub const COSCHEDULING_NOT_MEET_MIN_MEMBER: &str = "CoschedulingNotMeetMinMember";
    /// Its start took longer than `scheduleTimeoutSeconds`.
    pub const SCHEDULE_TIMEOUT: &str = "ScheduleTimeout";
    /// The spec is invalid.
    pub const INVALID: &str = "Invalid";
    /// The spec is valid but not supported.
    pub const UNSUPPORTED: &str = "Unsupported";
    /// The upstream reason for an error of the scheduler.
    pub const SCHEDULER_ERROR: &str = "SchedulerError";
    /// The upstream reason for preemption.
    pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
}

/// Reasons of a pod's [`conditions::POD_SCHEDULED`].
pub mod pod_reasons {
    /// There is no room for it. Cluster autoscalers act on this reason.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// It would fit, but its group does not.
    pub const COSCHEDULING_NOT_MEET_MIN_MEMBER: &str = "CoschedulingNotMeetMinMember";
    /// Its group does not exist or is not ready.
    pub const WAITING_FOR_GROUP: &str = "WaitingForGroup";
    /// Its group has too few members.
    pub const WAITING_FOR_MEMBERS: &str = "WaitingForMembers";
    /// Victims are being evicted for it.
    pub const WAITING_FOR_VICTIMS: &str = "WaitingForVictims";
    /// Volumes are being bound or provisioned for it, or a claim of it cannot be used.
    pub const WAITING_FOR_VOLUMES: &str = "WaitingForVolumes";
    /// The scheduler failed.
    pub const SCHEDULER_ERROR: &str = "SchedulerError";
    /// It has scheduling gates. Written by the API server; never overwritten.
    pub const SCHEDULING_GATED: &str = "SchedulingGated";
}

/// Reasons of events about group references of pods.
pub mod events {
    /// The reference changed after the pod was first seen; that has no effect.
    pub const GROUP_REFERENCE_CHANGED: &str = "GroupReferenceChanged";
    /// The pod references groups in more than one way.
    pub const GROUP_REFERENCE_CONFLICT: &str = "GroupReferenceConflict";
}

/// Kubernetes' own annotations of PersistentVolumes and PersistentVolumeClaims.
pub mod storage {
    /// On a claim: it and its volume are bound to each other.
    pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
    /// On a volume or claim: the other one was chosen for it, and not by its author.
    pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
    /// On a claim: the node for which its volume is provisioned. Only the provisioner removes it.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
}

/// The finalizer that keeps a native PodGroup while pods use it.
pub const POD_GROUP_PROTECTION_FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::check_label_key;

    #[test]
    fn annotations_are_valid_keys_of_our_group() {
        use annotations::*;
        let ours =
            [GANG_MODE, GANG_SCOPE, MIN_RESOURCES, POD_GROUP, PREEMPTION_COST, REPLICA_KEY, SCHEDULING, START, SUBSET];
        for key in ours.into_iter().chain([DISRUPTION_MODE, LATER_PODS, RANK, WORKLOAD]) {
            assert_eq!(check_label_key(key), Ok(()));
            assert_eq!(key.split_once('/').map(|(group, _)| group), Some(GROUP));
        }
    }
}
