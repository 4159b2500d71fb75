//! A test API server with a settable clock, and a TLS client with configurable trust.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use muster_playground_server::Server;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::rotation::CertificateRotator;
use super::super::{DEFAULT_RESYNC_PERIOD, Now, SelfSigned};
use muster_listener::tls::certificates::read_certificates;
use muster_listener::tls::resolver::CertificateResolver;

pub(super) const SERVICE_NAME: &str = "hook.default.svc";
const START: &str = "2030-01-01T00:00:00Z";

/// A clock that stands still until it is advanced.
#[derive(Clone, Debug)]
pub(super) struct Clock(Arc<Mutex<Timestamp>>);

impl Default for Clock {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(START.parse().unwrap())))
    }
}

impl Clock {
    pub(super) fn read(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    pub(super) fn pass_days(&self, days: u64) {
        *self.0.lock().unwrap() += Duration::from_secs(days * 24 * 3600);
    }

    pub(super) fn now(&self) -> Now {
        let clock = self.clone();
        Arc::new(move || clock.read())
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.read().as_second() as u64)))
    }
}

pub(super) struct TestCluster {
    pub(super) server: Server,
    pub(super) clock: Clock,
}

impl TestCluster {
    pub(super) fn start() -> Self {
        let server = Server::start(muster_playground_server::Settings::default());
        Self { server, clock: Clock::default() }
    }

    /// The rotator of one replica, with its own resolver.
    pub(super) fn rotator(&self, settings: SelfSigned) -> (CertificateRotator, CertificateResolver) {
        let resolver = CertificateResolver::default();
        (CertificateRotator::new(self.server.client(), settings, resolver.clone(), self.clock.now()), resolver)
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.server.client(), "default")
    }

    /// The CA bundle in the Secret.
    pub(super) async fn bundle(&self) -> Vec<CertificateDer<'static>> {
        let secret = self.secrets().get("certs").await.unwrap();
        read_certificates("ca.crt", &secret.data.unwrap()["ca.crt"].0).unwrap()
    }

    /// Connects a client that trusts these authorities.
    pub(super) async fn connect(
        &self,
        address: SocketAddr,
        trusted: &[CertificateDer<'static>],
        name: &str,
    ) -> io::Result<TlsClient> {
        let mut roots = RootCertStore::empty();
        assert_eq!(roots.add_parsable_certificates(trusted.iter().cloned()), (trusted.len(), 0));
        let config = ClientConfig::builder_with_details(Arc::new(default_provider()), Arc::new(self.clock.clone()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        Ok(TlsClient { stream: TlsConnector::from(Arc::new(config)).connect(name, stream).await? })
    }
}

/// Settings for the Secret `certs` and the Service `hook`.
pub(super) fn settings() -> SelfSigned {
    SelfSigned {
        namespace: "default".to_owned(),
        secret: "certs".to_owned(),
        service: "hook".to_owned(),
        extra_names: vec!["127.0.0.1".to_owned()],
        configurations: Vec::new(),
        resync_period: DEFAULT_RESYNC_PERIOD,
    }
}

/// The certificate that a resolver serves.
pub(super) fn served(resolver: &CertificateResolver) -> CertificateDer<'static> {
    resolver.current().expect("a certificate").pair().cert[0].clone()
}

/// A connected TLS client.
#[derive(Debug)]
pub(super) struct TlsClient {
    pub(super) stream: TlsStream<TcpStream>,
}

impl TlsClient {
    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }

    pub(super) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub(super) async fn post(&mut self, path: &str, body: &str) -> (u16, String) {
        let length = body.len();
        self.send(&format!("POST {path} HTTP/1.1\r\nhost: hook\r\ncontent-length: {length}\r\n\r\n{body}")).await;
        self.answer().await
    }

    pub(super) async fn get(&mut self, path: &str) -> (u16, String) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: hook\r\n\r\n")).await;
        self.answer().await
    }

    /// The status and the body of the next response.
    pub(super) async fn answer(&mut self) -> (u16, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.stream.read_exact(&mut body).await.unwrap();
        (status, String::from_utf8(body).unwrap())
    }
}

/// A review as an API server sends it.
pub(super) fn review(uid: &str) -> Value {
    serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": uid}})
}
