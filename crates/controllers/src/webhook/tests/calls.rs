//! Callers over real sockets: who is answered, who is refused, and what they are shown.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::certificates;
use super::super::keeper::Keeper;
use super::super::{CertificateSource, Routes, Webhook, WebhookError, WebhookSettings};
use super::world::{SERVICE_NAME, World, review, settings};

fn routes() -> Routes {
    Routes::default().with(
        "/mutate",
        |asked| json!({"kind": "AdmissionReview", "response": {"uid": asked["request"]["uid"], "allowed": true}}),
    )
}

async fn start(world: &World) -> Webhook {
    let certificates = CertificateSource::SelfMade(settings());
    let settings = WebhookSettings { listen: "127.0.0.1:0".parse().unwrap(), certificates };
    let webhook = Webhook::start(world.server.client(), settings, &routes(), world.clock.now()).await.unwrap();
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
async fn who_trusts_the_bundle_is_answered_by_every_name() {
    let world = World::start();
    let webhook = start(&world).await;
    let bundle = world.bundle().await;
    for name in ["hook", "hook.default", SERVICE_NAME, "hook.default.svc.cluster.local", "127.0.0.1"] {
        let mut caller = world.connect(webhook.address(), &bundle, name).await.unwrap();
        for uid in ["u1", "u2"] {
            assert_eq!(read(caller.post("/mutate", &review(uid).to_string()).await), allowed(uid));
        }
        assert_eq!(caller.get("/readyz").await, (200, "ok".to_owned()));
    }
    let refused = world.connect(webhook.address(), &bundle, "hook.other.svc").await.unwrap_err().to_string();
    assert!(refused.contains("not valid for name"), "{refused}");
    let stranger = certificates::make(&[SERVICE_NAME.to_owned()], world.clock.read()).unwrap();
    let stranger = certificates::read_certificates("ca.crt", stranger.authority.as_bytes()).unwrap();
    assert!(world.connect(webhook.address(), &stranger, SERVICE_NAME).await.is_err());
    world.clock.pass_days(366);
    assert!(world.connect(webhook.address(), &bundle, SERVICE_NAME).await.is_err(), "it is over");
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_the_connection_goes_on() {
    let world = World::start();
    let webhook = start(&world).await;
    let bundle = world.bundle().await;
    let mut caller = world.connect(webhook.address(), &bundle, SERVICE_NAME).await.unwrap();
    let (status, text) = caller.post("/mutate", "{").await;
    assert_eq!(status, 400);
    assert!(text.starts_with("/mutate: the body is not JSON: EOF"), "{text}");
    let refused = |text: &str| (400, format!("/mutate: {text}\n"));
    let answer = caller.post("/mutate", r#"{"kind": "Pod"}"#).await;
    assert_eq!(answer, refused(r#"kind: "Pod": not "AdmissionReview""#));
    let answer = caller.post("/mutate", r#"{"kind": "AdmissionReview"}"#).await;
    assert_eq!(answer, refused("AdmissionReview: request.uid: null: not a UID"));
    assert_eq!(caller.post("/other", "{}").await.0, 404);
    assert_eq!(caller.get("/mutate").await.0, 405);
    assert_eq!(read(caller.post("/mutate", &review("u").to_string()).await), allowed("u"));
    // It is refused by its length, before a byte of it is sent.
    caller.send("POST /mutate HTTP/1.1\r\nhost: hook\r\ncontent-length: 3145729\r\n\r\n").await;
    assert_eq!(caller.answer().await, (413, "/mutate: the body has more than 3145728 bytes\n".to_owned()));
    let mut caller = world.connect(webhook.address(), &bundle, SERVICE_NAME).await.unwrap();
    let large = json!({"kind": "AdmissionReview", "request": {"uid": "u", "filler": "x".repeat(3 << 20 >> 1)}});
    assert_eq!(read(caller.post("/mutate", &large.to_string()).await), allowed("u"));
}

#[tokio::test]
async fn a_handshake_that_fails_disturbs_nobody() {
    let world = World::start();
    let webhook = start(&world).await;
    let _silent = TcpStream::connect(webhook.address()).await.unwrap();
    let mut rude = TcpStream::connect(webhook.address()).await.unwrap();
    rude.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    // An alert and the end, or a reset.
    let _ = rude.read_to_end(&mut rest).await;
    let mut caller = world.connect(webhook.address(), &world.bundle().await, SERVICE_NAME).await.unwrap();
    assert_eq!(caller.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn new_connections_see_a_new_certificate_and_old_ones_go_on() {
    let world = World::start();
    let webhook = start(&world).await;
    let trusted = world.bundle().await;
    let mut old = world.connect(webhook.address(), &trusted, SERVICE_NAME).await.unwrap();
    assert_eq!(old.get("/readyz").await.0, 200);

    // Another replica renews when eight months are over; ours reads it at its next look.
    world.clock.pass_days(250);
    world.keeper(settings()).0.turn().await.unwrap();
    let ours = Keeper::new(world.server.client(), settings(), webhook.certificates.clone(), world.clock.now());
    let mut between = world.connect(webhook.address(), &world.bundle().await, SERVICE_NAME).await.unwrap();
    assert_eq!(between.certificate(), old.certificate(), "the new bundle trusts what is still shown");
    assert_eq!(between.get("/readyz").await.0, 200);
    ours.turn().await.unwrap();

    let mut new = world.connect(webhook.address(), &world.bundle().await, SERVICE_NAME).await.unwrap();
    assert_ne!(new.certificate(), old.certificate());
    assert_eq!(new.get("/readyz").await.0, 200);
    assert_eq!(read(old.post("/mutate", &review("u").to_string()).await), allowed("u"));
    assert!(world.connect(webhook.address(), &trusted, SERVICE_NAME).await.is_err(), "only the new bundle vouches");
}

#[tokio::test]
async fn what_is_under_way_is_answered_when_it_is_stopped() {
    let world = World::start();
    let webhook = start(&world).await;
    let address = webhook.address();
    let bundle = world.bundle().await;
    let mut idle = world.connect(address, &bundle, SERVICE_NAME).await.unwrap();
    assert_eq!(idle.get("/readyz").await.0, 200);
    let mut busy = world.connect(address, &bundle, SERVICE_NAME).await.unwrap();
    let body = review("u").to_string();
    let length = body.len();
    // The answer 100 says that the request has arrived and that its body is awaited.
    let head =
        format!("POST /mutate HTTP/1.1\r\nhost: hook\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n");
    busy.send(&head).await;
    assert_eq!(busy.answer().await.0, 100);
    drop(webhook);
    let mut rest = Vec::new();
    assert_eq!(idle.stream.read_to_end(&mut rest).await.unwrap(), 0, "who asks nothing is let go");
    busy.send(&body).await;
    assert_eq!(read(busy.answer().await), allowed("u"));
    assert_eq!(busy.stream.read_to_end(&mut rest).await.unwrap(), 0);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let world = World::start();
    let webhook = start(&world).await;
    let attempt = async |listen: &str, name: &str, path: &'static str| {
        let mut own = settings();
        own.extra_names = vec![name.to_owned()];
        let settings =
            WebhookSettings { listen: listen.parse().unwrap(), certificates: CertificateSource::SelfMade(own) };
        let routes = routes().with(path, |asked| asked);
        Webhook::start(world.server.client(), settings, &routes, world.clock.now()).await.unwrap_err()
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
async fn a_server_that_dies_says_so() {
    let world = World::start();
    let mut webhook = start(&world).await;
    let wait = std::time::Duration::from_millis(50);
    assert!(tokio::time::timeout(wait, webhook.ended()).await.is_err(), "it serves");
    webhook.tasks.abort_all();
    let error = webhook.ended().await.to_string();
    assert!(error.starts_with("webhook: it has ended"), "{error}");
}
