//! Self-made certificates: one Secret for all replicas, renewed by whoever notices, and the authorities told to the
//! API servers before anybody shows what they signed.
//!
//! What is decided about the Secret is in `kept`. It must not know how connections are served.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use tokio::time::sleep;

use super::certificates::{CertificateError, service_names};
use super::configurations::{Found, correct};
use super::kept::{Kept, is_name, renewed};
use super::shown::Certificates;
use super::{Now, SelfMade};

const ATTEMPTS: usize = 5;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// So long API servers may take to hear of a changed configuration.
const SETTLE: Duration = Duration::from_secs(10);

/// What went wrong in one turn. The next turn tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    #[error("{what}: could not {doing} it: {source}")]
    Api { doing: &'static str, what: String, source: Box<kube::Error> },
    #[error("{what}: somebody else wrote it each of {attempts} times")]
    Contended { what: String, attempts: usize },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

pub(super) struct Keeper {
    client: kube::Client,
    settings: SelfMade,
    names: Vec<String>,
    certificates: Certificates,
    now: Now,
}

impl Keeper {
    pub(super) fn new(client: kube::Client, settings: SelfMade, certificates: Certificates, now: Now) -> Self {
        let names = service_names(&settings.service, &settings.namespace, &settings.extra_names);
        Self { client, settings, names, certificates, now }
    }

    /// The first name that no certificate can carry: it would be missed in every one, and renewing would never end.
    pub(super) fn check_names(&self) -> Result<(), String> {
        self.names.iter().find(|name| !is_name(name)).map_or(Ok(()), |name| Err(name.clone()))
    }

    /// Turn after turn, for ever.
    pub(super) async fn run(self) -> Infallible {
        let mut pause = PAUSE_MIN;
        loop {
            match self.turn().await {
                Ok(next) => {
                    pause = PAUSE_MIN;
                    sleep(next).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "the webhook's certificate could not be kept; it is tried again");
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Looks at everything once and says when to look again.
    pub(super) async fn turn(&self) -> Result<Duration, KeepError> {
        let kept = self.kept().await?;
        self.show_if_needed(&kept);
        let (mut corrected, mut absent) = (false, false);
        for (kind, name) in &self.settings.configurations {
            match correct(&self.client, *kind, name, &kept.bundle).await? {
                Found::Right => {}
                Found::Corrected => corrected = true,
                Found::Absent => {
                    absent = true;
                    tracing::warn!(%kind, name, "there is no such webhook configuration (yet)");
                }
            }
        }
        if corrected {
            sleep(SETTLE).await;
        }
        if self.certificates.show(kept.serving.clone()) {
            tracing::info!(until = %kept.serving.validity().until, "the webhook shows another certificate");
        }
        // What was corrected may have been written by somebody with a newer Secret than ours: look again at once.
        Ok(match (corrected, absent) {
            (true, _) => Duration::ZERO,
            (false, true) => self.settings.look_again.min(PAUSE_MAX),
            (false, false) => self.settings.look_again,
        })
    }

    /// Who has nothing good to show need not wait until it is trusted.
    fn show_if_needed(&self, kept: &Kept) {
        let now = (self.now)();
        if self.certificates.current().is_none_or(|shown| shown.validity().is_over(now)) {
            self.certificates.show(kept.serving.clone());
        }
    }

    /// What is in the Secret, made or renewed if it must be.
    async fn kept(&self) -> Result<Kept, KeepError> {
        let SelfMade { namespace, secret: name, .. } = &self.settings;
        let what = || format!("Secret {namespace}/{name}");
        let failed = |doing, source| KeepError::Api { doing, what: what(), source: Box::new(source) };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for _ in 0..ATTEMPTS {
            let now = (self.now)();
            let found = api.get_opt(name).await.map_err(|error| failed("read", error))?;
            let is_new = found.is_none();
            let (written, reason) = match found {
                None => {
                    let new = renewed(namespace, name, None, &self.names, now)?;
                    (api.create(&PostParams::default(), &new).await, "there was none".to_owned())
                }
                Some(old) => {
                    let reason = match Kept::read(&old) {
                        Ok(kept) => match kept.fault(&self.names, now) {
                            None => return Ok(kept),
                            Some(reason) => {
                                // It serves while it is renewed, even if that is forbidden.
                                self.show_if_needed(&kept);
                                reason
                            }
                        },
                        Err(error) => error.to_string(),
                    };
                    // The version that was read goes along: only one of those who notice will replace it.
                    let new = renewed(namespace, name, Some(old), &self.names, now)?;
                    (api.replace(name, &PostParams::default(), &new).await, reason)
                }
            };
            match written {
                Ok(secret) => {
                    tracing::info!(namespace, name, reason, "a new certificate for the webhook is in the Secret");
                    return Ok(Kept::read(&secret)?);
                }
                // Another replica was first (409), or it was deleted meanwhile (404). A new one finds no namespace.
                Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && !is_new) => {}
                Err(error) => return Err(failed("write", error)),
            }
        }
        Err(KeepError::Contended { what: what(), attempts: ATTEMPTS })
    }
}
