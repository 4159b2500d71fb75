//! The admission webhook of a process.
//!
//! It answers from the request alone, so every replica can. If it is away, nothing is lost: the controllers give pods
//! their references, and the API server goes on without us.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use muster_controllers::admission::Admission;
use muster_controllers::webhook::{
    CertificateSource, ConfigurationKind, LOOK_AGAIN, Routes, SelfMade, Webhook, WebhookSettings,
};
use muster_runtime::config::Certificates;
use muster_runtime::{Clock, Settings};

use crate::scheduler_thread::controllers_settings;

/// Where reviews are asked for.
pub(crate) const PATH: &str = "/mutate";

/// Starts to serve.
pub(super) async fn start(
    client: kube::Client,
    (listen, certificates): &(SocketAddr, Certificates),
    settings: &Settings,
    clock: Clock,
) -> anyhow::Result<Webhook> {
    let admission = Admission::new(controllers_settings(settings));
    let routes = Routes::default().with(PATH, move |review| admission.review(&review));
    let source = match &certificates.folder {
        Some(folder) => CertificateSource::Files(folder.into()),
        None => CertificateSource::SelfMade(SelfMade {
            namespace: certificates.namespace.clone(),
            secret: certificates.secret.clone(),
            service: certificates.service.clone(),
            extra_names: certificates.extra_names.clone(),
            configurations: vec![(ConfigurationKind::Mutating, certificates.configuration.clone())],
            look_again: LOOK_AGAIN,
        }),
    };
    let settings = WebhookSettings { listen: *listen, certificates: source };
    let webhook = Webhook::start(client, settings, &routes, Arc::new(move || clock.now())).await.context("webhook")?;
    tracing::info!(address = %webhook.address(), "serves the admission webhook");
    Ok(webhook)
}
