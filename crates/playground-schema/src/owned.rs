//! A schema as field ownership sees it: what there is, and what is one thing.

use super::node::{Additional, ListType, Node, Type};
use super::types::{ANYTHING, ANYTHING_WHOLE, Atom, Field, List, Map, Relation, Scalar, TypeId, Types, add_metadata};

/// The types of a schema, and that of a whole object.
pub(super) fn types(root: &Node) -> (Types, TypeId) {
    let mut types = Types::new();
    let id = convert(root, true, false, &mut types);
    (types, id)
}

/// Adds the type of a node. Below a node that keeps unknown fields, all nodes do.
fn convert(node: &Node, is_object: bool, keeps_unknown: bool, types: &mut Types) -> TypeId {
    let keeps_unknown = keeps_unknown || node.preserve_unknown;
    let scalar = match (node.type_, &node.checks.format) {
        (Some(Type::String), None) => Some(Scalar::Text),
        // A format may stand for something that is no text to others.
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
        let item = node.items.as_ref().map_or(ANYTHING_WHOLE, |item| convert(item, false, keeps_unknown, types));
        List { item, relation }
    });
    let map = has(Type::Object).then(|| map(node, is_object || node.embedded, keeps_unknown, types));
    types.add(Atom { scalar, list, map })
}

fn map(node: &Node, is_object: bool, keeps_unknown: bool, types: &mut Types) -> Map {
    let mut map = Map { atomic: node.whole, ..Map::default() };
    for (name, field) in &node.properties {
        let type_ = convert(field, false, keeps_unknown, types);
        map.fields.insert(name.as_str().into(), Field { type_, default: field.default.clone() });
    }
    map.other = match &node.additional {
        None if keeps_unknown || node.properties.is_empty() && !is_object => Some(ANYTHING),
        None | Some(Additional::Allowed(false)) => None,
        Some(Additional::Allowed(true)) => Some(ANYTHING),
        Some(Additional::Of(entry)) => Some(convert(entry, false, keeps_unknown, types)),
    };
    if is_object {
        // What every object has is not the schema's to say.
        let text = types.scalar(Scalar::Text);
        for (name, type_) in [("apiVersion", text), ("kind", text), ("metadata", add_metadata(types))] {
            map.fields.insert(name.into(), Field { type_, default: None });
        }
    }
    map
}
