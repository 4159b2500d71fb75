//! What a pod has to name, and in whose words it does.

use super::short_name;
use crate::keys::annotations::{POD_GROUP, REPLICA_KEY, WORKLOAD};
use crate::native::NativeVersion;
use crate::selector::Labels;
use crate::wire::Pod;
use crate::wire::pod::{PodSpec, SchedulingGroup, WorkloadRef};
use crate::wire::template::TemplateMetadata;

const NAME_CHARS_MAX: usize = 253;

/// A group inside a Workload, or a PodGroup if there is no Workload: what a pod has to name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The Workload; `None` if the group is an object of its own.
    pub workload: Option<String>,
    /// The group.
    pub group: String,
    /// Which replica of the group, if there are several.
    pub replica_key: Option<String>,
}

impl Reference {
    /// The name of the PodGroup that stands for a group of a Workload, where groups are objects of their own.
    ///
    /// The parts have no dots, so no two groups of a namespace have one name.
    pub fn pod_group_name(&self) -> String {
        let parts = [self.workload.as_deref(), Some(&self.group), self.replica_key.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        short_name(&parts.join("."), NAME_CHARS_MAX)
    }

    /// What a pod says to join: in our own words, or in those of the cluster.
    pub fn joining(&self, native: Option<NativeVersion>) -> Joining {
        match native {
            None => Joining::annotated(self.annotations()),
            Some(NativeVersion::V1alpha1) => Joining {
                workload_ref: Some(WorkloadRef {
                    name: self.workload.clone().unwrap_or_else(|| self.group.clone()),
                    pod_group: self.group.clone(),
                    pod_group_replica_key: self.replica_key.clone().unwrap_or_default(),
                }),
                ..Joining::default()
            },
            Some(_) => Joining::to_pod_group(self.pod_group_name()),
        }
    }

    fn annotations(&self) -> Labels {
        let workload = self.workload.as_ref().map(|name| (WORKLOAD, name));
        let replica = self.replica_key.as_ref().map(|key| (REPLICA_KEY, key));
        let all = workload.into_iter().chain([(POD_GROUP, &self.group)]).chain(replica);
        all.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }
}

/// By what a pod joins a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// `spec.schedulingGroup`, which can be written only when a pod is made.
    pub scheduling_group: Option<SchedulingGroup>,
    /// `spec.workloadRef`, which can be written only when a pod is made.
    pub workload_ref: Option<WorkloadRef>,
}

impl Joining {
    /// By annotations alone.
    pub fn annotated(annotations: Labels) -> Self {
        Self { annotations, ..Self::default() }
    }

    /// By the name of one of Kubernetes' own PodGroups.
    pub fn to_pod_group(name: String) -> Self {
        Self { scheduling_group: Some(SchedulingGroup { pod_group_name: Some(name) }), ..Self::default() }
    }

    /// Whether a pod that is there can still join so.
    pub fn comes_late(&self) -> bool {
        self.scheduling_group.is_none() && self.workload_ref.is_none()
    }

    /// Whether a template says all of it.
    pub fn is_in(&self, metadata: &TemplateMetadata, spec: &PodSpec) -> bool {
        let has = |all: &Labels, entries: &Labels| entries.iter().all(|(key, value)| all.get(key) == Some(value));
        has(&metadata.labels, &self.labels)
            && has(&metadata.annotations, &self.annotations)
            && (self.scheduling_group.is_none() || self.scheduling_group == spec.scheduling_group)
            && (self.workload_ref.is_none() || self.workload_ref == spec.workload_ref)
    }
}

/// Labels and annotations of a pod, in the form that templates have them.
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
    fn the_words_of_each_cluster() {
        let reference =
            Reference { workload: Some("w-js".into()), group: "pg-a".into(), replica_key: Some("3".into()) };
        let own = reference.joining(None);
        assert_eq!(
            json!(own.annotations),
            json!({"muster.dev/workload": "w-js", "muster.dev/pod-group": "pg-a", "muster.dev/replica-key": "3"})
        );
        let inline = reference.joining(Some(NativeVersion::V1alpha1)).workload_ref;
        assert_eq!(json!(inline), json!({"name": "w-js", "podGroup": "pg-a", "podGroupReplicaKey": "3"}));
        for version in [NativeVersion::V1alpha2, NativeVersion::V1alpha3, NativeVersion::V1beta1] {
            let group = reference.joining(Some(version)).scheduling_group;
            assert_eq!(json!(group), json!({"podGroupName": "w-js.pg-a.3"}));
        }
        assert!(own.comes_late() && !reference.joining(Some(NativeVersion::V1beta1)).comes_late());
    }
}
