//! Tests over real sockets: which requests are answered or refused, and which certificate is served.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::rotation::CertificateRotator;
use super::super::{CertificateSource, Routes, Webhook, WebhookError, WebhookSettings};
use super::test_cluster::{SERVICE_NAME, TestCluster, review, settings};
use muster_listener::tls::certificates;

fn routes() -> Routes {
    Routes::default().with(
        "/mutate",
        |review| json!({"kind": "AdmissionReview", "response": {"uid": review["request"]["uid"], "allowed": true}}),
    )
}

async fn start(cluster: &TestCluster) -> Webhook {
    start_with(cluster, &routes()).await
}

async fn start_with(cluster: &TestCluster, routes: &Routes) -> Webhook {
    let certificates = CertificateSource::SelfSigned(settings());
    let settings = WebhookSettings { listen: "127.0.0.1:0".parse().unwrap(), certificates };
    let webhook = Webhook::start(cluster.server.client(), settings, routes, cluster.clock.now()).await.unwrap();
    webhook.ready().await;
    webhook
}

fn allowed(uid: &str) -> (u16, Value) {
    (200, json!({"kind": "AdmissionReview", "response": {"uid": uid, "allowed": true}}))
}

fn read((status, body): (u16, String)) -> (u16, Value) {
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn client_that_trusts_the_bundle_is_answered_under_every_name() {
    let cluster = TestCluster::start();
    let webhook = start(&cluster).await;
    let bundle = cluster.bundle().await;
    for name in ["hook", "hook.default", SERVICE_NAME, "hook.default.svc.cluster.local", "127.0.0.1"] {
        let mut client = cluster.connect(webhook.address(), &bundle, name).await.unwrap();
        for uid in ["u1", "u2"] {
            assert_eq!(read(client.post("/mutate", &review(uid).to_string()).await), allowed(uid));
        }
        assert_eq!(client.get("/readyz").await, (200, "ok".to_owned()));
    }
    let refused = cluster.connect(webhook.address(), &bundle, "hook.other.svc").await.unwrap_err().to_string();
    assert!(refused.contains("not valid for name"), "{refused}");
    let foreign = certificates::generate("a", &[SERVICE_NAME.to_owned()], cluster.clock.read()).unwrap();
    let foreign = certificates::read_certificates("ca.crt", foreign.authority.as_bytes()).unwrap();
    assert!(cluster.connect(webhook.address(), &foreign, SERVICE_NAME).await.is_err());
    cluster.clock.pass_days(366);
    assert!(cluster.connect(webhook.address(), &bundle, SERVICE_NAME).await.is_err(), "the certificate has expired");
}

#[tokio::test]
async fn unreadable_review_is_rejected_and_connection_stays_open() {
    let cluster = TestCluster::start();
    let webhook = start(&cluster).await;
    let bundle = cluster.bundle().await;
    let mut client = cluster.connect(webhook.address(), &bundle, SERVICE_NAME).await.unwrap();
    let (status, text) = client.post("/mutate", "{").await;
    assert_eq!(status, 400);
    assert!(text.starts_with("/mutate: the body is not JSON: EOF"), "{text}");
    let refused = |text: &str| (400, format!("/mutate: {text}\n"));
    let answer = client.post("/mutate", r#"{"kind": "Pod"}"#).await;
    assert_eq!(answer, refused(r#"kind: "Pod": not "AdmissionReview""#));
    let answer = client.post("/mutate", r#"{"kind": "AdmissionReview"}"#).await;
    assert_eq!(answer, refused("AdmissionReview: request.uid: null: not a UID"));
    assert_eq!(client.post("/other", "{}").await.0, 404);
    assert_eq!(client.get("/mutate").await.0, 405);
    assert_eq!(read(client.post("/mutate", &review("u").to_string()).await), allowed("u"));
    // It is rejected by its declared length, before any of the body is sent.
    client.send("POST /mutate HTTP/1.1\r\nhost: hook\r\ncontent-length: 3145729\r\n\r\n").await;
    assert_eq!(client.answer().await, (413, "/mutate: the body has more than 3145728 bytes\n".to_owned()));
    let mut client = cluster.connect(webhook.address(), &bundle, SERVICE_NAME).await.unwrap();
    let large = json!({"kind": "AdmissionReview", "request": {"uid": "u", "filler": "x".repeat(3 << 20 >> 1)}});
    assert_eq!(read(client.post("/mutate", &large.to_string()).await), allowed("u"));
}

#[tokio::test]
async fn failed_handshake_does_not_affect_other_connections() {
    let cluster = TestCluster::start();
    let webhook = start(&cluster).await;
    let _idle = TcpStream::connect(webhook.address()).await.unwrap();
    let mut plain_http = TcpStream::connect(webhook.address()).await.unwrap();
    plain_http.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    // A TLS alert and end of stream, or a reset.
    let _ = plain_http.read_to_end(&mut rest).await;
    let mut client = cluster.connect(webhook.address(), &cluster.bundle().await, SERVICE_NAME).await.unwrap();
    assert_eq!(client.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn new_connections_get_new_certificate_and_old_ones_continue() {
    let cluster = TestCluster::start();
    let webhook = start(&cluster).await;
    let trusted = cluster.bundle().await;
    let mut old = cluster.connect(webhook.address(), &trusted, SERVICE_NAME).await.unwrap();
    assert_eq!(old.get("/readyz").await.0, 200);

    // Another replica renews after eight months; this one picks it up at its next sync.
    cluster.clock.pass_days(250);
    cluster.rotator(settings()).0.sync().await.unwrap();
    let ours =
        CertificateRotator::new(cluster.server.client(), settings(), webhook.certificates.clone(), cluster.clock.now());
    let mut between = cluster.connect(webhook.address(), &cluster.bundle().await, SERVICE_NAME).await.unwrap();
    assert_eq!(between.certificate(), old.certificate(), "the new bundle trusts the certificate that is still served");
    assert_eq!(between.get("/readyz").await.0, 200);
    ours.sync().await.unwrap();

    let mut new = cluster.connect(webhook.address(), &cluster.bundle().await, SERVICE_NAME).await.unwrap();
    assert_ne!(new.certificate(), old.certificate());
    assert_eq!(new.get("/readyz").await.0, 200);
    assert_eq!(read(old.post("/mutate", &review("u").to_string()).await), allowed("u"));
    assert!(
        cluster.connect(webhook.address(), &trusted, SERVICE_NAME).await.is_err(),
        "only the new bundle verifies it"
    );
}

#[tokio::test]
async fn review_that_takes_long_does_not_delay_the_runtime_that_started_the_webhook() {
    let cluster = TestCluster::start();
    let (enter, mut entered) = tokio::sync::mpsc::unbounded_channel();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let routes = Routes::default().with("/mutate", move |review| {
        enter.send(()).unwrap();
        // Only the test releases it, so the test has to continue in the meantime.
        let is_released = blocked.lock().unwrap().recv_timeout(std::time::Duration::from_secs(30)).is_ok();
        json!({"kind": "AdmissionReview", "response": {"uid": review["request"]["uid"], "allowed": is_released}})
    });
    let webhook = start_with(&cluster, &routes).await;
    let mut client = cluster.connect(webhook.address(), &cluster.bundle().await, SERVICE_NAME).await.unwrap();
    let body = review("u").to_string();
    let length = body.len();
    client.send(&format!("POST /mutate HTTP/1.1\r\nhost: hook\r\ncontent-length: {length}\r\n\r\n{body}")).await;
    entered.recv().await.unwrap();
    // As the lease is renewed: by a request to the API server.
    cluster.bundle().await;
    // It fails if the review was given up.
    let _ = release.send(());
    assert_eq!(read(client.answer().await), allowed("u"));
}

#[tokio::test]
async fn request_in_progress_is_answered_after_stop() {
    let cluster = TestCluster::start();
    let webhook = start(&cluster).await;
    let address = webhook.address();
    let bundle = cluster.bundle().await;
    let mut idle = cluster.connect(address, &bundle, SERVICE_NAME).await.unwrap();
    assert_eq!(idle.get("/readyz").await.0, 200);
    let mut busy = cluster.connect(address, &bundle, SERVICE_NAME).await.unwrap();
    let body = review("u").to_string();
    let length = body.len();
    // Status 100 shows that the request has arrived and its body is expected.
    let head =
        format!("POST /mutate HTTP/1.1\r\nhost: hook\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n");
    busy.send(&head).await;
    assert_eq!(busy.answer().await.0, 100);
    drop(webhook);
    let mut rest = Vec::new();
    assert_eq!(idle.stream.read_to_end(&mut rest).await.unwrap(), 0, "idle connections are closed");
    busy.send(&body).await;
    assert_eq!(read(busy.answer().await), allowed("u"));
    assert_eq!(busy.stream.read_to_end(&mut rest).await.unwrap(), 0);
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let cluster = TestCluster::start();
    let webhook = start(&cluster).await;
    let attempt = async |listen: &str, name: &str, path: &'static str| {
        let mut own = settings();
        own.extra_names = vec![name.to_owned()];
        let settings =
            WebhookSettings { listen: listen.parse().unwrap(), certificates: CertificateSource::SelfSigned(own) };
        let routes = routes().with(path, |review| review);
        Webhook::start(cluster.server.client(), settings, &routes, cluster.clock.now()).await.unwrap_err()
    };
    let taken = webhook.address().to_string();
    assert!(matches!(attempt(&taken, "a", "/a").await, WebhookError::Listen { .. }));
    for name in ["*.example.org", "a b", "", "ä"] {
        assert!(matches!(attempt("127.0.0.1:0", name, "/a").await, WebhookError::Name { .. }), "{name}");
    }
    for path in ["/mutate", "/readyz", "a", "/{a}"] {
        assert!(matches!(attempt("127.0.0.1:0", "a", path).await, WebhookError::Path { .. }), "{path}");
    }
}

#[tokio::test]
async fn ended_reports_a_dead_server() {
    let cluster = TestCluster::start();
    let mut webhook = start(&cluster).await;
    let wait = std::time::Duration::from_millis(50);
    assert!(tokio::time::timeout(wait, webhook.ended()).await.is_err(), "it is running");
    webhook.rotation.abort_all();
    let error = webhook.ended().await.to_string();
    assert!(error.starts_with("webhook: ended unexpectedly"), "{error}");
}
