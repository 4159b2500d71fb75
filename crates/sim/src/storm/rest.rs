//! The judge of a world at rest: what the API shows of each pod and group must be true, and what fits must be placed.
//!
//! It is a plain reading of the rules, without the scheduler's code: it must not know how Muster comes to its answers.

use serde_json::Value;

use super::deeds::Stories;
use super::room::Room;
use super::truth::{Condition, GroupKey, Kind, Pod, Policy, Truth, is_of};

/// Everything that is wrong.
pub(super) fn judge(truth: &Truth, stories: &Stories) -> Vec<String> {
    let mut wrongs = Vec::new();
    for pod in truth.pods.values() {
        judge_pod(truth, pod, &mut wrongs);
    }
    for key in truth.groups() {
        let found = wrongs.len();
        judge_group(truth, &key, &mut wrongs);
        if wrongs.len() > found {
            wrongs.push(format!("  {key:?}: {:?}, {:?}", stories.story(&key), truth.conditions(&key)));
            wrongs.extend(truth.members(&key).map(|pod| format!("  {pod:?}")));
        }
    }
    wrongs
}

fn judge_pod(truth: &Truth, pod: &Pod, wrongs: &mut Vec<String>) {
    if pod.marked && !pod.terminating && !pod.finished() {
        wrongs.push(format!("{} shows that it is evicted, and stays", pod.name));
    }
    if !pod.nominated.is_empty() && pod.node.is_empty() && !waits_for_victims(truth, pod) {
        wrongs.push(format!("{} is nominated to {}, and nothing comes of it", pod.name, pod.nominated));
    }
    if !pod.waits() {
        return;
    }
    let Some((reason, message)) = &pod.said else {
        wrongs.push(format!("{} waits in silence: {pod:?}", pod.name));
        return;
    };
    let allowed = why_it_waits(truth, pod);
    if !allowed.contains(&reason.as_str()) {
        wrongs.push(format!("{} says {reason} ({message}), and it should be one of {allowed:?}: {pod:?}", pod.name));
    }
}

/// Whether a pod, or its group, waits for pods to leave that do not.
fn waits_for_victims(truth: &Truth, pod: &Pod) -> bool {
    let says_so = pod.said.as_ref().is_some_and(|(reason, _)| reason == "WaitingForVictims");
    says_so && truth.pods.values().any(|other| other.terminating && !other.node.is_empty())
}

/// The reasons that are true of a pod that waits.
fn why_it_waits(truth: &Truth, pod: &Pod) -> &'static [&'static str] {
    const NO_ROOM: &[&str] = &["Unschedulable"];
    if pod.flawed {
        return &["SchedulerError", "WaitingForGroup"];
    }
    if waits_for_victims(truth, pod) {
        return &["WaitingForVictims"];
    }
    // Whoever is less important makes room, unless it is leaving already: who does not go cannot be made to.
    let stays = |other: &Pod| other.terminating || other.priority >= pod.priority;
    let fits = Room::of(truth, stays).place_for(pod).is_some();
    let Some(key) = &pod.group else {
        return if fits { &["to be bound: it fits"] } else { NO_ROOM };
    };
    let Some(policy) = truth.policy(key) else { return &["WaitingForGroup"] };
    let Policy::Gang(minimums) = policy else {
        // As soon as one of its pods has its place a basic group has started, and holds nobody back.
        let started = truth.members(key).any(|pod| pod.ours && pod.secured());
        return if !started && held_back(truth, key) {
            &["WaitingForGroup", "SchedulerError"]
        } else if fits {
            &["to be bound: it fits"]
        } else {
            NO_ROOM
        };
    };
    if !minimums.iter().any(|(subset, _)| is_of(pod, subset, minimums.len())) {
        return &["WaitingForGroup"];
    }
    match lacking(truth, key, minimums) {
        Lacking::Nothing if fits => &["to be bound: it fits"],
        Lacking::Nothing => NO_ROOM,
        Lacking::Members if held_back(truth, key) => &["WaitingForMembers", "WaitingForGroup", "SchedulerError"],
        Lacking::Members => &["WaitingForMembers"],
        Lacking::Freedom => &["WaitingForGroup", "SchedulerError"],
        Lacking::Room(Some(true)) => &["to be bound: its gang fits"],
        Lacking::Room(_) => &["Unschedulable", "CoschedulingNotMeetMinMember"],
    }
}

