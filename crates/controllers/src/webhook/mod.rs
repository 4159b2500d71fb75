//! The server of the admission webhook: TLS, certificates and their rotation.
//!
//! The review functions are passed in. Must not depend on any kind of object.

mod configurations;
mod review;
mod rotation;
mod server;
mod stored_certificate;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use muster_listener::ListenerThread;
use muster_listener::tls::resolver::CertificateResolver;
use muster_listener::tls::{files, transport};
use tokio::task::JoinSet;

pub use self::configurations::ConfigurationKind;
pub use self::review::{Review, Routes};
use self::rotation::CertificateRotator;

/// The name of the listener, its thread, and the subject of certificates.
const LISTENER: &str = "webhook";

/// The clock, passed in so that tests can simulate years.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How often the Secret and the webhook configurations are checked by default.
pub const DEFAULT_RESYNC_PERIOD: Duration = Duration::from_secs(3600);

/// The listen address and the source of the certificate.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// The address; port 0 selects a free port.
    pub listen: SocketAddr,
    /// The certificate.
    pub certificates: CertificateSource,
}

/// The source of the certificate.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Self-signed; the CA bundle is written into the webhook configurations.
    SelfSigned(SelfSigned),
    /// `tls.crt` and `tls.key` in this directory; the tool that writes them also maintains the webhook configurations.
    Files(PathBuf),
}

/// Settings of a self-signed certificate that all replicas share.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    /// The namespace of the Secret and of the Service.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The name of the Service that API servers call.
    pub service: String,
    /// Additional DNS names or IP addresses of the webhook.
    pub extra_names: Vec<String>,
    /// The webhook configurations that get the CA bundle.
    pub configurations: Vec<(ConfigurationKind, String)>,
    /// How often everything is checked; the default is [`DEFAULT_RESYNC_PERIOD`].
    pub resync_period: Duration,
}

/// Why the webhook could not start or ended.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The address cannot be bound.
    #[error("webhook: listen: {address}: {source}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// An invalid path.
    #[error("webhook: path: {path:?}: {reason}")]
    Path {
        /// The path.
        path: &'static str,
        /// The cause.
        reason: &'static str,
    },
    /// A name that is not valid in a certificate.
    #[error("webhook: certificate names: {name:?}: neither a DNS name nor an IP address")]
    Name {
        /// The name.
        name: String,
    },
    /// TLS cannot be set up.
    #[error("webhook: TLS: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
    /// The webhook ended on its own, which is a bug.
    #[error("webhook: ended unexpectedly: {reason}")]
    Ended {
        /// The cause, as far as known.
        reason: String,
    },
}

/// A running webhook. It serves on a thread of its own, so that TLS and reviews delay nothing else; the certificate is
/// rotated on the runtime that has started it. Dropping it stops the listener; open connections are closed after the
/// request in progress.
#[derive(Debug)]
pub struct Webhook {
    certificates: CertificateResolver,
    listener: ListenerThread,
    /// Aborted on drop.
    rotation: JoinSet<()>,
}

impl Webhook {
    /// Starts the listener and the certificate rotation. Handshakes fail until there is a certificate: see
    /// [`Webhook::ready`].
    pub async fn start(
        client: kube::Client,
        settings: WebhookSettings,
        routes: &Routes,
        now: Now,
    ) -> Result<Self, WebhookError> {
        check_paths(routes)?;
        let certificates = CertificateResolver::default();
        let transport = transport(certificates.clone())?;
        let rotation: BoxFuture<'static, Infallible> = match settings.certificates {
            CertificateSource::SelfSigned(own) => {
                let rotator = CertificateRotator::new(client, own, certificates.clone(), now);
                rotator.check_names()?;
                Box::pin(rotator.run())
            }
            CertificateSource::Files(directory) => Box::pin(files::follow(LISTENER, directory, certificates.clone())),
        };
        let address = settings.listen;
        let listener = ListenerThread::start(LISTENER, address, transport, server::LIMITS, server::router(routes))
            .await
            .map_err(|source| WebhookError::Listen { address, source })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { match rotation.await {} });
        Ok(Self { certificates, listener, rotation: tasks })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Waits until there is a certificate and reviews can be served.
    pub async fn ready(&self) {
        self.certificates.ready().await;
    }

    /// Waits until the webhook ends on its own, which only a bug can cause.
    pub async fn ended(&mut self) -> WebhookError {
        let reason = tokio::select! {
            () = self.listener.ended() => "its listener has ended".to_owned(),
            ended = self.rotation.join_next() => match ended {
                Some(Err(error)) => error.to_string(),
                Some(Ok(())) | None => "the rotation of its certificate has ended".to_owned(),
            },
        };
        WebhookError::Ended { reason }
    }

    /// Stops it and waits until the requests in progress are answered.
    pub async fn stop(self) {
        self.listener.stop().await;
    }
}

/// Rejects paths on which the router would panic.
fn check_paths(routes: &Routes) -> Result<(), WebhookError> {
    let mut seen = BTreeSet::from(["/readyz"]);
    for (path, _) in routes.iter() {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
        if !path.starts_with('/') || !path.bytes().all(is_plain) {
            return Err(WebhookError::Path {
                path,
                reason: "must start with / and consist of letters, digits and /-_.",
            });
        }
        if !seen.insert(path) {
            return Err(WebhookError::Path { path, reason: "registered twice" });
        }
    }
    Ok(())
}
