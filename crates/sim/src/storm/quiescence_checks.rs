//! Checks of a quiescent system: what the API shows of each pod and group must be true, and what fits must be bound.
//!
//! A direct implementation of the rules. Must not depend on the scheduler's code.

use serde_json::Value;

use super::capacity::FreeCapacity;
use super::history::Histories;
use super::server_state::{Condition, GroupKey, Kind, Pod, Policy, ServerState, belongs_to};

/// All violations.
pub(super) fn check(state: &ServerState, histories: &Histories) -> Vec<String> {
    let mut violations = state.stray_volumes();
    for pod in state.pods.values() {
        check_pod(state, pod, &mut violations);
    }
    for key in state.groups() {
        let found = violations.len();
        check_group(state, &key, &mut violations);
        if violations.len() > found {
            violations.push(format!("  {key:?}: {:?}, {:?}", histories.history(&key), state.conditions(&key)));
            violations.extend(state.members(&key).map(|pod| format!("  {pod:?}")));
        }
    }
    violations
}

fn check_pod(state: &ServerState, pod: &Pod, violations: &mut Vec<String>) {
    if pod.marked && !pod.terminating && !pod.finished() {
        violations.push(format!("{} has a DisruptionTarget condition and is not deleted", pod.name));
    }
    if !pod.nominated.is_empty() && pod.node.is_empty() && !waits_for_victims(state, pod) {
        violations.push(format!("{} is nominated to {} and never bound", pod.name, pod.nominated));
    }
    if !pod.is_pending() {
        return;
    }
    let Some((reason, message)) = &pod.unscheduled_condition else {
        violations.push(format!("{} is pending without a PodScheduled condition: {pod:?}", pod.name));
        return;
    };
    let allowed = expected_reasons(state, pod);
    if !allowed.contains(&reason.as_str()) {
        violations
            .push(format!("{} has the reason {reason} ({message}); expected one of {allowed:?}: {pod:?}", pod.name));
    }
}

/// Whether a pod or its group waits for victims that are already terminating.
fn waits_for_victims(state: &ServerState, pod: &Pod) -> bool {
    let is_waiting = pod.unscheduled_condition.as_ref().is_some_and(|(reason, _)| reason == "WaitingForVictims");
    is_waiting && state.pods.values().any(|other| other.terminating && !other.node.is_empty())
}

/// The `PodScheduled` reasons that are correct for a pending pod.
fn expected_reasons(state: &ServerState, pod: &Pod) -> &'static [&'static str] {
    const UNSCHEDULABLE: &[&str] = &["Unschedulable"];
    if pod.unsupported {
        return &["SchedulerError", "WaitingForGroup"];
    }
    if waits_for_victims(state, pod) {
        return &["WaitingForVictims"];
    }
    // Pods of lower priority can be preempted, except terminating ones.
    let stays = |other: &Pod| other.terminating || other.priority >= pod.priority;
    let fits = FreeCapacity::of(state, stays).node_for(pod).is_some();
    let Some(key) = &pod.group else {
        return if fits { &["to be bound: it fits"] } else { UNSCHEDULABLE };
    };
    let Some(policy) = state.policy(key) else { return &["WaitingForGroup"] };
    if let Some(pools) = state.open_pools(key, "") {
        return expected_in_one_pool(state, (key, policy), pod, &pools);
    }
    let Policy::Gang(minimums) = policy else {
        // A basic group holds back no pod.
        return if fits { &["to be bound: it fits"] } else { UNSCHEDULABLE };
    };
    if !minimums.iter().any(|(subset, _)| belongs_to(pod, subset, minimums.len())) {
        return &["WaitingForGroup"];
    }
    match find_missing(state, key, minimums) {
        Missing::Nothing if FreeCapacity::of(state, |_| true).node_for(pod).is_some() => &["to be bound: it fits"],
        // Members beyond the minimum preempt only below the victims of the minimum, which are not known here.
        Missing::Nothing => UNSCHEDULABLE,
        Missing::Members if held_back(state, key) => &["WaitingForMembers", "WaitingForGroup", "SchedulerError"],
        Missing::Members => &["WaitingForMembers"],
        Missing::Eligibility => &["WaitingForGroup", "SchedulerError"],
        Missing::Capacity(Some(true)) => &["to be bound: its gang fits"],
        Missing::Capacity(_) => &["Unschedulable", "CoschedulingNotMeetMinMember"],
    }
}

