//! Types as values of CEL: `type(self.x) == int`, which rules on int-or-string fields need.
//!
//! The interpreter has none of its own. It must not know schemas.

use std::sync::Arc;

use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

/// The names that stand for types.
const NAMES: [&str; 10] = ["int", "uint", "double", "string", "bytes", "bool", "list", "map", "null_type", "type"];

#[derive(Debug, PartialEq, Eq)]
struct TypeValue(&'static str);

impl Opaque for TypeValue {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// Gives a context the function `type` and the names of types.
pub(super) fn add_types(mut context: Context<'static>) -> Context<'static> {
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
