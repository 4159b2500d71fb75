//! Certificates that exist in memory only, for clients that do not verify them.
//!
//! Must not depend on Kubernetes.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::certificates::{CertificateError, generate};
use super::resolver::{CertificateResolver, ServingCertificate};

const RETRY_DELAY: Duration = Duration::from_secs(60);

/// Serves a new certificate and renews it in time, forever.
pub async fn renew(
    listener: &'static str,
    names: Vec<String>,
    certificates: CertificateResolver,
    now: impl Fn() -> Timestamp,
) -> Infallible {
    loop {
        let delay = match new_certificate(listener, &names, now()) {
            Ok(serving) => {
                let renew_after = serving.validity().renew_after();
                certificates.set(serving);
                renew_after.duration_since(now()).try_into().unwrap_or(RETRY_DELAY)
            }
            Err(error) => {
                tracing::warn!(listener, %error, "no certificate could be generated");
                RETRY_DELAY
            }
        };
        sleep(delay).await;
    }
}

fn new_certificate(listener: &str, names: &[String], now: Timestamp) -> Result<ServingCertificate, CertificateError> {
    let generated = generate(&format!("muster {listener}"), names, now)?;
    ServingCertificate::read(generated.certificate.as_bytes(), generated.key.as_bytes())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn certificate_is_renewed_before_it_expires() {
        let (start, began): (Timestamp, _) = ("2030-01-01T00:00:00Z".parse().unwrap(), Instant::now());
        let now = move || start + began.elapsed();
        let resolver = CertificateResolver::default();
        let renewing = tokio::spawn(renew("test", vec!["localhost".to_owned()], resolver.clone(), now));
        resolver.ready().await;
        let mut served = Vec::new();
        for _ in 0..36 {
            sleep(Duration::from_secs(30 * 24 * 3600)).await;
            let current = resolver.current().unwrap();
            assert!(!current.validity().has_expired(now()));
            served.push(current.pair().cert[0].clone());
        }
        served.dedup();
        assert!((4..=6).contains(&served.len()), "{} certificates in three years", served.len());
        renewing.abort();
    }
}
