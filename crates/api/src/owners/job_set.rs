//! The rules for JobSets: which pods form gangs, and the names of the groups.
//!
//! | mode | group in the Workload `w-<set>` | minimum | replica key |
//! |---|---|---|---|
//! | `Gang` on the set | `pg-<set>` | all pods of the set | |
//! | `Gang` on a replicated Job | `pg-<replicated Job>` | all its pods | |
//! | `ReplicatedGang` on a replicated Job | `pg-<replicated Job>` | the pods of one Job | the Job's index, from 0 |
//!
//! A set whose Jobs start one after another (`dependsOn`, `InOrder`) is split by replicated Job: later pods do not
//! exist before earlier ones run, and a gang of all would wait forever. The groups say what comes later, so that none
//! starts without room for what runs beside it. A replicated Job whose pods reference a group
//! already is left to its author.
//!
//! Must not depend on what is done with a group.

use std::collections::BTreeMap;

use serde_json::Value;

use super::gang_mode::GangMode;
use super::job_set_topology::{self, EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY, is_exclusive_by_job_set};
use super::{GangConfigError, Reference, event_reasons, references_group, short_name, start_order};
use crate::group::DisruptionMode;
use crate::group_topology::Topology;
use crate::invalid::{FieldPath, InvalidField};
use crate::keys::annotations::{DISRUPTION_MODE, EXCLUSIVE_TOPOLOGY as MUSTER_EXCLUSIVE_TOPOLOGY, GANG_MODE};
use crate::later_pods::{LATER_PODS_MAX, LaterPods, reduced, total};
use crate::preemption_cost;
use crate::selector::Labels;
use crate::wire::JobSet;
use crate::wire::job_set::{GangConfig, ReplicatedJob};
use crate::workload::MAX_POD_GROUPS;

/// Labels of Jobs and pods of a set.
pub mod labels {
    /// The set.
    pub const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";
    /// Its UID.
    pub const JOB_SET_UID: &str = "jobset.sigs.k8s.io/jobset-uid";
    /// The replicated Job.
    pub const REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
    /// The index of the Job in its replicated Job, from 0.
    pub const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
    /// How often the set was restarted before.
    pub const RESTART_ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
}

/// The UID of the set of a pod, and which restart of it the pod belongs to, by the pod's labels.
pub fn restart_attempt(of_pod: &Labels) -> Option<(&str, u32)> {
    let attempt = of_pod.get(labels::RESTART_ATTEMPT)?.parse().ok()?;
    Some((of_pod.get(labels::JOB_SET_UID)?, attempt))
}

/// The default value of `spec.managedBy`.
const CONTROLLER: &str = "jobset.sigs.k8s.io/jobset-controller";
/// The maximum number of characters of a group's name in a Workload.
const GROUP_NAME_CHARS_MAX: usize = 63;
const OF_SET: [GangMode; 2] = [GangMode::Off, GangMode::Gang];
const OF_REPLICATED_JOB: [GangMode; 3] = [GangMode::Off, GangMode::Gang, GangMode::ReplicatedGang];

/// The scope of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All pods of the set.
    JobSet,
    /// All pods of a replicated Job.
    ReplicatedJob,
    /// The pods of one Job.
    Job,
}

impl Scope {
    /// The value in annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::JobSet => "JobSet",
            Scope::ReplicatedJob => "ReplicatedJob",
            Scope::Job => "Job",
        }
    }

    /// Parses the value of an annotation.
    pub fn parse(text: &str) -> Option<Scope> {
        [Scope::JobSet, Scope::ReplicatedJob, Scope::Job].into_iter().find(|scope| scope.as_str() == text)
    }

    /// The group that the pods of a Job reference.
    pub fn reference(self, set: &str, replicated_job: &str, job_index: &str) -> Reference {
        let named = if self == Scope::JobSet { set } else { replicated_job };
        Reference {
            workload: Some(workload_name(set)),
            group: group_name(named),
            replica_key: (self == Scope::Job).then(|| job_index.to_owned()),
        }
    }
}

