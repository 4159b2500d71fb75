//! The current serving certificate, shared by all connections and replaceable at run time.
//!
//! Established connections keep the certificate of their handshake. Must not depend on where certificates come from.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::certificates::{CertificateError, Validity, read_certificates, validity};

/// A certificate chain with its key, ready to be served.
#[derive(Clone, Debug)]
pub struct ServingCertificate {
    pair: Arc<CertifiedKey>,
    validity: Validity,
}

impl ServingCertificate {
    /// Reads `tls.crt` (the chain, leaf first) and `tls.key`, which must match.
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let chain = read_certificates("tls.crt", certificate)?;
        let validity = validity("tls.crt", &chain[0])?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| CertificateError::Pem {
            field: "tls.key",
            what: "private key",
            reason: error.to_string(),
        })?;
        let pair = CertifiedKey::from_der(chain, key, &default_provider()).map_err(CertificateError::Pair)?;
        Ok(Self { pair: Arc::new(pair), validity })
    }

    /// The validity period of the leaf.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The chain, leaf first, with the key.
    pub fn pair(&self) -> &CertifiedKey {
        &self.pair
    }
}

/// Resolves the certificate for TLS handshakes. Clones share the same certificate.
#[derive(Clone, Debug)]
pub struct CertificateResolver {
    current: watch::Sender<Option<ServingCertificate>>,
}

impl Default for CertificateResolver {
    fn default() -> Self {
        Self { current: watch::Sender::new(None) }
    }
}

impl CertificateResolver {
    /// Sets the certificate for new connections. Returns whether it differs from the previous one.
    pub fn set(&self, serving: ServingCertificate) -> bool {
        self.current.send_if_modified(|current| {
            let is_new = current.as_ref().is_none_or(|old| old.pair.cert != serving.pair.cert);
            *current = Some(serving);
            is_new
        })
    }

    /// The current certificate.
    pub fn current(&self) -> Option<ServingCertificate> {
        self.current.borrow().clone()
    }

    /// Waits until there is a certificate.
    pub async fn ready(&self) {
        // This fails only when the sender is dropped, and that is `self`.
        let _ = self.current.subscribe().wait_for(Option::is_some).await;
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.borrow().as_ref().map(|serving| Arc::clone(&serving.pair))
    }
}
