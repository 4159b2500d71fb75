//! What fields a kind has, and which of them are owned one by one and which as one thing.
//!
//! Built-in kinds come from a table (`types.txt`), custom kinds from their schema. A type may allow a scalar, a list, a
//! map, or several of them; what a value is decides. Types refer to each other by number, so that they may recur.
//! Invariant: every number is that of a type of the same collection.
//! It must not know objects, managers or requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde_json::{Map as Object, Value};

/// The number of a type in its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(usize);

/// What a scalar may be.
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

/// What makes two entries of a list the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Nothing: the list is one thing.
    Atomic,
    /// Their value.
    Set,
    /// The values of these fields.
    Keyed(Vec<String>),
}

/// A list of entries of one type.
#[derive(Debug)]
pub struct List {
    /// The type of its entries.
    pub item: TypeId,
    /// Which entries of two lists are the same.
    pub relation: Relation,
}

/// A map, or a type with named fields.
#[derive(Debug, Default)]
pub struct Map {
    /// The named fields.
    pub fields: BTreeMap<Box<str>, Field>,
    /// The type of all other fields, if there may be others.
    pub other: Option<TypeId>,
    /// Whether it is one thing.
    pub atomic: bool,
    /// Fields that are null, and so there, if nobody set them.
    pub nulls: Vec<Box<str>>,
}

impl Map {
    fn add(&mut self, name: &str, field: Field) {
        if field.default == Some(Value::Null) {
            self.nulls.push(name.into());
        }
        self.fields.insert(name.into(), field);
    }

    /// The type of a field; none if there is no such field.
    pub fn field(&self, name: &str) -> Option<TypeId> {
        self.fields.get(name).map(|field| field.type_).or(self.other)
    }
}

/// A named field.
#[derive(Debug)]
pub struct Field {
    /// The type of its value.
    pub type_: TypeId,
    /// What it is if nobody sets it.
    pub default: Option<Value>,
}

/// What a value may be.
#[derive(Debug, Default)]
pub struct Atom {
    /// The scalar it may be, if it may be one.
    pub scalar: Option<Scalar>,
    /// The list it may be.
    pub list: Option<List>,
    /// The map it may be.
    pub map: Option<Map>,
}

