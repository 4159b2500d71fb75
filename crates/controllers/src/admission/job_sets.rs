//! Admission of JobSets: annotates the Job templates with the gang scope, since a Job does not show the gang mode of
//! its set, and takes over the exclusive placement of its Jobs.
//!
//! The gang scope only saves a lookup. Where it is missing, the controllers add the references to the pods.

use muster_api::keys::annotations::{EXCLUSIVE_TOPOLOGY, GANG_SCOPE};
use muster_api::owners::GangConfigError;
use muster_api::owners::job_set::{self, Gangs};
use muster_api::owners::job_set_topology::{EXCLUSIVE_TOPOLOGY as EXCLUSIVE_BY_JOB_SET, NODE_SELECTOR_STRATEGY};
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
        let exclusive = ExclusiveTopology::taken_from(request.object);
        let Some(set) = read::<JobSet>(&exclusive.object) else { return Verdict::default() };
        let gangs = job_set::gangs(&set, self.settings.scheduler_names());
        let gangs = gangs.and_then(|gangs| {
            let native = self.settings.native_job_sets().is_some();
            gangs.map(|gangs| gangs.check_topology(native).map(|()| gangs)).transpose()
        });
        // A set without gangs is left to JobSet.
        let exclusive = if matches!(gangs, Ok(Some(_))) { exclusive } else { ExclusiveTopology::default() };
        if request.is_update {
            return self.review_update(request, &set, gangs.err(), &exclusive);
        }
        let gangs = match gangs {
            Ok(gangs) => gangs,
            Err(error) => return Verdict::denied(error.message),
        };
        let warnings = gangs.iter().filter(|gangs| gangs.is_split).map(|_| SPLIT.to_owned()).collect();
        let mut patch = annotate_scopes(request.object, &set, gangs.as_ref());
        exclusive.patch(&mut patch);
        Verdict { warnings, ..Verdict::patched(patch) }
    }

    /// Denies a change of the gang modes and one that makes the gangs invalid, and restores gang scopes that an update
    /// leaves out.
    fn review_update(
        &self,
        request: &Request<'_>,
        set: &JobSet,
        error: Option<GangConfigError>,
        exclusive: &ExclusiveTopology,
    ) -> Verdict {
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
        let mut patch = restore_scopes(request.object, set, &old);
        exclusive.patch(&mut patch);
        Verdict::patched(patch)
    }
}

/// The exclusive placement of Jobs that a set asks JobSet for, and which Muster does in its place.
#[derive(Default)]
struct ExclusiveTopology {
    /// The set with Muster's annotation.
    object: Value,
    /// The paths of the annotations, and their values.
    annotations: Vec<(Vec<String>, Value)>,
}

impl ExclusiveTopology {
    fn taken_from(object: &Value) -> Self {
        let own = |path: &[&str]| path.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>();
        let jobs = object["spec"]["replicatedJobs"].as_array().map_or(0, Vec::len);
        let of_job =
            |index: usize| own(&["spec", "replicatedJobs", &index.to_string(), "template", "metadata", "annotations"]);
        let paths = std::iter::once(own(&["metadata", "annotations"])).chain((0..jobs).map(of_job));
        let mut taken = Self { object: object.clone(), annotations: Vec::new() };
        if !object["metadata"]["annotations"][NODE_SELECTOR_STRATEGY].is_null() {
            return taken;
        }
        for path in paths {
            let pointer: String = path.iter().flat_map(|step| ["/", step]).collect();
            let Some(annotations) = taken.object.pointer_mut(&pointer).and_then(Value::as_object_mut) else { continue };
            if annotations.contains_key(NODE_SELECTOR_STRATEGY) {
                continue;
            }
            if let Some(value) = annotations.remove(EXCLUSIVE_BY_JOB_SET) {
                annotations.insert(EXCLUSIVE_TOPOLOGY.to_owned(), value.clone());
                taken.annotations.push((path, value));
            }
        }
        taken
    }

    /// Replaces JobSet's annotations by Muster's.
    fn patch(&self, patch: &mut Patch<'_>) {
        for (path, value) in &self.annotations {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            patch.remove(&path, EXCLUSIVE_BY_JOB_SET);
            patch.set(&path, EXCLUSIVE_TOPOLOGY, value);
        }
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
