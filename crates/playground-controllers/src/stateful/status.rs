//! How a stateful set's status is written: only if it says something new.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use kube::api::{Api, PostParams};
use muster_playground_client::mirror::Key;
use muster_playground_client::refusal::is_not_found;

use super::Keeper;

impl Keeper {
    /// Writes the status. A set that changed meanwhile comes again by the watch.
    pub(super) async fn tell(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        status: StatefulSetStatus,
    ) -> Result<(), kube::Error> {
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let told = StatefulSet { status: Some(status), ..set.clone() };
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.0);
        match sets.replace_status(&key.1, &PostParams::default(), &told).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }
}