/// The reasons of a member of a group that has to be in one of these pools.
fn expected_in_one_pool(
    state: &ServerState,
    (key, policy): (&GroupKey, &Policy),
    pod: &Pod,
    pools: &[&str],
) -> &'static [&'static str] {
    const WAITING: &[&str] = &["Unschedulable", "CoschedulingNotMeetMinMember"];
    let in_pool = |pod: &Pod, pool: &str| {
        let is_open = pod.pool.as_ref().is_none_or(|own| own == pool);
        is_open.then(|| Pod { pool: Some(pool.to_owned()), ..pod.clone() })
    };
    let fits = |counts: fn(&Pod) -> bool| {
        let free = FreeCapacity::of(state, counts);
        pools.iter().any(|pool| in_pool(pod, pool).is_some_and(|pod| free.node_for(&pod).is_some()))
    };
    let Policy::Gang(minimums) = policy else {
        return if fits(|_| true) { &["to be bound: it fits"] } else { WAITING };
    };
    if !minimums.iter().any(|(subset, _)| belongs_to(pod, subset, minimums.len())) {
        return &["WaitingForGroup"];
    }
    match find_missing(state, key, minimums) {
        Missing::Nothing if fits(|_| true) => &["to be bound: it fits"],
        Missing::Members if held_back(state, key) => &["WaitingForMembers", "WaitingForGroup", "SchedulerError"],
        Missing::Members => &["WaitingForMembers"],
        Missing::Eligibility => &["WaitingForGroup", "SchedulerError"],
        Missing::Nothing | Missing::Capacity(_) => WAITING,
    }
}

/// What a gang is missing.
enum Missing {
    /// It has started; members are bound one by one.
    Nothing,
    Members,
    /// So many members are held back by scheduling gates or unsupported fields that the rest is below the minimum.
    Eligibility,
    /// Capacity; whether the gang would fit, if the search completed.
    Capacity(Option<bool>),
}

fn find_missing(state: &ServerState, key: &GroupKey, minimums: &[(String, usize)]) -> Missing {
    let progress = state.progress(key).unwrap_or_default();
    let minimum: usize = progress.iter().map(|(minimum, _)| minimum).sum();
    let has_minimum = progress.iter().all(|(minimum, counted)| counted >= minimum);
    if has_minimum || started_with(&state.conditions(key)).is_some_and(|started| started >= minimum) {
        return Missing::Nothing;
    }
    let mut lots = Vec::new();
    let (mut incomplete, mut lacks_eligible) = (false, false);
    for ((subset, _), (minimum, counted)) in minimums.iter().zip(&progress) {
        let in_subset = |pod: &&Pod| pod.ours && belongs_to(pod, subset, minimums.len());
        let alive = |pod: &&Pod| pod.counts_towards_minimum() || (!pod.terminating && !pod.finished());
        let members: Vec<&Pod> = state.members(key).filter(in_subset).filter(alive).collect();
        incomplete |= members.len() < *minimum;
        let waiting: Vec<&Pod> = members.into_iter().filter(|pod| pod.is_pending() && !pod.unsupported).collect();
        lacks_eligible |= waiting.len() + counted < *minimum;
        lots.push((minimum.saturating_sub(*counted), waiting));
    }
    if incomplete {
        Missing::Members
    } else if lacks_eligible {
        Missing::Eligibility
    } else {
        let priority = state.members(key).map(|pod| pod.priority).min().unwrap_or(0);
        Missing::Capacity(FreeCapacity::of(state, |other| other.terminating || other.priority >= priority).fits(&lots))
    }
}

/// Whether members are held back by scheduling gates or unsupported fields.
fn held_back(state: &ServerState, key: &GroupKey) -> bool {
    let is_pending = |pod: &Pod| pod.ours && pod.node.is_empty() && !pod.terminating && !pod.finished();
    state.members(key).any(|pod| is_pending(pod) && (pod.gated || pod.unsupported))
}

/// The minimum that the `Started` condition reports.
fn started_with(conditions: &[Condition]) -> Option<usize> {
    let started = conditions.iter().find(|one| one.kind == "Started" && one.holds)?;
    started.reason.strip_prefix("WithMinimum")?.parse().ok()
}

fn check_group(state: &ServerState, key: &GroupKey, violations: &mut Vec<String>) {
    let Some(policy) = state.policy(key) else { return };
    let conditions = state.conditions(key);
    let scheduled = conditions.iter().find(|one| one.kind == "PodGroupScheduled");
    let Some(scheduled) = scheduled else {
        // A native group may belong to another scheduler unless one of our pods references it.
        if key.kind != Kind::Native || state.members(key).any(|pod| pod.ours) {
            violations.push(format!("{} has no Scheduled condition", key.object));
        }
        return;
    };
    let degraded = conditions.iter().any(|one| one.kind == "Degraded" && one.holds);
    let members: Vec<&Pod> = state.members(key).collect();
    let counts_towards_minimum = members.iter().filter(|pod| pod.counts_towards_minimum()).count();
    match policy {
        Policy::Basic => {
            let bound = members.iter().filter(|pod| !pod.finished() && !pod.node.is_empty()).count();
            if (counts_towards_minimum + bound > 0) != scheduled.holds && !members.is_empty() {
                violations.push(format!("{} has {bound} bound pods and the condition {scheduled:?}", key.object));
            }
        }
        Policy::Gang(_) => check_gang(state, key, &conditions, scheduled, degraded, violations),
    }
    check_counters(state, key, &members, violations);
    let completed = conditions.iter().any(|one| one.kind == "Completed" && one.holds);
    // Completed stays true when the finished pods are deleted.
    if !members.is_empty() && completed != members.iter().all(|pod| pod.finished()) {
        violations.push(format!("{} has a wrong Completed condition ({completed})", key.object));
    }
}

