//! What a JobSet shows about its gangs.

use kube::core::DynamicObject;
use muster_api::keys::group_reasons::WAITING_FOR_MEMBERS;
use muster_api::native::NativeVersion;
use muster_api::owners::job_set::{self, Scope};
use muster_api::wire::JobSet;
use muster_api::wire::job_set::ReplicatedJob;

use super::groups::{Gang, Gangs, gang_of_object};
use super::{Verdict, contradiction};
use crate::reconcile::{MEMBERS_NEVER_CREATED, is_controlled_by, job_sets};
use crate::state::State;
use muster_reflector::Key;

pub(super) fn verdict(state: &State, set: &JobSet, key: &Key) -> Verdict {
    if set.is_finished() {
        return if set.is_complete() { Verdict::Scheduled } else { Verdict::Failed };
    }
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    if let Some(wrong) = contradiction(&job_sets::reconcile(state, key), uid) {
        return wrong;
    }
    let Ok(Some(declared)) = job_set::gangs(set, state.settings.scheduler_names()) else { return Verdict::NoGangs };
    if set.spec.suspend == Some(true) {
        return Verdict::Suspended;
    }
    let native = state.settings.native_job_sets();
    if native.is_none() {
        let of_user = job_sets::user_workload(state, set, key);
        let managed = || state.managed(&job_sets::workloads(None)).find(&key.0, &declared.workload).map(|one| &**one);
        let workload = of_user.or_else(managed).filter(|one| of_user.is_some() || is_live_of(one, uid));
        let Some(workload) = workload else { return Verdict::Unknown };
        let gangs = Gangs::of_workload(workload);
        let shortage = gangs.listed.iter().find_map(|gang| shortage(set, &declared, gang));
        return shortage.unwrap_or_else(|| gangs.verdict(1, "gangs"));
    }
    // In 1.35 groups have no status.
    let Some(kind) = native.and_then(NativeVersion::pod_groups) else { return Verdict::Unknown };
    let mut gangs = Gangs::default();
    for group in state.managed(&kind).by_index(&key.0, &key.1).filter(|group| is_live_of(group, uid)) {
        gangs.add(gang_of_object(group.metadata.name.clone().unwrap_or_default(), group, false));
    }
    if gangs.listed.is_empty() { Verdict::Unknown } else { gangs.verdict(1, "gangs") }
}

fn is_live_of(object: &DynamicObject, uid: &str) -> bool {
    object.metadata.deletion_timestamp.is_none() && is_controlled_by(&object.metadata, uid)
}

/// A gang waits for members that the set will never create: its Jobs have ended, or the minimum in a Workload of a user
/// is above what the set makes.
fn shortage(set: &JobSet, declared: &job_set::Gangs, gang: &Gang) -> Option<Verdict> {
    if gang.scheduled != Some(false) || gang.reason != WAITING_FOR_MEMBERS {
        return None;
    }
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let ended = |job: &ReplicatedJob| {
        let of_job = set.status.replicated_jobs_status.iter().find(|one| one.name == job.name);
        of_job.map_or(0, |one| one.succeeded + one.failed)
    };
    let (mut members, mut created, mut over) = (gang.succeeded, 0_i64, Vec::new());
    for job in &set.spec.replicated_jobs {
        let Some(scope) = declared.scopes.get(&job.name) else { continue };
        if scope.reference(name, &job.name, "0").group != gang.group {
            continue;
        }
        let (jobs, pods) = (job.replicas.unwrap_or(1).max(0), job.template.spec.max_concurrent_pods());
        // Which of the replicas have ended is not known.
        let jobs = if *scope == Scope::Job { 1 } else { jobs };
        let ended = if *scope == Scope::Job { 0 } else { ended(job) };
        created = jobs.saturating_mul(pods).saturating_add(created);
        members = (jobs - ended).max(0).saturating_mul(pods).saturating_add(members);
        if ended > 0 {
            over.push(job.name.as_str());
        }
    }
    if created == 0 || members >= gang.minimum {
        return None;
    }
    let why = if over.is_empty() {
        format!("the set has {created} pods for group {}. Lower its minCount.", gang.group)
    } else {
        format!("Jobs of {} have ended. Create the set again.", over.join(", "))
    };
    let message = format!("{members} of {} members, and the set creates no more: {why}", gang.minimum);
    Some(Verdict::Waiting { reason: MEMBERS_NEVER_CREATED, message })
}
