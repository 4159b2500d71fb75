//! The string and number formats that kube-apiserver validates.
//!
//! A format that kube-apiserver does not know has no effect here either. Must not depend on schemas.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use muster_api::names::{check_dns_label, check_dns_subdomain};
use regex::Regex;

use super::node::Type;

/// A validated format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// The format as written in the schema, for messages.
    pub(super) written: String,
    /// The kind of format.
    pub(super) kind: FormatKind,
}

/// The kinds of formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormatKind {
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits, as all are.
    Int64,
    /// A number of 32 bits.
    Float,
    /// A number of 64 bits, as all are.
    Double,
    /// A date and a time.
    DateTime,
    /// A date.
    Date,
    /// A duration.
    Duration,
    /// Base64.
    Byte,
    /// Any string.
    Password,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// An IP address with a prefix length.
    Cidr,
    /// A MAC address.
    Mac,
    /// A host name.
    Hostname,
    /// An absolute URI or path.
    Uri,
    /// An email address.
    Email,
    /// A UUID of this version, or of any.
    Uuid(Option<u8>),
    /// A DNS label.
    ShortName,
    /// A DNS subdomain.
    LongName,
    /// A color such as `#fff`.
    HexColor,
    /// A US social security number.
    Ssn,
}

/// Formats that kube-apiserver validates and the playground does not support.
const NOT_CHECKED_HERE: [&str; 6] = ["bsonobjectid", "isbn", "isbn10", "isbn13", "creditcard", "rgbcolor"];

