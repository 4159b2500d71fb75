//! The admission webhook as a server: TLS, certificates and their rotation.
//!
//! What is answered is given from outside, as a pure function. It must not know any kind of object.

mod certificates;
mod configurations;
mod files;
mod keeper;
mod kept;
mod review;
mod server;
mod shown;
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
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::configurations::ConfigurationKind;
use self::keeper::Keeper;
pub use self::review::{Review, Routes};
use self::shown::Certificates;

/// What time it is: given from outside, so that a year can pass in a test.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How often the Secret and the configurations are looked at, unless told otherwise.
pub const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// Where to listen, and where the certificate comes from.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// The address; port 0 takes any.
    pub listen: SocketAddr,
    /// The certificate.
    pub certificates: CertificateSource,
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// We make it ourselves and tell the API servers.
    SelfMade(SelfMade),
    /// `tls.crt` and `tls.key` in this folder; whoever writes them tells the API servers.
    Files(PathBuf),
}

/// Certificates that are made by ourselves and shared by all replicas.
#[derive(Clone, Debug)]
pub struct SelfMade {
    /// The namespace of the Secret and of the Service.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The name of the Service by which API servers call.
    pub service: String,
    /// Other names or IPs by which we are called.
    pub extra_names: Vec<String>,
    /// The configurations that are to trust us.
    pub configurations: Vec<(ConfigurationKind, String)>,
    /// How often everything is looked at; [`LOOK_AGAIN`] is a good choice.
    pub look_again: Duration,
}

/// Why there is no webhook.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The address is taken or not ours.
    #[error("webhook: listen: {address}: {source}")]
    Listen {
        /// The wanted address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A path that cannot be served.
    #[error("webhook: path: {path:?}: {reason}")]
    Path {
        /// The path.
        path: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// A name that no certificate can carry.
    #[error("webhook: certificate names: {name:?}: neither a DNS name nor an IP address")]
    Name {
        /// The name.
        name: String,
    },
    /// TLS cannot be set up.
    #[error("webhook: TLS: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
    /// It has ended by itself, which it never should.
    #[error("webhook: it has ended: {reason}")]
    Ended {
        /// What is known about it.
        reason: String,
    },
}

/// A webhook that runs on the current runtime. When it is dropped it takes no more connections, and those that stand
/// end after the request that is under way.
#[derive(Debug)]
pub struct Webhook {
    address: SocketAddr,
    certificates: Certificates,
    /// Dropping it aborts them.
    tasks: JoinSet<()>,
    /// Dropping it tells the connections.
    _stop: watch::Sender<()>,
}

impl Webhook {
    /// Starts to listen and to keep the certificate. Handshakes fail until there is one: see [`Webhook::ready`].
    pub async fn start(
        client: kube::Client,
        settings: WebhookSettings,
        routes: &Routes,
        now: Now,
    ) -> Result<Self, WebhookError> {
        check_paths(routes)?;
        let certificates = Certificates::default();
        let acceptor = server::acceptor(certificates.clone())?;
        let keeping: BoxFuture<'static, Infallible> = match settings.certificates {
            CertificateSource::SelfMade(own) => {
                let keeper = Keeper::new(client, own, certificates.clone(), now);
                keeper.check_names().map_err(|name| WebhookError::Name { name })?;
                Box::pin(keeper.run())
            }
            CertificateSource::Files(folder) => Box::pin(files::follow(folder, certificates.clone())),
        };
        let listen = |source| WebhookError::Listen { address: settings.listen, source };
        let listener = TcpListener::bind(settings.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = watch::channel(());
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(listener, acceptor, server::router(routes), stopped));
        tasks.spawn(async move { match keeping.await {} });
        Ok(Self { address, certificates, tasks, _stop: stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until there is a certificate, so that reviews can be answered.
    pub async fn ready(&self) {
        self.certificates.ready().await;
    }

    /// Waits until it ends by itself, which it only does by a bug.
    pub async fn ended(&mut self) -> WebhookError {
        let reason = match self.tasks.join_next().await {
            Some(Err(error)) => error.to_string(),
            Some(Ok(())) | None => "a task of it is over".to_owned(),
        };
        WebhookError::Ended { reason }
    }
}

/// The router would panic on these.
fn check_paths(routes: &Routes) -> Result<(), WebhookError> {
    let mut seen = BTreeSet::from(["/readyz"]);
    for (path, _) in routes.iter() {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
        if !path.starts_with('/') || !path.bytes().all(is_plain) {
            return Err(WebhookError::Path { path, reason: "not a plain path that begins with /" });
        }
        if !seen.insert(path) {
            return Err(WebhookError::Path { path, reason: "taken already" });
        }
    }
    Ok(())
}
