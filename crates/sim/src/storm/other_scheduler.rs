//! Another scheduler on the same nodes: it binds its own pods wherever they fit and ignores groups.

use std::time::Duration;

use http::Method;
use muster_playground::random::Random;
use serde_json::json;

use super::capacity::FreeCapacity;
use super::recorder::Recorder;

/// The `schedulerName` of its pods.
pub(super) const NAME: &str = "other-scheduler";

/// Binds one pod after another, at random intervals.
pub(super) async fn compete(recorder: Recorder, mut random: Random) {
    loop {
        tokio::time::sleep(Duration::from_millis(50 + random.below(2_000))).await;
        let found = {
            let mut ledger = recorder.ledger.borrow();
            ledger.catch_up();
            let capacity = FreeCapacity::of(&ledger.state, |_| true);
            let waiting = ledger
                .state
                .pods
                .values()
                .filter(|pod| pod.scheduler == NAME && pod.node.is_empty() && !pod.terminating && !pod.finished());
            let mut places = waiting.filter_map(|pod| Some((pod.name.clone(), capacity.node_for(pod)?.to_owned())));
            places.next()
        };
        if let Some((pod, node)) = found {
            let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            recorder.send(Method::POST, &path, Some(&binding)).await.ok();
        }
    }
}
