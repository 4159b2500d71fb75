//! Jobs: their pods name their group from the beginning.

use muster_api::keys::annotations::{GANG_SCOPE, POD_GROUP, REPLICA_KEY, WORKLOAD};
use muster_api::makers::job_set::{Scope, labels};
use muster_api::makers::{Joining, Reference, job, names_a_group};
use muster_api::wire::Job;
use serde_json::json;

use super::patch::Patch;
use super::{Admission, Request, Verdict};
use crate::read::read;

const PATH: [&str; 4] = ["spec", "template", "metadata", "annotations"];

impl Admission {
    pub(super) fn job(&self, request: &Request<'_>) -> Verdict {
        let Some(job) = read::<Job>(request.object) else { return Verdict::default() };
        if request.is_update {
            return kept(request, &job);
        }
        let template = &job.spec.template;
        if names_a_group(&template.metadata, &template.spec) {
            return Verdict::default();
        }
        let joining = match self.joining(&job) {
            Ok(Some(joining)) => joining,
            Ok(None) => return Verdict::default(),
            Err(why) => return Verdict::denied(why),
        };
        let mut patch = Patch::of(request.object);
        patch.join(&["spec", "template"], &joining);
        Verdict::patched(patch)
    }

    /// How a Job's pods name their group, as far as the Job itself shows it.
    fn joining(&self, job: &Job) -> Result<Option<Joining>, String> {
        let label = |key: &str| job.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        if let Some(set) = label(labels::JOB_SET) {
            let scope = scope(job).filter(|_| self.settings.has_job_sets());
            let (Some(scope), Some(replicated_job), Some(index)) =
                (scope, label(labels::REPLICATED_JOB), label(labels::JOB_INDEX))
            else {
                return Ok(None);
            };
            let reference = scope.reference(set, replicated_job, index);
            return Ok(Some(reference.joining(self.settings.native_job_sets())));
        }
        if self.settings.jobs().is_none() {
            return Ok(None);
        }
        let gang = job::gang(job, self.settings.jobs().unwrap_or_default(), self.settings.scheduler_names());
        // The name of a Job that asks for a generated one is not known yet: the controllers see to its pods.
        let is_named = job.metadata.name.as_ref().is_some_and(|name| !name.is_empty());
        let gang = gang.map_err(|flaw| flaw.message)?.filter(|_| is_named);
        Ok(gang.map(|gang| Reference { workload: None, group: gang.group, replica_key: None }.joining(None)))
    }
}

/// Whose pods are one gang, by the note of our webhook. What a replicated Job asks for is not enough: whether its set is
/// ours to see to does not show here.
fn scope(job: &Job) -> Option<Scope> {
    Scope::of(job.metadata.annotations.as_ref()?.get(GANG_SCOPE)?)
}

/// A template cannot be changed: a controller that writes a Job without what it does not know does not mean to.
fn kept(request: &Request<'_>, job: &Job) -> Verdict {
    let Some(old) = read::<Job>(request.old) else { return Verdict::default() };
    let (before, now) = (&old.spec.template.metadata.annotations, &job.spec.template.metadata.annotations);
    let mut patch = Patch::of(request.object);
    for key in [WORKLOAD, POD_GROUP, REPLICA_KEY] {
        if let Some(value) = before.get(key).filter(|_| !now.contains_key(key)) {
            patch.set(&PATH, key, &json!(value));
        }
    }
    let fields = ["schedulingGroup", "workloadRef"];
    for (field, before) in fields.iter().map(|field| (field, &request.old["spec"]["template"]["spec"][field])) {
        if !before.is_null() && request.object["spec"]["template"]["spec"][field].is_null() {
            patch.set(&["spec", "template", "spec"], field, before);
        }
    }
    Verdict::patched(patch)
}
