//! The topology of a JobSet's gangs: what the pod templates ask for in Kueue's annotations, and JobSet's exclusive
//! placement, one Job in each domain.
//!
//! JobSet itself places exclusive Jobs by creating their other pods when the first has a node, for which a gang would wait
//! forever. So Muster's webhook takes JobSet's annotation away and puts its own in its place.

use super::job_set::GangGroup;
use super::{GangConfigError, event_reasons, template_topology};
use crate::group_topology::{Topology, TopologyRule};
use crate::invalid::FieldPath;
use crate::keys::annotations::EXCLUSIVE_TOPOLOGY as EXCLUSIVE_BY_MUSTER;
use crate::names::check_label_key;
use crate::wire::JobSet;
use crate::wire::job_set::ReplicatedJob;

/// The annotation for at most one Job in each topology domain.
pub const EXCLUSIVE_TOPOLOGY: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// The annotation by which domains are selected by node labels, before pods exist.
pub const NODE_SELECTOR_STRATEGY: &str = "alpha.jobset.sigs.k8s.io/node-selector";
/// Kueue's annotation of pod sets that share their domains.
const POD_SET_GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// The value of an annotation of a replicated Job, else of its set.
fn annotated<'a>(set: &'a JobSet, job: &'a ReplicatedJob, key: &str) -> Option<&'a String> {
    let of_set = || set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
    job.template.metadata.annotations.get(key).or_else(of_set)
}

/// Whether the Jobs of a replicated Job are placed by JobSet, one in each domain.
pub(super) fn is_exclusive_by_job_set(set: &JobSet, job: &ReplicatedJob) -> bool {
    let is_annotated = |key| annotated(set, job, key).is_some();
    is_annotated(EXCLUSIVE_TOPOLOGY) && !is_annotated(NODE_SELECTOR_STRATEGY)
}

/// What the pods of a replicated Job ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    topology: Vec<Topology>,
    /// The pod sets that they share their domains with.
    shared_with: Option<String>,
}

/// The topology of the pods of a replicated Job, of which each Job is a gang, or all of them are, or more than those.
pub(super) fn asked(
    set: &JobSet,
    (index, job): (usize, &ReplicatedJob),
    gang_per_job: bool,
) -> Result<Asked, GangConfigError> {
    let template = &job.template.spec.template.metadata;
    let path = format!("spec.replicatedJobs[{index}].template.spec.template.metadata");
    let by_kueue = template_topology::is_admitted_by_kueue(set.metadata.labels.as_ref());
    let of_job = job.template.spec.max_concurrent_pods();
    let mut topology = if by_kueue {
        Vec::new()
    } else {
        let labels = (&template.labels, &template.annotations);
        template_topology::constraints(labels, Some(of_job), &FieldPath::Root(&path))?
    };
    let several = job.replicas.unwrap_or(1) > 1;
    let is_of_all = |one: &Topology| !matches!(one.rule, TopologyRule::Slices { .. });
    if let Some(wide) = topology.iter().find(|one| gang_per_job && several && is_of_all(one)) {
        let reason = "all Jobs of the replicated Job have to share a domain, and each of them is a gang by itself";
        return Err(invalid(&FieldPath::Root(&path).invalid(&wide.key, reason)));
    }
    if let Some(key) = annotated(set, job, EXCLUSIVE_BY_MUSTER) {
        let job_path = format!("spec.replicatedJobs[{index}].template.metadata.annotations");
        let path = FieldPath::Root(&job_path);
        let path = path.key(EXCLUSIVE_BY_MUSTER);
        check_label_key(key).map_err(|reason| invalid(&path.invalid(key, reason)))?;
        if !topology.is_empty() {
            return Err(invalid(&path.invalid(key, "cannot be combined with topology annotations of Kueue")));
        }
        if job.template.spec.completion_mode.as_deref() == Some("NonIndexed") {
            return Err(invalid(&path.invalid(key, "needs an Indexed Job: the index says to which Job a pod belongs")));
        }
        let exclusive = true;
        let size = of_job.max(job.template.spec.completions.unwrap_or(0));
        let rule = match u32::try_from(size) {
            Ok(size) if !gang_per_job && size > 0 => TopologyRule::Slices { size, exclusive },
            _ => TopologyRule::Required { exclusive },
        };
        topology.push(Topology { key: key.clone(), rule });
    }
    Ok(Asked { topology, shared_with: template.annotations.get(POD_SET_GROUP).cloned().filter(|_| !by_kueue) })
}

impl Asked {
    /// The topology of a gang of these pods alone.
    pub(super) fn alone(&self) -> Vec<Topology> {
        self.topology.clone()
    }

