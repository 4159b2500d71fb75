//! Writes to claims and volumes against the in-process server, with every response that does not show what happened.

use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use muster_playground_server::faults::{Fault, ServerError};
use serde_json::json;

use super::tests::TestCluster;
use super::*;

/// Every fault, and whether the write takes effect all the same.
const FAULTS: [(Fault, bool); 9] = [
    (Fault::ResponseLost, true),
    (Fault::ResponseTimedOut, true),
    (Fault::ResponseDelayed(Duration::from_secs(60)), true),
    (Fault::Lost, false),
    (Fault::Conflict, false),
    (Fault::Failed(ServerError::Internal), false),
    (Fault::Failed(ServerError::TimedOut), false),
    (Fault::Failed(ServerError::Unavailable), false),
    (Fault::Throttled { retry_after_seconds: 1 }, false),
];

/// The names of what is written, as the paths of requests contain them.
const VOLUME: &str = "/persistentvolumes/pv";
const CLAIM: &str = "/persistentvolumeclaims/data";

impl TestCluster {
    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.server.client())
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.server.client(), "default")
    }

    async fn add_volume(&self) -> PersistentVolume {
        let volume = json!({"metadata": {"name": "pv", "annotations": {"keep": "this"}}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/"}}});
        self.volumes().create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap()
    }

    async fn add_claim(&self, name: &str) -> (ClaimName, String) {
        let claim = json!({"metadata": {"name": name, "annotations": {"keep": "this"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        let made = self.claims().create(&PostParams::default(), &claim).await.unwrap();
        let id = ClaimName { namespace: "default".into(), name: name.into(), uid: made.uid().unwrap() };
        (id, made.resource_version().unwrap())
    }

    /// The name of the claim for which the volume is reserved.
    async fn reserved_for(&self) -> Option<String> {
        self.volumes().get("pv").await.unwrap().spec?.claim_ref?.name
    }

    /// The node that is selected for the claim `data`.
    async fn selected_node(&self) -> Option<String> {
        self.claims().get("data").await.unwrap().annotations().get("volume.kubernetes.io/selected-node").cloned()
    }

    /// Another writer changes an object that is not namespaced, or of the namespace `default`.
    async fn relabel(&self, claim: bool) {
        let (parameters, patch) = (PatchParams::default(), json!({"metadata": {"labels": {"changed": "yes"}}}));
        if claim {
            self.claims().patch("data", &parameters, &Patch::Merge(&patch)).await.unwrap();
        } else {
            self.volumes().patch("pv", &parameters, &Patch::Merge(&patch)).await.unwrap();
        }
    }
}

fn is_transient(outcome: &StorageWriteOutcome) -> bool {
    matches!(outcome, StorageWriteOutcome::Transient { .. })
}

fn refusal(outcome: StorageWriteOutcome) -> String {
    match outcome {
        StorageWriteOutcome::Refused { message } => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserved_volume_names_its_claim_and_that_nobody_chose_it_by_hand() {
    let cluster = TestCluster::new().await;
    let (claim, claim_version) = cluster.add_claim("data").await;
    let version = cluster.add_volume().await.resource_version().unwrap();
    let outcome = cluster.context.reserve_volume(&claim, &claim_version, "pv", &version).await;
    assert_eq!(outcome, StorageWriteOutcome::Written);
    let volume = cluster.volumes().get("pv").await.unwrap();
    let annotations: Vec<_> = volume.annotations().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(annotations, [("keep", "this"), ("pv.kubernetes.io/bound-by-controller", "yes")]);
    let claim_ref = serde_json::to_value(volume.spec.unwrap().claim_ref).unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "data",
        "uid": claim.uid, "resourceVersion": claim_version});
    assert_eq!(claim_ref, expected);
}

#[tokio::test(start_paused = true)]
async fn a_selected_node_is_an_annotation_of_the_claim() {
    let cluster = TestCluster::new().await;
    let (claim, version) = cluster.add_claim("data").await;
    let outcome = cluster.context.select_node(&claim, &version, "n1").await;
    assert_eq!(outcome, StorageWriteOutcome::Written);
    assert_eq!(cluster.selected_node().await.as_deref(), Some("n1"));
    assert_eq!(cluster.claims().get("data").await.unwrap().annotations().len(), 2, "others are left alone");
}

#[tokio::test(start_paused = true)]
async fn unclear_response_makes_a_write_read_the_current_object() {
    for (fault, written) in FAULTS {
        let cluster = TestCluster::new().await;
        let (claim, claim_version) = cluster.add_claim("data").await;
        let version = cluster.add_volume().await.resource_version().unwrap();
        cluster.faults.schedule(Method::PATCH, VOLUME, fault);
        cluster.faults.schedule(Method::PATCH, CLAIM, fault);
        let reserved = cluster.context.reserve_volume(&claim, &claim_version, "pv", &version).await;
        let selected = cluster.context.select_node(&claim, &claim_version, "n1").await;
        assert_eq!(cluster.faults.pending(), 0);
        for outcome in [reserved, selected] {
            assert!(
                if written { outcome == StorageWriteOutcome::Written } else { is_transient(&outcome) },
                "{fault:?}: {outcome:?}"
            );
        }
        assert_eq!(cluster.reserved_for().await.is_some(), written, "{fault:?}");
        assert_eq!(cluster.selected_node().await.is_some(), written, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_not_written_again_with_another_content() {
    let cluster = TestCluster::new().await;
    let (claim, claim_version) = cluster.add_claim("data").await;
    let (other, other_version) = cluster.add_claim("other").await;
    let version = cluster.add_volume().await.resource_version().unwrap();
    for path in [VOLUME, CLAIM] {
        cluster.faults.schedule(Method::PATCH, path, Fault::ResponseLost);
        cluster.faults.schedule(Method::GET, path, Fault::Lost);
    }
    let context = &cluster.context;
    assert!(is_transient(&context.reserve_volume(&claim, &claim_version, "pv", &version).await), "it is unknown");
    assert!(is_transient(&context.select_node(&claim, &claim_version, "n1").await), "it is unknown");
    assert_eq!(cluster.faults.pending(), 0);
    // Decided on what was seen before: the same volume for another claim, and another node.
    let outcome = context.reserve_volume(&other, &other_version, "pv", &version).await;
    assert!(refusal(outcome).starts_with("another writer has changed the PersistentVolume pv meanwhile: "));
    let outcome = context.select_node(&claim, &claim_version, "n2").await;
    assert!(refusal(outcome).starts_with("another writer has changed the PersistentVolumeClaim data meanwhile: "));
    assert_eq!(cluster.reserved_for().await.as_deref(), Some("data"));
    assert_eq!(cluster.selected_node().await.as_deref(), Some("n1"));
    // The same again is what is there.
    let (volume, node) = (cluster.volumes().get("pv").await.unwrap(), cluster.claims().get("data").await.unwrap());
    let outcome = context.reserve_volume(&claim, &claim_version, "pv", &version).await;
    assert_eq!(outcome, StorageWriteOutcome::Written);
    assert_eq!(context.select_node(&claim, &claim_version, "n1").await, StorageWriteOutcome::Written);
    assert_eq!(cluster.volumes().get("pv").await.unwrap(), volume, "and nothing is written");
    assert_eq!(cluster.claims().get("data").await.unwrap(), node, "and nothing is written");
}

#[tokio::test(start_paused = true)]
async fn what_another_writer_has_changed_is_not_overwritten() {
    for fault in [None, Some(Fault::Lost), Some(Fault::Failed(ServerError::TimedOut))] {
        let cluster = TestCluster::new().await;
        let (claim, claim_version) = cluster.add_claim("data").await;
        let version = cluster.add_volume().await.resource_version().unwrap();
        cluster.relabel(false).await;
        cluster.relabel(true).await;
        for path in [VOLUME, CLAIM] {
            if let Some(fault) = fault {
                cluster.faults.schedule(Method::PATCH, path, fault);
            }
        }
        let outcome = cluster.context.reserve_volume(&claim, &claim_version, "pv", &version).await;
        assert!(refusal(outcome).contains("another writer has changed"), "{fault:?}");
        let outcome = cluster.context.select_node(&claim, &claim_version, "n1").await;
        assert!(refusal(outcome).contains("another writer has changed"), "{fault:?}");
        assert_eq!((cluster.reserved_for().await, cluster.selected_node().await), (None, None));
    }
}

#[tokio::test(start_paused = true)]
async fn writes_to_objects_that_are_gone_or_replaced_are_refused() {
    let cluster = TestCluster::new().await;
    let (claim, claim_version) = cluster.add_claim("data").await;
    let version = cluster.add_volume().await.resource_version().unwrap();
    // No controller runs here that takes away what protects objects in use.
    let unprotected = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.volumes().patch("pv", &PatchParams::default(), &unprotected).await.unwrap();
    cluster.claims().patch("data", &PatchParams::default(), &unprotected).await.unwrap();
    cluster.volumes().delete("pv", &DeleteParams::default()).await.unwrap();
    cluster.claims().delete("data", &DeleteParams::default()).await.unwrap();
    let context = &cluster.context;
    let outcome = context.reserve_volume(&claim, &claim_version, "pv", &version).await;
    assert!(refusal(outcome).contains("not found"));
    assert!(refusal(context.select_node(&claim, &claim_version, "n1").await).contains("not found"));
    cluster.faults.schedule(Method::PATCH, CLAIM, Fault::Lost);
    let outcome = context.select_node(&claim, &claim_version, "n1").await;
    assert_eq!(refusal(outcome), "the PersistentVolumeClaim data is gone");
    let (_, version_of_new) = cluster.add_claim("data").await;
    let outcome = context.select_node(&claim, &version_of_new, "n1").await;
    assert!(refusal(outcome).contains("metadata.uid"), "the name is another claim's");
    assert_eq!(cluster.selected_node().await, None);
    cluster.faults.schedule(Method::PATCH, CLAIM, Fault::Forbidden);
    assert_eq!(refusal(context.select_node(&claim, &version_of_new, "n1").await), "an injected refusal");
}

#[tokio::test(start_paused = true)]
async fn a_closed_fence_stops_writes_and_every_request_ends_once() {
    let cluster = TestCluster::new().await;
    let (claim, claim_version) = cluster.add_claim("data").await;
    let version = cluster.add_volume().await.resource_version().unwrap();
    let (keeper, fence) = Fence::kept();
    let context = RequestContext { fence, ..cluster.context.clone() };
    assert!(is_transient(&context.reserve_volume(&claim, &claim_version, "pv", &version).await));
    assert!(is_transient(&context.select_node(&claim, &claim_version, "n1").await));
    assert_eq!((cluster.reserved_for().await, cluster.selected_node().await), (None, None));
    // A request in flight is cancelled when the fence closes, and nothing is read after that.
    keeper.open_until(Instant::now() + Duration::from_secs(1));
    cluster.faults.schedule(Method::PATCH, CLAIM, Fault::Delay(Duration::from_secs(3)));
    let began = Instant::now();
    assert!(is_transient(&context.select_node(&claim, &claim_version, "n1").await));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    keeper.open_until(Instant::now() + Duration::from_secs(60));
    let (inbox, mut outcomes) = mpsc::channel(16);
    let mut actuator = Actuator::new(context, inbox, 1, 1);
    let claim = Arc::new(claim);
    let (volume, node): (Arc<str>, Arc<str>) = ("pv".into(), "n1".into());
    actuator.send(ApiRequest::ReserveVolume {
        claim: claim.clone(),
        claim_version: claim_version.clone(),
        volume,
        version,
    });
    actuator.send(ApiRequest::SelectNode { claim: claim.clone(), version: claim_version, node });
    assert_eq!(actuator.load(), (2, 0), "in the lane of the binds");
    for left in [1, 0] {
        let Some(Event::Outcome(outcome)) = outcomes.recv().await else { panic!("no outcome") };
        let Outcome::StorageWrite { claim: written, outcome: ended } = &*outcome else { panic!("{outcome:?}") };
        assert_eq!((written, ended), (&claim, &StorageWriteOutcome::Written));
        actuator.on_outcome(&outcome);
        assert_eq!(actuator.load(), (left, 0));
    }
}
