//! TLS for listeners: certificates, from files or in memory, which are replaced while connections are served.

pub mod certificates;
pub mod files;
pub mod in_memory;
pub mod resolver;

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;

use self::resolver::CertificateResolver;
use crate::Transport;

/// HTTPS with the current certificate of a resolver.
pub fn transport(certificates: CertificateResolver) -> Result<Transport, tokio_rustls::rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificates));
    Ok(Transport::Tls(TlsAcceptor::from(Arc::new(config))))
}