/// The name of the Workload of a set.
pub fn workload_name(set: &str) -> String {
    format!("w-{set}")
}

fn group_name(named: &str) -> String {
    short_name(&format!("pg-{named}"), GROUP_NAME_CHARS_MAX)
}

/// The gangs of a set.
#[derive(Clone, Debug, PartialEq)]
pub struct Gangs {
    /// The name of the Workload.
    pub workload: String,
    /// Its groups, in the order of the set.
    pub groups: Vec<GangGroup>,
    /// The gang scope by replicated Job; the pods of all others are scheduled individually.
    pub scopes: BTreeMap<String, Scope>,
    /// The set asks for one gang of all pods, which is split since the Jobs start one after another.
    pub is_split: bool,
    /// The cost of evicting one of them, if the set declares one.
    pub preemption_cost: Option<i32>,
    /// The pods of gangs that start one after another, by what runs at the same time; empty if they start at once.
    pub later: Vec<Vec<LaterPods>>,
}

/// A group of the Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangGroup {
    /// Its name.
    pub name: String,
    /// The minimum number of pods that start together.
    pub min_count: i64,
    /// The number of replicas of the group, each with a key; `None` for a single group without a key.
    pub replicas: Option<i64>,
    /// The priority class; may be empty.
    pub priority_class_name: String,
    /// Whether its pods are evicted individually or together.
    pub disruption_mode: DisruptionMode,
    /// The topology domains that its pods share, widest first.
    pub topology: Vec<Topology>,
}

/// The gangs of a set; `None` if it has none or is not handled by Muster.
pub fn gangs(set: &JobSet, scheduler_names: &[String]) -> Result<Option<Gangs>, GangConfigError> {
    let is_managed_elsewhere = set.spec.managed_by.as_deref().is_some_and(|by| by != CONTROLLER);
    if set.spec.scheduling.is_some() || is_managed_elsewhere {
        return Ok(None);
    }
    let invalid =
        |error: InvalidField| GangConfigError { reason: event_reasons::INVALID_GANG_MODE, message: error.to_string() };
    let modes = Modes::read(set).map_err(invalid)?;
    let is_split = modes.set == GangMode::Gang && is_sequenced(set);
    let mut gangs = Gangs {
        workload: workload_name(set.metadata.name.as_deref().unwrap_or_default()),
        groups: Vec::new(),
        scopes: BTreeMap::new(),
        is_split,
        preemption_cost: None,
        later: Vec::new(),
    };
    let (mut parts, mut has_keys) = (Vec::new(), false);
    let mut asked_before = BTreeMap::new();
    for (index, (job, mode)) in set.spec.replicated_jobs.iter().zip(&modes.jobs).enumerate() {
        let scope = match (modes.set, mode) {
            (GangMode::Off, GangMode::Off) => continue,
            (GangMode::Off, GangMode::ReplicatedGang) => Scope::Job,
            (GangMode::Off, GangMode::Gang) => Scope::ReplicatedJob,
            _ if is_split => Scope::ReplicatedJob,
            _ => Scope::JobSet,
        };
        let template = &job.template.spec.template;
        if references_group(&template.metadata, &template.spec) {
            continue;
        }
        check_template(set, job, index, scheduler_names)?;
        has_keys |= matches!(scope, Scope::Job);
        if matches!(scope, Scope::ReplicatedJob) {
            let pod = reduced(&template.spec).map_err(|error| {
                let path = format!("spec.replicatedJobs[{index}].template.spec.template.spec");
                GangConfigError { reason: event_reasons::INVALID_GANG_MODE, message: format!("{path}: {error}") }
            })?;
            let count = job.template.spec.max_concurrent_pods().saturating_mul(job.replicas.unwrap_or(1).max(0));
            parts.push((index, LaterPods { group: group_name(&job.name), count, pod }));
        }
        let mode = disruption_mode(set, job, index).map_err(invalid)?;
        let group = gangs.add(set, (index, job), scope, mode).map_err(invalid)?;
        let asked = job_set_topology::asked(set, (index, job), scope == Scope::Job)?;
        match asked_before.get(&group.name) {
            Some(before) => asked.join(group, before, index)?,
            None => group.topology = asked.alone(),
        }
        asked_before.entry(group.name.clone()).or_insert(asked);
    }
    match gangs.groups.len() {
        0 => Ok(None),
        count if count > MAX_POD_GROUPS => Err(GangConfigError {
            reason: event_reasons::TOO_MANY_GROUPS,
            message: format!(
                "spec.replicatedJobs: {count} of them are separate gangs, but a Workload can have at most {MAX_POD_GROUPS} groups."
            ),
        }),
        _ => {
            gangs.preemption_cost = preemption_cost::declared(set.metadata.annotations.as_ref()).map_err(invalid)?;
            // Groups with a key for each replica start one by one.
            if is_sequenced(set) && parts.len() > 1 && !has_keys {
                gangs.later = later(set, &parts);
            }
            Ok(Some(gangs))
        }
    }
}

