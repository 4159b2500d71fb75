//! The pods of a StatefulSet: names, identity labels, and the template that a revision stores.

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{REVISION_LABEL, claims};
use crate::leader_worker::pod_webhook;
use crate::owners::controlled_by;

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The set's name and the ordinal, if this is the name of a member.
pub(crate) fn split_name(name: &str) -> Option<(&str, i32)> {
    let (set, ordinal) = name.rsplit_once('-')?;
    let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    Some((set, ordinal.parse().ok().filter(|_| is_number)?))
}

/// The first ordinal.
pub(super) fn start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default()
}

/// The desired number of pods.
pub(super) fn desired(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1).max(0)
}

/// What a revision stores of a set: its template.
pub(super) fn data(set: &StatefulSet) -> Value {
    let mut template = serde_json::to_value(&set.spec.template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template that a revision stores; empty if it cannot be read.
pub(super) fn template_of(revision: &ControllerRevision) -> PodTemplateSpec {
    let mut template = revision.data.0.pointer("/spec/template").cloned().unwrap_or_default();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    serde_json::from_value(template).unwrap_or_default()
}

/// The labels that identify the pod of an ordinal.
pub(super) fn identity(name: &str, ordinal: i32) -> [(&'static str, String); 2] {
    [(NAME_LABEL, name.to_owned()), (INDEX_LABEL, ordinal.to_string())]
}

/// Whether the pod has its identity label.
pub(super) fn has_identity(name: &str, labels: &std::collections::BTreeMap<String, String>) -> bool {
    labels.get(NAME_LABEL).is_some_and(|label| label == name)
}

/// Builds the pod of an ordinal.
pub(super) fn pod_for(set: &StatefulSet, revision: &ControllerRevision, ordinal: i32) -> Result<Pod, String> {
    let template = template_of(revision);
    let metadata = template.metadata.unwrap_or_default();
    let name = format!("{}-{ordinal}", set.name_any());
    let mut labels = metadata.labels.unwrap_or_default();
    labels.extend(identity(&name, ordinal).map(|(key, value)| (key.to_owned(), value)));
    labels.insert(REVISION_LABEL.to_owned(), revision.name_any());
    let mut spec = template.spec.unwrap_or_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.service_name.clone().filter(|service| !service.is_empty());
    let own: Vec<Volume> = claims::names(set, ordinal)
        .map(|(volume, claim)| Volume {
            name: volume.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name: claim, read_only: None }),
            ..Volume::default()
        })
        .collect();
    if !own.is_empty() {
        let others = spec.volumes.take().unwrap_or_default().into_iter();
        let others = others.filter(|volume| !own.iter().any(|own| own.name == volume.name)).collect::<Vec<_>>();
        spec.volumes = Some(own.iter().cloned().chain(others).collect());
    }
    let mut pod = Pod {
        metadata: ObjectMeta {
            name: Some(name),
            generate_name: Some(format!("{}-", set.name_any())),
            namespace: set.namespace(),
            labels: Some(labels),
            annotations: metadata.annotations,
            finalizers: metadata.finalizers,
            owner_references: Some(vec![controlled_by(set)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    };
    pod_webhook::apply(&mut pod)?;
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_name_has_set_and_ordinal() {
        assert_eq!(split_name("web-0"), Some(("web", 0)));
        assert_eq!(split_name("web-1-12"), Some(("web-1", 12)));
        for name in ["web", "web-", "web-a", "web-+1", "web-99999999999"] {
            assert_eq!(split_name(name), None, "{name}");
        }
    }
}
