//! Another scheduler that fills the same nodes: it binds its own pods wherever there is room, and knows no groups.

use std::time::Duration;

use http::Method;
use muster_playground::random::Random;
use serde_json::json;

use super::room::Room;
use super::tap::Tap;

/// The `schedulerName` of its pods.
pub(super) const NAME: &str = "rival";

/// Binds one pod after another, at odd moments.
pub(super) async fn compete(tap: Tap, mut random: Random) {
    loop {
        tokio::time::sleep(Duration::from_millis(50 + random.below(2_000))).await;
        let found = {
            let mut book = tap.book.borrow();
            book.catch_up();
            let room = Room::of(&book.truth, |_| true);
            let waiting = book
                .truth
                .pods
                .values()
                .filter(|pod| pod.scheduler == NAME && pod.node.is_empty() && !pod.terminating && !pod.finished());
            let mut places = waiting.filter_map(|pod| Some((pod.name.clone(), room.place_for(pod)?.to_owned())));
            places.next()
        };
        if let Some((pod, node)) = found {
            let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            tap.ask(Method::POST, &path, Some(&binding)).await.ok();
        }
    }
}
