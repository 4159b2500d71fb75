//! Pods of LeaderWorkerSets: they name the group of their replica.

use muster_api::invalid::FieldPath;
use muster_api::makers::leader_worker_set::{self, Replica, labels};
use muster_api::makers::names_a_group;
use muster_api::wire::Pod;
use muster_api::wire::template::TemplateMetadata;

use super::patch::Patch;
use super::{Admission, Request, Verdict};
use crate::providers::gangs_pods_of;
use crate::read::read;

impl Admission {
    pub(super) fn pod(&self, request: &Request<'_>) -> Verdict {
        let (Some(provider), Some(pod)) = (&self.provider, read::<Pod>(request.object)) else {
            return Verdict::default();
        };
        let metadata = TemplateMetadata::from(&pod);
        let is_ganged = gangs_pods_of(provider.as_ref(), &pod.spec.scheduler_name, self.settings.scheduler_names());
        match leader_worker_set::is_off(&metadata.annotations, &FieldPath::Root("metadata")) {
            Err(error) if is_ganged && metadata.labels.contains_key(labels::NAME) => {
                return Verdict::denied(error.to_string());
            }
            Ok(false) if is_ganged && !names_a_group(&metadata, &pod.spec) => {}
            _ => return Verdict::default(),
        }
        // A pod with labels that make no sense is held back by the scheduler, which says why.
        let Ok(Some(replica)) = Replica::of(pod.metadata.name.as_deref().unwrap_or_default(), &metadata.labels) else {
            return Verdict::default();
        };
        let joining = match provider.inject_pod_group_metadata(&replica, &pod) {
            Ok(joining) => joining,
            Err(error) => return Verdict::denied(error.to_string()),
        };
        let mut patch = Patch::of(request.object);
        patch.join(&[], &joining);
        Verdict::patched(patch)
    }
}
