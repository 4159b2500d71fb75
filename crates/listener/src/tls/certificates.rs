//! Generates and parses certificates: a self-signed authority, and a serving certificate that it signs.
//!
//! Pure except for the random keys. Must not depend on the clock, files or Kubernetes.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use yasna::{ASN1Result, BERReader, Tag};

const DAY: Duration = Duration::from_secs(24 * 3600);
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(3650 * DAY.as_secs());
const SERVING_LIFETIME: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Clocks of API servers may be behind.
const BACKDATED: Duration = Duration::from_secs(3600);

/// An invalid certificate or key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// No certificate could be generated.
    #[error("certificate for {names:?}: cannot be generated: {source}")]
    Generate {
        /// The requested names.
        names: Vec<String>,
        /// The cause.
        source: rcgen::Error,
    },
    /// A time that certificates cannot express.
    #[error("certificate: {time} is out of the range of certificate times")]
    Time {
        /// The time as text.
        time: String,
    },
    /// Not PEM, or no such item in it.
    #[error("{field}: no {what} in PEM: {reason}")]
    Pem {
        /// The field or file.
        field: &'static str,
        /// The expected item.
        what: &'static str,
        /// The cause.
        reason: String,
    },
    /// The validity cannot be read.
    #[error("{field}: not an X.509 certificate: {reason}")]
    Form {
        /// The field or file.
        field: &'static str,
        /// The cause.
        reason: String,
    },
    /// Certificate and key do not match, or cannot be used for TLS.
    #[error("tls.crt and tls.key: {0}")]
    Pair(rustls::Error),
}

/// A serving certificate with its key, and the authority that signed it, in PEM. The authority's key is discarded, so
/// nothing else can be signed with it.
#[derive(Clone)]
#[allow(missing_debug_implementations)] // it has a key
pub struct GeneratedCertificate {
    /// The authority's certificate.
    pub authority: String,
    /// The serving certificate.
    pub certificate: String,
    /// Its key (PKCS #8).
    pub key: String,
    /// The validity period of the serving certificate.
    pub validity: Validity,
}

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: Timestamp,
    /// The last second.
    pub until: Timestamp,
}

impl Validity {
    /// The time when a third of the lifetime is left.
    pub fn renew_after(self) -> Timestamp {
        // It lies between two valid times, so this cannot overflow.
        self.until - self.until.duration_since(self.from) / 3
    }

    /// Whether the period is over.
    pub fn has_expired(self, now: Timestamp) -> bool {
        now > self.until
    }
}

/// Generates an authority and a serving certificate with this subject for names (DNS or IP).
pub fn generate(subject: &str, names: &[String], now: Timestamp) -> Result<GeneratedCertificate, CertificateError> {
    let validity = Validity { from: shifted(now, -1, BACKDATED)?, until: shifted(now, 1, SERVING_LIFETIME)? };
    let authority_validity = Validity { until: shifted(now, 1, AUTHORITY_LIFETIME)?, ..validity };
    let signed = || -> Result<_, rcgen::Error> {
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        name_and_date(&mut root, &format!("{subject} authority"), authority_validity);
        let root = CertifiedIssuer::self_signed(root, KeyPair::generate()?)?;

        let mut leaf = CertificateParams::new(names)?;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        name_and_date(&mut leaf, subject, validity);
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &root)?.pem();
        Ok(GeneratedCertificate { authority: root.pem(), certificate, key: key.serialize_pem(), validity })
    };
    signed().map_err(|source| CertificateError::Generate { names: names.to_vec(), source })
}

fn name_and_date(params: &mut CertificateParams, name: &str, validity: Validity) {
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // `shifted` rejects times before 1970.
    let date = |time: Timestamp| date_time_ymd(1970, 1, 1) + Duration::from_secs(time.as_second() as u64);
    params.not_before = date(validity.from);
    params.not_after = date(validity.until);
}

/// A time shifted by a duration, in whole seconds as certificates have them; not before 1970.
fn shifted(now: Timestamp, sign: i64, by: Duration) -> Result<Timestamp, CertificateError> {
    let second = now.as_second() + sign * by.as_secs() as i64;
    let time = || CertificateError::Time { time: format!("second {second}") };
    if second < 0 {
        return Err(time());
    }
    Timestamp::from_second(second).map_err(|_| time())
}

