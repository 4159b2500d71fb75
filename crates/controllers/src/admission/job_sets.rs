//! Admission of JobSets: annotates the Job templates with the gang scope, since a Job does not show the gang mode of
//! its set.
//!
//! The annotation only saves a lookup. Where it is missing, the controllers add the references to the pods.

use muster_api::keys::annotations::GANG_SCOPE;
use muster_api::owners::GangConfigError;
use muster_api::owners::job_set::{self, Gangs};
use muster_api::wire::JobSet;
use muster_api::wire::job_set::GangConfig;
use serde_json::{Value, json};

use super::patch::Patch;
use super::{Admission, Request, Verdict};
use crate::read::read;

const SPLIT: &str =
    "the Jobs of this set start one after another, so each replicated Job is a gang instead of the whole set";

impl Admission {
    pub(super) fn job_set(&self, request: &Request<'_>) -> Verdict {
        let Some(set) = read::<JobSet>(request.object) else { return Verdict::default() };
        let gangs = job_set::gangs(&set, self.settings.scheduler_names());
        if request.is_update {
            return self.review_update(request, &set, gangs.err());
        }
        let gangs = match gangs {
            Ok(gangs) => gangs,
            Err(error) => return Verdict::denied(error.message),
        };
        let warnings = gangs.iter().filter(|gangs| gangs.is_split).map(|_| SPLIT.to_owned()).collect();
        Verdict { warnings, ..Verdict::patched(annotate_scopes(request.object, &set, gangs.as_ref())) }
    }

    /// Denies a change of the gang modes and one that makes the gangs invalid, and restores gang scopes that an update
    /// leaves out.
    fn review_update(&self, request: &Request<'_>, set: &JobSet, error: Option<GangConfigError>) -> Verdict {
        let Some(old) = read::<JobSet>(request.old) else { return Verdict::default() };
        if let Some(reason) = changed_mode(&old, set) {
            return Verdict::denied(reason);
        }
        // A set that was invalid before can still be changed, for example by the garbage collector.
        if let Some(error) = error
            && job_set::gangs(&old, self.settings.scheduler_names()).is_ok()
        {
            return Verdict::denied(error.message);
        }
        Verdict::patched(restore_scopes(request.object, set, &old))
    }
}

/// Sets the gang scope on the Job templates of a new set.
fn annotate_scopes<'a>(object: &'a Value, set: &JobSet, gangs: Option<&Gangs>) -> Patch<'a> {
    let mut patch = Patch::of(object);
    for (index, job) in set.spec.replicated_jobs.iter().enumerate() {
        let index = index.to_string();
        let path = ["spec", "replicatedJobs", &index, "template", "metadata", "annotations"];
        match gangs.and_then(|gangs| gangs.scopes.get(&job.name)) {
            Some(scope) => patch.set(&path, GANG_SCOPE, &json!(scope.as_str())),
            None => patch.remove(&path, GANG_SCOPE),
        }
    }
    patch
}

/// Restores gang scopes that an update leaves out.
fn restore_scopes<'a>(object: &'a Value, set: &JobSet, old: &JobSet) -> Patch<'a> {
    let mut patch = Patch::of(object);
    for (index, job) in set.spec.replicated_jobs.iter().enumerate() {
        let before = old.spec.replicated_jobs.iter().find(|one| one.name == job.name);
        let scope = before.and_then(|one| one.template.metadata.annotations.get(GANG_SCOPE));
        if let Some(scope) = scope {
            let index = index.to_string();
            patch.set(
                &["spec", "replicatedJobs", &index, "template", "metadata", "annotations"],
                GANG_SCOPE,
                &json!(scope),
            );
        }
    }
    patch
}

fn changed_mode(old: &JobSet, new: &JobSet) -> Option<String> {
    let field = |config: Option<&GangConfig>| config.and_then(|config| config.gang_mode.clone()).unwrap_or_default();
    let annotated = |annotations: Option<&muster_api::selector::Labels>| {
        let mode = annotations.and_then(|annotations| annotations.get(muster_api::keys::annotations::GANG_MODE));
        mode.cloned().unwrap_or_default()
    };
    let of_set = |set: &JobSet| (field(set.spec.gang_config.as_ref()), annotated(set.metadata.annotations.as_ref()));
    if of_set(old) != of_set(new) {
        return Some(
            "the gang mode of a JobSet cannot be changed: spec.gangConfig.gangMode, annotation muster.dev/gang-mode"
                .to_owned(),
        );
    }
    let differs = |index: usize| {
        let of_job = |set: &JobSet| {
            set.spec
                .replicated_jobs
                .get(index)
                .map(|job| (field(job.gang_config.as_ref()), annotated(Some(&job.template.metadata.annotations))))
        };
        of_job(old) != of_job(new)
    };
    let index = (0..new.spec.replicated_jobs.len()).find(|index| differs(*index))?;
    Some(format!("spec.replicatedJobs[{index}]: the gang mode of a replicated Job cannot be changed"))
}
