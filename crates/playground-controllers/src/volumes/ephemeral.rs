//! Ephemeral volumes: each volume of a pod with a claim template gets a claim that the pod owns.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use muster_reflector::Key;

use super::VolumeController;
use super::objects::{claim_name, is_made_for};
use crate::owners::{controlled_by, error_message};
use crate::pod_record::{PodRecord, is_terminating};
use crate::recorder::EventType;

impl VolumeController {
    /// Makes the claims that a pod lacks. A claim of that name that is not the pod's is an error.
    pub(super) async fn make_ephemeral_claims(&mut self, key: &Key) -> Result<(), kube::Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| !is_terminating(pod)).cloned() else { return Ok(()) };
        for volume in pod.spec.volumes.iter().flatten() {
            let Some(template) = volume.ephemeral.as_ref() else { continue };
            let name = claim_name(&pod, volume).unwrap_or_default();
            let why = match self.claims.find(&key.0, &name) {
                Some(claim) if is_made_for(claim, &pod) => continue,
                Some(_) => not_owner(&key.0, &name, &pod),
                None => {
                    let claim = template.volume_claim_template.as_ref();
                    let metadata = claim.and_then(|claim| claim.metadata.clone()).unwrap_or_default();
                    let claim = PersistentVolumeClaim {
                        metadata: ObjectMeta {
                            name: Some(name.clone()),
                            namespace: Some(key.0.clone()),
                            labels: metadata.labels,
                            annotations: metadata.annotations,
                            owner_references: Some(vec![controlled_by(&*pod)]),
                            ..ObjectMeta::default()
                        },
                        spec: claim.map(|claim| claim.spec.clone()),
                        status: None,
                    };
                    let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.0);
                    match claims.create(&PostParams::default(), &claim).await {
                        Ok(_) => continue,
                        Err(error) => {
                            let why = format!("create PVC {name}: {}", error_message(&error));
                            self.report(&pod, &volume.name, &why).await;
                            return Err(error);
                        }
                    }
                }
            };
            self.report(&pod, &volume.name, &why).await;
        }
        Ok(())
    }

    async fn report(&mut self, pod: &PodRecord, volume: &str, why: &str) {
        let message = format!("ephemeral volume {volume}: {why}");
        self.ephemeral_events.record(pod.object_ref(&()), EventType::Warning, "FailedBinding", message).await;
    }
}

fn not_owner(namespace: &str, claim: &str, pod: &PodRecord) -> String {
    let pod = pod.name_any();
    format!("PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")
}
