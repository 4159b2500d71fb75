//! The certificate that new connections are shown, in a cell that everybody shares.
//!
//! Connections that stand keep what they were shown. It must not know where certificates come from.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::certificates::{CertificateError, Validity, read_certificates, validity};

/// A certificate with its key, ready to be shown.
#[derive(Clone, Debug)]
pub(super) struct Serving {
    pair: Arc<CertifiedKey>,
    validity: Validity,
}

impl Serving {
    /// Reads `tls.crt` (the chain, our own first) and `tls.key`, which must be for each other.
    pub(super) fn read(certificate: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
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

    /// From when until when it is good.
    pub(super) fn validity(&self) -> Validity {
        self.validity
    }

    /// The certificates, our own first.
    pub(super) fn pair(&self) -> &CertifiedKey {
        &self.pair
    }
}

/// The cell. Its clones are the same cell.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    shown: watch::Sender<Option<Serving>>,
}

impl Default for Certificates {
    fn default() -> Self {
        Self { shown: watch::Sender::new(None) }
    }
}

impl Certificates {
    /// From now on new connections are shown this. Returns whether it is another certificate than before.
    pub(super) fn show(&self, serving: Serving) -> bool {
        self.shown.send_if_modified(|shown| {
            let is_new = shown.as_ref().is_none_or(|old| old.pair.cert != serving.pair.cert);
            *shown = Some(serving);
            is_new
        })
    }

    /// What is shown now.
    pub(super) fn current(&self) -> Option<Serving> {
        self.shown.borrow().clone()
    }

    /// Waits until there is something to show.
    pub(super) async fn ready(&self) {
        // It fails when the sender is gone, which is `self`.
        let _ = self.shown.subscribe().wait_for(Option::is_some).await;
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown.borrow().as_ref().map(|serving| Arc::clone(&serving.pair))
    }
}