    /// Adds them to a gang that has other pods with this topology.
    pub(super) fn join(&self, group: &mut GangGroup, before: &Asked, index: usize) -> Result<(), GangConfigError> {
        let exclusive = |topology: &[Topology]| match topology {
            [Topology { key, rule: TopologyRule::Slices { size, exclusive: true } }] => Some((key.clone(), *size)),
            _ => None,
        };
        if let (Some((key, one)), Some((other, two))) = (exclusive(&group.topology), exclusive(&self.topology))
            && key == other
        {
            // Each Job is a slice, whatever its size.
            group.topology = vec![Topology { key, rule: TopologyRule::Slices { size: one.max(two), exclusive: true } }];
            return Ok(());
        }
        let shares = self.topology.is_empty() || self.shared_with.is_some();
        if self.topology == group.topology && self.shared_with == before.shared_with && shares {
            return Ok(());
        }
        let path = format!("spec.replicatedJobs[{index}].template.spec.template.metadata.annotations");
        let keys: Vec<&str> = self.topology.iter().map(|one| one.key.as_str()).collect();
        let reason = format!(
            "all pods of a gang must have the same topology, and {POD_SET_GROUP} if they are of several replicated Jobs"
        );
        Err(invalid(&FieldPath::Root(&path).invalid(&keys, reason)))
    }
}

fn invalid(error: &crate::invalid::InvalidField) -> GangConfigError {
    GangConfigError { reason: event_reasons::INVALID_TOPOLOGY, message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::job_set::gangs;
    use serde_json::{Value, json};

    /// A replicated Job of so many Jobs with two pods each, and annotations of its pods.
    fn job(name: &str, replicas: i64, of_pods: &Value) -> Value {
        json!({"name": name, "replicas": replicas, "template": {"metadata": {"annotations": {}}, "spec": {
            "parallelism": 2, "completions": 2,
            "template": {"metadata": {"annotations": of_pods}, "spec": {"schedulerName": "muster", "containers": []}},
        }}})
    }

    /// The topology of the groups of a set, as it is written.
    fn topology(annotations: &Value, jobs: &[Value]) -> Result<Vec<Value>, String> {
        let set = json!({"metadata": {"name": "js", "annotations": annotations}, "spec": {"replicatedJobs": jobs}});
        let gangs = gangs(&serde_json::from_value(set).unwrap(), &["muster".to_owned()]);
        let groups = gangs.map_err(|error| error.message)?.expect("it has gangs").groups;
        let written =
            |topology: Vec<super::Topology>| json!(topology.iter().map(super::Topology::written).collect::<Vec<_>>());
        Ok(groups.into_iter().map(|group| written(group.topology)).collect())
    }

    #[test]
    fn each_exclusive_job_is_a_slice_or_a_group() {
        let annotated = |mode: &str| json!({"muster.dev/gang-mode": mode, "muster.dev/exclusive-topology": "rack"});
        let none = json!({});
        let slices = json!([{"key": "rack", "mode": "Slices", "sliceSize": 2, "exclusive": true}]);
        assert_eq!(topology(&annotated("Gang"), &[job("a", 3, &none)]), Ok(vec![slices.clone()]));
        let mut wide = job("b", 1, &none);
        wide["template"]["spec"]["parallelism"] = json!(4);
        wide["template"]["spec"]["completions"] = json!(4);
        let of_four = json!([{"key": "rack", "mode": "Slices", "sliceSize": 4, "exclusive": true}]);
        assert_eq!(topology(&annotated("Gang"), &[job("a", 3, &none), wide]), Ok(vec![of_four]));
        let mut replicated = job("a", 3, &none);
        replicated["template"]["metadata"]["annotations"] =
            json!({"muster.dev/gang-mode": "ReplicatedGang", "muster.dev/exclusive-topology": "rack"});
        let alone = json!([{"key": "rack", "mode": "Required", "exclusive": true}]);
        assert_eq!(topology(&none, &[replicated]), Ok(vec![alone]));
    }

    #[test]
    fn annotations_of_kueue_are_those_of_all_pods_of_a_gang() {
        let gang = json!({"muster.dev/gang-mode": "Gang"});
        let rack = json!({"kueue.x-k8s.io/podset-required-topology": "rack"});
        let required = json!([{"key": "rack", "mode": "Required"}]);
        assert_eq!(topology(&gang, &[job("a", 2, &rack)]), Ok(vec![required.clone()]));
        let slice = json!({"kueue.x-k8s.io/podset-slice-required-topology": "rack"});
        let slices = json!([{"key": "rack", "mode": "Slices", "sliceSize": 2}]);
        assert_eq!(topology(&gang, &[job("a", 2, &slice)]), Ok(vec![slices]));
        let error = topology(&gang, &[job("a", 1, &json!({})), job("b", 1, &rack)]).unwrap_err();
        assert!(
            error.starts_with("spec.replicatedJobs[1].template.spec.template.metadata.annotations: [\"rack\"]"),
            "{error}"
        );
        let error = topology(&gang, &[job("a", 1, &rack), job("b", 1, &rack)]).unwrap_err();
        assert!(error.contains("kueue.x-k8s.io/podset-group-name"), "{error}");
        let mut together = rack.clone();
        together["kueue.x-k8s.io/podset-group-name"] = json!("g");
        assert_eq!(topology(&gang, &[job("a", 1, &together), job("b", 1, &together)]), Ok(vec![required]));
        let mut each = job("a", 2, &rack);
        each["template"]["metadata"]["annotations"] = json!({"muster.dev/gang-mode": "ReplicatedGang"});
        let error = topology(&json!({}), &[each]).unwrap_err();
        assert!(error.contains("each of them is a gang by itself"), "{error}");
    }
}
