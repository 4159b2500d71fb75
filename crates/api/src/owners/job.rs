//! The rules for Jobs: those with an annotation are gangs, and all indexed ones if that is configured.
//!
//! `muster.dev/gang-mode: Gang` makes one gang of all pods that run concurrently. `muster.dev/scheduling` gives more
//! control, in the format of `spec.scheduling` of Kubernetes' own Job. A Job that has that field, whose pods reference
//! a group already, or that belongs to a JobSet is not handled here.
//!
//! Must not depend on what is done with a group.

use serde::Deserialize;

use super::gang_mode::GangMode;
use super::{GangConfigError, event_reasons, job_set, references_group, short_name, template_topology};
use crate::group::DisruptionMode;
use crate::group_topology::Topology;
use crate::invalid::{FieldPath, InvalidField};
use crate::keys::annotations::{DISRUPTION_MODE, POD_GROUP, SCHEDULING};
use crate::preemption_cost;
use crate::selector::Labels;
use crate::wire::Job;

/// The default value of `spec.managedBy`.
const CONTROLLER: &str = "kubernetes.io/job-controller";
const NAME_CHARS_MAX: usize = 253;
const ALLOWED: [GangMode; 2] = [GangMode::Off, GangMode::Gang];

/// The gang of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobGang {
    /// The name of the PodGroup.
    pub group: String,
    /// The minimum number of pods that start together.
    pub min_count: i64,
    /// Whether its pods are evicted individually or together.
    pub disruption_mode: DisruptionMode,
    /// The cost of evicting it, if the Job declares one.
    pub preemption_cost: Option<i32>,
    /// The priority class; may be empty.
    pub priority_class_name: String,
    /// The topology domains that its pods share, widest first.
    pub topology: Vec<Topology>,
}

/// Which Jobs are gangs without an annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImplicitGangs {
    /// None.
    #[default]
    None,
    /// Indexed Jobs whose `parallelism` equals `completions`, as in Kubernetes 1.36.
    Indexed,
}

