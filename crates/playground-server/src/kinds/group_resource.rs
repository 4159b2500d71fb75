//! Group and resource, as named in errors.

/// A resource (or kind) and its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupResource<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
}

impl GroupResource<'_> {
    /// `resource.group`, as errors name it.
    pub(crate) fn qualified(self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }
}
