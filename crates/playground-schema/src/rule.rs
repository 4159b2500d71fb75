//! One CEL rule: compiled once, run for each object.
//!
//! Bounds: loops are nested at most [`MOST_NESTING`] deep, and a rule is not run if its loops, over
//! a value as large as this one, could take more steps than are left of the [`MOST_STEPS`] of an
//! object; regular expressions run in linear time. What one step costs is up to the rule's author.
//! It must not know how objects are walked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};
use serde_json::Value;

use super::cel_parse;
use super::cel_scope::{self, Scope};
use super::cel_value::{Extent, extent, to_cel, with_functions};
use super::correlate::aligned;
use super::field_error::FieldError;
use super::node::Node;

/// The deepest nesting of loops.
pub(super) const MOST_NESTING: u32 = 4;
/// The most steps that all rules together may take over an object.
pub(super) const MOST_STEPS: u64 = 2_000_000;
/// The longest message that an expression can make.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A rule as it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenRule {
    /// The expression that must be true.
    pub(super) rule: String,
    /// What is told if it is not.
    pub(super) message: String,
    /// An expression for what is told.
    pub(super) message_expression: String,
    /// The kind of the error.
    pub(super) reason: Option<Reason>,
    /// The field that is to blame, below the value, as errors print it.
    pub(super) field_path: String,
    /// The rule runs without an old value too.
    pub(super) optional_old_self: bool,
}

