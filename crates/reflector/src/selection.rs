//! Which objects of a kind are watched.

use kube::api::{ListParams, WatchParams};

/// Which objects of a kind are watched; by default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    labels: Option<String>,
    fields: Option<String>,
}

impl Selection {
    /// The objects that a label selector selects.
    pub fn labels(selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..Self::default() }
    }

    /// The objects that a field selector selects.
    pub fn fields(selector: &str) -> Self {
        Self { fields: Some(selector.to_owned()), ..Self::default() }
    }

    pub(crate) fn list_params(&self) -> ListParams {
        ListParams { label_selector: self.labels.clone(), field_selector: self.fields.clone(), ..ListParams::default() }
    }

    pub(crate) fn watch_params(&self) -> WatchParams {
        WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            ..WatchParams::default()
        }
    }
}
