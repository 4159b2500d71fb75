//! The shapes of names, with the refusals of kube-apiserver.
//!
//! The checks are those of `muster_api::names`; here are only the texts.

use muster_api::names::{check_dns_label, check_dns_subdomain};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// What names of a kind must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Labels joined by dots.
    Subdomain,
    /// One label.
    Label,
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
        }
    }
}

fn too_long(name: &str, most: usize) -> Option<String> {
    (name.len() > most).then(|| format!("must be no more than {most} bytes"))
}

fn subdomain(name: &str) -> Vec<String> {
    let mut why: Vec<String> = too_long(name, 253).into_iter().collect();
    if check_dns_subdomain(name).is_err() && (why.is_empty() || check_dns_subdomain(&name[..1]).is_err()) {
        why.push(SUBDOMAIN.to_owned());
    }
    why
}

fn label(name: &str) -> Vec<String> {
    let mut why: Vec<String> = too_long(name, 63).into_iter().collect();
    if check_dns_label(name).is_err() && why.is_empty() {
        why.push(LABEL.to_owned());
    }
    why
}