/// The kind of error that a rule raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// `FieldValueInvalid`
    Invalid,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueRequired`
    Required,
    /// `FieldValueDuplicate`
    Duplicate,
}

/// A compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    written: WrittenRule,
    program: IdedExpr,
    message: Option<IdedExpr>,
    scope: Scope,
    /// The schema's type as errors name it.
    type_name: &'static str,
    /// Values of objects and lists are not told.
    tells_value: bool,
}

/// What became of a rule.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold.
    Broken(FieldError),
    /// It could not be run to its end.
    Failed(FieldError),
    /// It would take too long, and so may all others.
    TooCostly(FieldError),
}

impl Rule {
    /// Compiles a rule for values with this schema. The error says which field of the rule is
    /// wrong, and why.
    pub(super) fn compile(
        written: WrittenRule,
        node: &Node,
        is_resource: bool,
    ) -> Result<Rule, (&'static str, String)> {
        let optional = written.optional_old_self;
        let compile = |text: &str| -> Result<(IdedExpr, Scope), String> {
            let program = catch_unwind(|| cel_parse::compile(text))
                .unwrap_or_else(|_| Err("the parser failed".to_owned()))
                .map_err(|error| format!("compilation failed: {error}"))?;
            let scope = cel_scope::check(&program, node, is_resource, optional)
                .map_err(|error| format!("compilation failed: {error}"))?;
            if scope.nesting > MOST_NESTING {
                return Err(format!("loops may be nested at most {MOST_NESTING} deep"));
            }
            Ok((program, scope))
        };
        let (program, scope) = compile(&written.rule).map_err(|reason| ("rule", reason))?;
        let message = match written.message_expression.as_str() {
            "" => None,
            text => Some(compile(text).map_err(|reason| ("messageExpression", reason))?.0),
        };
        let type_name = node.type_.map_or("", super::node::Type::name);
        let tells_value = !matches!(type_name, "object" | "array");
        Ok(Rule { written, program, message, scope, type_name, tells_value })
    }

    /// Whether the rule reads the old value.
    pub(super) fn uses_old_self(&self) -> bool {
        self.scope.uses_old_self
    }

    /// Whether the rule is to be run where there is an old value, or none.
    pub(super) fn runs_with(&self, has_old: bool) -> bool {
        has_old || !self.scope.uses_old_self || self.written.optional_old_self
    }

    /// Runs the rule. `path` is that of the value, and `budget` the steps that are left.
    pub(super) fn run(&self, value: &Value, path: &str, bound: &Bound, budget: &mut u64) -> Verdict {
        if let Some(left) = budget.checked_sub(self.steps(bound.extent)) {
            *budget = left;
        } else {
            let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
            return Verdict::TooCostly(FieldError::invalid(path, self.type_name, detail));
        }
        with_functions(|mut scope| {
            scope.add_variable_from_value("self", bound.this.clone());
            if self.scope.uses_old_self {
                scope.add_variable_from_value("oldSelf", bound.old_self(self.written.optional_old_self));
            }
            match execute(&self.program, &scope) {
                Ok(Cel::Bool(true)) => Verdict::Holds,
                Ok(Cel::Bool(false)) => Verdict::Broken(self.error(value, path, &scope)),
                Ok(_) => self.failed(path, "cel expression must evaluate to a bool"),
                Err(error) => self.failed(path, &error),
            }
        })
    }

    fn steps(&self, extent: Extent) -> u64 {
        let width = if self.scope.splits_texts { extent.entries.max(extent.text) } else { extent.entries };
        (width as u64).saturating_pow(self.scope.nesting).max(1)
    }

    fn name(&self) -> &str {
        let message = self.written.message.trim();
        if message.is_empty() { self.written.rule.trim() } else { message }
    }

    fn failed(&self, path: &str, error: &str) -> Verdict {
        let detail = if error == NO_OVERLOAD {
            format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                self.name()
            )
        } else {
            format!("{error} evaluating rule: {}", self.name())
        };
        Verdict::Failed(FieldError::invalid(path, self.type_name, detail))
    }

    fn error(&self, value: &Value, path: &str, scope: &Context<'_>) -> FieldError {
        let path = match (path, self.written.field_path.as_str()) {
            (path, "") => path.to_owned(),
            (super::field_error::NO_FIELD, below) => below.to_owned(),
            (path, below) => format!("{path}.{below}"),
        };
        let detail = self.evaluated_message(scope).unwrap_or_else(|| {
            if self.written.message.is_empty() {
                format!("failed rule: {}", self.name())
            } else {
                self.name().to_owned()
            }
        });
        match self.written.reason {
            Some(Reason::Forbidden) => FieldError::forbidden(path, detail),
            Some(Reason::Required) => FieldError::required(path, detail),
            Some(Reason::Duplicate) if self.tells_value => FieldError::duplicate(path, value.clone()),
            Some(Reason::Duplicate) => {
                let mut error = FieldError::duplicate(path, Value::Null);
                error.value = None;
                error
            }
            Some(Reason::Invalid) | None if self.tells_value => FieldError::invalid(path, value.clone(), detail),
            Some(Reason::Invalid) | None => FieldError::invalid_unshown(path, detail),
        }
    }

    fn evaluated_message(&self, scope: &Context<'_>) -> Option<String> {
        let Ok(Cel::String(text)) = execute(self.message.as_ref()?, scope) else { return None };
        let text = text.trim();
        let is_fine = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
        is_fine.then(|| text.to_owned())
    }
}

/// A value and its old one, made ready for all rules of a node.
#[derive(Debug)]
pub(super) struct Bound {
    this: Cel,
    old: Option<Cel>,
    extent: Extent,
}

impl Bound {
    /// Makes values ready.
    pub(super) fn new(node: &Node, value: &Value, old: Option<&Value>) -> Bound {
        let uses_old = node.rules.iter().any(Rule::uses_old_self);
        let old = old.filter(|_| uses_old);
        let extent = extent(value).or(old.map(extent).unwrap_or_default());
        Bound { this: to_cel(value, node), old: old.map(|old| to_cel(&aligned(node, value, old), node)), extent }
    }

    fn old_self(&self, optional: bool) -> Cel {
        match (&self.old, optional) {
            (Some(old), true) => Cel::Opaque(std::sync::Arc::new(OptionalValue::of(old.clone()))),
            (None, true) => Cel::Opaque(std::sync::Arc::new(OptionalValue::none())),
            (Some(old), false) => old.clone(),
            (None, false) => Cel::Null,
        }
    }
}

const NO_OVERLOAD: &str = "no such overload";

/// Runs a program; errors are told in the words of cel-go.
fn execute(program: &IdedExpr, scope: &Context<'_>) -> Result<Cel, String> {
    // The interpreter is not ours; should it panic on odd data, one request fails and not the server.
    let result = catch_unwind(AssertUnwindSafe(|| scope.resolve(program)));
    result.unwrap_or_else(|_| Err(ExecutionError::function_error("", "internal error"))).map_err(|error| match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, message } => in_words_of_cel_go(&function, message),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnsupportedBinaryOperator(..) => NO_OVERLOAD.to_owned(),
        other => other.to_string(),
    })
}

/// The functions of the interpreter have words of their own for the most common mistakes.
fn in_words_of_cel_go(function: &str, message: String) -> String {
    if message.starts_with("string parse error") {
        return format!("type conversion error from 'string' to '{function}'");
    }
    if let Some(name) = message.strip_prefix("cannot call ").and_then(|rest| rest.strip_suffix(" on empty list")) {
        return format!("{name} called on empty list");
    }
    let index = message.split(" out of range for string").next().and_then(|start| start.rsplit("index ").next());
    match index.and_then(|index| index.parse::<i64>().ok()) {
        Some(index) => format!("index out of range: {index}"),
        None => message,
    }
}
