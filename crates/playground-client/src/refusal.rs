//! What a client does not take for a failure: answers that only say that its view was old.

/// Whether a change came too late for the state that it was made for, which the watch will show.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Whether the object is not there.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
