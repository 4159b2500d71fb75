//! The certificate stored in the Secret: whether it must be renewed, and the renewed Secret.
//!
//! Pure functions of the object. Must not depend on the API or the clock.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use muster_listener::tls::certificates::{self, CertificateError, read_certificates, validity};
use muster_listener::tls::resolver::ServingCertificate;
use rcgen::string::Ia5String;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;

/// The annotation with the time after which the certificate is renewed. An earlier time can be written to force a
/// renewal.
pub(super) const RENEW_AFTER: &str = "muster.dev/renew-after";
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// How many old authorities stay in the bundle. More would be useless: a certificate is valid for a year and renewed
/// after eight months.
const OLD_AUTHORITIES_MAX: usize = 4;

/// A serving certificate, and the CA bundle that clients must trust.
#[derive(Clone, Debug)]
pub(super) struct StoredCertificate {
    pub(super) serving: ServingCertificate,
    /// In PEM.
    pub(super) bundle: Vec<u8>,
    authorities: Vec<CertificateDer<'static>>,
    renew_after: Timestamp,
}

impl StoredCertificate {
    /// Reads the certificate in a Secret.
    pub(super) fn read(secret: &Secret) -> Result<Self, CertificateError> {
        let bundle = value(secret, AUTHORITY);
        let authorities = read_certificates(AUTHORITY, bundle)?;
        let serving = ServingCertificate::read(value(secret, CERTIFICATE), value(secret, KEY))?;
        let written = secret.metadata.annotations.as_ref().and_then(|all| all.get(RENEW_AFTER)?.parse().ok());
        let own = serving.validity().renew_after();
        let renew_after = written.map_or(own, |written: Timestamp| written.min(own));
        Ok(Self { serving, bundle: bundle.to_vec(), authorities, renew_after })
    }

    /// Why it must be renewed, if it must: it is due, a name is missing, or the bundle does not verify it.
    pub(super) fn renewal_reason(&self, names: &[String], now: Timestamp) -> Option<String> {
        if now >= self.renew_after {
            return Some(format!("it was due for renewal after {}", self.renew_after));
        }
        // A clock that is behind must not cause a renewal: two replicas would renew in turn.
        let time = now.max(self.serving.validity().from);
        verify(&self.serving.pair().cert, &self.authorities, names, time).err()
    }
}

fn verify(
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    names: &[String],
    time: Timestamp,
) -> Result<(), String> {
    let (own, intermediates) = chain.split_first().ok_or("tls.crt: no certificate")?;
    let own = ParsedCertificate::try_from(own).map_err(|error| format!("tls.crt: {error}"))?;
    for name in names {
        let wanted = ServerName::try_from(name.as_str()).map_err(|error| format!("name {name:?}: {error}"))?;
        verify_server_name(&own, &wanted).map_err(|_| format!("tls.crt: the name {name:?} is not in it"))?;
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned().map(CertificateDer::into_owned));
    let time = UnixTime::since_unix_epoch(Duration::from_secs(time.as_second().max(0) as u64));
    let algorithms = default_provider().signature_verification_algorithms;
    verify_server_cert_signed_by_trust_anchor(&own, &roots, intermediates, time, algorithms.all)
        .map_err(|error| format!("tls.crt: not verified by ca.crt: {error}"))
}

/// Whether a name is valid in a certificate and as a TLS server name.
pub(super) fn is_valid_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok() && Ia5String::try_from(name).is_ok()
}

/// A Secret with a new certificate: a new object, or the old one with all foreign fields unchanged. Old authorities
/// stay in the bundle while they are valid, since other replicas still serve certificates that they signed.
pub(super) fn renewed_secret(
    namespace: &str,
    name: &str,
    old: Option<Secret>,
    names: &[String],
    now: Timestamp,
) -> Result<Secret, CertificateError> {
    let generated = certificates::generate("muster webhook", names, now)?;
    let mut bundle = generated.authority;
    for authority in old.as_ref().map(|old| valid_authorities(old, now)).unwrap_or_default() {
        bundle.push_str(&authority);
    }
    let mut secret = old.unwrap_or_else(|| Secret { type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() });
    secret.metadata.namespace = Some(namespace.to_owned());
    secret.metadata.name = Some(name.to_owned());
    let renew_after = generated.validity.renew_after().to_string();
    secret.metadata.annotations.get_or_insert_default().insert(RENEW_AFTER.to_owned(), renew_after);
    let fields = [(AUTHORITY, bundle), (CERTIFICATE, generated.certificate), (KEY, generated.key)];
    let data: &mut BTreeMap<_, _> = secret.data.get_or_insert_default();
    data.extend(fields.map(|(field, text)| (field.to_owned(), ByteString(text.into_bytes()))));
    Ok(secret)
}

/// The newest authorities of a Secret that have not expired, in PEM. Unreadable ones are dropped.
fn valid_authorities(secret: &Secret, now: Timestamp) -> Vec<String> {
    let all = read_certificates(AUTHORITY, value(secret, AUTHORITY)).unwrap_or_default();
    let valid = all.iter().filter(|one| validity(AUTHORITY, one).is_ok_and(|validity| !validity.has_expired(now)));
    valid.take(OLD_AUTHORITIES_MAX).map(certificates::to_pem).collect()
}

