//! What the Secret says: whether the certificate in it is still good, and what to write if it is not.
//!
//! Pure functions on the object. It must not know the API, nor the clock.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rcgen::string::Ia5String;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;

use super::certificates::{self, CertificateError, read_certificates, validity};
use super::shown::Serving;

/// When the certificate in the Secret is to be renewed. Whoever writes an earlier time has it renewed then.
pub(super) const RENEW_AFTER: &str = "muster.dev/renew-after";
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// More old authorities than this are of no use: a certificate lives for a year and is renewed after eight months.
const OLD_AUTHORITIES_MAX: usize = 4;

/// A certificate that can be shown, and the authorities that callers must trust.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) serving: Serving,
    /// In PEM.
    pub(super) bundle: Vec<u8>,
    authorities: Vec<CertificateDer<'static>>,
    renew_after: Timestamp,
}

impl Kept {
    /// Reads what is in a Secret.
    pub(super) fn read(secret: &Secret) -> Result<Self, CertificateError> {
        let bundle = value(secret, AUTHORITY);
        let authorities = read_certificates(AUTHORITY, bundle)?;
        let serving = Serving::read(value(secret, CERTIFICATE), value(secret, KEY))?;
        let written = secret.metadata.annotations.as_ref().and_then(|all| all.get(RENEW_AFTER)?.parse().ok());
        let own = serving.validity().renew_after();
        let renew_after = written.map_or(own, |written: Timestamp| written.min(own));
        Ok(Self { serving, bundle: bundle.to_vec(), authorities, renew_after })
    }

    /// Why it must be renewed, if it must: its time has come, a name is missing, or its own authorities do not vouch
    /// for it.
    pub(super) fn fault(&self, names: &[String], now: Timestamp) -> Option<String> {
        if now >= self.renew_after {
            return Some(format!("it was to be renewed after {}", self.renew_after));
        }
        // A clock that is behind is no reason: two replicas would renew in turns.
        let moment = now.max(self.serving.validity().from);
        vouched(&self.serving.pair().cert, &self.authorities, names, moment).err()
    }
}

fn vouched(
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    names: &[String],
    moment: Timestamp,
) -> Result<(), String> {
    let (own, between) = chain.split_first().ok_or("tls.crt: no certificate")?;
    let own = ParsedCertificate::try_from(own).map_err(|error| format!("tls.crt: {error}"))?;
    for name in names {
        let wanted = ServerName::try_from(name.as_str()).map_err(|error| format!("name {name:?}: {error}"))?;
        verify_server_name(&own, &wanted).map_err(|_| format!("tls.crt: the name {name:?} is not in it"))?;
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned().map(CertificateDer::into_owned));
    let moment = UnixTime::since_unix_epoch(Duration::from_secs(moment.as_second().max(0) as u64));
    let algorithms = default_provider().signature_verification_algorithms;
    verify_server_cert_signed_by_trust_anchor(&own, &roots, between, moment, algorithms.all)
        .map_err(|error| format!("tls.crt: ca.crt does not vouch for it: {error}"))
}

/// Can a certificate carry this name, and can a caller ask for it?
pub(super) fn is_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok() && Ia5String::try_from(name).is_ok()
}

/// A Secret with a new certificate: a new object, or the old one with all that is not ours left as it is. The old
/// authorities stay in the bundle while they are good, since other replicas still show what they signed.
pub(super) fn renewed(
    namespace: &str,
    name: &str,
    old: Option<Secret>,
    names: &[String],
    now: Timestamp,
) -> Result<Secret, CertificateError> {
    let made = certificates::make(names, now)?;
    let mut bundle = made.authority;
    for authority in old.as_ref().map(|old| good_authorities(old, now)).unwrap_or_default() {
        bundle.push_str(&authority);
    }
    let mut secret = old.unwrap_or_else(|| Secret { type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() });
    secret.metadata.namespace = Some(namespace.to_owned());
    secret.metadata.name = Some(name.to_owned());
    let renew_after = made.validity.renew_after().to_string();
    secret.metadata.annotations.get_or_insert_default().insert(RENEW_AFTER.to_owned(), renew_after);
    let fields = [(AUTHORITY, bundle), (CERTIFICATE, made.certificate), (KEY, made.key)];
    let data: &mut BTreeMap<_, _> = secret.data.get_or_insert_default();
    data.extend(fields.map(|(field, text)| (field.to_owned(), ByteString(text.into_bytes()))));
    Ok(secret)
}

