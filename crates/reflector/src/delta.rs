//! The events of a watch, including the lists that it starts with and whether the cluster serves the kind.

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta<T> {
    /// A list starts. Objects that it does not contain are gone when it is complete.
    ListStarted,
    /// One object of the list.
    Listed(T),
    /// The list is complete.
    ListDone,
    /// The cluster does not serve the kind: there are no objects.
    NotServed,
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted; its last state.
    Deleted(T),
}

impl<T> Delta<T> {
    /// The object of the event.
    pub fn object(&self) -> Option<&T> {
        match self {
            Self::Listed(object) | Self::Applied(object) | Self::Deleted(object) => Some(object),
            Self::ListStarted | Self::ListDone | Self::NotServed => None,
        }
    }

    /// Modifies the object of the event, for a cache that keeps only some fields.
    #[must_use]
    pub fn modify(mut self, modify: impl FnOnce(&mut T)) -> Self {
        match &mut self {
            Self::Listed(object) | Self::Applied(object) | Self::Deleted(object) => modify(object),
            Self::ListStarted | Self::ListDone | Self::NotServed => {}
        }
        self
    }
}
