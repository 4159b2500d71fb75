//! Tests of fault injection: faults have the described effect, depend only on the seed, and keep the server consistent.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use muster_playground::faults::{Fault, Faults, Plan, ServerError, StreamFault};
use muster_playground::{Server, Settings};
use serde_json::json;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).expect("a config map")
}

fn code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_fault_has_its_effect() {
    let server = Server::start(Settings::default());
    let direct: Api<ConfigMap> = Api::default_namespaced(server.client());
    let faults = Faults::none();
    let client: Api<ConfigMap> = Api::default_namespaced(server.client_with(&faults));
    let create = async |name: &str| client.create(&PostParams::default(), &config_map(name)).await;
    let exists = async |name: &str| direct.get_opt(name).await.expect("the server answers").is_some();

    faults.schedule(Method::POST, "configmaps", Fault::Lost);
    assert!(create("lost").await.is_err());
    assert!(!exists("lost").await);
    faults.schedule(Method::POST, "configmaps", Fault::ResponseLost);
    assert!(create("answer-lost").await.is_err());
    assert!(exists("answer-lost").await, "the effect came before the loss");
    faults.schedule(Method::POST, "configmaps", Fault::ResponseTimedOut);
    assert_eq!(code(create("timed-out").await.expect_err("a time-out")), 504);
    assert!(exists("timed-out").await);
    faults.schedule(Method::POST, "configmaps", Fault::Failed(ServerError::Internal));
    assert_eq!(code(create("failed").await.expect_err("a failure")), 500);
    assert!(!exists("failed").await);
    faults.schedule(Method::POST, "configmaps", Fault::Throttled { retry_after_seconds: 7 });
    let kube::Error::Api(throttled) = create("throttled").await.expect_err("throttling") else { panic!("no status") };
    assert_eq!((throttled.code, throttled.details.map(|details| details.retry_after_seconds)), (429, Some(7)));
    faults.schedule(Method::PATCH, "timed-out", Fault::Conflict);
    let patch = Patch::Merge(json!({"data": {"a": "b"}}));
    let refused = client.patch("timed-out", &PatchParams::default(), &patch).await.expect_err("a conflict");
    assert_eq!(code(refused), 409);
    assert_eq!(direct.get("timed-out").await.unwrap().data, None);
    faults.schedule(Method::GET, "configmaps", Fault::Expired);
    assert_eq!(code(client.list(&kube::api::ListParams::default()).await.expect_err("410")), 410);

    let before = tokio::time::Instant::now();
    faults.schedule(Method::POST, "configmaps", Fault::Delay(Duration::from_secs(3)));
    create("late").await.expect("only late");
    assert_eq!(before.elapsed().as_secs(), 3);
    assert_eq!(faults.report().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn fault_can_be_ordered_for_the_next_event() {
    let server = Server::start(Settings::default());
    let faults = Faults::none();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client_with(&faults));
    let mut events = std::pin::pin!(maps.watch(&kube::api::WatchParams::default(), "0").await.unwrap());
    faults.schedule_event("configmaps", StreamFault::Repeated);
    faults.schedule_event("configmaps", StreamFault::Cut);
    assert_eq!(faults.pending(), 2);
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let mut observed = Vec::new();
    while let Some(event) = events.try_next().await.unwrap() {
        if let kube::api::WatchEvent::Added(map) = event {
            observed.push(map.metadata.name.unwrap());
        }
    }
    assert_eq!(observed, ["a", "a"], "one was repeated, the next was cut off");
    assert_eq!(faults.pending(), 0);
}

#[tokio::test]
async fn faults_apply_to_every_transport() {
    let server = Server::start(Settings::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await }
    });
    let config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
    let faults = Faults::none();
    let client = ClientBuilder::try_from(config).expect("a client").with_layer(&faults.layer()).build();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let create = async |name: &str| maps.create(&PostParams::default(), &config_map(name)).await;

    faults.schedule(Method::POST, "configmaps", Fault::Lost);
    faults.schedule(Method::POST, "configmaps", Fault::ResponseLost);
    faults.schedule(Method::POST, "configmaps", Fault::Failed(ServerError::Unavailable));
    assert!(create("lost").await.is_err());
    assert!(create("answer-lost").await.is_err());
    assert_eq!(code(create("failed").await.expect_err("a failure")), 503);
    let names = async || maps.list_metadata(&kube::api::ListParams::default()).await.expect("a list").items;
    let there: Vec<String> = names().await.into_iter().filter_map(|map| map.metadata.name).collect();
    assert_eq!(there, ["answer-lost"]);

    let mut events = std::pin::pin!(maps.watch(&kube::api::WatchParams::default(), "0").await.unwrap());
    faults.schedule_event("configmaps", StreamFault::Repeated);
    faults.schedule_event("configmaps", StreamFault::Broken);
    create("late").await.expect("no fault is left");
    let mut observed = Vec::new();
    while let Some(Ok(kube::api::WatchEvent::Added(map))) = events.next().await {
        observed.push(map.metadata.name.unwrap());
    }
    assert_eq!(observed, ["answer-lost", "answer-lost"]);
    assert_eq!(faults.pending(), 0);
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn late_request_does_not_block_the_next() {
    let server = Server::start(Settings::default());
    let faults = Faults::none();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client_with(&faults));
    faults.schedule(Method::POST, "configmaps", Fault::Delay(Duration::from_secs(3)));
    let create = async |name: &str| maps.create(&PostParams::default(), &config_map(name)).await.map(|_| name.len());
    let before = tokio::time::Instant::now();
    let first_done = tokio::select! { biased; _ = create("late") => "late", done = create("next") => {
        done.expect("no fault is left");
        "next"
    } };
    assert_eq!((first_done, before.elapsed().as_secs()), ("next", 0));
}

