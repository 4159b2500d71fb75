//! Tests of the certificate rotation on an API server, with paused time.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::rotation::CertificateRotator;
use super::super::stored_certificate::RENEW_AFTER;
use super::super::{ConfigurationKind, SelfSigned};
use super::test_cluster::{TestCluster, served, settings};
use muster_listener::tls::resolver::CertificateResolver;

const GROUP: &str = "admissionregistration.k8s.io";

/// The server does not have these kinds built in.
async fn serve_configurations(cluster: &TestCluster) {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.server.client());
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "metadata": {
                "name": format!("{plural}.{GROUP}"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
            },
            "spec": {
                "group": GROUP,
                "names": {"kind": kind, "plural": plural, "singular": singular},
                "scope": "Cluster",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        api.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }
    sleep(Duration::from_secs(5)).await;
}

fn configurations(cluster: &TestCluster, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{GROUP}/v1"),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    Api::all_with(cluster.server.client(), &resource)
}

async fn create_configuration(cluster: &TestCluster, kind: &str) {
    let call = json!({"service": {"name": "hook", "namespace": "default"}});
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": "muster"},
        "webhooks": [{"name": "a.muster.dev", "clientConfig": call}, {"name": "b.muster.dev", "clientConfig": call}],
    });
    let object = serde_json::from_value(object).unwrap();
    configurations(cluster, kind).create(&PostParams::default(), &object).await.unwrap();
}

/// The CA bundles of a configuration's webhooks, and its resource version.
async fn injected(cluster: &TestCluster, kind: &str) -> (Vec<Value>, String) {
    let object = configurations(cluster, kind).get("muster").await.unwrap();
    let webhooks = object.data["webhooks"].as_array().unwrap();
    let bundles = webhooks.iter().map(|one| one["clientConfig"]["caBundle"].clone()).collect();
    (bundles, object.metadata.resource_version.unwrap())
}

async fn bundle_in_secret(cluster: &TestCluster) -> Value {
    let secret = cluster.secrets().get("certs").await.unwrap();
    serde_json::to_value(&secret.data.unwrap()["ca.crt"]).unwrap()
}

fn configured() -> SelfSigned {
    let both = [ConfigurationKind::Mutating, ConfigurationKind::Validating];
    SelfSigned { configurations: both.map(|kind| (kind, "muster".to_owned())).to_vec(), ..settings() }
}

#[tokio::test(start_paused = true)]
async fn racing_replicas_agree_on_one_secret() {
    let cluster = TestCluster::start();
    let replicas: Vec<(CertificateRotator, CertificateResolver)> =
        (0..4).map(|_| cluster.rotator(settings())).collect();
    let sync_all = async || {
        for synced in join_all(replicas.iter().map(|(rotator, _)| rotator.sync())).await {
            synced.unwrap();
        }
        let first = served(&replicas[0].1);
        assert!(replicas.iter().all(|(_, resolver)| served(resolver) == first));
        first
    };
    let first = sync_all().await;
    assert_eq!(cluster.bundle().await.len(), 1);
    cluster.clock.pass_days(242);
    assert_eq!(sync_all().await, first, "not due yet");
    cluster.clock.pass_days(2);
    let second = sync_all().await;
    assert_ne!(second, first);
    assert_eq!(cluster.bundle().await.len(), 2, "only one replica has replaced it");
    cluster.clock.pass_days(1000);
    assert_ne!(sync_all().await, second, "it had expired long ago");
}

#[tokio::test(start_paused = true)]
async fn unusable_secret_is_replaced() {
    let cluster = TestCluster::start();
    let empty = json!({"metadata": {"name": "certs", "labels": {"app": "muster"}}});
    cluster.secrets().create(&PostParams::default(), &serde_json::from_value(empty).unwrap()).await.unwrap();
    let (rotator, resolver) = cluster.rotator(settings());
    rotator.sync().await.unwrap();
    let secret = cluster.secrets().get("certs").await.unwrap();
    assert_eq!(secret.metadata.labels.as_ref().unwrap()["app"], "muster");
    let first = served(&resolver);
    let (rotator, resolver) =
        cluster.rotator(SelfSigned { extra_names: vec!["other.example.org".to_owned()], ..settings() });
    rotator.sync().await.unwrap();
    assert_ne!(served(&resolver), first, "a name was missing");
    let mut broken = cluster.secrets().get("certs").await.unwrap();
    broken.data.as_mut().unwrap().insert("tls.key".to_owned(), ByteString(b"?".to_vec()));
    cluster.secrets().replace("certs", &PostParams::default(), &broken).await.unwrap();
    let before = served(&resolver);
    rotator.sync().await.unwrap();
    assert_ne!(served(&resolver), before);
    let before = served(&resolver);
    cluster.secrets().delete("certs", &DeleteParams::default()).await.unwrap();
    rotator.sync().await.unwrap();
    assert_ne!(served(&resolver), before);
}