fn check_gang(
    state: &ServerState,
    key: &GroupKey,
    conditions: &[Condition],
    scheduled: &Condition,
    degraded: bool,
    violations: &mut Vec<String>,
) {
    let progress = state.progress(key).unwrap_or_default();
    let has_minimum = progress.iter().all(|(minimum, counted)| counted >= minimum);
    let has_members = progress.iter().any(|(_, counted)| *counted > 0);
    let started = started_with(conditions).is_some();
    let mut wrong = |what: &str| violations.push(format!("{} {what}: {progress:?}", key.object));
    if has_minimum {
        if !scheduled.holds {
            wrong("has its minimum and is reported as not scheduled");
        }
        if degraded {
            wrong("has its minimum and is reported as degraded");
        }
        if !started {
            wrong("has its minimum, which is not in its Started condition");
        }
        return;
    }
    // A minimum raised while no member is pending is reported only when a member becomes pending.
    let raised = started_with(conditions).is_some_and(|had| had < progress.iter().map(|(need, _)| need).sum());
    let unreported = raised && !state.members(key).any(Pod::is_pending);
    if scheduled.holds && !degraded && !unreported && state.members(key).any(|pod| !pod.terminating && !pod.finished())
    {
        wrong("lacks members and is not reported as degraded");
    }
    if !has_members && (degraded || started) {
        wrong("has no members and is reported as degraded");
    }
    let bare = state.members(key).any(|pod| pod.is_placed() && pod.ours && !pod.controlled);
    let kept = state.members(key).any(|pod| pod.counts_towards_minimum() && pod.finished());
    if has_members && !started && !bare && !kept {
        wrong("is quiescent with a partial start");
    }
}

fn check_counters(state: &ServerState, key: &GroupKey, members: &[&Pod], violations: &mut Vec<String>) {
    let count = |is_meant: &dyn Fn(&Pod) -> bool| members.iter().filter(|pod| is_meant(pod)).count() as i64;
    let mut compare = |what: &str, shown: &Value, counted: i64| {
        if shown.as_i64().unwrap_or(0) != counted {
            violations.push(format!("{} reports {what} {shown}; actual: {counted}", key.object));
        }
    };
    let scheduled = count(&|pod| (!pod.node.is_empty() && !pod.finished()) || pod.phase == "Succeeded");
    let (running, succeeded, failed) = (
        count(&|pod| pod.phase == "Running"),
        count(&|pod| pod.phase == "Succeeded"),
        count(&|pod| pod.phase == "Failed"),
    );
    match key.kind {
        Kind::Native => {}
        Kind::Workload => {
            let shown = state.instance(key);
            compare("total", &shown["total"], members.len() as i64);
            compare("scheduled", &shown["scheduled"], scheduled);
            compare("running", &shown["running"], running);
            compare("succeeded", &shown["succeeded"], succeeded);
            compare("failed", &shown["failed"], failed);
        }
        Kind::PodGroup => {
            let Some(object) = state.objects.get(&(key.kind, key.object.clone())) else { return };
            let status = &object.status;
            compare("observedGeneration", &status["observedGeneration"], object.generation);
            compare("summary.scheduled", &status["summary"]["scheduled"], scheduled);
            compare("summary.running", &status["summary"]["running"], running);
            let Some((_, Policy::Gang(minimums))) = object.policies.first() else { return };
            for (subset, _) in minimums {
                let in_subset = |pod: &Pod| belongs_to(pod, subset, minimums.len());
                let list = status["subsets"].as_array();
                let is_meant = |one: &&Value| one["name"].as_str().unwrap_or_default() == subset;
                let shown = list.into_iter().flatten().find(is_meant).unwrap_or(&Value::Null);
                compare("total", &shown["total"], count(&|pod| in_subset(pod) && !pod.finished()));
                compare("running", &shown["running"], count(&|pod| in_subset(pod) && pod.phase == "Running"));
                compare("succeeded", &shown["succeeded"], count(&|pod| in_subset(pod) && pod.phase == "Succeeded"));
                compare("failed", &shown["failed"], count(&|pod| in_subset(pod) && pod.phase == "Failed"));
            }
        }
    }
}