/// The pods of gangs that start one after another, by what runs at the same time, without parts that have no pods. None if there are more than
/// can be checked.
fn later(set: &JobSet, parts: &[(usize, LaterPods)]) -> Vec<Vec<LaterPods>> {
    let jobs = &set.spec.replicated_jobs;
    let position = |name: &str| parts.iter().position(|(index, _)| jobs[*index].name == name);
    let waits = parts.iter().enumerate().map(|(part, (index, _))| {
        if is_in_order(set) {
            return part.checked_sub(1).map(|before| (before, false)).into_iter().collect();
        }
        let wait = |one: &Value| Some((position(one["name"].as_str()?)?, one["status"] == "Complete"));
        jobs[*index].depends_on.iter().filter_map(wait).collect()
    });
    let stages = start_order::stages(&waits.collect::<Vec<_>>());
    let has_pods = |part: &LaterPods| part.count > 0;
    let pods = |stage: Vec<usize>| stage.into_iter().map(|part| parts[part].1.clone()).filter(has_pods).collect();
    let stages: Vec<Vec<LaterPods>> = stages.into_iter().map(pods).filter(|stage: &Vec<_>| !stage.is_empty()).collect();
    // A group that is in none of them would be refused.
    let is_whole = parts.iter().all(|(_, part)| has_pods(part)) && total(&stages) <= LATER_PODS_MAX;
    if is_whole { stages } else { Vec::new() }
}

impl Gangs {
    /// The group that the pods of a Job reference.
    pub fn reference(&self, set: &str, replicated_job: &str, job_index: &str) -> Option<Reference> {
        self.scopes.get(replicated_job).map(|scope| scope.reference(set, replicated_job, job_index))
    }

    /// Adds the pods of a replicated Job, whose settings must be those of the group.
    fn add(
        &mut self,
        set: &JobSet,
        (index, job): (usize, &ReplicatedJob),
        scope: Scope,
        disruption_mode: DisruptionMode,
    ) -> Result<&mut GangGroup, InvalidField> {
        let name = group_name(match scope {
            Scope::JobSet => set.metadata.name.as_deref().unwrap_or_default(),
            Scope::ReplicatedJob | Scope::Job => &job.name,
        });
        let (of_job, jobs) = (job.template.spec.max_concurrent_pods(), job.replicas.unwrap_or(1).max(0));
        let pods = if scope == Scope::Job { of_job } else { of_job.saturating_mul(jobs) };
        let class = &job.template.spec.template.spec.priority_class_name;
        self.scopes.insert(job.name.clone(), scope);
        let refuse = |field: &str, value: &str| {
            let path = format!("spec.replicatedJobs[{index}].template.{field}");
            Err(FieldPath::Root(&path).invalid(value, "must be the same for all pods of a gang"))
        };
        let known = self.groups.iter().position(|group| group.name == name);
        let at = known.unwrap_or(self.groups.len());
        match known.map(|at| &mut self.groups[at]) {
            Some(group) if group.priority_class_name != *class => {
                return refuse("spec.template.spec.priorityClassName", class);
            }
            Some(group) if group.disruption_mode != disruption_mode => {
                return refuse(&format!("metadata.annotations[{DISRUPTION_MODE}]"), disruption_mode.as_str());
            }
            Some(group) => group.min_count = group.min_count.saturating_add(pods),
            None => self.groups.push(GangGroup {
                name,
                min_count: pods,
                replicas: (scope == Scope::Job).then_some(jobs),
                priority_class_name: class.clone(),
                disruption_mode,
                topology: Vec::new(),
            }),
        }
        Ok(&mut self.groups[at])
    }
}

