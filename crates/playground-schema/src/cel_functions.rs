//! CEL functions that the interpreter lacks or implements differently.
//!
//! Types are values, as rules on int-or-string fields need: `type(self.x) == int`. The size of a string is counted in
//! characters. Must not depend on schemas.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

/// The names of types.
const NAMES: [&str; 10] = ["int", "uint", "double", "string", "bytes", "bool", "list", "map", "null_type", "type"];

#[derive(Debug, PartialEq, Eq)]
struct TypeValue(&'static str);

impl Opaque for TypeValue {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// Adds the missing functions to a context.
pub(super) fn add_missing(mut context: Context<'static>) -> Context<'static> {
    context.add_function("size", |This(value): This<Cel>| match &value {
        Cel::String(text) => Ok(text.chars().count() as i64),
        Cel::Bytes(bytes) => Ok(bytes.len() as i64),
        Cel::List(items) => Ok(items.len() as i64),
        Cel::Map(entries) => Ok(entries.map.len() as i64),
        _ => Err(ExecutionError::NoSuchOverload),
    });
    context.add_function("dyn", |value: Cel| -> Result<Cel, ExecutionError> { Ok(value) });
    context.add_function("type", |value: Cel| -> Result<Cel, ExecutionError> {
        Ok(Cel::Opaque(Arc::new(TypeValue(type_of(&value)))))
    });
    for name in NAMES {
        context.add_variable_from_value(name, Cel::Opaque(Arc::new(TypeValue(name))));
    }
    context
}

fn type_of(value: &Cel) -> &'static str {
    match value {
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::Null => "null_type",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Function(..) | Cel::Opaque(_) => "type",
    }
}