/// What a gang lacks.
enum Lacking {
    /// It has started, and members join one by one.
    Nothing,
    Members,
    /// Members are held back by gates or flaws.
    Freedom,
    /// Room; whether there would be some, if that was found out.
    Room(Option<bool>),
}

fn lacking(truth: &Truth, key: &GroupKey, minimums: &[(String, usize)]) -> Lacking {
    let needs = truth.needs(key).unwrap_or_default();
    let minimum: usize = needs.iter().map(|(minimum, _)| minimum).sum();
    let all_there = needs.iter().all(|(minimum, secured)| secured >= minimum);
    if all_there || started_with(&truth.conditions(key)).is_some_and(|started| started >= minimum) {
        return Lacking::Nothing;
    }
    let mut lots = Vec::new();
    let mut incomplete = false;
    for ((subset, _), (minimum, secured)) in minimums.iter().zip(&needs) {
        let of_it = |pod: &&Pod| pod.ours && is_of(pod, subset, minimums.len());
        let alive = |pod: &&Pod| pod.secured() || (!pod.terminating && !pod.finished());
        let members: Vec<&Pod> = truth.members(key).filter(of_it).filter(alive).collect();
        incomplete |= members.len() < *minimum;
        let waiting = members.into_iter().filter(|pod| pod.waits() && !pod.flawed).collect();
        lots.push((minimum.saturating_sub(*secured), waiting));
    }
    if incomplete {
        Lacking::Members
    } else if held_back(truth, key) {
        Lacking::Freedom
    } else {
        let priority = truth.members(key).map(|pod| pod.priority).min().unwrap_or(0);
        Lacking::Room(Room::of(truth, |other| other.terminating || other.priority >= priority).fits(&lots))
    }
}

/// Whether members are held back by gates or flaws.
fn held_back(truth: &Truth, key: &GroupKey) -> bool {
    let waits = |pod: &Pod| pod.ours && pod.node.is_empty() && !pod.terminating && !pod.finished();
    truth.members(key).any(|pod| waits(pod) && (pod.gated || pod.flawed))
}

/// The minimum with which the API says that the group has started.
fn started_with(conditions: &[Condition]) -> Option<usize> {
    let started = conditions.iter().find(|one| one.kind == "Started" && one.holds)?;
    started.reason.strip_prefix("WithMinimum")?.parse().ok()
}

fn judge_group(truth: &Truth, key: &GroupKey, wrongs: &mut Vec<String>) {
    let Some(policy) = truth.policy(key) else { return };
    let conditions = truth.conditions(key);
    let scheduled = conditions.iter().find(|one| one.kind == "PodGroupScheduled");
    let Some(scheduled) = scheduled else {
        // A native group may be another scheduler's, as long as no pod of ours names it.
        if key.kind != Kind::Native || truth.members(key).any(|pod| pod.ours) {
            wrongs.push(format!("{} says nothing of its place", key.object));
        }
        return;
    };
    let degraded = conditions.iter().any(|one| one.kind == "Degraded" && one.holds);
    let members: Vec<&Pod> = truth.members(key).collect();
    let secured = members.iter().filter(|pod| pod.secured()).count();
    match policy {
        Policy::Basic => {
            let bound = members.iter().filter(|pod| !pod.finished() && !pod.node.is_empty()).count();
            if (secured + bound > 0) != scheduled.holds && !members.is_empty() {
                wrongs.push(format!("{} has {bound} pods bound and says {scheduled:?}", key.object));
            }
        }
        Policy::Gang(_) => judge_gang(truth, key, &conditions, scheduled, degraded, wrongs),
    }
    judge_counters(truth, key, &members, wrongs);
    let completed = conditions.iter().any(|one| one.kind == "Completed" && one.holds);
    // What finished stays finished when its pods are cleaned up.
    if !members.is_empty() && completed != members.iter().all(|pod| pod.finished()) {
        wrongs.push(format!("{} says that it is completed ({completed}), and that is not so", key.object));
    }
}

