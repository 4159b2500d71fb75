//! Validates names, with the messages of kube-apiserver.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const RFC_1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// The valid names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// DNS labels joined by dots.
    Subdomain,
    /// One DNS label.
    Label,
    /// One DNS label that begins with a letter.
    Rfc1035Label,
    /// A path segment.
    PathSegment,
}

impl NameRule {
    /// The errors of a name. A `prefix` is a `generateName`.
    pub(crate) fn errors(self, name: &str, prefix: bool) -> Vec<String> {
        // A trailing dash of a prefix is followed by the generated suffix.
        let shown =
            if prefix && name.ends_with('-') { format!("{}a", &name[..name.len() - 1]) } else { name.to_owned() };
        match self {
            NameRule::Subdomain => subdomain(&shown),
            NameRule::Label => label(&shown),
            NameRule::Rfc1035Label => rfc_1035_label(&shown),
            NameRule::PathSegment => path_segment(name, prefix),
        }
    }
}

fn too_long(name: &str, most: usize) -> Option<String> {
    (name.len() > most).then(|| format!("must be no more than {most} characters"))
}

fn subdomain(name: &str) -> Vec<String> {
    let mut why: Vec<String> = too_long(name, 253).into_iter().collect();
    if !is_subdomain(name) {
        why.push(SUBDOMAIN.to_owned());
    }
    why
}

fn label(name: &str) -> Vec<String> {
    let mut why: Vec<String> = too_long(name, 63).into_iter().collect();
    if !is_label(name) {
        why.push(if is_subdomain(name) { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    why
}

fn rfc_1035_label(name: &str) -> Vec<String> {
    let mut why: Vec<String> = too_long(name, 63).into_iter().collect();
    if !is_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        why.push(RFC_1035_LABEL.to_owned());
    }
    why
}

fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    let whole = [".", ".."].into_iter().filter(|step| !prefix && name == *step);
    let parts = ["/", "%"].into_iter().filter(|part| name.contains(part));
    whole
        .map(|step| format!("may not be '{step}'"))
        .chain(parts.map(|part| format!("may not contain '{part}'")))
        .collect()
}

/// The shape of a DNS label, of any length.
fn is_label(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|byte| edge(Some(byte)) || *byte == b'-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_errors_of_a_name_are_reported() {
        let long = "x".repeat(254);
        for (rule, name, prefix, why) in [
            (NameRule::Subdomain, "a.b-c", false, vec![]),
            (NameRule::Subdomain, "a-", true, vec![]),
            (NameRule::Subdomain, "A", false, vec![SUBDOMAIN]),
            (NameRule::Subdomain, &long, false, vec!["must be no more than 253 characters"]),
            (NameRule::Label, "a.b", false, vec!["must not contain dots"]),
            (NameRule::Label, "a_b", false, vec![LABEL]),
            (NameRule::Label, &long, false, vec!["must be no more than 63 characters"]),
            (NameRule::Rfc1035Label, "a1", false, vec![]),
            (NameRule::Rfc1035Label, "1a", false, vec![RFC_1035_LABEL]),
            (NameRule::PathSegment, "A_b", false, vec![]),
            (NameRule::PathSegment, "..", false, vec!["may not be '..'"]),
            (NameRule::PathSegment, "a/b%", false, vec!["may not contain '/'", "may not contain '%'"]),
        ] {
            assert_eq!(rule.errors(name, prefix), why, "{name}");
        }
    }
}
