//! Maps a diagnosis to the condition and event reasons of pods and groups.
//!
//! `Unschedulable` on a pod makes autoscalers add nodes: only a pod that really lacks capacity gets it.

use muster_api::keys::{group_reasons, pod_reasons};
use muster_engine::MemberVerdict;
use muster_engine::diagnosis::{Diagnosis, Waiting};
use muster_engine::model::pod::RefusalKind;

/// The message of a member that has no part in the plan of its group.
pub(crate) fn outside_of_plan(diagnosis: &Diagnosis, verdict: Option<MemberVerdict>) -> Option<&'static str> {
    match (diagnosis, verdict?) {
        (Diagnosis::WaitingForVictims(_), MemberVerdict::NoRoom) => {
            Some("There is no room for this pod, even with the capacity that is being freed for its group.")
        }
        (Diagnosis::WaitingForVictims(_), MemberVerdict::NotTried) => {
            Some("Capacity is being freed for other members of its group; this pod is tried after that.")
        }
        _ => None,
    }
}

/// The event reason of a preemptor.
pub(crate) const PREEMPTING: &str = "Preempting";
/// The event reason of a pod or group that has not failed and only waits.
pub(crate) const WAITING: &str = "Waiting";

/// The reason of a pod that is scheduled on its own, or that is left out of its group.
pub(crate) fn pod_reason(diagnosis: &Diagnosis) -> &'static str {
    match diagnosis {
        // A node that has room and is kept for a group is no demand for another one.
        Diagnosis::PodUnschedulable { fit, .. } if fit.reserved_only > 0 => pod_reasons::WAITING_FOR_GROUP,
        Diagnosis::PodUnschedulable { .. } => pod_reasons::UNSCHEDULABLE,
        Diagnosis::Waiting(waiting) => waiting_reason(waiting),
        Diagnosis::WaitingForVictims(_) => pod_reasons::WAITING_FOR_VICTIMS,
        _ => pod_reasons::SCHEDULER_ERROR,
    }
}

/// The reason of a pending group member; `None` if the diagnosis of the group is no reason for a pod to wait.
pub(crate) fn member_reason(diagnosis: &Diagnosis, verdict: Option<MemberVerdict>) -> Option<&'static str> {
    Some(match (diagnosis, verdict) {
        // Another member is rejected, or capacity is freed for another member.
        (Diagnosis::Waiting(Waiting::PodRefused { .. }), _)
        | (Diagnosis::WaitingForVictims(_), Some(MemberVerdict::NotTried)) => pod_reasons::WAITING_FOR_GROUP,
        (Diagnosis::Waiting(waiting), _) => waiting_reason(waiting),
        (Diagnosis::GroupUnschedulable(_) | Diagnosis::WaitingForVictims(_), Some(MemberVerdict::NoRoom)) => {
            pod_reasons::UNSCHEDULABLE
        }
        (Diagnosis::WaitingForVictims(_), _) => pod_reasons::WAITING_FOR_VICTIMS,
        (Diagnosis::GroupUnschedulable(_), Some(MemberVerdict::WouldFit | MemberVerdict::ScaleUpWouldNotHelp)) => {
            pod_reasons::COSCHEDULING_NOT_MEET_MIN_MEMBER
        }
        (Diagnosis::TimedOut { .. }, _) => pod_reasons::COSCHEDULING_NOT_MEET_MIN_MEMBER,
        (Diagnosis::VolumeBindFailed { .. }, _) => pod_reasons::SCHEDULER_ERROR,
        _ => return None,
    })
}

fn waiting_reason(waiting: &Waiting) -> &'static str {
    match waiting {
        Waiting::Members { .. } | Waiting::DesiredCount { .. } => pod_reasons::WAITING_FOR_MEMBERS,
        Waiting::PodRefused { kind: RefusalKind::Unsupported | RefusalKind::Invalid, .. } => {
            pod_reasons::SCHEDULER_ERROR
        }
        Waiting::Volumes { .. } | Waiting::PodRefused { kind: RefusalKind::Volume, .. } => {
            pod_reasons::WAITING_FOR_VOLUMES
        }
        Waiting::PodRefused { kind: RefusalKind::Reference, .. }
        | Waiting::GroupMissing { .. }
        | Waiting::Parent { .. }
        | Waiting::TreeInvalid { .. }
        | Waiting::Groups { .. }
        | Waiting::Gates { .. }
        | Waiting::Leaving
        | Waiting::UnknownSubset { .. }
        | Waiting::OtherPriority { .. }
        | Waiting::Former { .. }
        | Waiting::Unsupported { .. } => pod_reasons::WAITING_FOR_GROUP,
    }
}

