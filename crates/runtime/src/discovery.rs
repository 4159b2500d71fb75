//! Discovers, once at the start, which native group APIs the cluster serves.
//!
//! The versions of 1.37 show the same PodGroups, so only the best one that is served is read. If none is served,
//! v1beta1 is watched nevertheless, as an empty list. Workloads with inline groups are read where they are served,
//! which is in 1.35 only.
//! Must not depend on what the versions mean.

use std::time::Duration;

use kube::Client;
use muster_api::native::{GROUP, NativeVersion};
use tokio::time::{sleep, timeout};

use crate::dialect::{Dialect, NativeCompositePodGroup, NativePodGroup, NativeWorkload};
use crate::instruments::Instruments;

/// Best first.
const VERSIONS: [NativeVersion; 4] =
    [NativeVersion::V1beta1, NativeVersion::V1alpha3, NativeVersion::V1alpha2, NativeVersion::V1alpha1];
const RETRY_MIN: Duration = Duration::from_millis(500);
/// Short enough to report health in between.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The dialects of the native groups that the cluster serves. Retries until the cluster responds.
pub(crate) async fn native_dialects(
    client: &Client,
    request_timeout: Duration,
    instruments: &Instruments,
) -> Vec<Box<dyn Dialect>> {
    let (served, composite) = discover(client, request_timeout, instruments).await;
    let of_pod_groups = served.iter().copied().find(|version| version.pod_groups().is_some());
    let of_pod_groups = NativePodGroup(of_pod_groups.unwrap_or(NativeVersion::V1beta1));
    let mut dialects: Vec<Box<dyn Dialect>> = vec![Box::new(of_pod_groups)];
    if served.contains(&NativeVersion::V1alpha1) {
        dialects.push(Box::new(NativeWorkload));
    }
    if composite {
        dialects.push(Box::new(NativeCompositePodGroup));
    }
    dialects
}

/// The best version of native groups that a cluster serves. Retries until the cluster responds.
pub async fn native_version(
    client: &Client,
    request_timeout: Duration,
    instruments: &Instruments,
) -> Option<NativeVersion> {
    discover(client, request_timeout, instruments).await.0.first().copied()
}

/// The served versions, best first, and whether groups of groups are served. Retries until the cluster responds.
async fn discover(client: &Client, request_timeout: Duration, instruments: &Instruments) -> (Vec<NativeVersion>, bool) {
    let mut pause = RETRY_MIN;
    loop {
        instruments.health.heartbeat();
        match timeout(request_timeout, discover_once(client)).await {
            Ok(Ok(served)) => return served,
            Ok(Err(error)) => tracing::warn!(%error, "API discovery failed and will be retried"),
            Err(_) => tracing::warn!("API discovery timed out and will be retried"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

async fn discover_once(client: &Client) -> kube::Result<(Vec<NativeVersion>, bool)> {
    let mut served = Vec::new();
    for version in VERSIONS {
        if is_served(client, version, &version.group_objects().plural).await? {
            served.push(version);
        }
    }
    let composite = NativeVersion::composite_pod_groups();
    let composite = is_served(client, NativeVersion::V1alpha3, &composite.plural).await?;
    tracing::info!(?served, composite, "native groups");
    Ok((served, composite))
}

/// Whether a kind is served in a version; the version may be served for other kinds only.
async fn is_served(client: &Client, version: NativeVersion, plural: &str) -> kube::Result<bool> {
    match client.list_api_group_resources(&format!("{GROUP}/{}", version.name())).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == plural)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}
