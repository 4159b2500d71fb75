//! The tree that a structural schema is parsed into.
//!
//! Invariant: whatever a node holds was checked by `parse`, so that walking it cannot fail.
//! It must not know JSON schemas as they are written, nor what is done with objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::format::Format;
use super::pattern::Pattern;
use super::rule::Rule;

/// One node of a schema. A node below `allOf`, `anyOf`, `oneOf` or `not` has checks only.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The type; `None` below junctors, for int-or-string and for fields of any type.
    pub(super) type_: Option<Type>,
    /// Integers and strings are both fine.
    pub(super) int_or_string: bool,
    /// `null` is fine.
    pub(super) nullable: bool,
    /// What stands in for a missing value. Never null.
    pub(super) default: Option<Value>,
    /// The named fields of an object.
    pub(super) properties: BTreeMap<String, Node>,
    /// All other fields of an object.
    pub(super) additional: Option<Additional>,
    /// The entries of a list.
    pub(super) items: Option<Box<Node>>,
    /// Unknown fields are kept.
    pub(super) preserve_unknown: bool,
    /// The object is a Kubernetes object of its own.
    pub(super) embedded: bool,
    /// What makes entries of a list the same.
    pub(super) list_type: ListType,
    /// The object is owned as one thing.
    pub(super) whole: bool,
    /// What a value must be like.
    pub(super) checks: Checks,
    /// CEL rules.
    pub(super) rules: Vec<Rule>,
}

/// A type of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A map.
    Object,
    /// A list.
    Array,
    /// A text.
    String,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
}

impl Type {
    /// All types, in the order in which the API server lists them.
    pub(super) const ALL: [Type; 6] =
        [Type::Array, Type::Boolean, Type::Integer, Type::Number, Type::Object, Type::String];

    /// The type as it is written.
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

/// What becomes of fields that have no schema of their own.
#[derive(Debug)]
pub(super) enum Additional {
    /// They may be there, and be anything; or may not be there.
    Allowed(bool),
    /// They all have this schema.
    Of(Box<Node>),
}

/// What makes entries of a list the same, and so lets old and new entries be told apart.
#[derive(Debug, Default)]
pub(super) enum ListType {
    /// The list is one thing.
    #[default]
    Atomic,
    /// No value may be there twice.
    Set,
    /// No two entries may have the same values in these fields.
    Map(Vec<String>),
}

/// What a value must be like.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// The format of a text, or the size of a number.
    pub(super) format: Option<Format>,
    /// The only values; empty means any.
    pub(super) enumeration: Vec<Value>,
    /// The largest number.
    pub(super) maximum: Option<f64>,
    /// The largest number itself is too large.
    pub(super) exclusive_maximum: bool,
    /// The smallest number.
    pub(super) minimum: Option<f64>,
    /// The smallest number itself is too small.
    pub(super) exclusive_minimum: bool,
    /// The number is a multiple of this.
    pub(super) multiple_of: Option<f64>,
    /// The most characters.
    pub(super) max_length: Option<i64>,
    /// The fewest characters.
    pub(super) min_length: Option<i64>,
    /// What the text must match.
    pub(super) pattern: Option<Pattern>,
    /// The most entries of a list.
    pub(super) max_items: Option<i64>,
    /// The fewest entries of a list.
    pub(super) min_items: Option<i64>,
    /// The most fields.
    pub(super) max_properties: Option<i64>,
    /// The fewest fields.
    pub(super) min_properties: Option<i64>,
    /// Fields that must be there.
    pub(super) required: Vec<String>,
    /// All of these must hold.
    pub(super) all_of: Vec<Node>,
    /// One or more of these must hold.
    pub(super) any_of: Vec<Node>,
    /// Exactly one of these must hold.
    pub(super) one_of: Vec<Node>,
    /// This must not hold.
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

    /// The types as error messages name them; empty if any will do.
    pub(super) fn type_names(&self) -> &'static str {
        if self.int_or_string { "integer,string" } else { self.type_.map_or("", Type::name) }
    }

    /// Whether this is one of the types.
    pub(super) fn has_type(&self, type_: Type) -> bool {
        if self.int_or_string { matches!(type_, Type::Integer | Type::String) } else { self.type_ == Some(type_) }
    }

    /// Whether there is a CEL rule here or below.
    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.properties.values().any(Node::has_rules)
            || self.items.as_deref().is_some_and(Node::has_rules)
            || matches!(&self.additional, Some(Additional::Of(node)) if node.has_rules())
    }
}
