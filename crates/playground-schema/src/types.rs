//! The field types of a kind for field ownership: which fields exist, and which are owned separately or atomically.
//!
//! Built-in kinds come from a table (`types.txt`), custom kinds from their schema. As in structured-merge-diff, an atom
//! may allow a scalar, a list, a map, or several of them; the value decides. Types refer to each other by id, so that
//! they may be recursive.
//! Invariant: every id belongs to a type of the same collection.
//! Must not depend on objects, managers or requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde_json::{Map as Object, Value};

/// The id of a type in its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(usize);

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    Text,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// Any of them.
    Any,
}

/// What identifies the elements of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Nothing: the list is atomic.
    Atomic,
    /// Their value.
    Set,
    /// The values of these fields.
    Keyed(Vec<String>),
}

/// A list.
#[derive(Debug)]
pub struct List {
    /// The type of its elements.
    pub item: TypeId,
    /// Which elements of two lists are the same.
    pub relation: Relation,
}

/// A map, or an object with named fields.
#[derive(Debug, Default)]
pub struct Map {
    /// The named fields.
    pub fields: BTreeMap<Box<str>, Field>,
    /// The type of all other fields; `None` if there are no others.
    pub other: Option<TypeId>,
    /// Whether it is owned as a whole.
    pub atomic: bool,
    /// Fields that are null rather than absent if unset.
    pub nulls: Vec<Box<str>>,
}

impl Map {
    fn add(&mut self, name: &str, field: Field) {
        if field.default == Some(Value::Null) {
            self.nulls.push(name.into());
        }
        self.fields.insert(name.into(), field);
    }

    /// The type of a field; `None` if there is no such field.
    pub fn field(&self, name: &str) -> Option<TypeId> {
        self.fields.get(name).map(|field| field.type_).or(self.other)
    }
}

/// A named field.
#[derive(Debug)]
pub struct Field {
    /// The type of its value.
    pub type_: TypeId,
    /// Its value if unset.
    pub default: Option<Value>,
}

/// The forms that a value may have.
#[derive(Debug, Default)]
pub struct Atom {
    /// The scalar form, if allowed.
    pub scalar: Option<Scalar>,
    /// The list form, if allowed.
    pub list: Option<List>,
    /// The map form, if allowed.
    pub map: Option<Map>,
}

/// The form of an atom that applies to a value.
#[derive(Clone, Copy)]
pub enum Form<'a> {
    /// A scalar.
    Scalar(Scalar),
    /// A list.
    List(&'a List),
    /// A map.
    Map(&'a Map),
}

impl Form<'_> {
    /// Whether both are scalars, lists or maps.
    pub fn is_same_form(self, other: Form<'_>) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// A collection of types that refer to each other.
#[derive(Debug)]
pub struct Types {
    atoms: Vec<Atom>,
}

/// Any value, owned field by field.
pub const ANYTHING: TypeId = TypeId(0);
/// Any value, owned as a whole.
pub(crate) const ANYTHING_ATOMIC: TypeId = TypeId(1);

/// A type of a collection.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    /// The collection.
    pub types: &'a Types,
    /// The id of the type in it.
    pub root: TypeId,
}

impl Default for Types {
    fn default() -> Self {
        Self::new()
    }
}

impl Types {
    /// A collection with only [`ANYTHING`] and its atomic variant.
    pub fn new() -> Self {
        let anything = |below: TypeId, atomic: bool| Atom {
            scalar: Some(Scalar::Any),
            list: Some(List { item: ANYTHING_ATOMIC, relation: Relation::Atomic }),
            map: Some(Map { other: Some(below), atomic, ..Map::default() }),
        };
        Self { atoms: vec![anything(ANYTHING, false), anything(ANYTHING_ATOMIC, true)] }
    }

    pub(crate) fn add(&mut self, atom: Atom) -> TypeId {
        self.atoms.push(atom);
        TypeId(self.atoms.len() - 1)
    }

    pub(crate) fn scalar(&mut self, scalar: Scalar) -> TypeId {
        self.add(Atom { scalar: Some(scalar), ..Atom::default() })
    }

    /// The type with this id.
    pub fn get(&self, id: TypeId) -> &Atom {
        &self.atoms[id.0]
    }

    /// The form of a type for a value; without a value, or for one of a wrong type, the first form.
    pub fn form(&self, id: TypeId, value: Option<&Value>) -> Form<'_> {
        let atom = self.get(id);
        let fitting = match value {
            Some(Value::Object(_)) => atom.map.as_ref().map(Form::Map),
            Some(Value::Array(_)) => atom.list.as_ref().map(Form::List),
            Some(Value::Null) | None => None,
            Some(_) => atom.scalar.map(Form::Scalar),
        };
        let first = || match (&atom.map, atom.scalar, &atom.list) {
            (Some(map), _, _) => Form::Map(map),
            (None, Some(scalar), _) => Form::Scalar(scalar),
            (None, None, Some(list)) => Form::List(list),
            (None, None, None) => Form::Scalar(Scalar::Any),
        };
        fitting.unwrap_or_else(first)
    }

    /// The default of a key field of the elements of a list.
    pub fn key_default(&self, list: &List, key: &str) -> Option<&Value> {
        self.get(list.item).map.as_ref()?.fields.get(key)?.default.as_ref()
    }

    /// The zero value of a type, as Go encodes it.
    pub fn zero_value(&self, id: TypeId) -> Value {
        let Some(map) = &self.get(id).map else { return Value::Null };
        let mut zero_value = Object::new();
        for (name, field) in &map.fields {
            match &field.default {
                Some(Value::Object(empty)) if empty.is_empty() => {
                    zero_value.insert(name.to_string(), self.zero_value(field.type_));
                }
                Some(zero) if is_zero(zero) => drop(zero_value.insert(name.to_string(), zero.clone())),
                _ => {}
            }
        }
        Value::Object(zero_value)
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// The types of the built-in kinds.
struct Table {
    types: Types,
    kinds: HashMap<&'static str, TypeId>,
    metadata: TypeId,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut reader = Parser { types: Types::new(), names: HashMap::new(), lines: lines() };
    let mut kinds = HashMap::new();
    for line in TEXT.lines() {
        if let Some((kind, name)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) {
            kinds.insert(kind, reader.named(name));
        }
    }
    let metadata = reader.named("ObjectMeta");
    Table { types: reader.types, kinds, metadata }
});

const TEXT: &str = concat!(include_str!("types.txt"), include_str!("older_types.txt"));

/// The type definitions of the table, by name.
fn lines() -> HashMap<&'static str, &'static str> {
    let lines = TEXT.lines().filter(|line| !line.starts_with(['#', '@']));
    lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect()
}

/// The type of a built-in kind, by `apiVersion/kind`.
pub fn builtin_type(name: &str) -> Option<Shape<'static>> {
    let table = &*TABLE;
    table.kinds.get(name).map(|root| Shape { types: &table.types, root: *root })
}