#[tokio::test(start_paused = true)]
async fn certificate_never_expires_over_years() {
    let cluster = TestCluster::start();
    let (start, began) = (cluster.clock.read(), Instant::now());
    let now: super::super::Now = Arc::new(move || start + began.elapsed());
    let resolver = CertificateResolver::default();
    let day = Duration::from_secs(24 * 3600);
    let settings = SelfSigned { resync_period: day, ..settings() };
    let rotator = CertificateRotator::new(cluster.server.client(), settings, resolver.clone(), Arc::clone(&now));
    let running = tokio::spawn(rotator.run());
    let mut seen = Vec::new();
    for _ in 0..120 {
        sleep(day * 10).await;
        let left = resolver.current().unwrap().validity().until.duration_since(now());
        assert!(left.as_hours() > 24 * 119, "{left:?}");
        seen.push(served(&resolver));
    }
    seen.dedup();
    assert_eq!(seen.len(), 5, "1200 days, renewed about every 243");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn configurations_get_bundle_when_they_appear_and_are_written_once() {
    let cluster = TestCluster::start();
    serve_configurations(&cluster).await;
    create_configuration(&cluster, "MutatingWebhookConfiguration").await;
    let (rotator, resolver) = cluster.rotator(configured());
    let running = tokio::spawn(rotator.run());
    sleep(Duration::from_secs(20)).await;
    assert!(resolver.current().is_some(), "a missing configuration does not prevent serving");
    let bundle = bundle_in_secret(&cluster).await;
    assert_eq!(injected(&cluster, "MutatingWebhookConfiguration").await.0, [bundle.clone(), bundle.clone()]);
    create_configuration(&cluster, "ValidatingWebhookConfiguration").await;
    sleep(Duration::from_secs(120)).await;
    let (bundles, version) = injected(&cluster, "ValidatingWebhookConfiguration").await;
    assert_eq!(bundles, [bundle.clone(), bundle]);
    sleep(Duration::from_secs(10 * 3600)).await;
    assert_eq!(
        injected(&cluster, "ValidatingWebhookConfiguration").await.1,
        version,
        "a current bundle is not written again"
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn bundle_is_published_before_new_certificate_is_served() {
    let cluster = TestCluster::start();
    serve_configurations(&cluster).await;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        create_configuration(&cluster, kind).await;
    }
    let (rotator, resolver) = cluster.rotator(configured());
    assert_eq!(rotator.sync().await.unwrap(), Duration::ZERO, "it wrote, so it checks again");
    assert_eq!(rotator.sync().await.unwrap(), configured().resync_period);
    let (first, old_bundle) = (served(&resolver), bundle_in_secret(&cluster).await);
    let mut secret = cluster.secrets().get("certs").await.unwrap();
    let renew_now = cluster.clock.read().to_string();
    secret.metadata.annotations.as_mut().unwrap().insert(RENEW_AFTER.to_owned(), renew_now);
    cluster.secrets().replace("certs", &PostParams::default(), &secret).await.unwrap();
    let syncing = tokio::spawn(async move { rotator.sync().await.unwrap() });
    sleep(Duration::from_secs(5)).await;
    let bundle = bundle_in_secret(&cluster).await;
    assert_ne!(bundle, old_bundle);
    assert_eq!(injected(&cluster, "ValidatingWebhookConfiguration").await.0, [bundle.clone(), bundle]);
    assert_eq!(served(&resolver), first, "API servers may not have observed the bundle yet");
    syncing.await.unwrap();
    assert_ne!(served(&resolver), first);
}
