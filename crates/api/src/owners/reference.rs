//! Group references: the group that a pod belongs to, and the labels, annotations and fields that express it.

use super::short_name;
use crate::keys::annotations::{POD_GROUP, REPLICA_KEY, WORKLOAD};
use crate::native::NativeVersion;
use crate::selector::Labels;
use crate::wire::Pod;
use crate::wire::pod::{PodSpec, SchedulingGroup, WorkloadRef};
use crate::wire::template::TemplateMetadata;

const NAME_CHARS_MAX: usize = 253;

/// The group that a pod references: a group of a Workload, or a PodGroup if there is no Workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The Workload; `None` if the group is a separate object.
    pub workload: Option<String>,
    /// The group.
    pub group: String,
    /// The replica of the group, if there are several.
    pub replica_key: Option<String>,
}

impl Reference {
    /// The name of the PodGroup for a group of a Workload, where groups are separate objects.
    ///
    /// The parts have no dots, so the name is unique in the namespace.
    pub fn pod_group_name(&self) -> String {
        let parts = [self.workload.as_deref(), Some(&self.group), self.replica_key.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        short_name(&parts.join("."), NAME_CHARS_MAX)
    }

    /// How a pod references the group: in Muster's own API, or in this version of the native API.
    pub fn membership(&self, native: Option<NativeVersion>) -> Membership {
        match native {
            None => Membership::annotated(self.annotations()),
            Some(NativeVersion::V1alpha1) => Membership {
                workload_ref: Some(WorkloadRef {
                    name: self.workload.clone().unwrap_or_else(|| self.group.clone()),
                    pod_group: self.group.clone(),
                    pod_group_replica_key: self.replica_key.clone().unwrap_or_default(),
                }),
                ..Membership::default()
            },
            Some(_) => Membership::to_pod_group(self.pod_group_name()),
        }
    }

    fn annotations(&self) -> Labels {
        let workload = self.workload.as_ref().map(|name| (WORKLOAD, name));
        let replica = self.replica_key.as_ref().map(|key| (REPLICA_KEY, key));
        let all = workload.into_iter().chain([(POD_GROUP, &self.group)]).chain(replica);
        all.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }
}

/// The labels, annotations and fields by which a pod is a member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// `spec.schedulingGroup`, which can be set only at creation.
    pub scheduling_group: Option<SchedulingGroup>,
    /// `spec.workloadRef`, which can be set only at creation.
    pub workload_ref: Option<WorkloadRef>,
}

impl Membership {
    /// A membership by annotations only.
    pub fn annotated(annotations: Labels) -> Self {
        Self { annotations, ..Self::default() }
    }

    /// A membership in a native PodGroup.
    pub fn to_pod_group(name: String) -> Self {
        Self { scheduling_group: Some(SchedulingGroup { pod_group_name: Some(name) }), ..Self::default() }
    }

    /// Whether the membership can be added to an existing pod.
    pub fn can_be_patched(&self) -> bool {
        self.scheduling_group.is_none() && self.workload_ref.is_none()
    }

    /// Whether a template has this membership.
    pub fn is_set_on(&self, metadata: &TemplateMetadata, spec: &PodSpec) -> bool {
        let has = |all: &Labels, entries: &Labels| entries.iter().all(|(key, value)| all.get(key) == Some(value));
        has(&metadata.labels, &self.labels)
            && has(&metadata.annotations, &self.annotations)
            && (self.scheduling_group.is_none() || self.scheduling_group == spec.scheduling_group)
            && (self.workload_ref.is_none() || self.workload_ref == spec.workload_ref)
    }
}

/// The labels and annotations of a pod, in the form of template metadata.
impl From<&Pod> for TemplateMetadata {
    fn from(pod: &Pod) -> Self {
        TemplateMetadata {
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn membership_in_each_version_of_the_api() {
        let reference =
            Reference { workload: Some("w-js".into()), group: "pg-a".into(), replica_key: Some("3".into()) };
        let own = reference.membership(None);
        assert_eq!(
            json!(own.annotations),
            json!({"muster.dev/workload": "w-js", "muster.dev/pod-group": "pg-a", "muster.dev/replica-key": "3"})
        );
        let inline = reference.membership(Some(NativeVersion::V1alpha1)).workload_ref;
        assert_eq!(json!(inline), json!({"name": "w-js", "podGroup": "pg-a", "podGroupReplicaKey": "3"}));
        for version in [NativeVersion::V1alpha2, NativeVersion::V1alpha3, NativeVersion::V1beta1] {
            let group = reference.membership(Some(version)).scheduling_group;
            assert_eq!(json!(group), json!({"podGroupName": "w-js.pg-a.3"}));
        }
        assert!(own.can_be_patched() && !reference.membership(Some(NativeVersion::V1beta1)).can_be_patched());
    }
}