impl Gangs {
    /// Refuses topology where groups are written in an API that cannot say it, or whose server may drop it.
    pub fn check_topology(&self, native: bool) -> Result<(), GangConfigError> {
        let Some(group) = self.groups.iter().find(|group| native && !group.topology.is_empty()) else { return Ok(()) };
        let keys: Vec<&str> = group.topology.iter().map(|one| one.key.as_str()).collect();
        let message = format!(
            "group {}: topology {keys:?} is not supported in groups of Kubernetes: set controllers.jobSets to Muster",
            group.name
        );
        Err(GangConfigError { reason: event_reasons::INVALID_TOPOLOGY, message })
    }
}

impl GangGroup {
    /// The minimum in the range that a Workload allows: at least 1, even for a gang without pods.
    pub fn minimum(&self) -> i64 {
        self.min_count.clamp(1, i64::from(i32::MAX))
    }

    /// Whether the PodGroup of this name is that of the group, or of one of its replicas, where groups are separate
    /// objects.
    pub fn has_pod_group(&self, workload: &str, name: &str) -> bool {
        let replica_key = match self.replicas {
            None => None,
            Some(count) => {
                let key: Option<i64> = name.rsplit('.').next().and_then(|key| key.parse().ok());
                let Some(key) = key.filter(|key| (0..count).contains(key)) else { return false };
                Some(key.to_string())
            }
        };
        let reference = Reference { workload: Some(workload.to_owned()), group: self.name.clone(), replica_key };
        reference.pod_group_name() == name
    }

    /// The references of its replicas.
    pub fn references(&self, workload: &str) -> impl Iterator<Item = Reference> {
        let keys = match self.replicas {
            Some(count) => (0..count).map(|key| Some(key.to_string())).collect(),
            None => vec![None],
        };
        let of =
            move |replica_key| Reference { workload: Some(workload.to_owned()), group: self.name.clone(), replica_key };
        keys.into_iter().map(of)
    }
}

/// The disruption mode of a replicated Job's gang: its own, else that of the set. A gang that an owner asks for is evicted
/// whole unless it says otherwise: what is left of it does no work.
fn disruption_mode(set: &JobSet, job: &ReplicatedJob, index: usize) -> Result<DisruptionMode, InvalidField> {
    let none = Labels::new();
    let of_set = set.metadata.annotations.as_ref().unwrap_or(&none);
    let path = format!("spec.replicatedJobs[{index}].template.metadata");
    let of_job = DisruptionMode::annotated(&job.template.metadata.annotations, &FieldPath::Root(&path))?;
    let of_set = DisruptionMode::annotated(of_set, &FieldPath::Root("metadata"))?;
    Ok(of_job.or(of_set).unwrap_or(DisruptionMode::PodGroup))
}

/// The gang modes at each level.
struct Modes {
    set: GangMode,
    jobs: Vec<GangMode>,
}

