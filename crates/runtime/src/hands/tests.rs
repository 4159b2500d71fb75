//! Binds and deletes over the in-process server, with every answer that leaves it open what happened.

use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use muster_playground_server::faults::{Fault, Faults, ServerError};
use muster_playground_server::{Server, Settings};
use serde_json::json;

use super::*;

struct World {
    server: Server,
    faults: Faults,
    reach: Reach,
}

impl World {
    async fn new() -> Self {
        let server = Server::start(Settings::default());
        let faults = Faults::none();
        let reach = Reach {
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
        Self { server, faults, reach }
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
async fn after_an_answer_that_leaves_it_open_the_truth_is_read() {
    for (fault, bound) in [
        (Fault::AnswerLost, true),
        (Fault::AnswerTimedOut, true),
        (Fault::AnswerDelayed(Duration::from_secs(60)), true),
        (Fault::Lost, false),
        (Fault::Conflict, false),
        (Fault::Failed(ServerError::TimedOut), false),
        (Fault::Failed(ServerError::Unavailable), false),
        (Fault::Throttled { retry_after_seconds: 1 }, false),
    ] {
        let world = World::new().await;
        let pod = world.pod().await;
        world.faults.order(Method::POST, "/binding", fault);
        let outcome = world.reach.bind(&pod, "n1").await;
        assert_eq!(world.faults.unmet(), 0);
        if bound {
            assert_eq!(outcome, BindOutcome::Bound, "{fault:?}");
        } else {
            assert!(matches!(outcome, BindOutcome::Transient { .. }), "{fault:?}: {outcome:?}");
        }
        assert_eq!(world.node_of_pod().await.is_some(), bound, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_does_not_undo_an_earlier_bind_whose_answer_was_lost() {
    let world = World::new().await;
    let pod = world.pod().await;
    world.faults.order(Method::POST, "/binding", Fault::AnswerLost);
    world.faults.order(Method::GET, "/pods/a", Fault::Lost);
    let outcome = world.reach.bind(&pod, "n1").await;
    assert!(matches!(outcome, BindOutcome::Transient { .. }), "nobody knows: {outcome:?}");
    world.faults.order(Method::POST, "/binding", Fault::Forbidden);
    world.faults.order(Method::GET, "/pods/a", Fault::Forbidden);
    let outcome = world.reach.bind(&pod, "n1").await;
    assert!(matches!(outcome, BindOutcome::Transient { .. }), "still nobody knows: {outcome:?}");
    world.faults.order(Method::POST, "/binding", Fault::Forbidden);
    assert_eq!(world.reach.bind(&pod, "n1").await, BindOutcome::Bound);
    let other = world.named("b").await;
    world.faults.order(Method::POST, "/binding", Fault::Forbidden);
    let refused = BindOutcome::Refused { message: "an injected refusal".to_owned() };
    assert_eq!(world.reach.bind(&other, "n2").await, refused);
    assert_eq!(world.faults.unmet(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_elsewhere_gone_or_another_is_refused() {
    let world = World::new().await;
    let pod = world.pod().await;
    assert_eq!(world.reach.bind(&pod, "n1").await, BindOutcome::Bound);
    assert_eq!(world.reach.bind(&pod, "n1").await, BindOutcome::Bound, "what is done is done");
    let elsewhere = world.reach.bind(&pod, "n2").await;
    assert!(matches!(&elsewhere, BindOutcome::Refused { message } if message.contains("n1")), "{elsewhere:?}");
    world.pods().delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(matches!(world.reach.bind(&pod, "n1").await, BindOutcome::Refused { .. }));
    let other = world.pod().await;
    assert!(matches!(world.reach.bind(&pod, "n1").await, BindOutcome::Refused { .. }), "the name is another pod's");
    assert_eq!(world.node_of_pod().await, None);
    assert_eq!(world.reach.take_back(&pod).await, TakeBackOutcome::Deleted, "ours is gone");
    assert!(world.pods().get("a").await.is_ok(), "and the other is left alone");
    assert_eq!(world.reach.take_back(&other).await, TakeBackOutcome::Deleted);
    assert!(world.pods().get_opt("a").await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
}

fn unit(pods: &[&PodName]) -> Unit {
    Unit {
        pods: pods.iter().map(|pod| (Arc::new((*pod).clone()), "n1".to_owned())).collect(),
        group: None,
        by: Some("pod default/high".to_owned()),
        message: "muster: preempting to accommodate a higher priority pod".to_owned(),
        now: jiff::Timestamp::UNIX_EPOCH,
    }
}

impl World {
    /// Two pods on nodes, so that they go with grace.
    async fn bound_pair(&self) -> [PodName; 2] {
        let pair = [self.named("a").await, self.named("b").await];
        for pod in &pair {
            assert_eq!(self.reach.bind(pod, "n1").await, BindOutcome::Bound);
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let status = json!({"status": {"phase": "Running", "conditions": ready}});
            let patch = kube::api::Patch::Strategic(&status);
            self.pods().patch_status(&pod.name, &kube::api::PatchParams::default(), &patch).await.unwrap();
        }
        pair
    }

    /// Whether a pod shows that it is evicted, and whether it goes.
    async fn marked_and_going(&self, name: &str) -> (bool, bool) {
        let Some(pod) = self.pods().get_opt(name).await.unwrap() else { return (true, true) };
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let marked = conditions.iter().any(|one| one.type_ == "DisruptionTarget" && one.status == "True");
        (marked, pod.metadata.deletion_timestamp.is_some())
    }

    /// A budget over all pods that lets so many go.
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

fn is_transient(outcomes: &Outcomes) -> bool {
    outcomes.iter().all(|(_, outcome)| matches!(outcome, TakeBackOutcome::Transient { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_unit_is_marked_and_then_goes() {
    for eviction in [Eviction::Delete, Eviction::EvictionApi] {
        let world = World::new().await;
        let reach = Reach { eviction, ..world.reach.clone() };
        let pair = world.bound_pair().await;
        let outcomes = reach.evict(&unit(&[&pair[0], &pair[1]])).await;
        assert!(outcomes.iter().all(|(_, outcome)| *outcome == TakeBackOutcome::Deleted), "{outcomes:?}");
        for name in ["a", "b"] {
            assert_eq!(world.marked_and_going(name).await, (true, true), "{eviction:?}");
        }
        // What is gone is gone: a second time does no harm, not even to another pod of the name.
        world.pods().delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
        world.named("a").await;
        let again = reach.evict(&unit(&[&pair[0]])).await;
        assert_eq!(again[0].1, TakeBackOutcome::Deleted);
        assert_eq!(world.marked_and_going("a").await, (false, false), "{eviction:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn as_long_as_one_cannot_be_marked_nobody_goes() {
    let world = World::new().await;
    let pair = world.bound_pair().await;
    world.faults.order(Method::PATCH, "/b/status", Fault::Failed(ServerError::Unavailable));
    assert!(is_transient(&world.reach.evict(&unit(&[&pair[0], &pair[1]])).await));
    assert_eq!(world.faults.unmet(), 0);
    for name in ["a", "b"] {
        assert!(!world.marked_and_going(name).await.1);
    }
    assert!(world.marked_and_going("a").await.0);
    world.reach.spare(&pair[0], jiff::Timestamp::UNIX_EPOCH).await;
    assert!(!world.marked_and_going("a").await.0, "the mark can be taken off");
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_failed_is_told_for_that_pod_alone() {
    let world = World::new().await;
    let pair = world.bound_pair().await;
    world.faults.order(Method::DELETE, "/pods/b", Fault::Throttled { retry_after_seconds: 1 });
    let outcomes = world.reach.evict(&unit(&[&pair[0], &pair[1]])).await;
    assert_eq!(outcomes[0].1, TakeBackOutcome::Deleted);
    assert!(matches!(outcomes[1].1, TakeBackOutcome::Transient { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_allows_nothing_leaves_the_whole_unit_alone() {
    let world = World::new().await;
    let reach = Reach { eviction: Eviction::EvictionApi, ..world.reach.clone() };
    let pair = world.bound_pair().await;
    world.budget(0).await;
    let outcomes = reach.evict(&unit(&[&pair[0], &pair[1]])).await;
    let refused = |outcome: &TakeBackOutcome| matches!(outcome, TakeBackOutcome::Refused { message } if message.contains("disruption budget"));
    assert!(outcomes.iter().all(|(_, outcome)| refused(outcome)), "{outcomes:?}");
    for name in ["a", "b"] {
        assert_eq!(world.marked_and_going(name).await, (false, false));
    }
}

#[tokio::test(start_paused = true)]
async fn behind_a_closed_fence_nothing_is_sent() {
    let world = World::new().await;
    let pod = world.pod().await;
    let (keeper, fence) = Fence::kept();
    let reach = Reach { fence, ..world.reach.clone() };
    assert!(matches!(reach.bind(&pod, "n1").await, BindOutcome::Transient { .. }));
    assert!(matches!(reach.take_back(&pod).await, TakeBackOutcome::Transient { .. }));
    assert!(is_transient(&reach.evict(&unit(&[&pod])).await));
    let patch = json!({"status": {"nominatedNodeName": "n1"}});
    assert!(matches!(reach.pod_status(&pod, &patch).await, WriteOutcome::Later { .. }));
    assert_eq!(world.node_of_pod().await, None);
    // A request that is on its way is given up when the fence closes.
    keeper.open_until(Instant::now() + Duration::from_secs(1));
    world.faults.order(Method::POST, "/binding", Fault::Delay(Duration::from_secs(3)));
    let began = Instant::now();
    assert!(matches!(reach.bind(&pod, "n1").await, BindOutcome::Transient { .. }));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    keeper.open_until(Instant::now() + Duration::from_secs(9));
    assert_eq!(reach.bind(&pod, "n1").await, BindOutcome::Bound);
}
