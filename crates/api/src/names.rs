//! Validation of Kubernetes names: DNS labels, DNS subdomains, label keys and label values.
//!
//! Each check accepts exactly what the Kubernetes API server accepts, and returns the reason for a refusal. Must not
//! depend on where the name is used.

/// The maximum number of characters of a DNS label, of the name part of a label key and of a label value.
const SHORT: usize = 63;
/// The maximum number of characters of a DNS subdomain.
const LONG: usize = 253;

/// Checks a DNS label: `[a-z0-9]([-a-z0-9]*[a-z0-9])?`, at most 63 characters.
pub fn check_dns_label(text: &str) -> Result<(), String> {
    check_length(text, SHORT)?;
    check_label_syntax(text).map_err(|reason| format!("a DNS label {reason}"))
}

/// Checks a DNS subdomain: DNS labels joined by dots, at most 253 characters in all.
///
/// As in Kubernetes, a single label inside it may be longer than 63 characters.
pub fn check_dns_subdomain(text: &str) -> Result<(), String> {
    check_length(text, LONG)?;
    text.split('.').try_for_each(|label| {
        check_label_syntax(label).map_err(|reason| format!("each part of a DNS subdomain {reason}"))
    })
}

/// Checks a qualified name, the form of label keys and resource names: a name, or a DNS
/// subdomain, `/` and a name.
pub fn check_label_key(text: &str) -> Result<(), String> {
    let name = match text.split_once('/') {
        None => text,
        Some((prefix, name)) => {
            check_dns_subdomain(prefix).map_err(|reason| format!("the prefix: {reason}"))?;
            name
        }
    };
    if name.contains('/') {
        return Err("must have at most one \"/\"".to_owned());
    }
    check_length(name, SHORT).and_then(|()| check_name_syntax(name)).map_err(|reason| format!("the name: {reason}"))
}

/// Checks a label value: empty, or at most 63 characters with the syntax of a label key's name.
pub fn check_label_value(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    check_length(text, SHORT)?;
    check_name_syntax(text)
}

/// Checks a name that is used as a path segment: not empty, at most `most` characters, not `.` or `..`, and without `/`
/// and `%`.
pub fn check_path_segment(text: &str, most: usize) -> Result<(), String> {
    // Characters, since it may be any text; the schema of a CRD counts the same way.
    match text.chars().count() {
        0 => return Err("must not be empty".to_owned()),
        length if length > most => return Err(format!("must have at most {most} characters")),
        _ => {}
    }
    if text == "." || text == ".." {
        return Err(format!("must not be '{text}'"));
    }
    match text.chars().find(|letter| ['/', '%'].contains(letter)) {
        Some(letter) => Err(format!("must not contain '{letter}'")),
        None => Ok(()),
    }
}

fn check_length(text: &str, most: usize) -> Result<(), String> {
    // Bytes, as the API server counts; a text with wider characters is refused anyway.
    match text.len() {
        0 => Err("must not be empty".to_owned()),
        length if length > most => Err(format!("must have at most {most} characters")),
        _ => Ok(()),
    }
}

fn check_label_syntax(text: &str) -> Result<(), &'static str> {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if matches_charset(text, edge, |byte| edge(byte) || byte == b'-') {
        Ok(())
    } else {
        Err("must consist of a-z, 0-9 and \"-\", and start and end with a-z or 0-9")
    }
}

fn check_name_syntax(text: &str) -> Result<(), String> {
    let edge = |byte: u8| byte.is_ascii_alphanumeric();
    if matches_charset(text, edge, |byte| edge(byte) || b"-_.".contains(&byte)) {
        Ok(())
    } else {
        Err("must consist of letters, digits, \"-\", \"_\" and \".\", and start and end with a \
             letter or digit"
            .to_owned())
    }
}

/// Whether a text is not empty, starts and ends with `edge` bytes and has `inner` bytes only.
fn matches_charset(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&byte| edge(byte))
        && bytes.last().is_some_and(|&byte| edge(byte))
        && bytes.iter().all(|&byte| inner(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(count: usize) -> String {
        "a".repeat(count)
    }

    #[test]
    fn dns_labels() {
        for good in ["a", "0", "a-b", "my-name", "123-abc", &long(63)] {
            assert_eq!(check_dns_label(good), Ok(()), "{good}");
        }
        for bad in ["", "-", "-a", "a-", "A", "a.b", "a_b", "a b", "é", "a\n", &long(64)] {
            assert!(check_dns_label(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn dns_subdomains() {
        for good in ["a", "example.com", "0.1", "a-b.c-d", &long(253), &long(64)] {
            assert_eq!(check_dns_subdomain(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "A.b", "a.-b", "a_b.c", "a/b", &long(254)] {
            assert!(check_dns_subdomain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn label_keys() {
        let full = format!("{}/{}", long(253), long(63));
        for good in ["a", "A", "my.name", "my_name", "topology.kubernetes.io/zone", "e.com/A-b_c.d", &full] {
            assert_eq!(check_label_key(good), Ok(()), "{good}");
        }
        let long_prefix = format!("{}/a", long(254));
        for bad in ["", "/", "a/", "/a", "a/b/c", "A.com/a", "-a", "a-", "a b", "e.com/é", &long(64), &long_prefix] {
            assert!(check_label_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn label_values() {
        for good in ["", "a", "A_b.c-d", "12345", &long(63)] {
            assert_eq!(check_label_value(good), Ok(()), "{good}");
        }
        for bad in ["-", "-a", "a-", "_a", ".", "a/b", "a b", "é", &long(64)] {
            assert!(check_label_value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn path_segments() {
        for good in ["a", "Job", "é", "a.b", "...", &long(253), &"é".repeat(253)] {
            assert_eq!(check_path_segment(good, 253), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "100%", &long(254)] {
            assert!(check_path_segment(bad, 253).is_err(), "{bad}");
        }
    }

    #[test]
    fn reasons_say_which_part_is_wrong() {
        assert_eq!(check_label_key("a/b/c").unwrap_err(), "must have at most one \"/\"");
        assert_eq!(check_label_key("/a").unwrap_err(), "the prefix: must not be empty");
        assert_eq!(check_label_value(&long(64)).unwrap_err(), "must have at most 63 characters");
    }
}
