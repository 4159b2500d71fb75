//! Writes a StatefulSet's status, only if it has changed.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use kube::api::{Api, PostParams};
use muster_playground_client::api_errors::is_not_found;
use muster_reflector::Key;

use super::StatefulSetController;

impl StatefulSetController {
    /// Writes the status. On a conflict the watch brings the set back.
    pub(super) async fn update_status(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        status: StatefulSetStatus,
    ) -> Result<(), kube::Error> {
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let updated = StatefulSet { status: Some(status), ..set.clone() };
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.0);
        match sets.replace_status(&key.1, &PostParams::default(), &updated).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }
}