/// The supported part of `spec.scheduling` of Kubernetes' own Job.
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
    Basic(Empty),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Gang {
    min_count: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Disruption {
    Single(Empty),
    All(Empty),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

/// The name of the PodGroup of a Job.
pub fn group_name(job: &str) -> String {
    short_name(&format!("job-{job}"), NAME_CHARS_MAX)
}

/// The gang of a Job; `None` if it is not a gang or is not handled by Muster.
pub fn gang(job: &Job, unasked: ImplicitGangs, scheduler_names: &[String]) -> Result<Option<JobGang>, GangConfigError> {
    let template = &job.spec.template;
    let is_managed_elsewhere = job.spec.managed_by.as_deref().is_some_and(|by| by != CONTROLLER);
    let of_set = job.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(job_set::labels::JOB_SET));
    if job.spec.scheduling.is_some() || is_managed_elsewhere || of_set || references_foreign_group(job) {
        return Ok(None);
    }
    let config_error =
        |error: InvalidField| GangConfigError { reason: event_reasons::INVALID_GANG_MODE, message: error.to_string() };
    let none = Labels::new();
    let annotations = job.metadata.annotations.as_ref().unwrap_or(&none);
    let is_ours = scheduler_names.is_empty() || scheduler_names.contains(&template.spec.scheduler_name);
    let Some(gang) = annotated_gang(job, annotations).map_err(config_error)? else {
        let is_off =
            GangMode::annotated(annotations, &ALLOWED, &FieldPath::Root("metadata")).map_err(config_error)?.is_some();
        let pods = job.spec.parallelism.unwrap_or(1);
        let eligible = job.spec.is_indexed() && pods > 1 && job.spec.completions == Some(pods);
        let is_implicit = unasked == ImplicitGangs::Indexed && !is_off && is_ours && eligible;
        let gang = is_implicit.then(|| default_gang(job, annotations)).transpose().map_err(config_error)?;
        return gang.map(|gang| with_topology(gang, job)).transpose();
    };
    if !is_ours {
        let reason = format!("must be {}: gangs of Muster must be scheduled by Muster", scheduler_names.join(" or "));
        let path = FieldPath::Root("spec.template.spec.schedulerName");
        return Err(config_error(path.invalid(&template.spec.scheduler_name, reason)));
    }
    with_topology(gang, job).map(Some)
}

/// The same gang with the topology that the pod template asks for, unless Kueue places the pods.
fn with_topology(gang: JobGang, job: &Job) -> Result<JobGang, GangConfigError> {
    if template_topology::is_admitted_by_kueue(job.metadata.labels.as_ref()) {
        return Ok(gang);
    }
    let metadata = &job.spec.template.metadata;
    let path = FieldPath::Root("spec.template.metadata");
    let topology = template_topology::constraints((&metadata.labels, &metadata.annotations), None, &path)?;
    Ok(JobGang { topology, ..gang })
}

/// Whether its pods reference the group that Muster created for the Job.
pub fn references_managed_group(job: &Job) -> bool {
    let ours = group_name(job.metadata.name.as_deref().unwrap_or_default());
    job.spec.template.metadata.annotations.get(POD_GROUP) == Some(&ours)
}

/// Whether its pods reference any other group.
fn references_foreign_group(job: &Job) -> bool {
    let mut metadata = job.spec.template.metadata.clone();
    if references_managed_group(job) {
        metadata.annotations.remove(POD_GROUP);
    }
    references_group(&metadata, &job.spec.template.spec)
}

/// A gang that an owner asks for is evicted whole unless it says otherwise: what is left of it does no work.
fn default_gang(job: &Job, annotations: &Labels) -> Result<JobGang, InvalidField> {
    let mode = DisruptionMode::annotated(annotations, &FieldPath::Root("metadata"))?;
    Ok(JobGang {
        group: group_name(job.metadata.name.as_deref().unwrap_or_default()),
        min_count: job.spec.max_concurrent_pods().clamp(1, i64::from(i32::MAX)),
        disruption_mode: mode.unwrap_or(DisruptionMode::PodGroup),
        preemption_cost: preemption_cost::declared(Some(annotations))?,
        priority_class_name: job.spec.template.spec.priority_class_name.clone(),
        topology: Vec::new(),
    })
}

/// The gang in the annotations.
fn annotated_gang(job: &Job, annotations: &Labels) -> Result<Option<JobGang>, InvalidField> {
    let mode = GangMode::annotated(annotations, &ALLOWED, &FieldPath::Root("metadata"))?;
    let Some(text) = annotations.get(SCHEDULING) else {
        return (mode == Some(GangMode::Gang)).then(|| default_gang(job, annotations)).transpose();
    };
    let path = FieldPath::Root("metadata.annotations");
    let path = path.key(SCHEDULING);
    if mode.is_some() {
        return Err(path.invalid(text, "must not be set together with muster.dev/gang-mode"));
    }
    let scheduling: Scheduling = serde_json::from_str(text).map_err(|error| path.invalid(text, error))?;
    let disruption_mode = scheduling.disruption_mode.map(|mode| match mode {
        Disruption::Single(_) => DisruptionMode::Pod,
        Disruption::All(_) => DisruptionMode::PodGroup,
    });
    if let (Some(_), Some(mode)) = (disruption_mode, annotations.get(DISRUPTION_MODE)) {
        let path = FieldPath::Root("metadata.annotations");
        let reason = format_args!("must not be set together with disruptionMode in {SCHEDULING}");
        return Err(path.key(DISRUPTION_MODE).invalid(mode, reason));
    }
    let Some(Policy::Gang(gang)) = scheduling.scheduling_policy else {
        if disruption_mode == Some(DisruptionMode::PodGroup) {
            return Err(path.invalid(text, "disruptionMode all needs the policy gang"));
        }
        return Ok(None);
    };
    let pods = job.spec.max_concurrent_pods();
    if let Some(wanted) = gang.min_count.filter(|wanted| *wanted < 1 || *wanted > pods) {
        return Err(path
            .invalid(&wanted, format_args!("minCount must be 1 to {pods}, the number of pods that run concurrently")));
    }
    let default = default_gang(job, annotations)?;
    Ok(Some(JobGang {
        min_count: gang.min_count.unwrap_or(default.min_count),
        disruption_mode: disruption_mode.unwrap_or(default.disruption_mode),
        ..default
    }))
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
        let gang = gang(&read(annotations, spec), ImplicitGangs::None, &names);
        gang.map(|gang| gang.map(|gang| gang.min_count)).map_err(|error| error.message)
    }

    #[test]
    fn jobs_become_gangs_by_annotation() {
        let mode = json!({"muster.dev/gang-mode": "Gang"});
        assert_eq!(minimum(&json!({}), &json!({})), Ok(None));
        assert_eq!(minimum(&mode, &json!({})), Ok(Some(4)));
        assert_eq!(minimum(&mode, &json!({"completions": 3})), Ok(Some(3)), "no more pods than completions");
        assert_eq!(minimum(&mode, &json!({"scheduling": {}})), Ok(None), "Kubernetes handles it");
        assert_eq!(minimum(&mode, &json!({"managedBy": "kueue.x-k8s.io/multikueue"})), Ok(None));
        let shaped = |text: &str| minimum(&json!({"muster.dev/scheduling": text}), &json!({}));
        assert_eq!(shaped(r#"{"schedulingPolicy": {"gang": {"minCount": 2}}}"#), Ok(Some(2)));
        assert_eq!(shaped(r#"{"schedulingPolicy": {"gang": {}}, "disruptionMode": {"all": {}}}"#), Ok(Some(4)));
        assert_eq!(shaped(r#"{"schedulingPolicy": {"basic": {}}}"#), Ok(None));
    }

    #[test]
    fn invalid_annotations_are_refused() {
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
    fn cost_of_eviction_is_declared_on_the_job() {
        let names = ["muster".to_owned()];
        let cost = |mode: &str, cost: &str| {
            let annotations = json!({"muster.dev/gang-mode": mode, "muster.dev/preemption-cost": cost});
            let gang = gang(&read(&annotations, &json!({})), ImplicitGangs::None, &names);
            gang.map(|gang| gang.and_then(|gang| gang.preemption_cost)).map_err(|error| error.message)
        };
        assert_eq!((cost("Gang", "+7"), cost("Off", "much")), (Ok(Some(7)), Ok(None)));
        let error = cost("Gang", "3000000000").unwrap_err();
        assert!(error.contains("metadata.annotations[muster.dev/preemption-cost]: \"3000000000\""), "{error}");
    }

    #[test]
    fn gang_is_evicted_whole_unless_the_job_says_otherwise() {
        let names = ["muster".to_owned()];
        let mode = |annotations: Value| {
            let gang = gang(&read(&annotations, &json!({})), ImplicitGangs::None, &names);
            gang.map(|gang| gang.unwrap().disruption_mode).map_err(|error| error.message)
        };
        let gang = |mode: &str| json!({"muster.dev/gang-mode": "Gang", "muster.dev/disruption-mode": mode});
        assert_eq!(mode(json!({"muster.dev/gang-mode": "Gang"})), Ok(DisruptionMode::PodGroup));
        assert_eq!(mode(gang("Pod")), Ok(DisruptionMode::Pod));
        assert!(mode(gang("All")).unwrap_err().contains("must be Pod or PodGroup"));
        let shaped = r#"{"schedulingPolicy": {"gang": {}}, "disruptionMode": {"single": {}}}"#;
        assert_eq!(mode(json!({"muster.dev/scheduling": shaped})), Ok(DisruptionMode::Pod));
        let both = mode(json!({"muster.dev/scheduling": shaped, "muster.dev/disruption-mode": "Pod"}));
        assert!(both.unwrap_err().contains("muster.dev/disruption-mode"));
    }

    #[test]
    fn indexed_jobs_are_gangs_if_that_is_configured() {
        let names = ["muster".to_owned()];
        let of =
            |annotations: Value, spec: Value| gang(&read(&annotations, &spec), ImplicitGangs::Indexed, &names).unwrap();
        assert_eq!(of(json!({}), json!({})).unwrap().group, "job-train");
        assert_eq!(of(json!({"muster.dev/gang-mode": "Off"}), json!({})), None);
        assert_eq!(of(json!({}), json!({"completions": 5})), None);
        assert_eq!(of(json!({}), json!({"completionMode": "NonIndexed"})), None);
        assert_eq!(of(json!({}), json!({"template": {"spec": {"containers": []}}})), None, "not ours");
    }
}
