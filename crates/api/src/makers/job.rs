//! Which Jobs are gangs: those that say so by annotation, and if that is configured all indexed ones.
//!
//! `muster.dev/gang-mode: Gang` makes one gang of all pods that run at once. `muster.dev/scheduling` says more, in the
//! shape of `spec.scheduling` of Kubernetes' own Job. Where a Job has that field, or its pods name a group already, or
//! it belongs to a JobSet, others see to its groups.
//!
//! It must not know what becomes of a group.

use serde::Deserialize;

use super::gang_mode::GangMode;
use super::{Flaw, flaws, job_set, names_a_group, short_name};
use crate::invalid::{FieldPath, InvalidField};
use crate::keys::annotations::{POD_GROUP, SCHEDULING};
use crate::selector::Labels;
use crate::wire::Job;

/// The controller that Jobs are looked after by if they do not say another.
const CONTROLLER: &str = "kubernetes.io/job-controller";
const NAME_CHARS_MAX: usize = 253;
const ALLOWED: [GangMode; 2] = [GangMode::Off, GangMode::Gang];

/// The gang of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobGang {
    /// The PodGroup.
    pub group: String,
    /// How many pods start together.
    pub min_count: i64,
    /// Whether all of it is evicted if one is.
    pub goes_whole: bool,
    /// The class of their priority; empty if they have none.
    pub priority_class_name: String,
}

/// Which Jobs are gangs without saying so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unasked {
    /// None.
    #[default]
    None,
    /// Those that are indexed and have as many pods at once as they have work: what Kubernetes 1.36 chooses too.
    Indexed,
}

