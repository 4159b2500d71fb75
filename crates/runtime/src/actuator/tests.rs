//! Binds and deletions against the in-process server, with every response that does not show what happened.

use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use muster_api::keys::annotations::START;
use muster_playground_server::faults::{Fault, Faults, ServerError};
use muster_playground_server::{Server, Settings};
use serde_json::json;

use super::*;
use crate::start_stamp;

pub(super) struct TestCluster {
    pub(super) server: Server,
    pub(super) faults: Faults,
    pub(super) context: RequestContext,
}

impl TestCluster {
    pub(super) async fn new() -> Self {
        let server = Server::start(Settings::default());
        let faults = Faults::none();
        let context = RequestContext {
            client: server.client_with(&faults),
            fence: Fence::open(),
            timeout: Duration::from_secs(4),
            eviction: Eviction::Delete,
            metrics: Metrics::default(),
        };
        let nodes: Api<Node> = Api::all(server.client());
        for name in ["n1", "n2"] {
            let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        Self { server, faults, context }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server.client(), "default")
    }

    async fn pod(&self) -> PodName {
        self.named("a").await
    }

    async fn named(&self, name: &str) -> PodName {
        let metadata = json!({"name": name, "labels": {"app": "web"}});
        let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let made = self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        PodName { namespace: "default".into(), name: name.into(), uid: made.metadata.uid.unwrap() }
    }

    async fn node_of_pod(&self) -> Option<String> {
        self.pods().get("a").await.unwrap().spec.unwrap().node_name
    }
}

