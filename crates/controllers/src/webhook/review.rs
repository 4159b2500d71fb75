//! The routes of the webhook: for each path a function from an AdmissionReview request to its response.
//!
//! Must not depend on how reviews arrive or what is in them.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Answers an AdmissionReview. It must be quick: it runs on the serving thread.
pub type Review = Arc<dyn Fn(Value) -> Value + Send + Sync>;

/// The served paths with their functions.
#[derive(Clone, Default)]
pub struct Routes {
    list: Vec<(&'static str, Review)>,
}

impl Routes {
    /// Adds a path, which must start with `/` and have no parameters.
    #[must_use]
    pub fn with(mut self, path: &'static str, review: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        self.list.push((path, Arc::new(review)));
        self
    }

    /// The paths and functions, in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Review)> {
        self.list.iter().map(|(path, review)| (*path, review))
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.list.iter().map(|(path, _)| path)).finish()
    }
}