fn value<'a>(secret: &'a Secret, field: &str) -> &'a [u8] {
    secret.data.as_ref().and_then(|data| data.get(field)).map_or(&[], |bytes| &bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn start() -> Timestamp {
        at("2030-01-01T00:00:00Z")
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn new_secret(list: &[&str], now: Timestamp) -> Secret {
        renewed_secret("ns", "certs", None, &names(list), now).unwrap()
    }

    fn renewal_reason(secret: &Secret, list: &[&str], now: &str) -> Option<String> {
        StoredCertificate::read(secret).unwrap().renewal_reason(&names(list), at(now))
    }

    #[test]
    fn new_certificate_is_valid_until_a_third_of_its_lifetime_is_left() {
        let secret = new_secret(&["hook.ns.svc", "127.0.0.1"], start());
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
        assert_eq!(secret.metadata.annotations.as_ref().unwrap()[RENEW_AFTER], "2030-09-01T07:40:00Z");
        let wanted = ["hook.ns.svc", "127.0.0.1"];
        assert_eq!(renewal_reason(&secret, &wanted, "2030-01-01T00:00:00Z"), None);
        assert_eq!(renewal_reason(&secret, &wanted, "2029-06-01T00:00:00Z"), None, "a clock that is behind");
        assert_eq!(renewal_reason(&secret, &wanted, "2030-09-01T07:39:59Z"), None);
        let due = "it was due for renewal after 2030-09-01T07:40:00Z".to_owned();
        assert_eq!(renewal_reason(&secret, &wanted, "2030-09-01T07:40:00Z"), Some(due));
    }

    #[test]
    fn renewal_time_can_be_moved_earlier_but_not_later() {
        let mut secret = new_secret(&["a"], start());
        let mut write = |time: &str| {
            secret.metadata.annotations.get_or_insert_default().insert(RENEW_AFTER.to_owned(), time.to_owned());
            renewal_reason(&secret, &["a"], "2030-02-01T00:00:00Z").is_some()
        };
        assert!(write("2030-01-31T00:00:00Z"));
        assert!(!write("2030-02-02T00:00:00Z"));
        assert!(!write("soon"));
        write("2040-01-01T00:00:00Z");
        assert!(renewal_reason(&secret, &["a"], "2030-12-01T00:00:00Z").is_some());
    }

    #[test]
    fn missing_names_and_foreign_authorities_cause_renewal() {
        let mut secret = new_secret(&["a", "10.0.0.1"], start());
        let now = "2030-01-01T00:00:00Z";
        assert_eq!(renewal_reason(&secret, &["a", "b"], now), Some("tls.crt: the name \"b\" is not in it".to_owned()));
        assert_eq!(
            renewal_reason(&secret, &["10.0.0.2"], now),
            Some("tls.crt: the name \"10.0.0.2\" is not in it".to_owned())
        );
        let other = new_secret(&["a"], start());
        secret.data.as_mut().unwrap().insert(AUTHORITY.to_owned(), other.data.unwrap()[AUTHORITY].clone());
        let reason = renewal_reason(&secret, &["a"], now).unwrap();
        assert!(reason.starts_with("tls.crt: not verified by ca.crt"), "{reason}");
    }

    #[test]
    fn unreadable_fields_are_refused_by_name() {
        let mut secret = new_secret(&["a"], start());
        let other = new_secret(&["a"], start());
        let key = other.data.unwrap()[KEY].clone();
        secret.data.as_mut().unwrap().insert(KEY.to_owned(), key);
        assert!(matches!(StoredCertificate::read(&secret), Err(CertificateError::Pair(_))));
        secret.data.as_mut().unwrap().insert(KEY.to_owned(), ByteString(b"key".to_vec()));
        assert!(matches!(StoredCertificate::read(&secret), Err(CertificateError::Pem { field: KEY, .. })));
        assert!(matches!(
            StoredCertificate::read(&Secret::default()),
            Err(CertificateError::Pem { field: AUTHORITY, .. })
        ));
    }

    #[test]
    fn renewed_secret_keeps_valid_authorities_and_foreign_fields() {
        let mut first = new_secret(&["a"], start());
        first.metadata.labels = Some(BTreeMap::from([("owner".to_owned(), "ops".to_owned())]));
        first.data.as_mut().unwrap().insert("note".to_owned(), ByteString(b"hello".to_vec()));
        let later = at("2031-06-01T00:00:00Z");
        let second = renewed_secret("ns", "certs", Some(first.clone()), &names(&["a"]), later).unwrap();
        assert_eq!(second.metadata.labels, first.metadata.labels);
        assert_eq!(second.data.as_ref().unwrap()["note"].0, b"hello");
        let stored = StoredCertificate::read(&second).unwrap();
        assert_eq!(stored.renewal_reason(&names(&["a"]), later), None, "it had expired and is valid again");
        let old = StoredCertificate::read(&first).unwrap();
        assert_eq!(stored.authorities.len(), 2);
        let then = verify(&old.serving.pair().cert, &stored.authorities, &names(&["a"]), start());
        assert_eq!(then, Ok(()), "replicas that serve the old one are still trusted");
        let third = renewed_secret("ns", "certs", Some(second), &names(&["a"]), at("2040-06-01T00:00:00Z")).unwrap();
        let authorities = StoredCertificate::read(&third).unwrap().authorities;
        assert_eq!(authorities.len(), 2, "the first authority has expired");
        assert_eq!(authorities[1], stored.authorities[0]);
    }

    #[test]
    fn bundle_size_is_bounded() {
        let mut secret = new_secret(&["a"], start());
        for _ in 0..8 {
            secret = renewed_secret("ns", "certs", Some(secret), &names(&["a"]), start()).unwrap();
        }
        assert_eq!(StoredCertificate::read(&secret).unwrap().authorities.len(), OLD_AUTHORITIES_MAX + 1);
    }
}