#[tokio::test(start_paused = true)]
async fn unclear_response_makes_bind_read_the_current_state() {
    for (fault, bound) in [
        (Fault::ResponseLost, true),
        (Fault::ResponseTimedOut, true),
        (Fault::ResponseDelayed(Duration::from_secs(60)), true),
        (Fault::Lost, false),
        (Fault::Conflict, false),
        (Fault::Failed(ServerError::TimedOut), false),
        (Fault::Failed(ServerError::Unavailable), false),
        (Fault::Throttled { retry_after_seconds: 1 }, false),
    ] {
        let cluster = TestCluster::new().await;
        let pod = cluster.pod().await;
        cluster.faults.schedule(Method::POST, "/binding", fault);
        let outcome = cluster.context.bind(&pod, "n1", None).await;
        assert_eq!(cluster.faults.pending(), 0);
        if bound {
            assert_eq!(outcome, BindOutcome::Bound, "{fault:?}");
        } else {
            assert!(matches!(outcome, BindOutcome::Transient { .. }), "{fault:?}: {outcome:?}");
        }
        assert_eq!(cluster.node_of_pod().await.is_some(), bound, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_bind_after_lost_answer_keeps_room() {
    let cluster = TestCluster::new().await;
    let pod = cluster.pod().await;
    cluster.faults.schedule(Method::POST, "/binding", Fault::ResponseLost);
    cluster.faults.schedule(Method::GET, "/pods/a", Fault::Lost);
    let outcome = cluster.context.bind(&pod, "n1", None).await;
    assert!(matches!(outcome, BindOutcome::Transient { .. }), "the outcome is unknown: {outcome:?}");
    cluster.faults.schedule(Method::POST, "/binding", Fault::Forbidden);
    cluster.faults.schedule(Method::GET, "/pods/a", Fault::Forbidden);
    let outcome = cluster.context.bind(&pod, "n1", None).await;
    assert!(matches!(outcome, BindOutcome::Transient { .. }), "the outcome is still unknown: {outcome:?}");
    cluster.faults.schedule(Method::POST, "/binding", Fault::Forbidden);
    assert_eq!(cluster.context.bind(&pod, "n1", None).await, BindOutcome::Bound);
    let other = cluster.named("b").await;
    cluster.faults.schedule(Method::POST, "/binding", Fault::Forbidden);
    let refused = BindOutcome::Refused { message: "an injected refusal".to_owned() };
    assert_eq!(cluster.context.bind(&other, "n2", None).await, refused);
    assert_eq!(cluster.faults.pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn bind_of_a_bound_deleted_or_replaced_pod_is_refused() {
    let cluster = TestCluster::new().await;
    let pod = cluster.pod().await;
    assert_eq!(cluster.context.bind(&pod, "n1", None).await, BindOutcome::Bound);
    assert_eq!(cluster.context.bind(&pod, "n1", None).await, BindOutcome::Bound, "a repeated bind succeeds");
    let elsewhere = cluster.context.bind(&pod, "n2", None).await;
    assert!(matches!(&elsewhere, BindOutcome::Refused { message } if message.contains("n1")), "{elsewhere:?}");
    cluster.pods().delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(matches!(cluster.context.bind(&pod, "n1", None).await, BindOutcome::Refused { .. }));
    let other = cluster.pod().await;
    assert!(
        matches!(cluster.context.bind(&pod, "n1", None).await, BindOutcome::Refused { .. }),
        "the name is another pod's"
    );
    assert_eq!(cluster.node_of_pod().await, None);
    assert_eq!(cluster.context.delete_pod(&pod).await, DeleteOutcome::Deleted, "our pod is gone");
    assert!(cluster.pods().get("a").await.is_ok(), "and the other is left alone");
    assert_eq!(cluster.context.delete_pod(&other).await, DeleteOutcome::Deleted);
    assert!(cluster.pods().get_opt("a").await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
}

#[tokio::test(start_paused = true)]
async fn bind_stamps_the_pod_in_the_same_write() {
    let cluster = TestCluster::new().await;
    let pod = cluster.pod().await;
    let stamp = start_stamp::example();
    assert_eq!(cluster.context.bind(&pod, "n1", Some(&stamp)).await, BindOutcome::Bound);
    let bound = cluster.pods().get("a").await.unwrap();
    let annotations = bound.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get(START).and_then(|text| start_stamp::read(text, &pod.uid)), Some(stamp));
}

fn unit(pods: &[&PodName]) -> VictimUnit {
    VictimUnit {
        pods: pods.iter().map(|pod| (Arc::new((*pod).clone()), "n1".to_owned())).collect(),
        group: None,
        by: Some("pod default/high".to_owned()),
        message: "muster: preempting to accommodate a higher priority pod".to_owned(),
        now: jiff::Timestamp::UNIX_EPOCH,
    }
}

impl TestCluster {
    /// Two running pods, so that their deletion has a grace period.
    async fn bound_pair(&self) -> [PodName; 2] {
        let pair = [self.named("a").await, self.named("b").await];
        for pod in &pair {
            assert_eq!(self.context.bind(pod, "n1", None).await, BindOutcome::Bound);
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let status = json!({"status": {"phase": "Running", "conditions": ready}});
            let patch = kube::api::Patch::Strategic(&status);
            self.pods().patch_status(&pod.name, &kube::api::PatchParams::default(), &patch).await.unwrap();
        }
        pair
    }

    /// Whether a pod has the `DisruptionTarget` condition, and whether it is being deleted.
    async fn marked_and_terminating(&self, name: &str) -> (bool, bool) {
        let Some(pod) = self.pods().get_opt(name).await.unwrap() else { return (true, true) };
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let marked = conditions.iter().any(|one| one.type_ == "DisruptionTarget" && one.status == "True");
        (marked, pod.metadata.deletion_timestamp.is_some())
    }

    /// A budget over all pods that allows this many disruptions.
    async fn budget(&self, allowed: i32) {
        let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
            Api::namespaced(self.server.client(), "default");
        let budget = json!({"metadata": {"name": "keep"}, "spec": {
            "minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
        budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
        let status = json!({"status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1,
            "expectedPods": 2, "observedGeneration": 1}});
        let patch = kube::api::Patch::Merge(&status);
        budgets.patch_status("keep", &kube::api::PatchParams::default(), &patch).await.unwrap();
    }
}

fn is_transient(outcomes: &EvictionOutcomes) -> bool {
    outcomes.iter().all(|(_, outcome)| matches!(outcome, DeleteOutcome::Transient { .. }))
}

#[tokio::test(start_paused = true)]
async fn evicted_unit_is_marked_before_it_is_deleted() {
    for eviction in [Eviction::Delete, Eviction::EvictionApi] {
        let cluster = TestCluster::new().await;
        let context = RequestContext { eviction, ..cluster.context.clone() };
        let pair = cluster.bound_pair().await;
        let outcomes = context.evict(&unit(&[&pair[0], &pair[1]])).await;
        assert!(outcomes.iter().all(|(_, outcome)| *outcome == DeleteOutcome::Deleted), "{outcomes:?}");
        for name in ["a", "b"] {
            assert_eq!(cluster.marked_and_terminating(name).await, (true, true), "{eviction:?}");
        }
        // A repeated eviction does no harm, not even to a new pod of the same name.
        cluster.pods().delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
        cluster.named("a").await;
        let again = context.evict(&unit(&[&pair[0]])).await;
        assert_eq!(again[0].1, DeleteOutcome::Deleted);
        assert_eq!(cluster.marked_and_terminating("a").await, (false, false), "{eviction:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_pod_of_a_unit_is_deleted_until_all_are_marked() {
    let cluster = TestCluster::new().await;
    let pair = cluster.bound_pair().await;
    cluster.faults.schedule(Method::PATCH, "/b/status", Fault::Failed(ServerError::Unavailable));
    assert!(is_transient(&cluster.context.evict(&unit(&[&pair[0], &pair[1]])).await));
    assert_eq!(cluster.faults.pending(), 0);
    for name in ["a", "b"] {
        assert!(!cluster.marked_and_terminating(name).await.1);
    }
    assert!(cluster.marked_and_terminating("a").await.0);
    cluster.context.clear_disruption_target(&pair[0], jiff::Timestamp::UNIX_EPOCH).await;
    assert!(!cluster.marked_and_terminating("a").await.0, "the condition can be cleared");
}

#[tokio::test(start_paused = true)]
async fn failed_delete_is_reported_for_that_pod_alone() {
    let cluster = TestCluster::new().await;
    let pair = cluster.bound_pair().await;
    cluster.faults.schedule(Method::DELETE, "/pods/b", Fault::Throttled { retry_after_seconds: 1 });
    let outcomes = cluster.context.evict(&unit(&[&pair[0], &pair[1]])).await;
    assert_eq!(outcomes[0].1, DeleteOutcome::Deleted);
    assert!(matches!(outcomes[1].1, DeleteOutcome::Transient { .. }));
}

#[tokio::test(start_paused = true)]
async fn exhausted_budget_protects_the_whole_unit() {
    let cluster = TestCluster::new().await;
    let context = RequestContext { eviction: Eviction::EvictionApi, ..cluster.context.clone() };
    let pair = cluster.bound_pair().await;
    cluster.budget(0).await;
    let outcomes = context.evict(&unit(&[&pair[0], &pair[1]])).await;
    let refused = |outcome: &DeleteOutcome| matches!(outcome, DeleteOutcome::Refused { message } if message.contains("disruption budget"));
    assert!(outcomes.iter().all(|(_, outcome)| refused(outcome)), "{outcomes:?}");
    for name in ["a", "b"] {
        assert_eq!(cluster.marked_and_terminating(name).await, (false, false));
    }
}

#[tokio::test(start_paused = true)]
async fn closed_fence_stops_all_writes() {
    let cluster = TestCluster::new().await;
    let pod = cluster.pod().await;
    let (keeper, fence) = Fence::kept();
    let context = RequestContext { fence, ..cluster.context.clone() };
    assert!(matches!(context.bind(&pod, "n1", None).await, BindOutcome::Transient { .. }));
    assert!(matches!(context.delete_pod(&pod).await, DeleteOutcome::Transient { .. }));
    assert!(is_transient(&context.evict(&unit(&[&pod])).await));
    let patch = json!({"status": {"nominatedNodeName": "n1"}});
    assert!(matches!(context.pod_status(&pod, &patch).await, WriteOutcome::Later { .. }));
    assert_eq!(cluster.node_of_pod().await, None);
    // A request in flight is cancelled when the fence closes.
    keeper.open_until(Instant::now() + Duration::from_secs(1));
    cluster.faults.schedule(Method::POST, "/binding", Fault::Delay(Duration::from_secs(3)));
    let began = Instant::now();
    assert!(matches!(context.bind(&pod, "n1", None).await, BindOutcome::Transient { .. }));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    keeper.open_until(Instant::now() + Duration::from_secs(9));
    assert_eq!(context.bind(&pod, "n1", None).await, BindOutcome::Bound);
}
