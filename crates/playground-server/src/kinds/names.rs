//! The shapes of names, with the refusals of kube-apiserver.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const RFC_1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// What names of a kind must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Labels joined by dots.
    Subdomain,
    /// One label.
    Label,
    /// One label that begins with a letter.
    Rfc1035Label,
    /// One step of a path.
    PathSegment,
}

impl NameRule {
    /// Why the name is refused, if it is. A prefix is what a suffix will be put behind.
    pub(crate) fn refusals(self, name: &str, prefix: bool) -> Vec<String> {
        // A dash at the end of a prefix is followed by letters.
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
    fn names_are_refused_with_all_that_is_wrong() {
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
            assert_eq!(rule.refusals(name, prefix), why, "{name}");
        }
    }
}
