//! Admission of pods of LeaderWorkerSets: adds the reference to the group of their replica.

use muster_api::invalid::FieldPath;
use muster_api::owners::leader_worker_set::{self, Replica, labels};
use muster_api::owners::references_group;
use muster_api::wire::Pod;
use muster_api::wire::template::TemplateMetadata;

use super::patch::Patch;
use super::{Admission, Request, Verdict};
use crate::providers::handles_scheduler;
use crate::read::read;

impl Admission {
    pub(super) fn pod(&self, request: &Request<'_>) -> Verdict {
        let (Some(provider), Some(pod)) = (&self.provider, read::<Pod>(request.object)) else {
            return Verdict::default();
        };
        let metadata = TemplateMetadata::from(&pod);
        let is_ganged = handles_scheduler(provider.as_ref(), &pod.spec.scheduler_name, self.settings.scheduler_names());
        match leader_worker_set::is_off(&metadata.annotations, &FieldPath::Root("metadata")) {
            Err(error) if is_ganged && metadata.labels.contains_key(labels::NAME) => {
                return Verdict::denied(error.to_string());
            }
            Ok(false) if is_ganged && !references_group(&metadata, &pod.spec) => {}
            _ => return Verdict::default(),
        }
        // The scheduler holds back pods with inconsistent labels and reports the reason.
        let Ok(Some(replica)) = Replica::of(pod.metadata.name.as_deref().unwrap_or_default(), &metadata.labels) else {
            return Verdict::default();
        };
        let membership = match provider.inject_pod_group_metadata(&replica, &pod) {
            Ok(membership) => membership,
            Err(error) => return Verdict::denied(error.to_string()),
        };
        let mut patch = Patch::of(request.object);
        patch.add_membership(&[], &membership);
        Verdict::patched(patch)
    }
}
