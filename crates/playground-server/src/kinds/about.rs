//! What a failure is about.

/// A resource (or kind) of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
}

impl About<'_> {
    /// `resource.group`, as failures name it.
    pub(crate) fn qualified(self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }
}