/// `spec.scheduling` of Kubernetes' own Job, as far as it is honoured here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Scheduling {
    scheduling_policy: Option<Policy>,
    disruption_mode: Option<Disruption>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Policy {
    Gang(Gang),
    Basic(Nothing),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Gang {
    min_count: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Disruption {
    Single(Nothing),
    All(Nothing),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// The name of the PodGroup of a Job.
pub fn group_name(job: &str) -> String {
    short_name(&format!("job-{job}"), NAME_CHARS_MAX)
}

/// The gang that a Job is; `None` if it is none, or if others see to that.
pub fn gang(job: &Job, unasked: Unasked, scheduler_names: &[String]) -> Result<Option<JobGang>, Flaw> {
    let template = &job.spec.template;
    let theirs = job.spec.managed_by.as_deref().is_some_and(|by| by != CONTROLLER);
    let of_set = job.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(job_set::labels::JOB_SET));
    if job.spec.scheduling.is_some() || theirs || of_set || names_its_own_group(job) {
        return Ok(None);
    }
    let flaw = |error: InvalidField| Flaw { reason: flaws::INVALID_GANG_MODE, message: error.to_string() };
    let none = Labels::new();
    let annotations = job.metadata.annotations.as_ref().unwrap_or(&none);
    let ours = scheduler_names.is_empty() || scheduler_names.contains(&template.spec.scheduler_name);
    let Some(gang) = asked(job, annotations).map_err(flaw)? else {
        let is_off = GangMode::annotated(annotations, &ALLOWED, &FieldPath::Root("metadata")).map_err(flaw)?.is_some();
        let pods = job.spec.parallelism.unwrap_or(1);
        let eligible = job.spec.is_indexed() && pods > 1 && job.spec.completions == Some(pods);
        return Ok((unasked == Unasked::Indexed && !is_off && ours && eligible).then(|| plain(job)));
    };
    if !ours {
        let reason = format!("must be {}: the gangs of Muster are placed by Muster", scheduler_names.join(" or "));
        let path = FieldPath::Root("spec.template.spec.schedulerName");
        return Err(flaw(path.invalid(&template.spec.scheduler_name, reason)));
    }
    Ok(Some(gang))
}

/// Whether its pods name the group that we gave them.
pub fn names_our_group(job: &Job) -> bool {
    let ours = group_name(job.metadata.name.as_deref().unwrap_or_default());
    job.spec.template.metadata.annotations.get(POD_GROUP) == Some(&ours)
}

/// Whether its pods name a group that is not the one that we gave them.
fn names_its_own_group(job: &Job) -> bool {
    let mut metadata = job.spec.template.metadata.clone();
    if names_our_group(job) {
        metadata.annotations.remove(POD_GROUP);
    }
    names_a_group(&metadata, &job.spec.template.spec)
}

fn plain(job: &Job) -> JobGang {
    JobGang {
        group: group_name(job.metadata.name.as_deref().unwrap_or_default()),
        min_count: job.spec.pods_at_once().clamp(1, i64::from(i32::MAX)),
        goes_whole: false,
        priority_class_name: job.spec.template.spec.priority_class_name.clone(),
    }
}

/// The gang that the annotations ask for.
fn asked(job: &Job, annotations: &Labels) -> Result<Option<JobGang>, InvalidField> {
    let mode = GangMode::annotated(annotations, &ALLOWED, &FieldPath::Root("metadata"))?;
    let Some(text) = annotations.get(SCHEDULING) else {
        return Ok((mode == Some(GangMode::Gang)).then(|| plain(job)));
    };
    let path = FieldPath::Root("metadata.annotations");
    let path = path.key(SCHEDULING);
    if mode.is_some() {
        return Err(path.invalid(text, "must be left out where muster.dev/gang-mode is set"));
    }
    let scheduling: Scheduling = serde_json::from_str(text).map_err(|error| path.invalid(text, error))?;
    let goes_whole = matches!(scheduling.disruption_mode, Some(Disruption::All(_)));
    let Some(Policy::Gang(gang)) = scheduling.scheduling_policy else {
        if goes_whole {
            return Err(path.invalid(text, "disruptionMode all needs the policy gang"));
        }
        return Ok(None);
    };
    let pods = job.spec.pods_at_once();
    if let Some(wanted) = gang.min_count.filter(|wanted| *wanted < 1 || *wanted > pods) {
        return Err(path.invalid(&wanted, format_args!("minCount must be 1 to {pods}, the pods that run at once")));
    }
    let plain = plain(job);
    Ok(Some(JobGang { min_count: gang.min_count.unwrap_or(plain.min_count), goes_whole, ..plain }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(annotations: &Value, spec: &Value) -> Job {
        let mut whole = json!({"parallelism": 4, "completions": 4, "completionMode": "Indexed",
            "template": {"spec": {"schedulerName": "muster", "containers": []}}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let job = json!({"metadata": {"name": "train", "annotations": annotations}, "spec": whole});
        serde_json::from_value(job).unwrap()
    }

    fn minimum(annotations: &Value, spec: &Value) -> Result<Option<i64>, String> {
        let names = ["muster".to_owned()];
        let gang = gang(&read(annotations, spec), Unasked::None, &names);
        gang.map(|gang| gang.map(|gang| gang.min_count)).map_err(|flaw| flaw.message)
    }

    #[test]
    fn jobs_become_gangs_by_annotation() {
        let mode = json!({"muster.dev/gang-mode": "Gang"});
        assert_eq!(minimum(&json!({}), &json!({})), Ok(None));
        assert_eq!(minimum(&mode, &json!({})), Ok(Some(4)));
        assert_eq!(minimum(&mode, &json!({"completions": 3})), Ok(Some(3)), "no more than there is work for");
        assert_eq!(minimum(&mode, &json!({"scheduling": {}})), Ok(None), "Kubernetes sees to it");
        assert_eq!(minimum(&mode, &json!({"managedBy": "kueue.x-k8s.io/multikueue"})), Ok(None));
        let shaped = |text: &str| minimum(&json!({"muster.dev/scheduling": text}), &json!({}));
        assert_eq!(shaped(r#"{"schedulingPolicy": {"gang": {"minCount": 2}}}"#), Ok(Some(2)));
        assert_eq!(shaped(r#"{"schedulingPolicy": {"gang": {}}, "disruptionMode": {"all": {}}}"#), Ok(Some(4)));
        assert_eq!(shaped(r#"{"schedulingPolicy": {"basic": {}}}"#), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let error = |annotations: Value, spec: Value| minimum(&annotations, &spec).unwrap_err();
        let mode = json!({"muster.dev/gang-mode": "ReplicatedGang"});
        assert!(error(mode, json!({})).contains("Off, Gang"));
        for text in [
            r#"{"schedulingPolicy": {"gang": {"minCount": 5}}}"#,
            r#"{"schedulingPolicy": {"gang": {"min": 5}}}"#,
            r#"{"schedulingConstraints": {}}"#,
            r#"{"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}"#,
            "gang",
        ] {
            assert!(
                error(json!({"muster.dev/scheduling": text}), json!({})).contains("muster.dev/scheduling"),
                "{text}"
            );
        }
        let other = json!({"template": {"spec": {"containers": []}}});
        assert!(error(json!({"muster.dev/gang-mode": "Gang"}), other).contains("schedulerName"));
    }

    #[test]
    fn indexed_jobs_are_gangs_if_that_is_configured() {
        let names = ["muster".to_owned()];
        let of = |annotations: Value, spec: Value| gang(&read(&annotations, &spec), Unasked::Indexed, &names).unwrap();
        assert_eq!(of(json!({}), json!({})).unwrap().group, "job-train");
        assert_eq!(of(json!({"muster.dev/gang-mode": "Off"}), json!({})), None);
        assert_eq!(of(json!({}), json!({"completions": 5})), None);
        assert_eq!(of(json!({}), json!({"completionMode": "NonIndexed"})), None);
        assert_eq!(of(json!({}), json!({"template": {"spec": {"containers": []}}})), None, "not ours");
    }
}
