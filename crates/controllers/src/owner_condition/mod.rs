//! The condition `muster.dev/GangScheduled` of Jobs, JobSets and LeaderWorkerSets: why their gangs wait, in one
//! sentence.
//!
//! It is derived from what the caches show: what is wrong with the owner, and the conditions of its group objects. An
//! owner that starts at once never gets it, since the scheduler reports only what lasts. Nothing is remembered: what is
//! shown already is not written again, also by another process. Must not depend on how groups are written.

mod groups;
mod job;
mod job_set;
mod leader_worker_set;

use muster_api::keys::conditions::GANG_SCHEDULED;
use muster_api::keys::group_reasons::SCHEDULED;
use muster_api::wire::condition::Condition;
use muster_api::wire::object::{Kind, Object};
use serde_json::json;

use crate::reconcile::{Plan, target};
use crate::refusals::FORBIDDEN_PAUSE;
use crate::state::{OwnerKind, State};
use crate::write::{ConditionChange, ObjectEvent, Target, Write};
use muster_reflector::Key;

/// What the condition of an owner has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It has failed: what is shown stays.
    Failed,
    /// Nothing is known of its gangs: what is shown of them stays.
    Unknown,
    /// The owner has no gangs.
    NoGangs,
    /// All its gangs are scheduled, or it has done its work.
    Scheduled,
    /// It has no pods because it is suspended.
    Suspended,
    /// Its gangs wait, or cannot be scheduled.
    Waiting { reason: &'static str, message: String },
}

/// Decides what to write for the condition of an owner.
pub(crate) fn reconcile(state: &State, kind: OwnerKind, key: &Key) -> Plan {
    let (namespace, name) = key;
    match kind {
        OwnerKind::Job => state.jobs.find(namespace, name).map_or_else(Plan::default, |job| {
            plan(&**job, &job.status.conditions, job::verdict(state, job, key), false)
        }),
        OwnerKind::JobSet => state.job_sets.find(namespace, name).map_or_else(Plan::default, |set| {
            plan(&**set, &set.status.conditions, job_set::verdict(state, set, key), true)
        }),
        OwnerKind::LeaderWorkerSet => {
            state.leader_worker_sets.find(namespace, name).map_or_else(Plan::default, |set| {
                plan(&**set, &set.status.conditions, leader_worker_set::verdict(state, set), true)
            })
        }
    }
}

/// The writes that make an owner show a verdict: the condition, and an event if its reason changes.
fn plan<K>(owner: &Object<K>, conditions: &[Condition], verdict: Verdict, has_generation: bool) -> Plan
where
    K: Kind<Scope = kube::core::NamespaceResourceScope>,
{
    let index = conditions.iter().position(|one| one.kind == GANG_SCHEDULED);
    let shown = index.map(|index| &conditions[index]);
    let (status, reason, message) = match verdict {
        Verdict::Failed => return Plan::default(),
        Verdict::Unknown if shown.is_none_or(|one| groups::is_reason(&one.reason)) => return Plan::default(),
        // What was shown of the owner itself is not true any more.
        Verdict::Unknown | Verdict::NoGangs => ("", "", String::new()),
        Verdict::Scheduled => ("True", SCHEDULED, "All gangs are scheduled.".to_owned()),
        Verdict::Suspended => ("False", "Suspended", "It is suspended, so it has no pods.".to_owned()),
        Verdict::Waiting { reason, message } => ("False", reason, message),
    };
    let is_problem = status == "False" && reason != "Suspended";
    let is_wanted = shown.is_some() || is_problem;
    let is_shown = shown.is_some_and(|one| (&*one.status, &*one.reason, &*one.message) == (status, reason, &*message));
    if owner.metadata.deletion_timestamp.is_some() || !is_wanted || is_shown {
        return Plan::default();
    }
    let mut condition = json!({"type": GANG_SCHEDULED, "status": status, "reason": reason, "message": message});
    if has_generation {
        condition["observedGeneration"] = json!(owner.metadata.generation.unwrap_or_default());
    }
    if let Some(before) = shown.filter(|before| before.status == status) {
        condition["lastTransitionTime"] = json!(before.last_transition_time);
    }
    let regarding: Target = target(owner);
    let change = ConditionChange {
        target: regarding.clone(),
        resource_version: owner.metadata.resource_version.clone().unwrap_or_default(),
        index,
        is_first: conditions.is_empty(),
        condition: (!status.is_empty()).then_some(condition),
    };
    let has_news = shown.is_none_or(|before| before.reason != reason) && (is_problem || status == "True");
    let event = ObjectEvent { regarding, warning: is_problem, reason, note: message };
    let event = has_news.then_some(Write::Event(event));
    // The server may forbid it, and allow it later.
    let requeue_after = Some(FORBIDDEN_PAUSE);
    Plan { writes: [Write::Condition(change)].into_iter().chain(event).collect(), requeue_after }
}

/// What is wrong with an owner, according to the events that its reconcile records about it.
fn contradiction(plan: &Plan, uid: &str) -> Option<Verdict> {
    plan.writes.iter().find_map(|write| match write {
        Write::Event(event) if event.warning && event.regarding.uid == uid => {
            Some(Verdict::Waiting { reason: event.reason, message: event.note.clone() })
        }
        _ => None,
    })
}
