//! The topology constraints that a pod template asks for in Kueue's annotations.
//!
//! Where Kueue admits the pods it places them itself, by node selectors: then its annotations are Kueue's business. For
//! others they say what Muster's own constraints say. Must not depend on what is done with a group.

use serde::Deserialize;

use super::{GangConfigError, event_reasons};
use crate::group_topology::{SLICE_SIZE, Topology, TopologyRule};
use crate::invalid::{FieldPath, InvalidField};
use crate::names::check_label_key;
use crate::selector::Labels;

/// Annotations of a pod template: all pods of the template in one domain.
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// Every so many pods in one domain.
const SLICE: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE_KEY: &str = "kueue.x-k8s.io/podset-slice-size";
/// Slices within slices.
const SLICE_LAYERS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// The label of an owner that Kueue admits.
const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// The label of a template whose pods Kueue places.
const PLACED_BY_KUEUE: &str = "kueue.x-k8s.io/tas";

/// An entry of [`SLICE_LAYERS`].
#[derive(Debug, Deserialize)]
struct Layer {
    topology: String,
    size: i64,
}

/// Whether Kueue admits the pods of an owner.
pub(super) fn is_admitted_by_kueue(of_owner: Option<&Labels>) -> bool {
    of_owner.is_some_and(|labels| labels.contains_key(QUEUE_NAME))
}

/// The constraints of a template, widest first. `whole` is the size of a slice where the annotations have none; `path` is
/// that of the template's metadata.
pub(super) fn constraints(
    (labels, annotations): (&Labels, &Labels),
    whole: Option<i64>,
    path: &FieldPath<'_>,
) -> Result<Vec<Topology>, GangConfigError> {
    if labels.contains_key(PLACED_BY_KUEUE) {
        return Ok(Vec::new());
    }
    read(annotations, whole, &path.child("annotations"))
        .map_err(|error| GangConfigError { reason: event_reasons::INVALID_TOPOLOGY, message: error.to_string() })
}

fn read(annotations: &Labels, whole: Option<i64>, path: &FieldPath<'_>) -> Result<Vec<Topology>, InvalidField> {
    let key = |annotation: &'static str| {
        let written = annotations.get(annotation);
        let checked = written.map(|key| match check_label_key(key) {
            Ok(()) => Ok(key.clone()),
            Err(reason) => Err(path.key(annotation).invalid(key, reason)),
        });
        checked.transpose()
    };
    let (required, preferred) = (key(REQUIRED)?, key(PREFERRED)?);
    let unconstrained = annotations.get(UNCONSTRAINED).map(|text| match text.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(path.key(UNCONSTRAINED).invalid(other, "must be true or false")),
    });
    let unconstrained = unconstrained.transpose()?.unwrap_or_default();
    if usize::from(required.is_some()) + usize::from(preferred.is_some()) + usize::from(unconstrained) > 1 {
        let (first, value) = preferred.as_ref().map_or((UNCONSTRAINED, "true"), |key| (PREFERRED, key.as_str()));
        return Err(path.key(first).invalid(value, "only one of required, preferred and unconstrained may be set"));
    }
    let slices = slices(annotations, key(SLICE)?, whole, path)?;
    let exclusive = false;
    let mut constraints = Vec::new();
    if let Some(key) = required {
        constraints.push(Topology { key, rule: TopologyRule::Required { exclusive } });
    }
    if let Some(key) = preferred.filter(|key| slices.as_ref().is_none_or(|(of_slices, _)| of_slices != key)) {
        constraints.push(Topology { key, rule: TopologyRule::Preferred });
    }
    if let Some((key, size)) = slices {
        // All pods share a domain of this label anyway.
        if constraints.iter().all(|one| one.key != key) {
            constraints.push(Topology { key, rule: TopologyRule::Slices { size, exclusive } });
        }
    }
    Ok(constraints)
}

