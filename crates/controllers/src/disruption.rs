//! The disruption mode of a group object: in a field that cannot be changed where its kind has one, and in an annotation
//! that takes precedence over it.
//!
//! The annotation is written only where the field says something else, so that one of them is enough to read.

use std::collections::BTreeMap;

use muster_api::group::DisruptionMode;
use muster_api::native::policy;
use serde_json::{Value, json};

/// The mode in the field of a group, in the form of any kind; `Pod` without one.
pub(crate) fn written(group: &Value) -> DisruptionMode {
    let field = &group["disruptionMode"];
    let is_whole = field == DisruptionMode::PodGroup.as_str() || field["all"].is_object();
    if is_whole { DisruptionMode::PodGroup } else { DisruptionMode::Pod }
}

/// The annotation that a group with these fields needs to have this mode.
pub(crate) fn annotation(group: &Value, mode: DisruptionMode) -> Option<String> {
    (written(group) != mode).then(|| mode.as_str().to_owned())
}

/// The annotation that an object with these groups needs so that they have these modes, by name.
pub(crate) fn annotation_by_name<'a>(
    groups: impl Iterator<Item = (&'a str, DisruptionMode)>,
    modes: &BTreeMap<&str, DisruptionMode>,
) -> Option<String> {
    let differing = groups.filter_map(|(name, mode)| {
        modes.get(name).filter(|wanted| **wanted != mode).map(|wanted| (name, wanted.as_str()))
    });
    let differing: BTreeMap<&str, &str> = differing.collect();
    (!differing.is_empty()).then(|| json!(differing).to_string())
}

/// The mode in the internal form of native groups.
pub(crate) fn native(mode: DisruptionMode) -> policy::DisruptionMode {
    match mode {
        DisruptionMode::Pod => policy::DisruptionMode { single: Some(policy::Empty {}), all: None },
        DisruptionMode::PodGroup => policy::DisruptionMode { single: None, all: Some(policy::Empty {}) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DisruptionMode::{Pod, PodGroup};

    #[test]
    fn annotation_is_written_only_where_the_field_says_something_else() {
        for group in [json!({"disruptionMode": "PodGroup"}), json!({"disruptionMode": {"all": {}}})] {
            assert_eq!((annotation(&group, PodGroup), annotation(&group, Pod)), (None, Some("Pod".to_owned())));
        }
        for group in [json!({}), json!({"disruptionMode": "Pod"}), json!({"disruptionMode": {"single": {}}})] {
            assert_eq!((annotation(&group, PodGroup), annotation(&group, Pod)), (Some("PodGroup".to_owned()), None));
        }
    }

    #[test]
    fn groups_of_one_object_are_named() {
        let modes = [("a", PodGroup), ("b", Pod)].into();
        let of = |groups: [(&'static str, DisruptionMode); 2]| annotation_by_name(groups.into_iter(), &modes);
        assert_eq!(of([("a", PodGroup), ("b", Pod)]), None);
        assert_eq!(of([("a", Pod), ("b", Pod)]).as_deref(), Some(r#"{"a":"PodGroup"}"#));
    }
}