fn judge_gang(
    truth: &Truth,
    key: &GroupKey,
    conditions: &[Condition],
    scheduled: &Condition,
    degraded: bool,
    wrongs: &mut Vec<String>,
) {
    let needs = truth.needs(key).unwrap_or_default();
    let all_there = needs.iter().all(|(minimum, secured)| secured >= minimum);
    let some_there = needs.iter().any(|(_, secured)| *secured > 0);
    let started = started_with(conditions).is_some();
    let mut wrong = |what: &str| wrongs.push(format!("{} {what}: {needs:?}", key.object));
    if all_there {
        if !scheduled.holds {
            wrong("has its minimum and says that it is not scheduled");
        }
        if degraded {
            wrong("has its minimum and says that it is degraded");
        }
        if !started {
            wrong("has its minimum, and does not remember it");
        }
        return;
    }
    // Of a minimum that was raised when nobody waited, nothing is said until somebody does.
    let raised = started_with(conditions).is_some_and(|had| had < needs.iter().map(|(need, _)| need).sum());
    let unheard = raised && !truth.members(key).any(Pod::waits);
    if scheduled.holds && !degraded && !unheard && truth.members(key).any(|pod| !pod.terminating && !pod.finished()) {
        wrong("lacks members and says that all is well");
    }
    if !some_there && (degraded || started) {
        wrong("has nothing and says that something is left");
    }
    let bare = truth.members(key).any(|pod| pod.holds_place() && pod.ours && !pod.controlled);
    let kept = truth.members(key).any(|pod| pod.secured() && pod.finished());
    if some_there && !started && !bare && !kept {
        wrong("rests with half a start");
    }
}

fn judge_counters(truth: &Truth, key: &GroupKey, members: &[&Pod], wrongs: &mut Vec<String>) {
    let count = |is_meant: &dyn Fn(&Pod) -> bool| members.iter().filter(|pod| is_meant(pod)).count() as i64;
    let mut compare = |what: &str, shown: &Value, counted: i64| {
        if shown.as_i64().unwrap_or(0) != counted {
            wrongs.push(format!("{} shows {what} {shown}, and there are {counted}", key.object));
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
            let shown = truth.instance(key);
            compare("total", &shown["total"], members.len() as i64);
            compare("scheduled", &shown["scheduled"], scheduled);
            compare("running", &shown["running"], running);
            compare("succeeded", &shown["succeeded"], succeeded);
            compare("failed", &shown["failed"], failed);
        }
        Kind::PodGroup => {
            let Some(object) = truth.objects.get(&(key.kind, key.object.clone())) else { return };
            let status = &object.status;
            compare("observedGeneration", &status["observedGeneration"], object.generation);
            compare("summary.scheduled", &status["summary"]["scheduled"], scheduled);
            compare("summary.running", &status["summary"]["running"], running);
            let Some((_, Policy::Gang(minimums))) = object.policies.first() else { return };
            for (subset, _) in minimums {
                let of_it = |pod: &Pod| is_of(pod, subset, minimums.len());
                let list = status["subsets"].as_array();
                let is_meant = |one: &&Value| one["name"].as_str().unwrap_or_default() == subset;
                let shown = list.into_iter().flatten().find(is_meant).unwrap_or(&Value::Null);
                compare("total", &shown["total"], count(&|pod| of_it(pod) && !pod.finished()));
                compare("running", &shown["running"], count(&|pod| of_it(pod) && pod.phase == "Running"));
                compare("succeeded", &shown["succeeded"], count(&|pod| of_it(pod) && pod.phase == "Succeeded"));
                compare("failed", &shown["failed"], count(&|pod| of_it(pod) && pod.phase == "Failed"));
            }
        }
    }
}
