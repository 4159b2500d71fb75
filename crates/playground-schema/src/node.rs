//! The parsed form of a structural schema.
//!
//! Invariant: nodes have been checked by `parse`, so that walking them cannot fail.
//! Must not depend on the JSON form of schemas, nor on how objects are processed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::format::Format;
use super::pattern::Pattern;
use super::rule::Rule;

/// One node of a schema. A node below `allOf`, `anyOf`, `oneOf` or `not` only validates.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The type; `None` below junctors, for int-or-string and for untyped fields.
    pub(super) type_: Option<Type>,
    /// Integers and strings are both valid.
    pub(super) int_or_string: bool,
    /// `null` is valid.
    pub(super) nullable: bool,
    /// The default. Never null.
    pub(super) default: Option<Value>,
    /// The properties of an object.
    pub(super) properties: BTreeMap<String, Node>,
    /// All other properties of an object.
    pub(super) additional: Option<Additional>,
    /// The elements of a list.
    pub(super) items: Option<Box<Node>>,
    /// Unknown fields are kept.
    pub(super) preserve_unknown: bool,
    /// The object is an embedded resource.
    pub(super) embedded: bool,
    /// What identifies the elements of a list.
    pub(super) list_type: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub(super) is_atomic: bool,
    /// Value validation.
    pub(super) checks: Checks,
    /// CEL rules.
    pub(super) rules: Vec<Rule>,
}

/// A type of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    /// All types, in the order in which kube-apiserver lists them.
    pub(super) const ALL: [Type; 6] =
        [Type::Array, Type::Boolean, Type::Integer, Type::Number, Type::Object, Type::String];

    /// The name of the type in a schema.
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }
}

/// The properties without a schema of their own.
#[derive(Debug)]
pub(super) enum Additional {
    /// They are allowed with any value, or forbidden.
    Allowed(bool),
    /// They all have this schema.
    Of(Box<Node>),
}

/// What identifies the elements of a list, and so correlates old and new elements.
#[derive(Debug, Default)]
pub(super) enum ListType {
    /// Nothing: the list is replaced as a whole.
    #[default]
    Atomic,
    /// Their value, which must be unique.
    Set,
    /// The values of these fields, which must be unique.
    Map(Vec<String>),
}

/// Value validation.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// The format of a string or number.
    pub(super) format: Option<Format>,
    /// The allowed values; empty means any.
    pub(super) enumeration: Vec<Value>,
    /// The largest number.
    pub(super) maximum: Option<f64>,
    /// Whether `maximum` itself is too large.
    pub(super) exclusive_maximum: bool,
    /// The smallest number.
    pub(super) minimum: Option<f64>,
    /// Whether `minimum` itself is too small.
    pub(super) exclusive_minimum: bool,
    /// The number is a multiple of this.
    pub(super) multiple_of: Option<f64>,
    /// The maximum number of characters.
    pub(super) max_length: Option<i64>,
    /// The minimum number of characters.
    pub(super) min_length: Option<i64>,
    /// The pattern that a string must match.
    pub(super) pattern: Option<Pattern>,
    /// The maximum number of list elements.
    pub(super) max_items: Option<i64>,
    /// The minimum number of list elements.
    pub(super) min_items: Option<i64>,
    /// The maximum number of properties.
    pub(super) max_properties: Option<i64>,
    /// The minimum number of properties.
    pub(super) min_properties: Option<i64>,
    /// Required properties.
    pub(super) required: Vec<String>,
    /// All of these must be valid.
    pub(super) all_of: Vec<Node>,
    /// At least one of these must be valid.
    pub(super) any_of: Vec<Node>,
    /// Exactly one of these must be valid.
    pub(super) one_of: Vec<Node>,
    /// This must not be valid.
    pub(super) not: Option<Box<Node>>,
}

impl Node {
    /// The schema of the field `name`, if there is one.
    pub(super) fn field(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Of(node)) => Some(node),
            _ => None,
        })
    }

    /// The types as error messages list them; empty if any type is valid.
    pub(super) fn type_names(&self) -> &'static str {
        if self.int_or_string { "integer,string" } else { self.type_.map_or("", Type::name) }
    }

    /// Whether this is one of the types.
    pub(super) fn has_type(&self, type_: Type) -> bool {
        if self.int_or_string { matches!(type_, Type::Integer | Type::String) } else { self.type_ == Some(type_) }
    }

    /// Whether there is a CEL rule at or below this node.
    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.properties.values().any(Node::has_rules)
            || self.items.as_deref().is_some_and(Node::has_rules)
            || matches!(&self.additional, Some(Additional::Of(node)) if node.has_rules())
    }
}