/// One second between attempts: the default has jitter that no seed controls.
struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

/// The cache of a watcher after a run, the server's state, and the faults that occurred.
async fn run_watcher(seed: u64) -> (BTreeMap<String, String>, BTreeMap<String, String>, Vec<String>) {
    let server = Server::start(Settings { seed, ..Settings::default() });
    let faults = Faults::new(seed, Plan { delay_max: Duration::from_millis(50), cut: 60, expired: 20, ..Plan::STORM });
    let direct: Api<ConfigMap> = Api::default_namespaced(server.client());
    let watched: Api<ConfigMap> = Api::default_namespaced(server.client_with(&faults));
    let writer = async {
        let mut random = muster_playground::random::Random::new(seed);
        for turn in 0..200 {
            let name = format!("c{}", random.below(8));
            if random.per_mille(300) {
                let _ = direct.delete(&name, &DeleteParams::default()).await;
            } else if direct.get_opt(&name).await.unwrap().is_none() {
                direct.create(&PostParams::default(), &config_map(&name)).await.unwrap();
            } else {
                let patch = Patch::Merge(json!({"data": {"turn": turn.to_string()}}));
                direct.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        }
        // A period without faults, in which the watcher catches up.
        faults.set_plan(Plan::default());
        tokio::time::sleep(Duration::from_secs(700)).await;
    };
    let mut cached = BTreeMap::new();
    let mut fresh = BTreeMap::new();
    let revision = |map: &ConfigMap| map.metadata.resource_version.clone().unwrap_or_default();
    let reader = async {
        let mut events = std::pin::pin!(watcher(watched, watcher::Config::default()).backoff(Steady));
        loop {
            // Errors are handled by the backoff.
            match events.try_next().await {
                Ok(Some(watcher::Event::Init)) => fresh.clear(),
                Ok(Some(watcher::Event::InitApply(map))) => {
                    fresh.insert(map.metadata.name.clone().unwrap(), revision(&map));
                }
                Ok(Some(watcher::Event::InitDone)) => cached = std::mem::take(&mut fresh),
                Ok(Some(watcher::Event::Apply(map))) => {
                    cached.insert(map.metadata.name.clone().unwrap(), revision(&map));
                }
                Ok(Some(watcher::Event::Delete(map))) => {
                    cached.remove(&map.metadata.name.unwrap());
                }
                Ok(None) | Err(_) => {}
            }
        }
    };
    tokio::select! { biased; () = writer => {}, () = reader => {} }
    let real = direct.list(&kube::api::ListParams::default()).await.unwrap();
    let real = real.items.iter().map(|map| (map.metadata.name.clone().unwrap(), revision(map))).collect();
    (cached, real, faults.report())
}

#[tokio::test(start_paused = true)]
async fn watcher_converges_after_faults() {
    let mut met = 0;
    for seed in 0..20 {
        let (cached, real, report) = run_watcher(seed).await;
        assert_eq!(cached, real, "seed {seed}");
        met += report.len();
    }
    assert!(met > 200, "only {met} faults in 20 storms");
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_sequence_of_faults() {
    let (_, real, report) = run_watcher(3).await;
    let (_, again, report_again) = run_watcher(3).await;
    assert_eq!(real, again);
    assert_eq!(report, report_again);
}