/// The newest authorities of a Secret that are not over, in PEM. What cannot be read vouches for nobody.
fn good_authorities(secret: &Secret, now: Timestamp) -> Vec<String> {
    let all = read_certificates(AUTHORITY, value(secret, AUTHORITY)).unwrap_or_default();
    let good = all.iter().filter(|one| validity(AUTHORITY, one).is_ok_and(|validity| !validity.is_over(now)));
    good.take(OLD_AUTHORITIES_MAX).map(certificates::write).collect()
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

    fn made(list: &[&str], now: Timestamp) -> Secret {
        renewed("ns", "certs", None, &names(list), now).unwrap()
    }

    fn fault(secret: &Secret, list: &[&str], now: &str) -> Option<String> {
        Kept::read(secret).unwrap().fault(&names(list), at(now))
    }

    #[test]
    fn a_new_one_is_good_until_a_third_of_its_life_is_left() {
        let secret = made(&["hook.ns.svc", "127.0.0.1"], start());
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
        assert_eq!(secret.metadata.annotations.as_ref().unwrap()[RENEW_AFTER], "2030-09-01T07:40:00Z");
        let wanted = ["hook.ns.svc", "127.0.0.1"];
        assert_eq!(fault(&secret, &wanted, "2030-01-01T00:00:00Z"), None);
        assert_eq!(fault(&secret, &wanted, "2029-06-01T00:00:00Z"), None, "a clock that is behind");
        assert_eq!(fault(&secret, &wanted, "2030-09-01T07:39:59Z"), None);
        let due = "it was to be renewed after 2030-09-01T07:40:00Z".to_owned();
        assert_eq!(fault(&secret, &wanted, "2030-09-01T07:40:00Z"), Some(due));
    }

    #[test]
    fn an_earlier_time_can_be_written_but_not_a_later_one() {
        let mut secret = made(&["a"], start());
        let mut write = |time: &str| {
            secret.metadata.annotations.get_or_insert_default().insert(RENEW_AFTER.to_owned(), time.to_owned());
            fault(&secret, &["a"], "2030-02-01T00:00:00Z").is_some()
        };
        assert!(write("2030-01-31T00:00:00Z"));
        assert!(!write("2030-02-02T00:00:00Z"));
        assert!(!write("soon"));
        write("2040-01-01T00:00:00Z");
        assert!(fault(&secret, &["a"], "2030-12-01T00:00:00Z").is_some());
    }

    #[test]
    fn missing_names_and_foreign_authorities_are_faults() {
        let mut secret = made(&["a", "10.0.0.1"], start());
        let now = "2030-01-01T00:00:00Z";
        assert_eq!(fault(&secret, &["a", "b"], now), Some("tls.crt: the name \"b\" is not in it".to_owned()));
        assert_eq!(fault(&secret, &["10.0.0.2"], now), Some("tls.crt: the name \"10.0.0.2\" is not in it".to_owned()));
        let other = made(&["a"], start());
        secret.data.as_mut().unwrap().insert(AUTHORITY.to_owned(), other.data.unwrap()[AUTHORITY].clone());
        let reason = fault(&secret, &["a"], now).unwrap();
        assert!(reason.starts_with("tls.crt: ca.crt does not vouch for it"), "{reason}");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_field() {
        let mut secret = made(&["a"], start());
        let other = made(&["a"], start());
        let key = other.data.unwrap()[KEY].clone();
        secret.data.as_mut().unwrap().insert(KEY.to_owned(), key);
        assert!(matches!(Kept::read(&secret), Err(CertificateError::Pair(_))));
        secret.data.as_mut().unwrap().insert(KEY.to_owned(), ByteString(b"key".to_vec()));
        assert!(matches!(Kept::read(&secret), Err(CertificateError::Pem { field: KEY, .. })));
        assert!(matches!(Kept::read(&Secret::default()), Err(CertificateError::Pem { field: AUTHORITY, .. })));
    }

    #[test]
    fn a_renewed_one_keeps_good_authorities_and_what_is_not_ours() {
        let mut first = made(&["a"], start());
        first.metadata.labels = Some(BTreeMap::from([("owner".to_owned(), "ops".to_owned())]));
        first.data.as_mut().unwrap().insert("note".to_owned(), ByteString(b"hello".to_vec()));
        let later = at("2031-06-01T00:00:00Z");
        let second = renewed("ns", "certs", Some(first.clone()), &names(&["a"]), later).unwrap();
        assert_eq!(second.metadata.labels, first.metadata.labels);
        assert_eq!(second.data.as_ref().unwrap()["note"].0, b"hello");
        let kept = Kept::read(&second).unwrap();
        assert_eq!(kept.fault(&names(&["a"]), later), None, "it was over and is good again");
        let old = Kept::read(&first).unwrap();
        assert_eq!(kept.authorities.len(), 2);
        let then = vouched(&old.serving.pair().cert, &kept.authorities, &names(&["a"]), start());
        assert_eq!(then, Ok(()), "replicas that show the old one are still trusted");
        let third = renewed("ns", "certs", Some(second), &names(&["a"]), at("2040-06-01T00:00:00Z")).unwrap();
        let authorities = Kept::read(&third).unwrap().authorities;
        assert_eq!(authorities.len(), 2, "the first authority is over");
        assert_eq!(authorities[1], kept.authorities[0]);
    }

    #[test]
    fn the_bundle_does_not_grow_without_end() {
        let mut secret = made(&["a"], start());
        for _ in 0..8 {
            secret = renewed("ns", "certs", Some(secret), &names(&["a"]), start()).unwrap();
        }
        assert_eq!(Kept::read(&secret).unwrap().authorities.len(), OLD_AUTHORITIES_MAX + 1);
    }
}
