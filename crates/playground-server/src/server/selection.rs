//! The objects that a list or watch selects: namespace, name, label and field selectors.

use muster_playground_schema::selectors::{FieldOperator, FieldSelector, FieldTerm, LabelSelector};
use muster_playground_store::{Object, field_text};

use crate::kinds::{Kind, Strategy};

use super::query::ListOptions;
use super::request::Target;
use super::status_error::StatusError;

enum Field {
    Name,
    Namespace,
    /// An index into the object's indexed fields.
    Indexed(usize),
    /// A path in the object: the selectable fields of a definition may have changed since the object was stored.
    Path(String),
}

/// The selection of a list or watch.
pub(crate) struct Selection {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: Vec<(Field, FieldTerm)>,
}

impl Selection {
    pub(crate) fn read(kind: &Kind, target: &Target, options: &ListOptions) -> Result<Self, StatusError> {
        let invalid =
            |error: muster_playground_schema::selectors::SelectorError| StatusError::bad_request(error.to_string());
        let labels = LabelSelector::parse(&options.label_selector).map_err(invalid)?;
        let mut fields = Vec::new();
        for term in FieldSelector::parse(&options.field_selector).map_err(invalid)?.terms() {
            // kube-apiserver ignores a lone operator.
            if term.path.is_empty() && term.value.is_empty() {
                continue;
            }
            let field = match term.path.as_str() {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                label => match (kind.field_index(label).ok_or_else(|| unknown(kind, label))?, &kind.strategy) {
                    (index, Strategy::Builtin(_)) => Field::Indexed(index),
                    (_, Strategy::Custom(_)) => Field::Path(label.to_owned()),
                },
            };
            fields.push((field, term.clone()));
        }
        if !target.name.is_empty() {
            let (path, value) = ("metadata.name".to_owned(), target.name.clone());
            fields.push((Field::Name, FieldTerm { path, operator: FieldOperator::Equals, value }));
        }
        let namespace = (!target.namespace.is_empty()).then(|| target.namespace.clone());
        Ok(Self { namespace, labels, fields })
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether at most one object can match, by its name.
    pub(crate) fn is_single(&self) -> bool {
        self.fields.iter().any(|(field, term)| matches!((field, term.operator), (Field::Name, FieldOperator::Equals)))
    }

    /// Whether only the namespace is restricted.
    pub(crate) fn is_everything(&self) -> bool {
        self.fields.is_empty() && self.labels.is_empty()
    }

    pub(crate) fn is_in_namespace(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| *object.key.namespace == *namespace)
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.is_in_namespace(object)
            && self.fields.iter().all(|(field, term)| {
                term.matches(match field {
                    Field::Name => &object.key.name,
                    Field::Namespace => &object.key.namespace,
                    Field::Indexed(index) => &object.fields[*index],
                    Field::Path(path) => return term.matches(&field_text(&object.value(), path)),
                })
            })
            && self.labels.matches(&object.labels)
    }
}

fn unknown(kind: &Kind, label: &str) -> StatusError {
    StatusError::bad_request(kind.no_such_field(label))
}
