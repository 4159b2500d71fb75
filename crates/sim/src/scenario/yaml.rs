//! YAML 1.2: only `true` and `false` are booleans, and duplicate keys are errors.

use serde::de::DeserializeOwned;
use serde_saphyr::{Error, Options};

fn options() -> Options {
    serde_saphyr::options! { strict_booleans: true }
}

/// Reads a document.
pub(super) fn one<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options())
}

/// Reads all documents.
pub(super) fn several<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}
