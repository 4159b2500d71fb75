//! Checks that a CEL expression references only existing names, and how deep its loops are nested.
//!
//! CEL is not type-checked here. This still finds common mistakes when the CustomResourceDefinition is written rather
//! than when objects are: fields that are not in the schema, and unknown variables and functions.
//! Must not depend on objects.

use std::collections::HashMap;

use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use kube_cel::cel::{ExecutionError, IdedExpr};

use super::cel_parse::{ExpressionError, compile};
use super::cel_value::{escape, with_functions};
use super::node::{Additional, Node, Type};

/// Names of types, and the first parts of qualified function names.
const GLOBAL_NAMES: [&str; 24] = [
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "list",
    "map",
    "type",
    "null_type",
    "timestamp",
    "duration",
    "optional",
    "math",
    "sets",
    "base64",
    "ip",
    "cidr",
    "quantity",
    "semver",
    "format",
    "jsonpatch",
    "url",
    "google",
];

/// Functions that split a string into a list.
const SPLITTERS: [&str; 2] = ["split", "findAll"];

/// What the check found out about an expression.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// Whether it reads `oldSelf`.
    pub(super) uses_old_self: bool,
    /// How deep loops are nested.
    pub(super) nesting: u32,
    /// Whether loops may iterate over parts of strings.
    pub(super) splits_strings: bool,
}

/// Checks an expression over a value with this schema.
pub(super) fn check(
    program: &IdedExpr,
    node: &Node,
    is_resource: bool,
    optional_old_self: bool,
) -> Result<Scope, ExpressionError> {
    let this = if is_resource { Shape::Resource(node) } else { Shape::of(node) };
    let old = if optional_old_self { Shape::Unknown } else { this };
    let mut checker = Checker { scope: Scope::default(), nesting: 0, variables: HashMap::new() };
    checker.variables.insert("self", vec![this]);
    checker.variables.insert("oldSelf", vec![old]);
    checker.expr(&program.expr)?;
    Ok(checker.scope)
}

/// The statically known type of a value.
#[derive(Clone, Copy)]
enum Shape<'a> {
    /// It has this schema.
    Of(&'a Node),
    /// It has this schema, and is a Kubernetes object.
    Resource(&'a Node),
    /// It is the metadata of a Kubernetes object.
    Metadata,
    /// Unknown.
    Unknown,
}

impl<'a> Shape<'a> {
    fn of(node: &'a Node) -> Shape<'a> {
        if node.embedded {
            Shape::Resource(node)
        } else if node.int_or_string {
            Shape::Unknown
        } else {
            Shape::Of(node)
        }
    }

    fn field(self, name: &str) -> Result<Shape<'a>, ExpressionError> {
        let undefined = || Err(ExpressionError::UndefinedField(name.to_owned()));
        match self {
            Shape::Unknown => Ok(Shape::Unknown),
            Shape::Metadata => match name {
                "name" | "generateName" => Ok(Shape::Unknown),
                _ => undefined(),
            },
            Shape::Resource(_) if matches!(name, "apiVersion" | "kind") => Ok(Shape::Unknown),
            Shape::Resource(_) if name == "metadata" => Ok(Shape::Metadata),
            Shape::Resource(node) | Shape::Of(node) => {
                if let Some(Additional::Of(each)) = &node.additional {
                    return Ok(Shape::of(each));
                }
                let named = |known: &str| escape(known).is_some_and(|escaped| escaped == name);
                match node.properties.iter().find(|(known, _)| named(known)) {
                    Some((_, property)) if is_exposed(property) => Ok(Shape::of(property)),
                    _ => undefined(),
                }
            }
        }
    }

    fn entry(self) -> Shape<'a> {
        match self {
            Shape::Of(node) => match (&node.items, &node.additional) {
                (Some(each), _) | (None, Some(Additional::Of(each))) => Shape::of(each),
                _ => Shape::Unknown,
            },
            _ => Shape::Unknown,
        }
    }

    /// What a loop over the value iterates over: the elements of a list, but the keys of a map.
    fn looped(self) -> Shape<'a> {
        match self {
            Shape::Of(node) if node.type_ == Some(Type::Array) => self.entry(),
            _ => Shape::Unknown,
        }
    }
}

/// Whether rules can read the value: not if its schema says nothing about it.
fn is_exposed(node: &Node) -> bool {
    node.int_or_string
        || match (node.type_, &node.items, &node.additional) {
            (None, _, _) => false,
            (Some(Type::Array), Some(each), _) | (Some(Type::Object), _, Some(Additional::Of(each))) => {
                is_exposed(each)
            }
            _ => true,
        }
}