/// A format that kube-apiserver would validate.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the format {0} is not supported by the playground")]
pub(super) struct UnsupportedFormat(&'static str);

impl Format {
    /// The format for values of this type; `None` if it has no effect, an error if it has an effect that is not
    /// supported here. `type_` is `None` where the schema has no type.
    pub(super) fn parse(written: &str, type_: Option<Type>) -> Result<Option<Format>, UnsupportedFormat> {
        let kind = match type_ {
            None | Some(Type::String) => text_format(&written.replace('-', ""))?,
            Some(Type::Integer) => match written {
                "int32" => Some(FormatKind::Int32),
                "int64" => Some(FormatKind::Int64),
                _ => None,
            },
            Some(Type::Number) => match written {
                "float" => Some(FormatKind::Float),
                "double" => Some(FormatKind::Double),
                _ => None,
            },
            Some(Type::Object | Type::Array | Type::Boolean) => None,
        };
        Ok(kind.map(|kind| Format { written: written.to_owned(), kind }))
    }

    /// Whether the format applies to strings.
    pub(super) fn is_string_format(&self) -> bool {
        !matches!(self.kind, FormatKind::Int32 | FormatKind::Int64 | FormatKind::Float | FormatKind::Double)
    }

    /// Whether a string has this format.
    pub(super) fn accepts(&self, text: &str) -> bool {
        match self.kind {
            FormatKind::Int32 | FormatKind::Int64 | FormatKind::Float | FormatKind::Double | FormatKind::Password => {
                true
            }
            FormatKind::DateTime => is_date_time(text),
            FormatKind::Date => is_date(text),
            FormatKind::Duration => is_duration(text),
            FormatKind::Byte => BASE64.is_match(text),
            FormatKind::Ipv4 => sloppy_ip(text) && text.contains('.'),
            FormatKind::Ipv6 => text.parse::<Ipv6Addr>().is_ok() && text.contains(':'),
            FormatKind::Cidr => is_cidr(text),
            FormatKind::Mac => MAC.is_match(text),
            FormatKind::Hostname => {
                HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
            }
            FormatKind::Uri => URI.is_match(text),
            FormatKind::Email => EMAIL.is_match(text),
            FormatKind::Uuid(version) => is_uuid(text, version),
            FormatKind::ShortName => check_dns_label(text).is_ok(),
            FormatKind::LongName => check_dns_subdomain(text).is_ok(),
            FormatKind::HexColor => HEX_COLOR.is_match(text),
            FormatKind::Ssn => SSN.is_match(text),
        }
    }
}

fn text_format(normalized: &str) -> Result<Option<FormatKind>, UnsupportedFormat> {
    if let Some(known) = NOT_CHECKED_HERE.into_iter().find(|known| *known == normalized) {
        return Err(UnsupportedFormat(known));
    }
    Ok(Some(match normalized {
        "datetime" => FormatKind::DateTime,
        "date" => FormatKind::Date,
        "duration" => FormatKind::Duration,
        "byte" => FormatKind::Byte,
        "password" => FormatKind::Password,
        "ipv4" => FormatKind::Ipv4,
        "ipv6" => FormatKind::Ipv6,
        "cidr" => FormatKind::Cidr,
        "mac" => FormatKind::Mac,
        "hostname" => FormatKind::Hostname,
        "uri" => FormatKind::Uri,
        "email" => FormatKind::Email,
        "uuid" => FormatKind::Uuid(None),
        "uuid3" => FormatKind::Uuid(Some(3)),
        "uuid4" => FormatKind::Uuid(Some(4)),
        "uuid5" => FormatKind::Uuid(Some(5)),
        "k8sshortname" => FormatKind::ShortName,
        "k8slongname" => FormatKind::LongName,
        "hexcolor" => FormatKind::HexColor,
        "ssn" => FormatKind::Ssn,
        _ => return Ok(None),
    }))
}

#[allow(clippy::unwrap_used)] // constant patterns, each compiled by a test
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

static BASE64: LazyLock<Regex> =
    LazyLock::new(|| regex("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"));
static MAC: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        "^(?i:[0-9a-f]{2}(?:(?::[0-9a-f]{2}){5}|(?::[0-9a-f]{2}){7}|(?:-[0-9a-f]{2}){5}|(?:-[0-9a-f]{2}){7})|[0-9a-f]{4}(?:\\.[0-9a-f]{4}){2,3})$",
    )
});
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let unit = "[a-zA-Z0-9\\p{S}\\p{L}]";
    let inner = "[a-zA-Z0-9\\-\\p{S}\\p{L}]";
    regex(&format!("^({unit}(-?{unit}{{0,62}})?|({unit}({inner}{{0,61}}{unit})?\\.)+[a-zA-Z\\p{{L}}]{{2,63}})$"))
});
// Approximates Go's parser: a scheme or a path, and no character that must be escaped.
static URI: LazyLock<Regex> = LazyLock::new(|| {
    let any = "[^\\x00-\\x1f\\x7f]*";
    let host = "[^\\x00-\\x20\\x7f/?#]*";
    regex(&format!("^(?:/{any}|[A-Za-z][A-Za-z0-9+.-]*:(?://{host}(?:[/?#]{any})?|/?[^\\x00-\\x20\\x7f/]{any}))$"))
});
// Approximates Go's parser: an address, alone or in angle brackets after a name.
static EMAIL: LazyLock<Regex> =
    LazyLock::new(|| regex("^(?:[^<>@]*<[^\\s<>@]+@[^\\s<>@]+>|[^\\s<>@,;:]+@[^\\s<>@,;:]+)$"));
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| regex("^#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static SSN: LazyLock<Regex> = LazyLock::new(|| regex("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| regex("^([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})$"));
static GO_DURATION: LazyLock<Regex> =
    LazyLock::new(|| regex("^[+-]?(?:0|(?:(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)$"));
static WORDED_DURATION: LazyLock<Regex> = LazyLock::new(|| {
    regex("(?i)[0-9]+\\s*(?:(?:ns|us|µs|ms|s|m|h|hr|d|w|wk)(?:[^a-zµ]|$)|nano|micro|milli|sec|min|hour|day|week)")
});

