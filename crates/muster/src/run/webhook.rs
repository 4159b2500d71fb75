//! The admission webhook of a process.
//!
//! It decides from the request and the PriorityClasses, which it watches itself, so every replica can serve it. If it is
//! unavailable, the API server ignores it; the controllers set the references of pods, and the scheduler resolves the
//! priorities of groups.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use muster_controllers::admission::Admission;
use muster_controllers::webhook::{
    CertificateSource, ConfigurationKind, DEFAULT_RESYNC_PERIOD, Routes, SelfSigned, Webhook, WebhookError,
    WebhookSettings,
};
use muster_controllers::{PriorityClasses, WatchAges};
use muster_runtime::config::Certificates;
use muster_runtime::{Clock, Settings};

use crate::scheduler_thread::controllers_settings;

/// The path of admission reviews.
pub(crate) const PATH: &str = "/mutate";

const RECHECK_EVERY_IF_REQUIRED: Duration = Duration::from_secs(30);

/// Waits until the webhook ends by itself, which it should not; forever if there is none.
pub(super) async fn ended(webhook: Option<&mut Webhook>) -> WebhookError {
    match webhook {
        Some(webhook) => webhook.ended().await,
        None => std::future::pending().await,
    }
}

/// Stops the webhook after the reviews in progress.
pub(super) async fn stop(webhook: Option<Webhook>) {
    if let Some(webhook) = webhook {
        webhook.stop().await;
    }
}

/// Starts serving.
pub(super) async fn start(
    client: kube::Client,
    (listen, certificates): &(SocketAddr, Certificates),
    settings: &Settings,
    ages: &WatchAges,
    clock: Clock,
) -> anyhow::Result<Webhook> {
    let classes = PriorityClasses::watch(&client, ages);
    let admission = Admission::new(controllers_settings(&client, settings).await?, classes);
    let routes = Routes::default().with(PATH, move |review| admission.review(&review));
    let source = match &certificates.folder {
        Some(folder) => CertificateSource::Files(folder.into()),
        None => CertificateSource::SelfSigned(SelfSigned {
            namespace: certificates.namespace.clone(),
            secret: certificates.secret.clone(),
            service: certificates.service.clone(),
            extra_names: certificates.extra_names.clone(),
            configurations: vec![(ConfigurationKind::Mutating, certificates.configuration.clone())],
            // With `failurePolicy: Fail`, a recreated configuration must get its CA bundle again soon.
            resync_period: if settings.ganged.are_native() { RECHECK_EVERY_IF_REQUIRED } else { DEFAULT_RESYNC_PERIOD },
        }),
    };
    let settings = WebhookSettings { listen: *listen, certificates: source };
    let webhook = Webhook::start(client, settings, &routes, Arc::new(move || clock.now())).await.context("webhook")?;
    tracing::info!(address = %webhook.address(), "serves the admission webhook");
    Ok(webhook)
}
