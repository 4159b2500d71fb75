//! What is answered: for each path a function from a review to the answered review.
//!
//! It must not know how reviews arrive, nor what is in them.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Answers one AdmissionReview with another. It must be quick: it is called on the thread that serves.
pub type Review = Arc<dyn Fn(Value) -> Value + Send + Sync>;

/// The paths that are served, each with its function.
#[derive(Clone, Default)]
pub struct Routes {
    list: Vec<(&'static str, Review)>,
}

impl Routes {
    /// The same with one more path, which is plain and begins with `/`.
    #[must_use]
    pub fn with(mut self, path: &'static str, review: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        self.list.push((path, Arc::new(review)));
        self
    }

    /// The paths and functions, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Review)> {
        self.list.iter().map(|(path, review)| (*path, review))
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.list.iter().map(|(path, _)| path)).finish()
    }
}
