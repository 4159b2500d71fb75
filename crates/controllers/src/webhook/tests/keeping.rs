//! Keepers on an API server, under paused time.

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

use super::super::keeper::Keeper;
use super::super::kept::RENEW_AFTER;
use super::super::shown::Certificates;
use super::super::{ConfigurationKind, SelfMade};
use super::world::{World, settings, shown};

const GROUP: &str = "admissionregistration.k8s.io";

/// The server does not know these kinds by itself.
async fn serve_configurations(world: &World) {
    let api: Api<CustomResourceDefinition> = Api::all(world.server.client());
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

fn configurations(world: &World, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{GROUP}/v1"),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    Api::all_with(world.server.client(), &resource)
}

async fn create_configuration(world: &World, kind: &str) {
    let call = json!({"service": {"name": "hook", "namespace": "default"}});
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": "muster"},
        "webhooks": [{"name": "a.muster.dev", "clientConfig": call}, {"name": "b.muster.dev", "clientConfig": call}],
    });
    let object = serde_json::from_value(object).unwrap();
    configurations(world, kind).create(&PostParams::default(), &object).await.unwrap();
}

/// What the webhooks of a configuration carry, and the version of the object.
async fn carried(world: &World, kind: &str) -> (Vec<Value>, String) {
    let object = configurations(world, kind).get("muster").await.unwrap();
    let webhooks = object.data["webhooks"].as_array().unwrap();
    let bundles = webhooks.iter().map(|one| one["clientConfig"]["caBundle"].clone()).collect();
    (bundles, object.metadata.resource_version.unwrap())
}

async fn bundle_in_secret(world: &World) -> Value {
    let secret = world.secrets().get("certs").await.unwrap();
    serde_json::to_value(&secret.data.unwrap()["ca.crt"]).unwrap()
}

fn configured() -> SelfMade {
    let both = [ConfigurationKind::Mutating, ConfigurationKind::Validating];
    SelfMade { configurations: both.map(|kind| (kind, "muster".to_owned())).to_vec(), ..settings() }
}

