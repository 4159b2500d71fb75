//! A TLS client that chooses the authority that it trusts and its own address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub(crate) type Client = TlsStream<TcpStream>;

/// A client that trusts these authorities, in PEM.
pub(crate) fn connector(authorities: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Connects to a server whose certificate is for 127.0.0.1.
pub(crate) async fn connect(connector: &TlsConnector, from: IpAddr, address: SocketAddr) -> std::io::Result<Client> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    let stream = socket.connect(address).await?;
    connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
}
