//! Which of Kubernetes' own groups the cluster serves, found out once, at the start.
//!
//! Versions of 1.37 show the same PodGroups, so only one may be read: the best that is served. Where none is, v1beta1 is
//! watched all the same, as an empty list. Workloads with groups of their own are read where they are served, which is
//! in 1.35 only. It must not know what the versions mean.

use std::time::Duration;

use kube::Client;
use muster_api::native::{GROUP, NativeVersion};
use tokio::time::{sleep, timeout};

use crate::dialect::{Dialect, NativePodGroup, NativePodGroupV1alpha2, NativeWorkload};
use crate::instruments::Instruments;

/// Best first.
const VERSIONS: [NativeVersion; 4] =
    [NativeVersion::V1beta1, NativeVersion::V1alpha3, NativeVersion::V1alpha2, NativeVersion::V1alpha1];
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Short enough for signs of life in between.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The dialects of native groups that this cluster speaks. Asks until the cluster answers.
pub(crate) async fn native_dialects(
    client: &Client,
    request_timeout: Duration,
    instruments: &Instruments,
) -> Vec<Box<dyn Dialect>> {
    let served = asked(client, request_timeout, instruments).await;
    let of_pod_groups = served.iter().find(|version| version.pod_groups().is_some());
    let mut dialects: Vec<Box<dyn Dialect>> = vec![match of_pod_groups {
        Some(NativeVersion::V1alpha3) => Box::new(NativePodGroup::V1ALPHA3),
        Some(NativeVersion::V1alpha2) => Box::new(NativePodGroupV1alpha2),
        _ => Box::new(NativePodGroup::V1BETA1),
    }];
    if served.contains(&NativeVersion::V1alpha1) {
        dialects.push(Box::new(NativeWorkload));
    }
    dialects
}

/// The best version of groups of its own that a cluster serves. Asks until the cluster answers.
pub async fn native_version(
    client: &Client,
    request_timeout: Duration,
    instruments: &Instruments,
) -> Option<NativeVersion> {
    asked(client, request_timeout, instruments).await.first().copied()
}

/// What a cluster serves, best first. Asks until the cluster answers.
async fn asked(client: &Client, request_timeout: Duration, instruments: &Instruments) -> Vec<NativeVersion> {
    let mut pause = PAUSE_MIN;
    loop {
        instruments.health.beat();
        match timeout(request_timeout, ask(client)).await {
            Ok(Ok(served)) => return served,
            Ok(Err(error)) => tracing::warn!(%error, "what the cluster serves cannot be found out; asking again"),
            Err(_) => tracing::warn!("what the cluster serves cannot be found out: no answer in time; asking again"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn ask(client: &Client) -> kube::Result<Vec<NativeVersion>> {
    let mut served = Vec::new();
    for version in VERSIONS {
        let kind = version.pod_groups().unwrap_or_else(|| version.workloads());
        if is_served(client, version, &kind.plural).await? {
            served.push(version);
        }
    }
    tracing::info!(?served, "native groups");
    Ok(served)
}

/// Whether a kind is served in a version, which can be served for other kinds alone.
async fn is_served(client: &Client, version: NativeVersion, plural: &str) -> kube::Result<bool> {
    match client.list_api_group_resources(&format!("{GROUP}/{}", version.name())).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == plural)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}
