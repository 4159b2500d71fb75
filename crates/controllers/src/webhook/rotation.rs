//! Rotation of the self-signed certificate: one Secret for all replicas, renewed by the first replica that notices. The
//! CA bundle is written into the webhook configurations before a certificate that it signed is served.
//!
//! The decisions about the Secret are in `stored_certificate`. Must not depend on how connections are served.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use muster_listener::tls::certificates::CertificateError;
use muster_listener::tls::resolver::CertificateResolver;
use tokio::time::sleep;

use super::configurations::{ConfigurationState, inject_ca_bundle};
use super::stored_certificate::{StoredCertificate, is_valid_name, renewed_secret};
use super::{Now, SelfSigned, WebhookError};

const ATTEMPTS: usize = 5;
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long API servers may take to observe a changed webhook configuration.
const PROPAGATION_DELAY: Duration = Duration::from_secs(10);

/// Why a sync failed. The next sync retries.
#[derive(Debug, thiserror::Error)]
pub(super) enum RotationError {
    #[error("{what}: {doing} failed: {source}")]
    Api { doing: &'static str, what: String, source: Box<kube::Error> },
    #[error("{what}: conflicting writes in each of {attempts} attempts")]
    Contended { what: String, attempts: usize },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Keeps the certificate valid and the webhook configurations up to date.
pub(super) struct CertificateRotator {
    client: kube::Client,
    settings: SelfSigned,
    names: Vec<String>,
    certificates: CertificateResolver,
    now: Now,
}

impl CertificateRotator {
    pub(super) fn new(client: kube::Client, settings: SelfSigned, certificates: CertificateResolver, now: Now) -> Self {
        let names = service_names(&settings.service, &settings.namespace, &settings.extra_names);
        Self { client, settings, names, certificates, now }
    }

    /// Fails with the first name that is not valid in a certificate: it would be missing in every new one, and renewal
    /// would never end.
    pub(super) fn check_names(&self) -> Result<(), WebhookError> {
        let invalid = self.names.iter().find(|name| !is_valid_name(name));
        invalid.map_or(Ok(()), |name| Err(WebhookError::Name { name: name.clone() }))
    }

    /// Syncs periodically, forever.
    pub(super) async fn run(self) -> Infallible {
        let mut retry_delay = RETRY_MIN;
        loop {
            match self.sync().await {
                Ok(next) => {
                    retry_delay = RETRY_MIN;
                    sleep(next).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "the webhook's certificate could not be synced and will be retried");
                    sleep(retry_delay).await;
                    retry_delay = (retry_delay * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Checks everything once and returns when to check again.
    pub(super) async fn sync(&self) -> Result<Duration, RotationError> {
        let stored = self.load_or_renew().await?;
        self.serve_if_needed(&stored);
        let (mut updated, mut missing) = (false, false);
        for (kind, name) in &self.settings.configurations {
            match inject_ca_bundle(&self.client, *kind, name, &stored.bundle).await? {
                ConfigurationState::Current => {}
                ConfigurationState::Updated => updated = true,
                ConfigurationState::Missing => {
                    missing = true;
                    tracing::warn!(%kind, name, "the webhook configuration does not exist (yet)");
                }
            }
        }
        if updated {
            sleep(PROPAGATION_DELAY).await;
        }
        if self.certificates.set(stored.serving.clone()) {
            tracing::info!(until = %stored.serving.validity().until, "the webhook serves a new certificate");
        }
        // The bundle that was replaced may be from a replica with a newer Secret than ours: check again at once.
        Ok(match (updated, missing) {
            (true, _) => Duration::ZERO,
            (false, true) => self.settings.resync_period.min(RETRY_MAX),
            (false, false) => self.settings.resync_period,
        })
    }

    /// Serves the certificate at once if there is no valid one: waiting until API servers trust it would gain nothing.
    fn serve_if_needed(&self, stored: &StoredCertificate) {
        let now = (self.now)();
        if self.certificates.current().is_none_or(|current| current.validity().has_expired(now)) {
            self.certificates.set(stored.serving.clone());
        }
    }

    /// The certificate of the Secret, created or renewed if necessary.
    async fn load_or_renew(&self) -> Result<StoredCertificate, RotationError> {
        let SelfSigned { namespace, secret: name, .. } = &self.settings;
        let what = || format!("Secret {namespace}/{name}");
        let failed = |doing, source| RotationError::Api { doing, what: what(), source: Box::new(source) };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for _ in 0..ATTEMPTS {
            let now = (self.now)();
            let found = api.get_opt(name).await.map_err(|error| failed("read", error))?;
            let is_new = found.is_none();
            let (written, reason) = match found {
                None => {
                    let new = renewed_secret(namespace, name, None, &self.names, now)?;
                    (api.create(&PostParams::default(), &new).await, "it did not exist".to_owned())
                }
                Some(old) => {
                    let reason = match StoredCertificate::read(&old) {
                        Ok(stored) => match stored.renewal_reason(&self.names, now) {
                            None => return Ok(stored),
                            Some(reason) => {
                                // The old certificate is served while it is renewed, even if the renewal is forbidden.
                                self.serve_if_needed(&stored);
                                reason
                            }
                        },
                        Err(error) => error.to_string(),
                    };
                    // The resource version is kept: only one replica succeeds in replacing the Secret.
                    let new = renewed_secret(namespace, name, Some(old), &self.names, now)?;
                    (api.replace(name, &PostParams::default(), &new).await, reason)
                }
            };
            match written {
                Ok(secret) => {
                    tracing::info!(namespace, name, reason, "wrote a new webhook certificate to the Secret");
                    return Ok(StoredCertificate::read(&secret)?);
                }
                // Another replica was first (409), or the Secret was deleted (404). A 404 on create means that the
                // namespace is missing.
                Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && !is_new) => {}
                Err(error) => return Err(failed("write", error)),
            }
        }
        Err(RotationError::Contended { what: what(), attempts: ATTEMPTS })
    }
}

/// The DNS names of a Service inside a cluster, and the extra names.
fn service_names(service: &str, namespace: &str, extra: &[String]) -> Vec<String> {
    let mut names = vec![
        service.to_owned(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
    ];
    names.extend(extra.iter().cloned());
    names
}