fn is_date(text: &str) -> bool {
    // Go requires four, two and two digits, and a day that exists.
    text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && {
        text.parse::<jiff::civil::Date>().is_ok() && text.as_bytes()[4] == b'-'
    }
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date)
        && TIME.captures(time).is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

fn is_duration(text: &str) -> bool {
    GO_DURATION.is_match(text) || WORDED_DURATION.is_match(text)
}

/// An IP address; leading zeros in an IPv4 address are accepted.
fn sloppy_ip(text: &str) -> bool {
    sloppy_ipv4(text) || text.parse::<Ipv6Addr>().is_ok()
}

fn sloppy_ipv4(text: &str) -> bool {
    let numbers: Vec<&str> = text.split('.').collect();
    numbers.len() == 4 && numbers.iter().all(|number| is_byte(number)) || text.parse::<Ipv4Addr>().is_ok()
}

fn is_byte(digits: &str) -> bool {
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && digits.trim_start_matches('0').len() <= 3
        && digits.parse::<u32>().is_ok_and(|number| number <= 255)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = if sloppy_ipv4(address) {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    !length.is_empty()
        && length.bytes().all(|byte| byte.is_ascii_digit())
        && length.parse::<u32>().is_ok_and(|length| length <= most)
}

/// Dashes are optional.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    static UUID: LazyLock<Regex> = LazyLock::new(|| {
        regex("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}$")
    });
    let Some(found) = UUID.captures(text) else { return false };
    let Some(version) = version else { return true };
    let variant_is_known = "89abAB".contains(&found[2]);
    found[1] == version.to_string() && (version == 3 || variant_is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_match_their_format() {
        for (format, good, bad) in [
            (
                "date-time",
                &["2024-02-29T23:59:59Z", "2024-01-01t00:00:00.5+01:00"][..],
                &["2024-02-30T00:00:00Z", "2024-01-01", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00", ""][..],
            ),
            ("date", &["2024-02-29"], &["2023-02-29", "24-01-01", "2024-1-1", "20240101"]),
            ("duration", &["1h30m", "22 ns", "3 days", "-1.5s", "0"], &["", "abc", "1 x"]),
            ("byte", &["aGk=", "YWJj"], &["aGk", "!!!!", ""]),
            ("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "::1", "256.1.1.1", "a.b.c.d"]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "x"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "x/1", "10.0.0.0/+1"]),
            ("mac", &["00:1a:2B:3c:4d:5e", "001a.2b3c.4d5e"], &["00:1a", "00:1a-2b:3c:4d:5e"]),
            ("hostname", &["a", "example.com", "9.example.com"], &["", "-a", "a..b", "a_b"]),
            ("uri", &["https://example.com/x?y", "/a"], &["", "a", "a b"]),
            ("email", &["a@b.example", "A <a@b>"], &["a", "@b", "a@"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"], &["123"]),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("k8s-short-name", &["a-b"], &["a.b", "A"]),
            ("k8s-long-name", &["a.b"], &["a_b"]),
            ("hexcolor", &["#fff", "AbCdEf"], &["#ff"]),
            ("ssn", &["111-22-3333"], &["1"]),
            ("password", &["", "x"], &[]),
        ] {
            let format = Format::parse(format, Some(Type::String)).unwrap().unwrap();
            for text in good {
                assert!(format.accepts(text), "{format:?} {text}");
            }
            for text in bad {
                assert!(!format.accepts(text), "{format:?} {text}");
            }
        }
    }

    #[test]
    fn formats_apply_to_their_types_only() {
        assert_eq!(Format::parse("int32", Some(Type::String)), Ok(None));
        assert_eq!(Format::parse("date", Some(Type::Integer)), Ok(None));
        assert_eq!(Format::parse("my-own", Some(Type::String)), Ok(None));
        assert!(Format::parse("isbn", Some(Type::String)).is_err());
        assert!(Format::parse("date-time", None).unwrap().is_some());
    }
}