/// The one of its forms that an atom has for a value.
#[derive(Clone, Copy)]
pub enum Form<'a> {
    /// It is a scalar.
    Scalar(Scalar),
    /// It is a list.
    List(&'a List),
    /// It is a map.
    Map(&'a Map),
}

impl Form<'_> {
    /// Whether both are the same one of the three.
    pub fn is_like(self, other: Form<'_>) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Types that refer to each other.
#[derive(Debug)]
pub struct Types {
    atoms: Vec<Atom>,
}

/// Anything, owned field by field as it turns out to be.
pub const ANYTHING: TypeId = TypeId(0);
/// Anything, owned as one thing.
pub(crate) const ANYTHING_WHOLE: TypeId = TypeId(1);

/// A type of a collection.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    /// The collection.
    pub types: &'a Types,
    /// The number of the type in it.
    pub root: TypeId,
}

impl Default for Types {
    fn default() -> Self {
        Self::new()
    }
}

impl Types {
    /// A collection of nothing but [`ANYTHING`] and of anything that is owned as one thing.
    pub fn new() -> Self {
        let anything = |below: TypeId, atomic: bool| Atom {
            scalar: Some(Scalar::Any),
            list: Some(List { item: ANYTHING_WHOLE, relation: Relation::Atomic }),
            map: Some(Map { other: Some(below), atomic, ..Map::default() }),
        };
        Self { atoms: vec![anything(ANYTHING, false), anything(ANYTHING_WHOLE, true)] }
    }

    pub(crate) fn add(&mut self, atom: Atom) -> TypeId {
        self.atoms.push(atom);
        TypeId(self.atoms.len() - 1)
    }

    pub(crate) fn scalar(&mut self, scalar: Scalar) -> TypeId {
        self.add(Atom { scalar: Some(scalar), ..Atom::default() })
    }

    /// The type of this number.
    pub fn get(&self, id: TypeId) -> &Atom {
        &self.atoms[id.0]
    }

    /// The form of a type for a value; without a value, or for one of a wrong type, its first.
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

    /// What a field of the entries of a list is if it is left out.
    pub fn key_default(&self, list: &List, key: &str) -> Option<&Value> {
        self.get(list.item).map.as_ref()?.fields.get(key)?.default.as_ref()
    }

    /// An object in which nobody has set anything: what Go prints for an empty one.
    pub fn fresh(&self, id: TypeId) -> Value {
        let Some(map) = &self.get(id).map else { return Value::Null };
        let mut fresh = Object::new();
        for (name, field) in &map.fields {
            match &field.default {
                Some(Value::Object(empty)) if empty.is_empty() => {
                    fresh.insert(name.to_string(), self.fresh(field.type_));
                }
                Some(zero) if is_zero(zero) => drop(fresh.insert(name.to_string(), zero.clone())),
                _ => {}
            }
        }
        Value::Object(fresh)
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

/// The types of the built-in kinds, and which kind is of which.
struct Table {
    types: Types,
    kinds: HashMap<&'static str, TypeId>,
    metadata: TypeId,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut reader = Reader { types: Types::new(), names: HashMap::new(), lines: lines() };
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

/// The lines of types, by name.
fn lines() -> HashMap<&'static str, &'static str> {
    let lines = TEXT.lines().filter(|line| !line.starts_with(['#', '@']));
    lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect()
}

/// The type of a built-in kind, by `apiVersion/kind`.
pub fn of_builtin(name: &str) -> Option<Shape<'static>> {
    let table = &*TABLE;
    table.kinds.get(name).map(|root| Shape { types: &table.types, root: *root })
}

/// Adds the type of `metadata`.
pub(crate) fn add_metadata(types: &mut Types) -> TypeId {
    copy(&TABLE.types, TABLE.metadata, types)
}

/// Copies a type that does not recur, and what it refers to.
fn copy(from: &Types, id: TypeId, into: &mut Types) -> TypeId {
    if id == ANYTHING || id == ANYTHING_WHOLE {
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

/// Reads the table. What is wrong with it is a mistake of ours, and panics.
struct Reader {
    types: Types,
    /// Names, with `!` for those that are owned whole, to types.
    names: HashMap<String, TypeId>,
    lines: HashMap<&'static str, &'static str>,
}

impl Reader {
    /// The type of this name, read if it was not.
    fn named(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let plain = name.trim_end_matches('!');
        let (line, whole) = match self.lines.get(plain) {
            Some(line) => (*line, name.ends_with('!')),
            None => (*self.lines.get(&*format!("{plain}!")).expect("a type of the table"), true),
        };
        // It has a number before its fields are read: they may be of it.
        let id = self.types.add(Atom::default());
        self.names.insert(name.to_owned(), id);
        let mut map = Map { atomic: whole, ..Map::default() };
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
        if let Some((whole, item)) = text.strip_prefix('<').and_then(|text| text.split_once('>')) {
            let other = Some(self.typed(item));
            let map = Map { other, atomic: whole == "!", ..Map::default() };
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
    fn the_table_is_sound() {
        for line in TEXT.lines().filter(|line| line.starts_with('@')) {
            let kind = line[1..].split(' ').next().unwrap_or_default();
            let shape = of_builtin(kind).expect("a kind of the table");
            assert!(shape.types.get(shape.root).map.as_ref().is_some_and(|map| map.fields.contains_key("metadata")));
        }
        assert!(of_builtin("v1/Nothing").is_none());
    }

    #[test]
    fn new_objects_have_what_go_prints() {
        let shape = of_builtin("apps/v1/Deployment").unwrap();
        let template = json!({"metadata": {}, "spec": {"containers": null}});
        let spec = json!({"selector": null, "strategy": {}, "template": template});
        let fresh = json!({"metadata": {}, "spec": spec, "status": {}});
        assert_eq!(shape.types.fresh(shape.root), fresh);
    }
}