/// All certificates of a PEM text, which must have at least one.
pub fn read_certificates(field: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let failed = |reason| CertificateError::Pem { field, what: "certificate", reason };
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let list = list.map_err(|error| failed(error.to_string()))?;
    if list.is_empty() { Err(failed("there is none".to_owned())) } else { Ok(list) }
}

/// Encodes a certificate as PEM.
pub fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", certificate.to_vec()), lines)
}

/// Parses the validity period of a certificate.
pub fn validity(field: &'static str, certificate: &CertificateDer<'_>) -> Result<Validity, CertificateError> {
    let form = |reason: String| CertificateError::Form { field, reason };
    let seconds = yasna::parse_der(certificate, |whole| {
        whole.read_sequence(|parts| {
            let validity = parts.next().read_sequence(|body| {
                body.read_optional(|version| version.read_tagged(Tag::context(0), skip))?;
                for _serial_algorithm_issuer in 0..3 {
                    skip(body.next())?;
                }
                let validity = body.next().read_sequence(|ends| Ok((second(ends.next())?, second(ends.next())?)))?;
                while body.read_optional(skip)?.is_some() {}
                Ok(validity)
            })?;
            while parts.read_optional(skip)?.is_some() {}
            Ok(validity)
        })
    });
    let (from, until) = seconds.map_err(|error| form(error.to_string()))?;
    let time = |second| Timestamp::from_second(second).map_err(|error| form(error.to_string()));
    Ok(Validity { from: time(from)?, until: time(until)? })
}

fn skip(part: BERReader<'_, '_>) -> ASN1Result<()> {
    part.read_der().map(drop)
}

/// Parses a time. Until 2049 the year has two digits (UTCTime), then four (GeneralizedTime).
fn second(time: BERReader<'_, '_>) -> ASN1Result<i64> {
    if time.lookahead_tag()? == yasna::tags::TAG_UTCTIME {
        Ok(time.read_utctime()?.datetime().unix_timestamp())
    } else {
        Ok(time.read_generalized_time()?.datetime().unix_timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn read(pem: &str) -> Validity {
        validity("ca.crt", &read_certificates("ca.crt", pem.as_bytes()).unwrap()[0]).unwrap()
    }

    #[test]
    fn validity_round_trips() {
        let generated = generate("a", &["a.b.svc".to_owned()], at("2030-01-02T03:04:05.6Z")).unwrap();
        let expected = Validity { from: at("2030-01-02T02:04:05Z"), until: at("2031-01-02T03:04:05Z") };
        assert_eq!(generated.validity, expected);
        assert_eq!(read(&generated.certificate), expected);
        assert_eq!(read(&generated.authority).until, at("2039-12-31T03:04:05Z"), "ten times 365 days");
        assert!(!expected.has_expired(expected.until) && expected.has_expired(expected.until + Duration::from_secs(1)));
    }

    #[test]
    fn years_with_four_digits_are_parsed() {
        let generated = generate("a", &["a".to_owned()], at("2055-01-01T00:00:00Z")).unwrap();
        assert_eq!(read(&generated.certificate), generated.validity);
        assert_eq!(generated.validity.renew_after(), at("2055-09-01T07:40:00Z"));
    }

    #[test]
    fn invalid_input_is_refused_with_its_field() {
        let refused = |pem: &[u8]| read_certificates("tls.crt", pem).unwrap_err().to_string();
        assert_eq!(refused(b""), "tls.crt: no certificate in PEM: there is none");
        assert!(refused(b"-----BEGIN CERTIFICATE-----\nAAAA").starts_with("tls.crt: no certificate in PEM: "));
        let wrong = validity("ca.crt", &CertificateDer::from(vec![0x30, 0x01, 0x00])).unwrap_err().to_string();
        assert!(wrong.starts_with("ca.crt: not an X.509 certificate"), "{wrong}");
        assert!(generate("a", &["ä".to_owned()], at("2030-01-01T00:00:00Z")).is_err());
        assert!(generate("a", &["a".to_owned()], at("1969-01-01T00:00:00Z")).is_err());
    }
}
