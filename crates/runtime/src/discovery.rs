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
