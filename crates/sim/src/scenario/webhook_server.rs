//! Muster's webhook for a cluster on this machine: served here and called by URL.
//!
//! Invariant: it is called for one namespace only, and its configuration is deleted with it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, ResourceExt};
use muster_controllers::admission::{Admission, WEBHOOK_RULES};
use muster_controllers::webhook::{CertificateSource, ConfigurationKind, Routes, SelfSigned, Webhook, WebhookSettings};
use muster_controllers::{PriorityClasses, Settings, WatchAges};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::step_error::StepError;

const PATH: &str = "/mutate";
const HOST: &str = "127.0.0.1";
/// How long the API server may take to trust its CA.
const TRUSTED_WITHIN: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(200);

/// A running webhook server.
pub(super) struct WebhookServer {
    name: String,
    configurations: Api<DynamicObject>,
    _webhook: Webhook,
}

impl WebhookServer {
    /// Serves the webhook for one namespace and waits until the API server can call it.
    pub(super) async fn start(client: &Client, settings: Settings, namespace: &str) -> Result<Self, StepError> {
        let name = format!("muster-{namespace}");
        let classes = PriorityClasses::watch(client, &WatchAges::default());
        classes.synced().await;
        let admission = Admission::new(settings, classes);
        let routes = Routes::default().with(PATH, move |review| admission.review(&review));
        let certificates = CertificateSource::SelfSigned(SelfSigned {
            namespace: namespace.to_owned(),
            secret: "muster-webhook".to_owned(),
            service: "muster-webhook".to_owned(),
            extra_names: vec![HOST.to_owned()],
            configurations: vec![(ConfigurationKind::Mutating, name.clone())],
            resync_period: POLL_EVERY,
        });
        let settings = WebhookSettings { listen: ([127, 0, 0, 1], 0).into(), certificates };
        let webhook = Webhook::start(client.clone(), settings, &routes, Arc::new(Timestamp::now)).await?;
        let configurations = Api::all_with(client.clone(), &resource());
        let written = configuration(&name, namespace, webhook.address().port());
        let written: DynamicObject = serde_json::from_value(written).expect("an object");
        let created = configurations.create(&PostParams::default(), &written).await;
        created.map_err(|error| StepError::request("create the webhook's configuration", error))?;
        let webhook_server = Self { name, configurations, _webhook: webhook };
        match webhook_server.await_trust().await {
            Ok(()) => Ok(webhook_server),
            Err(why) => {
                webhook_server.end().await?;
                Err(why)
            }
        }
    }

    /// Waits until its CA bundle is in the configuration and the API server has had time to read it.
    async fn await_trust(&self) -> Result<(), StepError> {
        let until = Instant::now() + TRUSTED_WITHIN;
        loop {
            let now = self.configurations.get(&self.name).await?;
            let hooks = now.data["webhooks"].as_array().cloned().unwrap_or_default();
            if hooks.iter().all(|webhook_server| webhook_server["clientConfig"]["caBundle"].is_string()) {
                tokio::time::sleep(2 * POLL_EVERY).await;
                return Ok(());
            }
            if Instant::now() >= until {
                let why = format!("the webhook's configuration {} got no CA bundle", now.name_any());
                return Err(StepError::TimedOut(why));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Deletes the configuration, so that the webhook is no longer called.
    pub(super) async fn end(&self) -> Result<(), StepError> {
        let gone = self.configurations.delete(&self.name, &DeleteParams::default()).await;
        gone.map(drop).map_err(|error| StepError::request("delete the webhook's configuration", error))
    }
}

fn resource() -> ApiResource {
    ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: "MutatingWebhookConfiguration".to_owned(),
        plural: "mutatingwebhookconfigurations".to_owned(),
    }
}

fn configuration(name: &str, namespace: &str, port: u16) -> Value {
    let hooks = WEBHOOK_RULES.iter().map(|([group, version, plural], operations)| {
        json!({
            "name": format!("{plural}.muster.dev"),
            "clientConfig": {"url": format!("https://{HOST}:{port}{PATH}")},
            "rules": [{"apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": operations}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 10, "reinvocationPolicy": "IfNeeded",
        })
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": hooks.collect::<Vec<_>>(),
    })
}
