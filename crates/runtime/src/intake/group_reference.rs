//! The group that a pod names, through the dialects.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::wire::Pod;

use super::pod_record::PodRecord;
use crate::dialect::{Dialect, Reference};

/// The group that a pod names now.
pub(super) struct NamedGroup {
    /// The dialect and the reference, nothing, or an error.
    pub(super) reference: Result<Option<(usize, Reference)>, InvalidField>,
    /// Whether more than one dialect is used.
    pub(super) conflict: bool,
}

impl NamedGroup {
    pub(super) fn of(pod: &Pod, dialects: &[Box<dyn Dialect>]) -> Self {
        let mut found = Vec::new();
        for (number, dialect) in dialects.iter().enumerate() {
            found.extend(dialect.reference(pod).map(|reference| (number, reference)));
        }
        if let [(first, _), (second, _), ..] = found.as_slice() {
            let names = [dialects[*first].origin(), dialects[*second].origin()];
            let reason = "the pod names groups in more than one way, which is ambiguous";
            let error = FieldPath::Root("metadata.annotations").invalid(&names, reason);
            return Self { reference: Err(error), conflict: true };
        }
        let reference =
            found.pop().map(|(number, reference)| reference.map(|reference| (number, reference))).transpose();
        Self { reference, conflict: false }
    }

    /// Whether the pod names no group and does not try to.
    pub(super) fn is_none(&self) -> bool {
        matches!(self.reference, Ok(None))
    }

    /// Whether the pod named the same when it was first seen.
    pub(super) fn is_that_of(&self, record: &PodRecord, dialects: &[Box<dyn Dialect>]) -> bool {
        match (&self.reference, &record.group) {
            (Ok(Some((dialect, reference))), Some(key)) => {
                let named = reference.key(dialects[*dialect].origin(), &record.id.namespace);
                named == **key && *reference.subset == *record.subset
            }
            (Ok(None), None) => record.broken.is_none(),
            (Err(_), None) => record.broken.is_some(),
            _ => false,
        }
    }

    pub(super) fn describe(&self) -> String {
        match &self.reference {
            Ok(None) => "no group".to_owned(),
            Err(error) => error.to_string(),
            Ok(Some((_, reference))) => {
                let parts = [&reference.object, &reference.group, &reference.replica, &reference.subset];
                let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
                format!("the group {}", parts.join("/"))
            }
        }
    }
}
