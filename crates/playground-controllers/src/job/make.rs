//! The pod that a Job makes: its template, with what tells whose it is and which index it has.
//!
//! It must not know when pods are made.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::census::Census;
use super::pod::{self, INDEX, INDEX_FAILURES, INDEX_FAILURES_IGNORED, TRACKING};
use super::policy::Ruling;

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// What is left for a name before the random letters.
const BASE_LENGTH_MAX: usize = 58;

/// A new pod.
pub(super) fn pod(census: &Census<'_>, index: Option<u32>) -> Pod {
    let job = census.job;
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
        if census.terms.backoff_limit_per_index.is_some() {
            annotations.extend(failure_counts(census, index));
        }
        if let Some(spec) = &mut spec {
            spec.hostname = Some(format!("{}-{index}", job.name_any()));
            tell_index(spec);
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

/// What stands before the random letters; the index is never cut.
fn base_name(job: &str, index: Option<u32>) -> String {
    let tail = index.map_or_else(|| "-".to_owned(), |index| format!("-{index}-"));
    let room = BASE_LENGTH_MAX.saturating_sub(tail.len());
    let head = if index.is_some() { &job[..job.len().min(room)] } else { job };
    format!("{head}{tail}")
}

/// A replacement carries on the count of the pod that it replaces.
fn failure_counts(census: &Census<'_>, index: u32) -> BTreeMap<String, String> {
    let (mut counted, mut ignored) = (0, 0);
    if let Some(failed) = census.kept.get(&index) {
        (counted, ignored) = pod::earlier_failures(failed);
        match census.ruling(failed) {
            Ruling::Ignore => ignored += 1,
            _ => counted += 1,
        }
    }
    let mut counts = BTreeMap::from([(INDEX_FAILURES.to_owned(), counted.to_string())]);
    if ignored > 0 {
        counts.insert(INDEX_FAILURES_IGNORED.to_owned(), ignored.to_string());
    }
    counts
}

fn tell_index(spec: &mut PodSpec) {
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
    fn an_indexed_pod_knows_its_index() {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "j", "namespace": "d", "uid": "u"},
            "spec": {"completionMode": "Indexed", "completions": 3, "template": {
                "metadata": {"labels": {"job-name": "j"}},
                "spec": {"containers": [{"name": "c"}, {"name": "d", "env": [{"name": INDEX_VARIABLE, "value": "x"}]}]},
            }},
        }))
        .unwrap();
        let made = serde_json::to_value(pod(&Census::take(&job, &[]), Some(2))).unwrap();
        assert_eq!(
            made["metadata"],
            json!({
                "generateName": "j-2-", "labels": {"job-name": "j", INDEX: "2"}, "annotations": {INDEX: "2"},
                "finalizers": [TRACKING],
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true}],
            })
        );
        let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        let told = json!([{"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
        assert_eq!(made["spec"]["hostname"], "j-2");
        assert_eq!(made["spec"]["containers"][0]["env"], told);
        assert_eq!(made["spec"]["containers"][1]["env"], json!([{"name": INDEX_VARIABLE, "value": "x"}]));
        let plain = serde_json::to_value(pod(&Census::take(&job, &[]), None)).unwrap();
        assert_eq!((&plain["metadata"]["generateName"], &plain["spec"]["hostname"]), (&json!("j-"), &json!(null)));
    }

    #[test]
    fn a_long_name_is_cut_before_the_index() {
        let name = base_name(&"x".repeat(63), Some(123));
        assert!(name.len() == 58 && name.ends_with("x-123-"), "{name}");
        assert_eq!(base_name("job", None), "job-");
    }
}
