//! Which version of Kubernetes' own PodGroups the cluster serves, found out once, at the start.
//!
//! Versions of 1.37 show the same objects, so only one may be read: the best that is served. Where none is, v1beta1 is
//! watched all the same, as an empty list. It must not know what the versions mean.

use std::time::Duration;

use kube::Client;
use muster_api::native::{GROUP, V1ALPHA3, VERSION, v1alpha2};
use tokio::time::{sleep, timeout};

use crate::dialect::{Dialect, NativePodGroup, NativePodGroupV1alpha2};
use crate::instruments::Instruments;

const PLURAL: &str = "podgroups";
/// Best first.
const VERSIONS: [&str; 3] = [VERSION, V1ALPHA3, v1alpha2::VERSION];
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Short enough for signs of life in between.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The dialect of native PodGroups that this cluster speaks. Asks until the cluster answers.
pub(crate) async fn native_pod_groups(
    client: &Client,
    request_timeout: Duration,
    instruments: &Instruments,
) -> Box<dyn Dialect> {
    let mut pause = PAUSE_MIN;
    loop {
        instruments.health.beat();
        match timeout(request_timeout, best_served(client)).await {
            Ok(Ok(version)) => {
                tracing::info!(version, "native PodGroups");
                return dialect(version);
            }
            Ok(Err(error)) => tracing::warn!(%error, "what the cluster serves cannot be found out; asking again"),
            Err(_) => tracing::warn!("what the cluster serves cannot be found out: no answer in time; asking again"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The best version that is served, if one is.
async fn best_served(client: &Client) -> kube::Result<Option<&'static str>> {
    for version in VERSIONS {
        match client.list_api_group_resources(&format!("{GROUP}/{version}")).await {
            // A version can be served for other kinds.
            Ok(list) if list.resources.iter().any(|resource| resource.name == PLURAL) => return Ok(Some(version)),
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn dialect(version: Option<&str>) -> Box<dyn Dialect> {
    match version {
        Some(V1ALPHA3) => Box::new(NativePodGroup::V1ALPHA3),
        Some(v1alpha2::VERSION) => Box::new(NativePodGroupV1alpha2),
        _ => Box::new(NativePodGroup::V1BETA1),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use muster_playground::faults::{Fault, Faults, ServerError};
    use muster_playground::{NativeGroups, Server};
    use tokio::time::Instant;

    use super::*;
    use crate::{Clock, Fence, Scheduler, Settings};

    const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

    fn server(native_groups: NativeGroups) -> Server {
        Server::start(muster_playground::Settings { native_groups, ..muster_playground::Settings::default() })
    }

    async fn found(client: &Client) -> String {
        native_pod_groups(client, REQUEST_TIMEOUT, &Instruments::default()).await.resource().version
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_that_is_served_is_read() {
        for (served, expected) in [
            (NativeGroups::V1beta1, "v1beta1"),
            (NativeGroups::V1alpha3, "v1alpha3"),
            (NativeGroups::V1alpha2, "v1alpha2"),
            (NativeGroups::V1alpha1, "v1beta1"),
            (NativeGroups::Stock, "v1beta1"),
        ] {
            assert_eq!(found(&server(served).client()).await, expected, "{served:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_does_not_answer_is_asked_again() {
        let server = server(NativeGroups::V1alpha2);
        let faults = Faults::none();
        for fault in [Fault::Failed(ServerError::Unavailable), Fault::Lost, Fault::Delay(REQUEST_TIMEOUT * 10)] {
            faults.order(Method::GET, "/apis/scheduling.k8s.io/v1beta1", fault);
        }
        assert_eq!(found(&server.client_with(&faults)).await, "v1alpha2");
        assert_eq!(faults.unmet(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_scheduler_that_still_asks_stops_at_once() {
        let server = server(NativeGroups::V1beta1);
        let faults = Faults::none();
        for _ in 0..100 {
            faults.order(Method::GET, "/apis/scheduling.k8s.io", Fault::Failed(ServerError::Unavailable));
        }
        let settings = Settings::default();
        let clock = Clock::starting_at(server.now());
        let scheduler = Scheduler::start(&server.client_with(&faults), &settings, clock, Fence::open()).unwrap();
        sleep(Duration::from_secs(20)).await;
        let asked = Instant::now();
        scheduler.stop().await;
        assert!(asked.elapsed() < settings.stop_timeout && faults.unmet() > 0);
    }
}