struct Checker<'a> {
    scope: Scope,
    nesting: u32,
    /// The last entry of a name is the innermost variable.
    variables: HashMap<&'a str, Vec<Shape<'a>>>,
}

impl<'a> Checker<'a> {
    fn expr(&mut self, expr: &'a Expr) -> Result<Shape<'a>, ExpressionError> {
        match expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => return self.variable(name),
            Expr::Select(select) => {
                return self.expr(&select.operand.expr)?.field(&select.field);
            }
            Expr::Call(call) => {
                if let (operators::OPT_INDEX, [operand, field]) = (call.func_name.as_str(), call.args.as_slice()) {
                    let operand = self.expr(&operand.expr)?;
                    match &field.expr {
                        Expr::Literal(LiteralValue::String(name)) => operand.field(name.inner())?,
                        other => self.expr(other)?,
                    };
                    return Ok(Shape::Unknown);
                }
                self.function(&call.func_name, call.target.as_deref().map(|target| &target.expr))?;
                let target = match &call.target {
                    Some(target) => Some(self.expr(&target.expr)?),
                    None => None,
                };
                let args = call.args.iter().map(|arg| self.expr(&arg.expr)).collect::<Result<Vec<_>, _>>()?;
                return Ok(match (call.func_name.as_str(), target, args.as_slice()) {
                    (operators::INDEX, None, [of, _]) => of.entry(),
                    _ => Shape::Unknown,
                });
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension)?,
            Expr::List(list) => {
                for element in &list.elements {
                    self.expr(&element.expr)?;
                }
            }
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr))?,
            Expr::Struct(of) => of.entries.iter().try_for_each(|entry| self.entry(&entry.expr))?,
        }
        Ok(Shape::Unknown)
    }

    fn entry(&mut self, entry: &'a EntryExpr) -> Result<(), ExpressionError> {
        match entry {
            EntryExpr::StructField(field) => self.expr(&field.value.expr)?,
            EntryExpr::MapEntry(entry) => {
                self.expr(&entry.key.expr)?;
                self.expr(&entry.value.expr)?
            }
        };
        Ok(())
    }

    fn variable(&mut self, name: &'a str) -> Result<Shape<'a>, ExpressionError> {
        if name == "oldSelf" {
            self.scope.uses_old_self = true;
        }
        match self.variables.get(name).and_then(|shapes| shapes.last()) {
            Some(shape) => Ok(*shape),
            None if name.starts_with('@') || GLOBAL_NAMES.contains(&name) => Ok(Shape::Unknown),
            None => Err(ExpressionError::UndeclaredReference(name.to_owned())),
        }
    }

    fn comprehension(&mut self, of: &'a ComprehensionExpr) -> Result<(), ExpressionError> {
        let each = self.expr(&of.iter_range.expr)?.looped();
        self.expr(&of.accu_init.expr)?;
        self.nesting += 1;
        self.scope.nesting = self.scope.nesting.max(self.nesting);
        let names = [Some(&of.iter_var), of.iter_var2.as_ref(), Some(&of.accu_var)];
        let shapes = [if of.iter_var2.is_some() { Shape::Unknown } else { each }, Shape::Unknown, Shape::Unknown];
        for (name, shape) in names.into_iter().zip(shapes) {
            if let Some(name) = name {
                self.variables.entry(name).or_default().push(shape);
            }
        }
        for part in [&of.loop_cond, &of.loop_step, &of.result] {
            self.expr(&part.expr)?;
        }
        for name in names.into_iter().flatten() {
            self.variables.entry(name).or_default().pop();
        }
        self.nesting -= 1;
        Ok(())
    }

    fn function(&mut self, name: &str, target: Option<&Expr>) -> Result<(), ExpressionError> {
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Ok(()); // an operator
        }
        self.scope.splits_strings |= SPLITTERS.contains(&name);
        let qualified = match target {
            Some(Expr::Ident(first)) => Some(format!("{first}.{name}")),
            _ => None,
        };
        if is_function(name) || qualified.is_some_and(|name| is_function(&name)) {
            return Ok(());
        }
        Err(ExpressionError::UnsupportedFunction(name.to_owned()))
    }
}

/// The function registry cannot be listed, so this calls the function and inspects the error.
fn is_function(name: &str) -> bool {
    let Ok(program) = compile(&format!("{name}()")) else { return true };
    with_functions(|scope| !matches!(scope.resolve(&program), Err(ExecutionError::UndeclaredReference(_))))
}
