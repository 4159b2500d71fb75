//! The rank of a pod among the members of its group: the index that its owner has given it, or an annotation.
//!
//! Only the order of ranks matters. Where an owner has several indices, the wider one comes first.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::annotations::RANK;
use muster_api::wire::Pod;

/// Labels with the index of a pod in its owner, each with the label of the wider index, if there is one. The first that a
/// pod has counts.
const LABELS: [(&str, Option<&str>); 7] = [
    ("kueue.x-k8s.io/pod-group-pod-index", None),
    ("batch.kubernetes.io/job-completion-index", Some("jobset.sigs.k8s.io/job-global-index")),
    ("batch.kubernetes.io/job-completion-index", None),
    ("leaderworkerset.sigs.k8s.io/worker-index", Some("leaderworkerset.sigs.k8s.io/group-index")),
    ("leaderworkerset.sigs.k8s.io/worker-index", None),
    ("training.kubeflow.org/replica-index", None),
    ("apps.kubernetes.io/pod-index", None),
];

/// The rank of a pod, if it has one.
pub(super) fn rank(pod: &Pod) -> Result<Option<u64>, InvalidField> {
    if let Some(written) = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RANK)) {
        let rank: Result<u32, _> = written.parse();
        return rank.map(|rank| Some(u64::from(rank))).map_err(|_| {
            let path = FieldPath::Root("metadata.annotations");
            path.key(RANK).invalid(written, "must be a whole number of 32 bits")
        });
    }
    let Some(labels) = &pod.metadata.labels else { return Ok(None) };
    let index = |key: &str| labels.get(key)?.parse::<u32>().ok();
    let of_labels = |(key, wider): &(&str, Option<&str>)| {
        let wider = wider.map_or(Some(0), index)?;
        Some(u64::from(wider) << 32 | u64::from(index(key)?))
    };
    Ok(LABELS.iter().find_map(of_labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(labels: &serde_json::Value, annotations: &serde_json::Value) -> Result<Option<u64>, String> {
        let pod = json!({"metadata": {"name": "p", "labels": labels, "annotations": annotations}});
        rank(&serde_json::from_value(pod).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn owners_indices_are_ranks_and_an_annotation_comes_first() {
        let job = json!({"batch.kubernetes.io/job-completion-index": "7"});
        assert_eq!(read(&job, &json!({})), Ok(Some(7)));
        assert_eq!(read(&job, &json!({"muster.dev/rank": "3"})), Ok(Some(3)));
        let set = |of_job: u32, pod: u32| {
            let labels = json!({
                "batch.kubernetes.io/job-completion-index": pod.to_string(),
                "jobset.sigs.k8s.io/job-global-index": of_job.to_string(),
            });
            read(&labels, &json!({})).unwrap().unwrap()
        };
        assert!(set(0, 5) < set(1, 0) && set(1, 0) < set(1, 1));
        assert_eq!(read(&json!({"apps.kubernetes.io/pod-index": "many"}), &json!({})), Ok(None));
        assert_eq!(read(&json!({}), &json!({})), Ok(None));
    }

    #[test]
    fn annotation_that_is_no_number_is_refused() {
        let error = read(&json!({}), &json!({"muster.dev/rank": "first"})).unwrap_err();
        assert!(error.contains("metadata.annotations[muster.dev/rank]: \"first\""), "{error}");
    }
}
