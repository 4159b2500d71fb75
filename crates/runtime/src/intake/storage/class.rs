//! A StorageClass as the engine observes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::selector::WrittenRequirement;
use muster_engine::model::labels::NodeTerm;
use muster_engine::model::storage::{BindingMode, StorageClassSpec, StorageObservation};
use serde::Deserialize;

use super::{ReadError, migration};
use crate::intake::class::requirement;

/// The class as written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Written {
    provisioner: Option<String>,
    volume_binding_mode: Option<String>,
    allowed_topologies: Option<Vec<Term>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_label_expressions: Option<Vec<Expression>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: Option<String>,
    values: Option<Vec<String>>,
}

/// The observation of a class.
pub(super) fn seen(metadata: &ObjectMeta, written: Written) -> Result<StorageObservation, ReadError> {
    let binding_mode = match written.volume_binding_mode.as_deref() {
        None => None,
        Some("Immediate") => Some(BindingMode::Immediate),
        Some("WaitForFirstConsumer") => Some(BindingMode::WaitForFirstConsumer),
        Some(other) => {
            let path = FieldPath::Root("volumeBindingMode");
            return Err(path.invalid(other, "must be Immediate or WaitForFirstConsumer").into());
        }
    };
    let terms = written.allowed_topologies.filter(|terms| !terms.is_empty());
    Ok(StorageObservation::ClassSeen(StorageClassSpec {
        name: metadata.name.clone().unwrap_or_default(),
        provisioner: migration::driver(written.provisioner.as_deref().unwrap_or_default()).to_owned(),
        binding_mode,
        allowed_topologies: terms.map(allowed_topologies).transpose()?,
    }))
}

/// The terms, of which empty ones are left out: they match no node.
fn allowed_topologies(terms: Vec<Term>) -> Result<Vec<NodeTerm>, InvalidField> {
    let path = FieldPath::Root("allowedTopologies");
    let mut nodes = Vec::new();
    for (index, term) in terms.into_iter().enumerate() {
        let path = path.index(index);
        let path = path.child("matchLabelExpressions");
        let mut labels = Vec::new();
        for (index, expression) in term.match_label_expressions.unwrap_or_default().into_iter().enumerate() {
            let written = WrittenRequirement {
                key: expression.key.unwrap_or_default(),
                operator: "In".to_owned(),
                values: expression.values.unwrap_or_default(),
                ..WrittenRequirement::default()
            };
            labels.push(requirement(&written.validate(&path.index(index))?));
        }
        if !labels.is_empty() {
            nodes.push(NodeTerm { labels, names: Vec::new() });
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use muster_engine::model::labels::{LabelOperator, Requirement};
    use serde_json::{Value, json};

    use super::super::Storage;
    use super::super::tests::read;
    use super::*;

    fn class(mut object: Value) -> StorageClassSpec {
        object["metadata"] = json!({"name": "fast"});
        match read(Storage::Class, &object) {
            Ok(StorageObservation::ClassSeen(class)) => class,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_fields_that_matter_are_translated() {
        let expressions = json!([{"key": "zone", "values": ["a", "b"]}, {"key": "rack", "values": ["1"]}]);
        let seen = class(json!({
            "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": expressions}, {}],
        }));
        let is_in = |key: &str, values: &[&str]| Requirement {
            key: key.to_owned(),
            operator: LabelOperator::In(values.iter().map(|value| (*value).to_owned()).collect()),
        };
        let term = NodeTerm { labels: vec![is_in("zone", &["a", "b"]), is_in("rack", &["1"])], names: Vec::new() };
        let expected = StorageClassSpec {
            name: "fast".to_owned(),
            provisioner: "d".to_owned(),
            binding_mode: Some(BindingMode::WaitForFirstConsumer),
            allowed_topologies: Some(vec![term]),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn no_terms_are_no_requirement_and_empty_terms_match_nothing() {
        for (written, expected) in [(json!(null), None), (json!([]), None), (json!([{}]), Some(Vec::new()))] {
            assert_eq!(class(json!({"allowedTopologies": written})).allowed_topologies, expected);
        }
        let immediate = class(json!({"volumeBindingMode": "Immediate", "provisioner": "kubernetes.io/aws-ebs"}));
        assert_eq!(immediate.binding_mode, Some(BindingMode::Immediate));
        assert_eq!(immediate.provisioner, "ebs.csi.aws.com");
        assert_eq!(class(json!({})).binding_mode, None);
    }

    #[test]
    fn invalid_fields_are_named() {
        for (object, expected) in [
            (json!({"volumeBindingMode": "Later"}), "volumeBindingMode: \"Later\": must be"),
            (
                json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone"}]}]}),
                "allowedTopologies[0].matchLabelExpressions[0].values: []: In needs",
            ),
        ] {
            let mut object = object;
            object["metadata"] = json!({"name": "fast"});
            let error = read(Storage::Class, &object).unwrap_err();
            assert!(error.starts_with(&format!("StorageClass fast: {expected}")), "{error}");
        }
    }
}
