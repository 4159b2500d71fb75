//! Why a list or a watch failed.

use std::time::Duration;

use kube::core::Status;

const NOT_FOUND: u16 = 404;
const GONE: u16 = 410;
const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;
const TOO_MANY_REQUESTS: u16 = 429;

/// Why a list or a watch failed; it starts again.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// A list was refused or could not be read.
    #[error("list: {0}")]
    List(#[source] kube::Error),
    /// A page of a list did not arrive in time.
    #[error("list: no page within {} s", .0.as_secs())]
    ListDeadline(Duration),
    /// A page of a list is not a list of objects of this kind.
    #[error("list: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// A streaming list ended before all objects were sent: the next list is read page by page.
    #[error("the streaming list ended before it was complete")]
    ListCutShort,
    /// A watch was refused or could not be read.
    #[error("watch: {0}")]
    Watch(#[source] kube::Error),
    /// The API server reports an error as an event.
    #[error("watch: {} ({})", .0.message, .0.code)]
    Event(Box<Status>),
    /// A watch has shown nothing at all for longer than the API server keeps one open.
    #[error("watch: nothing arrived for {} s", .0.as_secs())]
    Silent(Duration),
    /// A watch was closed at once.
    #[error("watch: it was closed at once, without an event")]
    ClosedAtOnce,
    /// A list or an event without a resource version.
    #[error("the API server sent no resource version")]
    NoResourceVersion,
}

impl WatchError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::List(kube::Error::Api(status)) | Self::Watch(kube::Error::Api(status)) | Self::Event(status) => {
                Some(status.code)
            }
            _ => None,
        }
    }

    /// Whether the cluster does not serve the kind. A kind that is removed under a watch shows when it starts again.
    pub(crate) fn is_not_served(&self) -> bool {
        !matches!(self, Self::Event(_)) && self.code() == Some(NOT_FOUND)
    }

    /// Whether the API server does not know any more what has changed since the resource version.
    pub(crate) fn is_expired(&self) -> bool {
        self.code() == Some(GONE)
    }

    /// Whether the API server did not answer at all. Another process may be better connected.
    pub(crate) fn is_without_answer(&self) -> bool {
        match self {
            Self::ListDeadline(_) | Self::Silent(_) => true,
            Self::List(error) | Self::Watch(error) => {
                !matches!(error, kube::Error::Api(_) | kube::Error::SerdeError(_) | kube::Error::FromUtf8(_))
            }
            _ => false,
        }
    }

    /// Whether the API server may not know streaming lists: it refuses the request for what it is, or ignores the field
    /// and never reports the end of the list. One that closes slow watches is asked for pages, too.
    pub(crate) fn may_be_no_streaming_lists(&self) -> bool {
        const OTHER_REASONS: [u16; 5] = [NOT_FOUND, GONE, UNAUTHORIZED, FORBIDDEN, TOO_MANY_REQUESTS];
        let refused = |code: u16| (400..500).contains(&code) && !OTHER_REASONS.contains(&code);
        matches!(self, Self::ListDeadline(_) | Self::ListCutShort) || self.code().is_some_and(refused)
    }
}