impl Modes {
    fn read(set: &JobSet) -> Result<Modes, InvalidField> {
        let (spec, metadata) = (FieldPath::Root("spec"), FieldPath::Root("metadata"));
        let none = Labels::new();
        let annotations = set.metadata.annotations.as_ref().unwrap_or(&none);
        let of_set = mode(set.spec.gang_config.as_ref(), annotations, &OF_SET, &spec, &metadata)?;
        let list = spec.child("replicatedJobs");
        let mut jobs = Vec::new();
        for (index, job) in set.spec.replicated_jobs.iter().enumerate() {
            let path = list.index(index);
            let template = path.child("template");
            let annotations = &job.template.metadata.annotations;
            let metadata = template.child("metadata");
            let mode = mode(job.gang_config.as_ref(), annotations, &OF_REPLICATED_JOB, &path, &metadata)?;
            if of_set != GangMode::Off && mode != GangMode::Off {
                let reason = "must be Off or unset, since the whole set is one gang";
                let annotations = metadata.child("annotations");
                let is_field = job.gang_config.as_ref().is_some_and(|config| config.gang_mode.is_some());
                let field = if is_field { path.child("gangConfig.gangMode") } else { annotations.key(GANG_MODE) };
                return Err(field.invalid(mode.as_str(), reason));
            }
            jobs.push(mode);
        }
        Ok(Modes { set: of_set, jobs })
    }
}

/// The mode at one level: the field, or the annotation where the CRD has no such field.
fn mode(
    config: Option<&GangConfig>,
    annotations: &Labels,
    allowed: &[GangMode],
    path: &FieldPath<'_>,
    metadata: &FieldPath<'_>,
) -> Result<GangMode, InvalidField> {
    let field = path.child("gangConfig");
    let field = field.child("gangMode");
    let written = config.and_then(|config| config.gang_mode.as_deref());
    let written = written.map(|text| GangMode::read(text, allowed, &field)).transpose()?;
    let annotated = GangMode::annotated(annotations, allowed, metadata)?;
    match (written, annotated) {
        (Some(one), Some(two)) if one != two => Err(field
            .invalid(one.as_str(), format_args!("the annotation has {}: only one of them may be set", two.as_str()))),
        (one, two) => Ok(one.or(two).unwrap_or_default()),
    }
}

/// Whether Jobs of the set start one after another.
fn is_sequenced(set: &JobSet) -> bool {
    is_in_order(set) || set.spec.replicated_jobs.iter().any(|job| !job.depends_on.is_empty())
}

/// Whether each replicated Job starts when the one before it is ready.
fn is_in_order(set: &JobSet) -> bool {
    set.spec.startup_policy.startup_policy_order.as_deref() == Some("InOrder")
}