/// The label of the slices' domains, and their size.
fn slices(
    annotations: &Labels,
    key: Option<String>,
    whole: Option<i64>,
    path: &FieldPath<'_>,
) -> Result<Option<(String, u32)>, InvalidField> {
    let (annotation, size) = (SLICE_SIZE_KEY, annotations.get(SLICE_SIZE_KEY));
    if let Some(text) = annotations.get(SLICE_LAYERS) {
        let path = path.key(SLICE_LAYERS);
        if let Some(other) = key {
            return Err(path.invalid(text, format_args!("must not be set together with {SLICE}, {other:?}")));
        }
        let layers: Vec<Layer> = serde_json::from_str(text).map_err(|error| path.invalid(text, error))?;
        let [layer] = &layers[..] else {
            let reason = "is not supported with another number of layers than one";
            return Err(path.invalid(text, reason));
        };
        check_label_key(&layer.topology).map_err(|reason| path.invalid(text, reason))?;
        let size = Some(layer.size).filter(|size| SLICE_SIZE.contains(size)).and_then(|size| size.try_into().ok());
        return size.map(|size| Some((layer.topology.clone(), size))).ok_or_else(|| path.invalid(text, SIZE_REASON));
    }
    let Some(key) = key else {
        return match size {
            Some(size) => Err(path.key(annotation).invalid(size, format_args!("means nothing without {SLICE}"))),
            None => Ok(None),
        };
    };
    let number = match size {
        Some(text) => text.parse().ok(),
        None => whole,
    };
    match number {
        // A slice of one shares its domain with itself.
        Some(1) => Ok(None),
        Some(number) if SLICE_SIZE.contains(&number) => Ok(u32::try_from(number).ok().map(|size| (key, size))),
        _ => Err(path.key(annotation).invalid(&size, SIZE_REASON)),
    }
}

const SIZE_REASON: &str = "the size of a slice must be a whole number from 1 to 2147483647";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(annotations: &[(&str, &str)], whole: Option<i64>) -> Result<Vec<TopologyRule>, String> {
        let annotations =
            annotations.iter().map(|(key, value)| (format!("kueue.x-k8s.io/podset-{key}"), (*value).to_owned()));
        let annotations: Labels = annotations.collect();
        let path = FieldPath::Root("spec.template.metadata");
        let read = constraints((&Labels::new(), &annotations), whole, &path);
        read.map(|list| list.into_iter().map(|one| one.rule).collect()).map_err(|error| error.message)
    }

    #[test]
    fn annotations_of_kueue_are_read() {
        let (required, preferred) = (TopologyRule::Required { exclusive: false }, TopologyRule::Preferred);
        let slices = |size| TopologyRule::Slices { size, exclusive: false };
        assert_eq!(of(&[], None), Ok(vec![]));
        assert_eq!(of(&[("required-topology", "rack")], None), Ok(vec![required]));
        assert_eq!(of(&[("preferred-topology", "rack")], None), Ok(vec![preferred]));
        assert_eq!(of(&[("unconstrained-topology", "true")], None), Ok(vec![]));
        let block = ("required-topology", "block");
        let rack = ("slice-required-topology", "rack");
        assert_eq!(of(&[block, rack, ("slice-size", "4")], None), Ok(vec![required, slices(4)]));
        assert_eq!(of(&[rack], Some(8)), Ok(vec![slices(8)]), "a whole Job of a set");
        assert_eq!(of(&[("required-topology", "rack"), rack, ("slice-size", "4")], None), Ok(vec![required]));
        let layers = ("slice-required-topology-constraints", r#"[{"topology": "rack", "size": 4}]"#);
        assert_eq!(of(&[layers], None), Ok(vec![slices(4)]));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_with_field_and_value() {
        let rack = ("slice-required-topology", "rack");
        let two = r#"[{"topology": "a", "size": 4}, {"topology": "b", "size": 2}]"#;
        for (annotations, expected) in [
            (vec![("required-topology", "a b")], r#"[kueue.x-k8s.io/podset-required-topology]: "a b""#),
            (vec![("required-topology", "a"), ("preferred-topology", "b")], r#"preferred-topology]: "b": only one of"#),
            (vec![("unconstrained-topology", "yes")], r#"unconstrained-topology]: "yes": must be"#),
            (vec![("slice-size", "2")], r#"slice-size]: "2": means nothing without"#),
            (vec![rack], "slice-size]: null: the size"),
            (vec![rack, ("slice-size", "many")], r#"slice-size]: "many": the size"#),
            (vec![("slice-required-topology-constraints", two)], "is not supported with another number of layers"),
        ] {
            let error = of(&annotations, None).unwrap_err();
            assert!(error.starts_with("spec.template.metadata.annotations[") && error.contains(expected), "{error}");
        }
    }
}