#[tokio::test(start_paused = true)]
async fn keepers_that_race_agree_on_one_secret() {
    let world = World::start();
    let replicas: Vec<(Keeper, Certificates)> = (0..4).map(|_| world.keeper(settings())).collect();
    let all_turn = async || {
        for turned in join_all(replicas.iter().map(|(keeper, _)| keeper.turn())).await {
            turned.unwrap();
        }
        let first = shown(&replicas[0].1);
        assert!(replicas.iter().all(|(_, cell)| shown(cell) == first));
        first
    };
    let first = all_turn().await;
    assert_eq!(world.bundle().await.len(), 1);
    world.clock.pass_days(242);
    assert_eq!(all_turn().await, first, "there is no need yet");
    world.clock.pass_days(2);
    let second = all_turn().await;
    assert_ne!(second, first);
    assert_eq!(world.bundle().await.len(), 2, "only one of them has replaced it");
    world.clock.pass_days(1000);
    assert_ne!(all_turn().await, second, "it was over long ago");
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_of_no_use_is_replaced() {
    let world = World::start();
    let empty = json!({"metadata": {"name": "certs", "labels": {"app": "muster"}}});
    world.secrets().create(&PostParams::default(), &serde_json::from_value(empty).unwrap()).await.unwrap();
    let (keeper, cell) = world.keeper(settings());
    keeper.turn().await.unwrap();
    let secret = world.secrets().get("certs").await.unwrap();
    assert_eq!(secret.metadata.labels.as_ref().unwrap()["app"], "muster");
    let first = shown(&cell);
    let (keeper, cell) = world.keeper(SelfMade { extra_names: vec!["other.example.org".to_owned()], ..settings() });
    keeper.turn().await.unwrap();
    assert_ne!(shown(&cell), first, "a name was missing");
    let mut broken = world.secrets().get("certs").await.unwrap();
    broken.data.as_mut().unwrap().insert("tls.key".to_owned(), ByteString(b"?".to_vec()));
    world.secrets().replace("certs", &PostParams::default(), &broken).await.unwrap();
    let before = shown(&cell);
    keeper.turn().await.unwrap();
    assert_ne!(shown(&cell), before);
    let before = shown(&cell);
    world.secrets().delete("certs", &DeleteParams::default()).await.unwrap();
    keeper.turn().await.unwrap();
    assert_ne!(shown(&cell), before);
}

#[tokio::test(start_paused = true)]
async fn years_pass_and_it_is_never_over() {
    let world = World::start();
    let (start, began) = (world.clock.read(), Instant::now());
    let now: super::super::Now = Arc::new(move || start + began.elapsed());
    let cell = Certificates::default();
    let day = Duration::from_secs(24 * 3600);
    let settings = SelfMade { look_again: day, ..settings() };
    let keeper = Keeper::new(world.server.client(), settings, cell.clone(), Arc::clone(&now));
    let running = tokio::spawn(keeper.run());
    let mut seen = Vec::new();
    for _ in 0..120 {
        sleep(day * 10).await;
        let left = cell.current().unwrap().validity().until.duration_since(now());
        assert!(left.as_hours() > 24 * 119, "{left:?}");
        seen.push(shown(&cell));
    }
    seen.dedup();
    assert_eq!(seen.len(), 5, "1200 days, renewed about every 243");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn configurations_trust_us_when_they_appear_and_are_left_alone_when_they_do() {
    let world = World::start();
    serve_configurations(&world).await;
    create_configuration(&world, "MutatingWebhookConfiguration").await;
    let (keeper, cell) = world.keeper(configured());
    let running = tokio::spawn(keeper.run());
    sleep(Duration::from_secs(20)).await;
    assert!(cell.current().is_some(), "a missing configuration keeps nobody from serving");
    let bundle = bundle_in_secret(&world).await;
    assert_eq!(carried(&world, "MutatingWebhookConfiguration").await.0, [bundle.clone(), bundle.clone()]);
    create_configuration(&world, "ValidatingWebhookConfiguration").await;
    sleep(Duration::from_secs(120)).await;
    let (bundles, version) = carried(&world, "ValidatingWebhookConfiguration").await;
    assert_eq!(bundles, [bundle.clone(), bundle]);
    sleep(Duration::from_secs(10 * 3600)).await;
    assert_eq!(carried(&world, "ValidatingWebhookConfiguration").await.1, version, "what is right is not written");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn api_servers_are_told_before_a_new_certificate_is_shown() {
    let world = World::start();
    serve_configurations(&world).await;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        create_configuration(&world, kind).await;
    }
    let (keeper, cell) = world.keeper(configured());
    assert_eq!(keeper.turn().await.unwrap(), Duration::ZERO, "it wrote, so it looks again");
    assert_eq!(keeper.turn().await.unwrap(), configured().look_again);
    let (first, old_bundle) = (shown(&cell), bundle_in_secret(&world).await);
    let mut secret = world.secrets().get("certs").await.unwrap();
    let asked = world.clock.read().to_string();
    secret.metadata.annotations.as_mut().unwrap().insert(RENEW_AFTER.to_owned(), asked);
    world.secrets().replace("certs", &PostParams::default(), &secret).await.unwrap();
    let turning = tokio::spawn(async move { keeper.turn().await.unwrap() });
    sleep(Duration::from_secs(5)).await;
    let bundle = bundle_in_secret(&world).await;
    assert_ne!(bundle, old_bundle);
    assert_eq!(carried(&world, "ValidatingWebhookConfiguration").await.0, [bundle.clone(), bundle]);
    assert_eq!(shown(&cell), first, "API servers may not have heard yet");
    turning.await.unwrap();
    assert_ne!(shown(&cell), first);
}