/// Rejects settings that are incompatible with a gang.
fn check_template(
    set: &JobSet,
    job: &ReplicatedJob,
    index: usize,
    scheduler_names: &[String],
) -> Result<(), GangConfigError> {
    if is_exclusive_by_job_set(set, job) {
        return Err(GangConfigError {
            reason: event_reasons::EXCLUSIVE_TOPOLOGY,
            message: format!(
                "spec.replicatedJobs[{index}]: annotation {EXCLUSIVE_TOPOLOGY} cannot be combined with a gang: JobSet creates the other pods of a Job only after the first is bound, and the gang waits for all of them. Muster's webhook replaces it when the set is created, which it did not: create the set again, write {MUSTER_EXCLUSIVE_TOPOLOGY} instead, or use {NODE_SELECTOR_STRATEGY}, which selects the domains beforehand."
            ),
        });
    }
    let name = &job.template.spec.template.spec.scheduler_name;
    if scheduler_names.is_empty() || scheduler_names.contains(name) {
        return Ok(());
    }
    let path = format!("spec.replicatedJobs[{index}].template.spec.template.spec.schedulerName");
    let reason = format!("must be {}: gangs of Muster must be scheduled by Muster", scheduler_names.join(" or "));
    let error = FieldPath::Root(&path).invalid(name, reason);
    Err(GangConfigError { reason: event_reasons::INVALID_GANG_MODE, message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A replicated Job of four pods in each of its Jobs.
    fn job(name: &str, replicas: i64, mode: &str) -> Value {
        let annotations = if mode.is_empty() { json!({}) } else { json!({"muster.dev/gang-mode": mode}) };
        json!({"name": name, "replicas": replicas, "template": {
            "metadata": {"annotations": annotations},
            "spec": {"parallelism": 4, "completions": 4,
                "template": {"spec": {"schedulerName": "muster", "containers": []}}},
        }})
    }

    fn set(mode: &str, jobs: &[Value]) -> Value {
        let annotations = if mode.is_empty() { json!({}) } else { json!({"muster.dev/gang-mode": mode}) };
        json!({"metadata": {"name": "js", "annotations": annotations}, "spec": {"replicatedJobs": jobs}})
    }

    fn read(set: &Value) -> Result<Option<Gangs>, GangConfigError> {
        gangs(&serde_json::from_value(set.clone()).unwrap(), &["muster".to_owned()])
    }

    fn groups(set: &Value) -> Vec<(String, i64)> {
        let gangs = read(set).unwrap();
        gangs
            .map(|gangs| gangs.groups.iter().map(|one| (one.name.clone(), one.minimum())).collect())
            .unwrap_or_default()
    }

    fn named(groups: &[(&str, i64)]) -> Vec<(String, i64)> {
        groups.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn modes_give_the_groups_of_the_table() {
        assert_eq!(groups(&set("", &[job("a", 2, "")])), []);
        assert_eq!(groups(&set("Off", &[job("a", 2, "Off")])), []);
        assert_eq!(groups(&set("Gang", &[job("a", 2, ""), job("b", 3, "Off")])), named(&[("pg-js", 20)]));
        let mixed = set("", &[job("a", 2, "Gang"), job("b", 3, "ReplicatedGang"), job("c", 1, "")]);
        assert_eq!(groups(&mixed), named(&[("pg-a", 8), ("pg-b", 4)]));
        let gangs = read(&mixed).unwrap().unwrap();
        assert_eq!(gangs.workload, "w-js");
        let reference = |workload: &str, group: &str, key: Option<&str>| {
            let own = str::to_owned;
            Some(Reference { workload: Some(own(workload)), group: own(group), replica_key: key.map(own) })
        };
        assert_eq!(gangs.reference("js", "a", "1"), reference("w-js", "pg-a", None));
        assert_eq!(gangs.reference("js", "b", "1"), reference("w-js", "pg-b", Some("1")));
        assert_eq!(gangs.reference("js", "c", "1"), None);
        let of =
            |group: usize| gangs.groups[group].references("w-js").map(|one| one.pod_group_name()).collect::<Vec<_>>();
        assert_eq!(of(0), ["w-js.pg-a"]);
        assert_eq!(of(1), ["w-js.pg-b.0", "w-js.pg-b.1", "w-js.pg-b.2"]);
        for (group, names) in [(0, of(0)), (1, of(1))] {
            let own = |name: &str| gangs.groups[group].has_pod_group("w-js", name);
            assert!(names.iter().all(|name| own(name)), "{names:?}");
            let others = [
                "w-js.pg-a.0",
                "w-js.pg-b",
                "w-js.pg-b.3",
                "w-js.pg-b.-1",
                "w-js.pg-b.+1",
                "w-js.pg-b.01",
                "w-x.pg-b.1",
                "",
            ];
            assert!(!others.iter().any(|name| own(name)), "{group}");
        }
    }

    #[test]
    fn gangs_are_evicted_whole_unless_set_or_replicated_job_say_otherwise() {
        use DisruptionMode::{Pod, PodGroup};
        let modes = |set: &Value| {
            let gangs = read(set).map(|gangs| gangs.unwrap().groups).map_err(|error| error.message)?;
            Ok::<_, String>(gangs.into_iter().map(|group| group.disruption_mode).collect::<Vec<_>>())
        };
        let mut apart = set("", &[job("a", 1, "Gang"), job("b", 1, "Gang")]);
        assert_eq!(modes(&apart), Ok(vec![PodGroup, PodGroup]));
        apart["spec"]["replicatedJobs"][0]["template"]["metadata"]["annotations"][DISRUPTION_MODE] = json!("Pod");
        assert_eq!(modes(&apart), Ok(vec![Pod, PodGroup]));
        let mut one = set("Gang", &[job("a", 1, ""), job("b", 1, "")]);
        one["metadata"]["annotations"][DISRUPTION_MODE] = json!("Pod");
        assert_eq!(modes(&one), Ok(vec![Pod]));
        one["spec"]["replicatedJobs"][1]["template"]["metadata"]["annotations"][DISRUPTION_MODE] = json!("PodGroup");
        let error = modes(&one).unwrap_err();
        assert!(
            error.contains("replicatedJobs[1].template.metadata.annotations[muster.dev/disruption-mode]"),
            "{error}"
        );
        one["metadata"]["annotations"][DISRUPTION_MODE] = json!("Gang");
        assert!(modes(&one).unwrap_err().contains("must be Pod or PodGroup"));
    }

    #[test]
    fn cost_of_eviction_is_declared_on_the_set() {
        let cost = |mode: &str, cost: &str| {
            let mut set = set(mode, &[job("a", 1, "")]);
            set["metadata"]["annotations"]["muster.dev/preemption-cost"] = json!(cost);
            read(&set).map(|gangs| gangs.and_then(|gangs| gangs.preemption_cost)).map_err(|error| error.message)
        };
        assert_eq!((cost("Gang", "-7"), cost("Off", "much")), (Ok(Some(-7)), Ok(None)));
        let error = cost("Gang", "much").unwrap_err();
        assert!(error.contains("metadata.annotations[muster.dev/preemption-cost]: \"much\""), "{error}");
    }

    #[test]
    fn job_has_no_more_pods_than_completions() {
        let mut short = job("a", 2, "Gang");
        short["template"]["spec"]["completions"] = json!(3);
        assert_eq!(groups(&set("", &[short])), named(&[("pg-a", 6)]));
        let mut plain = job("a", 2, "ReplicatedGang");
        plain["template"]["spec"] = json!({"template": {"spec": {"schedulerName": "muster", "containers": []}}});
        assert_eq!(groups(&set("", &[plain])), named(&[("pg-a", 1)]));
    }

    #[test]
    fn set_with_sequential_jobs_is_split() {
        let mut second = job("b", 1, "");
        second["dependsOn"] = json!([{"name": "a", "status": "Ready"}]);
        let mut split = set("Gang", &[job("a", 2, ""), second]);
        assert_eq!(groups(&split), named(&[("pg-a", 8), ("pg-b", 4)]));
        assert!(read(&split).unwrap().unwrap().is_split);
        let later = |set: &Value| {
            let stages = read(set).unwrap().unwrap().later;
            let part = |part: LaterPods| (part.group, part.count);
            stages.into_iter().map(|stage| stage.into_iter().map(part).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(later(&split), [named(&[("pg-a", 8), ("pg-b", 4)])]);
        split["spec"]["replicatedJobs"][1]["dependsOn"][0]["status"] = json!("Complete");
        assert_eq!(later(&split), [named(&[("pg-a", 8)]), named(&[("pg-b", 4)])]);
        assert_eq!(later(&set("Gang", &[job("a", 2, ""), job("b", 1, "")])), Vec::<Vec<_>>::new());
        let separate = |mode: &str| {
            let mut second = job("b", 1, mode);
            second["dependsOn"] = json!([{"name": "a", "status": "Ready"}]);
            set("", &[job("a", 2, "Gang"), second])
        };
        assert_eq!(later(&separate("Gang")), [named(&[("pg-a", 8), ("pg-b", 4)])], "gangs of their own");
        assert_eq!(later(&separate("ReplicatedGang")), Vec::<Vec<_>>::new(), "its Jobs start one by one");
        assert_eq!(later(&separate("Off")), Vec::<Vec<_>>::new());
        let mut in_order = set("Gang", &[job("a", 2, ""), job("b", 1, "")]);
        in_order["spec"]["startupPolicy"] = json!({"startupPolicyOrder": "InOrder"});
        assert_eq!(groups(&in_order), named(&[("pg-a", 8), ("pg-b", 4)]));
    }

    #[test]
    fn fields_and_annotations_are_equivalent() {
        let mut one = set("", &[job("a", 2, "")]);
        one["spec"]["gangConfig"] = json!({"gangMode": "Gang"});
        assert_eq!(groups(&one), named(&[("pg-js", 8)]));
        let mut two = set("", &[job("a", 2, "")]);
        two["spec"]["replicatedJobs"][0]["gangConfig"] = json!({"gangMode": "ReplicatedGang"});
        assert_eq!(groups(&two), named(&[("pg-a", 4)]));
        two["spec"]["replicatedJobs"][0]["template"]["metadata"]["annotations"] =
            json!({"muster.dev/gang-mode": "Gang"});
        assert!(read(&two).unwrap_err().message.contains("the annotation has Gang"));
    }

    #[test]
    fn sets_managed_elsewhere_are_ignored() {
        let mut managed_elsewhere = set("Gang", &[job("a", 2, "")]);
        managed_elsewhere["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
        assert_eq!(groups(&managed_elsewhere), []);
        let mut upstream = set("Gang", &[job("a", 2, "")]);
        upstream["spec"]["scheduling"] = json!({"schedulingPolicy": {"gang": {}}});
        assert_eq!(groups(&upstream), []);
        let mut by_hand = job("a", 2, "");
        by_hand["template"]["spec"]["template"]["metadata"] = json!({"annotations": {"muster.dev/pod-group": "mine"}});
        assert_eq!(groups(&set("Gang", &[by_hand, job("b", 1, "")])), named(&[("pg-js", 4)]));
    }

    #[test]
    fn errors_name_field_and_value() {
        let error = |set: &Value| read(set).unwrap_err();
        assert!(error(&set("ReplicatedGang", &[job("a", 1, "")])).message.contains("Off, Gang"));
        let both = error(&set("Gang", &[job("a", 1, "Gang")]));
        let field = "spec.replicatedJobs[0].template.metadata.annotations[muster.dev/gang-mode]";
        assert!(both.message.contains(field), "{}", both.message);
        let many: Vec<Value> = (0..9).map(|index| job(&format!("j{index}"), 1, "Gang")).collect();
        assert_eq!(error(&set("", &many)).reason, "TooManyGroups");
        let many: Vec<Value> = (0..9).map(|index| job(&format!("j{index}"), 1, "")).collect();
        assert_eq!(groups(&set("Gang", &many)), named(&[("pg-js", 36)]), "one group for all");
        let mut exclusive = set("Gang", &[job("a", 2, "")]);
        exclusive["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"] = json!("zone");
        assert_eq!(error(&exclusive).reason, "ExclusiveTopology");
        exclusive["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/node-selector"] = json!("true");
        assert_eq!(groups(&exclusive), named(&[("pg-js", 8)]));
        let mut other = job("a", 1, "Gang");
        other["template"]["spec"]["template"]["spec"]["schedulerName"] = json!("default-scheduler");
        assert!(error(&set("", &[other])).message.contains("schedulerName"));
        let mut high_priority = job("b", 1, "");
        high_priority["template"]["spec"]["template"]["spec"]["priorityClassName"] = json!("high");
        assert!(error(&set("Gang", &[job("a", 1, ""), high_priority])).message.contains("replicatedJobs[1]"));
    }
}