/// Adds the type of `metadata`.
pub(crate) fn add_metadata(types: &mut Types) -> TypeId {
    copy(&TABLE.types, TABLE.metadata, types)
}

/// Copies a type that is not recursive, with all types that it refers to.
fn copy(from: &Types, id: TypeId, into: &mut Types) -> TypeId {
    if id == ANYTHING || id == ANYTHING_ATOMIC {
        return id;
    }
    let atom = from.get(id);
    let list =
        atom.list.as_ref().map(|list| List { item: copy(from, list.item, into), relation: list.relation.clone() });
    let map = atom.map.as_ref().map(|map| Map {
        fields: map
            .fields
            .iter()
            .map(|(name, field)| {
                let field = Field { type_: copy(from, field.type_, into), default: field.default.clone() };
                (name.clone(), field)
            })
            .collect(),
        other: map.other.map(|other| copy(from, other, into)),
        atomic: map.atomic,
        nulls: map.nulls.clone(),
    });
    into.add(Atom { scalar: atom.scalar, list, map })
}

/// Parses the table. A mistake in it is a bug and panics.
struct Parser {
    types: Types,
    /// Type ids by name, with `!` for types that are owned atomically.
    names: HashMap<String, TypeId>,
    lines: HashMap<&'static str, &'static str>,
}

impl Parser {
    /// The type with this name, parsed on first use.
    fn named(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let plain = name.trim_end_matches('!');
        let (line, is_atomic) = match self.lines.get(plain) {
            Some(line) => (*line, name.ends_with('!')),
            None => (*self.lines.get(&*format!("{plain}!")).expect("a type in the table"), true),
        };
        // The id is assigned before the fields are parsed, since they may refer to it.
        let id = self.types.add(Atom::default());
        self.names.insert(name.to_owned(), id);
        let mut map = Map { atomic: is_atomic, ..Map::default() };
        for field in line.split(' ').filter(|field| !field.is_empty()) {
            let (name, text) = field.split_once(':').expect("a field has a type");
            let (text, default) = match text.split_once('=') {
                None => (text, None),
                Some((text, "")) => (text, Some(Value::Object(Object::new()))),
                Some((text, default)) => (text, Some(serde_json::from_str(default).expect("a default is JSON"))),
            };
            let type_ = self.typed(text);
            map.add(name, Field { type_, default });
        }
        self.types.atoms[id.0].map = Some(map);
        id
    }

    fn typed(&mut self, text: &str) -> TypeId {
        let list = |item: TypeId, relation: Relation| Atom { list: Some(List { item, relation }), ..Atom::default() };
        if let Some((keys, item)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            let relation = match keys {
                "" => Relation::Atomic,
                "~" => Relation::Set,
                keys => Relation::Keyed(keys.split(',').map(str::to_owned).collect()),
            };
            let item = self.typed(item);
            return self.types.add(list(item, relation));
        }
        if let Some((marker, item)) = text.strip_prefix('<').and_then(|text| text.split_once('>')) {
            let other = Some(self.typed(item));
            let map = Map { other, atomic: marker == "!", ..Map::default() };
            return self.types.add(Atom { map: Some(map), ..Atom::default() });
        }
        match text {
            "*" => ANYTHING,
            "s" => self.types.scalar(Scalar::Text),
            "n" => self.types.scalar(Scalar::Number),
            "b" => self.types.scalar(Scalar::Boolean),
            "u" => self.types.scalar(Scalar::Any),
            name => self.named(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn table_of_builtin_types_is_valid() {
        for line in TEXT.lines().filter(|line| line.starts_with('@')) {
            let kind = line[1..].split(' ').next().unwrap_or_default();
            let shape = builtin_type(kind).expect("a kind in the table");
            assert!(shape.types.get(shape.root).map.as_ref().is_some_and(|map| map.fields.contains_key("metadata")));
        }
        assert!(builtin_type("v1/Nothing").is_none());
    }

    #[test]
    fn zero_values_are_those_of_go() {
        let shape = builtin_type("apps/v1/Deployment").unwrap();
        let template = json!({"metadata": {}, "spec": {"containers": null}});
        let spec = json!({"selector": null, "strategy": {}, "template": template});
        let zero_value = json!({"metadata": {}, "spec": spec, "status": {}});
        assert_eq!(shape.types.zero_value(shape.root), zero_value);
    }
}
