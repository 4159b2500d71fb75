//! Converts a schema to field types for field ownership.

use super::node::{Additional, ListType, Node, Type};
use super::types::{ANYTHING, ANYTHING_ATOMIC, Atom, Field, List, Map, Relation, Scalar, TypeId, Types, add_metadata};

/// The field types of a schema, and the type of the whole object.
pub(super) fn types(root: &Node) -> (Types, TypeId) {
    let mut types = Types::new();
    let id = convert(root, true, false, &mut types);
    (types, id)
}

/// Adds the type of a node. `x-kubernetes-preserve-unknown-fields` is inherited by all nodes below.
fn convert(node: &Node, is_object: bool, preserves_unknown: bool, types: &mut Types) -> TypeId {
    let preserves_unknown = preserves_unknown || node.preserve_unknown;
    let scalar = match (node.type_, &node.checks.format) {
        (Some(Type::String), None) => Some(Scalar::Text),
        // A string with a format may have another type in other versions.
        (Some(Type::String), Some(_)) | (None, _) => Some(Scalar::Any),
        (Some(Type::Integer | Type::Number), _) => Some(Scalar::Number),
        (Some(Type::Boolean), _) => Some(Scalar::Boolean),
        (Some(Type::Object | Type::Array), _) => None,
    };
    let has = |type_: Type| node.type_.is_none_or(|written| written == type_);
    let list = has(Type::Array).then(|| {
        let relation = match &node.list_type {
            ListType::Atomic => Relation::Atomic,
            ListType::Set => Relation::Set,
            ListType::Map(keys) => Relation::Keyed(keys.clone()),
        };
        let item = node.items.as_ref().map_or(ANYTHING_ATOMIC, |item| convert(item, false, preserves_unknown, types));
        List { item, relation }
    });
    let map = has(Type::Object).then(|| map(node, is_object || node.embedded, preserves_unknown, types));
    types.add(Atom { scalar, list, map })
}

fn map(node: &Node, is_object: bool, preserves_unknown: bool, types: &mut Types) -> Map {
    let mut map = Map { atomic: node.is_atomic, ..Map::default() };
    for (name, field) in &node.properties {
        let type_ = convert(field, false, preserves_unknown, types);
        map.fields.insert(name.as_str().into(), Field { type_, default: field.default.clone() });
    }
    map.other = match &node.additional {
        None if preserves_unknown || node.properties.is_empty() && !is_object => Some(ANYTHING),
        None | Some(Additional::Allowed(false)) => None,
        Some(Additional::Allowed(true)) => Some(ANYTHING),
        Some(Additional::Of(entry)) => Some(convert(entry, false, preserves_unknown, types)),
    };
    if is_object {
        // These fields are the same for all kinds and not taken from the schema.
        let text = types.scalar(Scalar::Text);
        for (name, type_) in [("apiVersion", text), ("kind", text), ("metadata", add_metadata(types))] {
            map.fields.insert(name.into(), Field { type_, default: None });
        }
    }
    map
}
