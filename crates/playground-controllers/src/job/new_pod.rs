//! Builds the pod of a Job from its template, with owner reference, finalizer and index.
//!
//! Must not depend on when pods are created.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::job_state::JobState;
use super::pod::{self, INDEX, INDEX_FAILURES, INDEX_FAILURES_IGNORED, TRACKING};
use super::policy::FailureAction;

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The length of the name before the random suffix.
const BASE_LENGTH_MAX: usize = 58;

/// A new pod.
pub(super) fn build(state: &JobState<'_>, index: Option<u32>) -> Pod {
    let job = state.job;
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let metadata = template.metadata.unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    let mut annotations = metadata.annotations.unwrap_or_default();
    let mut finalizers = metadata.finalizers.unwrap_or_default();
    if !finalizers.iter().any(|one| one == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    let mut spec = template.spec;
    if let Some(index) = index {
        labels.insert(INDEX.to_owned(), index.to_string());
        annotations.insert(INDEX.to_owned(), index.to_string());
        if state.settings.backoff_limit_per_index.is_some() {
            annotations.extend(failure_counts(state, index));
        }
        if let Some(spec) = &mut spec {
            spec.hostname = Some(format!("{}-{index}", job.name_any()));
            add_index_variable(spec);
        }
    }
    let owner = job.controller_owner_ref(&()).map(|mut owner| {
        owner.block_owner_deletion = Some(true);
        owner
    });
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(base_name(&job.name_any(), index)),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            finalizers: Some(finalizers),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// The name before the random suffix; the index is never cut.
fn base_name(job: &str, index: Option<u32>) -> String {
    let tail = index.map_or_else(|| "-".to_owned(), |index| format!("-{index}-"));
    let max_length = BASE_LENGTH_MAX.saturating_sub(tail.len());
    let head = if index.is_some() { &job[..job.len().min(max_length)] } else { job };
    format!("{head}{tail}")
}

/// A replacement continues the failure count of the pod that it replaces.
fn failure_counts(state: &JobState<'_>, index: u32) -> BTreeMap<String, String> {
    let (mut counted, mut ignored) = (0, 0);
    if let Some(failed) = state.kept.get(&index) {
        (counted, ignored) = pod::earlier_failures(failed);
        match state.failure_action(failed) {
            FailureAction::Ignore => ignored += 1,
            _ => counted += 1,
        }
    }
    let mut counts = BTreeMap::from([(INDEX_FAILURES.to_owned(), counted.to_string())]);
    if ignored > 0 {
        counts.insert(INDEX_FAILURES_IGNORED.to_owned(), ignored.to_string());
    }
    counts
}

fn add_index_variable(spec: &mut PodSpec) {
    let add = |container: &mut Container| {
        let variables = container.env.get_or_insert_default();
        if variables.iter().any(|one| one.name == INDEX_VARIABLE) {
            return;
        }
        let field = ObjectFieldSelector { api_version: None, field_path: format!("metadata.labels['{INDEX}']") };
        variables.push(EnvVar {
            name: INDEX_VARIABLE.to_owned(),
            value: None,
            value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        });
    };
    spec.init_containers.iter_mut().flatten().for_each(add);
    spec.containers.iter_mut().for_each(add);
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    #[test]
    fn indexed_pod_gets_its_index() {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "j", "namespace": "d", "uid": "u"},
            "spec": {"completionMode": "Indexed", "completions": 3, "template": {
                "metadata": {"labels": {"job-name": "j"}},
                "spec": {"containers": [{"name": "c"}, {"name": "d", "env": [{"name": INDEX_VARIABLE, "value": "x"}]}]},
            }},
        }))
        .unwrap();
        let built = serde_json::to_value(build(&JobState::new(&job, &[]), Some(2))).unwrap();
        assert_eq!(
            built["metadata"],
            json!({
                "generateName": "j-2-", "labels": {"job-name": "j", INDEX: "2"}, "annotations": {INDEX: "2"},
                "finalizers": [TRACKING],
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true}],
            })
        );
        let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        let expected = json!([{"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
        assert_eq!(built["spec"]["hostname"], "j-2");
        assert_eq!(built["spec"]["containers"][0]["env"], expected);
        assert_eq!(built["spec"]["containers"][1]["env"], json!([{"name": INDEX_VARIABLE, "value": "x"}]));
        let plain = serde_json::to_value(build(&JobState::new(&job, &[]), None)).unwrap();
        assert_eq!((&plain["metadata"]["generateName"], &plain["spec"]["hostname"]), (&json!("j-"), &json!(null)));
    }

    #[test]
    fn long_name_is_cut_before_the_index() {
        let name = base_name(&"x".repeat(63), Some(123));
        assert!(name.len() == 58 && name.ends_with("x-123-"), "{name}");
        assert_eq!(base_name("job", None), "job-");
    }
}
