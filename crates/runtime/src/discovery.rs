//! Which of Kubernetes' own groups the cluster serves, found out once, at the start.
//!
//! Versions of 1.37 show the same PodGroups, so only one may be read: the best that is served. Where none is, v1beta1 is
//! watched all the same, as an empty list. Workloads with groups of their own are read where they are served, which is
//! in 1.35 only. It must not know what the versions mean.

use std::time::Duration;

use kube::Client;
use muster_api::native::{GROUP, V1ALPHA3, VERSION, v1alpha1, v1alpha2};
use tokio::time::{sleep, timeout};

use crate::dialect::{Dialect, NativePodGroup, NativePodGroupV1alpha2, NativeWorkload};
use crate::instruments::Instruments;

const POD_GROUPS: &str = "podgroups";
const WORKLOADS: &str = "workloads";
/// Best first.
const VERSIONS: [&str; 3] = [VERSION, V1ALPHA3, v1alpha2::VERSION];
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Short enough for signs of life in between.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The dialects of native groups that this cluster speaks. Asks until the cluster answers.
pub(crate) async fn native_dialects(
    client: &Client,
    request_timeout: Duration,
    instruments: &Instruments,
) -> Vec<Box<dyn Dialect>> {
    let mut pause = PAUSE_MIN;
    loop {
        instruments.health.beat();
        match timeout(request_timeout, ask(client)).await {
            Ok(Ok(dialects)) => return dialects,
            Ok(Err(error)) => tracing::warn!(%error, "what the cluster serves cannot be found out; asking again"),
            Err(_) => tracing::warn!("what the cluster serves cannot be found out: no answer in time; asking again"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn ask(client: &Client) -> kube::Result<Vec<Box<dyn Dialect>>> {
    let mut pod_groups = None;
    for version in VERSIONS {
        if pod_groups.is_none() && is_served(client, version, POD_GROUPS).await? {
            pod_groups = Some(version);
        }
    }
    let workloads = is_served(client, v1alpha1::VERSION, WORKLOADS).await?;
    tracing::info!(pod_groups, workloads, "native groups");
    let mut dialects = vec![pod_group_dialect(pod_groups)];
    if workloads {
        dialects.push(Box::new(NativeWorkload));
    }
    Ok(dialects)
}

/// Whether a kind is served in a version, which can be served for other kinds alone.
async fn is_served(client: &Client, version: &str, plural: &str) -> kube::Result<bool> {
    match client.list_api_group_resources(&format!("{GROUP}/{version}")).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == plural)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

fn pod_group_dialect(version: Option<&str>) -> Box<dyn Dialect> {
    match version {
        Some(V1ALPHA3) => Box::new(NativePodGroup::V1ALPHA3),
        Some(v1alpha2::VERSION) => Box::new(NativePodGroupV1alpha2),
        _ => Box::new(NativePodGroup::V1BETA1),
    }
}