/// The reason of a group's event, and whether it is a warning.
pub(crate) fn group_event(diagnosis: &Diagnosis) -> (&'static str, bool) {
    match diagnosis {
        Diagnosis::Scheduled { .. } => (group_reasons::SCHEDULED, false),
        Diagnosis::Healthy { .. } => ("Healthy", false),
        Diagnosis::Degraded { .. } => ("Degraded", true),
        Diagnosis::WaitingForVictims(victims) if victims.evicted > 0 => (PREEMPTING, false),
        Diagnosis::WaitingForVictims(_) => (WAITING, false),
        Diagnosis::TimedOut { .. } => (group_reasons::SCHEDULE_TIMEOUT, true),
        Diagnosis::GroupUnschedulable(_)
        | Diagnosis::PodUnschedulable { .. }
        | Diagnosis::BindFailed { .. }
        | Diagnosis::VolumeBindFailed { .. } => ("FailedScheduling", true),
        Diagnosis::Waiting(waiting) => match waiting {
            Waiting::Members { .. }
            | Waiting::Parent { .. }
            | Waiting::Groups { .. }
            | Waiting::DesiredCount { .. }
            | Waiting::Gates { .. }
            | Waiting::Leaving
            | Waiting::Volumes { .. } => (WAITING, false),
            _ => ("FailedScheduling", true),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_engine::diagnosis::{FitError, Preemption, Proof, Shortfall, Victims};

    #[test]
    fn only_a_lack_of_capacity_is_reported_as_unschedulable() {
        let unschedulable = Diagnosis::PodUnschedulable {
            fit: FitError::default(),
            closest: None,
            never: false,
            preemption: Preemption::NotTried,
        };
        assert_eq!(pod_reason(&unschedulable), "Unschedulable");
        let reserved = Diagnosis::PodUnschedulable {
            fit: FitError { reserved_only: 1, ..FitError::default() },
            closest: None,
            never: false,
            preemption: Preemption::NotTried,
        };
        assert_eq!(pod_reason(&reserved), "WaitingForGroup");
        let shortfall = Diagnosis::GroupUnschedulable(Shortfall {
            started: false,
            minimum: 2,
            held: 0,
            waiting: 2,
            would_fit: 1,
            kinds: vec![],
            gap: None,
            later: None,
            domain: None,
            bottleneck: None,
            proof: Proof::Impossible,
            preemption: Preemption::NotTried,
        });
        assert_eq!(member_reason(&shortfall, Some(MemberVerdict::NoRoom)), Some("Unschedulable"));
        for verdict in [MemberVerdict::WouldFit, MemberVerdict::ScaleUpWouldNotHelp] {
            assert_eq!(member_reason(&shortfall, Some(verdict)), Some("CoschedulingNotMeetMinMember"));
        }
        let group = || "ml/g".to_owned();
        let field = || "spec.x".to_owned();
        let all = [
            Waiting::GroupMissing { group: group(), pods: 1 },
            Waiting::Members { subset: String::new(), have: 1, need: 2, stateful_set: None },
            Waiting::Gates { gated: 1, example: group() },
            Waiting::DesiredCount { have: 1, desired: 2 },
            Waiting::UnknownSubset { subset: group(), group: group() },
            Waiting::OtherPriority { own: 1, shared: 2, group: group() },
            Waiting::Former { group: group() },
            Waiting::Unsupported { field: field(), value: group() },
            Waiting::Volumes { claims: 1, example: group(), node: group() },
            claim_refused(),
        ];
        let victims = Diagnosis::WaitingForVictims(Victims::default());
        for diagnosis in all.map(Diagnosis::Waiting).into_iter().chain([victims, volume_failed()]) {
            assert_ne!(pod_reason(&diagnosis), "Unschedulable", "{diagnosis:?}");
            assert_ne!(member_reason(&diagnosis, None), Some("Unschedulable"), "{diagnosis:?}");
        }
    }

    fn claim_refused() -> Waiting {
        let text = |text: &str| text.to_owned();
        Waiting::PodRefused {
            pod: text("ml/a"),
            kind: RefusalKind::Volume,
            field: text("spec.volumes[0].persistentVolumeClaim.claimName"),
            value: text("data"),
            reason: text("it is being deleted"),
            pods: 1,
        }
    }

    fn volume_failed() -> Diagnosis {
        let text = |text: &str| text.to_owned();
        Diagnosis::VolumeBindFailed { claim: text("ml/data"), node: text("n1"), message: text("no answer in time") }
    }

    #[test]
    fn volumes_that_are_awaited_and_claims_that_cannot_be_used_have_a_reason_of_their_own() {
        let waiting = Waiting::Volumes { claims: 2, example: "ml/data".to_owned(), node: "n1".to_owned() };
        let waiting = Diagnosis::Waiting(waiting);
        let refused = Diagnosis::Waiting(claim_refused());
        for diagnosis in [&waiting, &refused] {
            assert_eq!(pod_reason(diagnosis), "WaitingForVolumes");
            assert_eq!(diagnosis.group_reason(), group_reasons::WAITING_FOR_VOLUMES);
        }
        assert_eq!(member_reason(&waiting, None), Some("WaitingForVolumes"));
        assert_eq!(member_reason(&refused, None), Some("WaitingForGroup"), "the claim is another member's");
        assert_eq!((group_event(&waiting), group_event(&refused)), ((WAITING, false), ("FailedScheduling", true)));
        let failed = volume_failed();
        assert_eq!((pod_reason(&failed), member_reason(&failed, None)), ("SchedulerError", Some("SchedulerError")));
        assert_eq!((failed.group_reason(), group_event(&failed)), ("SchedulerError", ("FailedScheduling", true)));
    }
}
