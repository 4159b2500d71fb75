//! Binds and deletes over the in-process server, with every answer that leaves it open what happened.

use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use muster_playground::faults::{Fault, Faults, ServerError};
use muster_playground::{Server, Settings};
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
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let made = self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        PodName { namespace: "default".into(), name: "a".into(), uid: made.metadata.uid.unwrap() }
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

#[tokio::test(start_paused = true)]
async fn behind_a_closed_fence_nothing_is_sent() {
    let world = World::new().await;
    let pod = world.pod().await;
    let (keeper, fence) = Fence::kept();
    let reach = Reach { fence, ..world.reach.clone() };
    assert!(matches!(reach.bind(&pod, "n1").await, BindOutcome::Transient { .. }));
    assert!(matches!(reach.take_back(&pod).await, TakeBackOutcome::Transient { .. }));
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
