//! Admission of Jobs: adds the group reference to the pod template.

use muster_api::keys::annotations::{GANG_SCOPE, POD_GROUP, REPLICA_KEY, WORKLOAD};
use muster_api::owners::job_set::{Scope, labels};
use muster_api::owners::{GangConfigError, Membership, Reference, job, references_group};
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
            return restore_references(request, &job);
        }
        let template = &job.spec.template;
        if references_group(&template.metadata, &template.spec) {
            return Verdict::default();
        }
        let membership = match self.membership(&job) {
            Ok(Some(membership)) => membership,
            Ok(None) => return Verdict::default(),
            Err(error) => return Verdict::denied(error.message),
        };
        let mut patch = Patch::of(request.object);
        patch.add_membership(&["spec", "template"], &membership);
        Verdict::patched(patch)
    }

    /// The group membership of a Job's pods, as far as the Job itself shows it.
    fn membership(&self, job: &Job) -> Result<Option<Membership>, GangConfigError> {
        let label = |key: &str| job.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        if let Some(set) = label(labels::JOB_SET) {
            let scope = scope(job).filter(|_| self.settings.has_job_sets());
            let (Some(scope), Some(replicated_job), Some(index)) =
                (scope, label(labels::REPLICATED_JOB), label(labels::JOB_INDEX))
            else {
                return Ok(None);
            };
            let reference = scope.reference(set, replicated_job, index);
            return Ok(Some(reference.membership(self.settings.native_job_sets())));
        }
        if self.settings.jobs().is_none() {
            return Ok(None);
        }
        let gang = job::gang(job, self.settings.jobs().unwrap_or_default(), self.settings.scheduler_names());
        // A Job with `generateName` has no name yet: the controllers add the references to its pods.
        let is_named = job.metadata.name.as_ref().is_some_and(|name| !name.is_empty());
        let gang = gang?.filter(|_| is_named);
        Ok(gang.map(|gang| Reference { workload: None, group: gang.group, replica_key: None }.membership(None)))
    }
}

/// The gang scope that the webhook wrote when the JobSet was created. The gang mode of a replicated Job is not enough:
/// it does not show whether Muster manages the set.
fn scope(job: &Job) -> Option<Scope> {
    Scope::parse(job.metadata.annotations.as_ref()?.get(GANG_SCOPE)?)
}

/// Restores references that an update drops. Pod templates are immutable, so a controller that writes a Job without
/// fields it does not know would be refused.
fn restore_references(request: &Request<'_>, job: &Job) -> Verdict {
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
