//! One CEL rule: compiled once, evaluated for each object.
//!
//! Bounds: loops are nested at most [`NESTING_MAX`] deep, and a rule is not evaluated if its loops, over a value of
//! this size, could take more steps than are left of the object's [`STEPS_MAX`]; regular expressions run in linear
//! time. The cost of one step is up to the rule's author.
//! Must not depend on how objects are walked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};
use serde_json::Value;

use super::cel_parse::{self, ExpressionError};
use super::cel_scope::{self, Scope};
use super::cel_value::{Extent, extent, to_cel, with_functions};
use super::correlate::aligned;
use super::field_error::FieldError;
use super::node::Node;

/// The deepest nesting of loops.
pub(super) const NESTING_MAX: u32 = 4;
/// The most steps of all rules together for one object.
pub(super) const STEPS_MAX: u64 = 2_000_000;
/// The longest result of a `messageExpression`.
const MESSAGE_LENGTH_MAX: usize = 5 * 1024;

/// The fields of a rule in the schema.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleSpec {
    /// The expression that must be true.
    pub(super) rule: String,
    /// The message if it is not.
    pub(super) message: String,
    /// An expression for the message.
    pub(super) message_expression: String,
    /// The type of the error.
    pub(super) reason: Option<Reason>,
    /// The path of the reported field below the value, as errors print it.
    pub(super) field_path: String,
    /// Whether the rule is also evaluated without an old value.
    pub(super) optional_old_self: bool,
}

/// The type of error that a rule raises.
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
    written: RuleSpec,
    program: IdedExpr,
    message: Option<IdedExpr>,
    scope: Scope,
    /// The type of the schema as errors name it.
    type_name: &'static str,
    /// Whether errors include the value: not for objects and lists.
    includes_value: bool,
}

/// The result of a rule.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The rule evaluated to true.
    Holds,
    /// The rule evaluated to false.
    Broken(FieldError),
    /// The evaluation failed.
    Failed(FieldError),
    /// The rule exceeds the budget; no further rule is evaluated.
    TooCostly(FieldError),
}

impl Rule {
    /// Compiles a rule for values with this schema. The error names the invalid field of the rule and the reason.
    pub(super) fn compile(
        written: RuleSpec,
        node: &Node,
        is_resource: bool,
    ) -> Result<Rule, (&'static str, ExpressionError)> {
        let optional = written.optional_old_self;
        let compile = |text: &str| {
            let program = catch_unwind(|| cel_parse::compile(text)).map_err(|_| ExpressionError::ParserPanicked)??;
            let scope = cel_scope::check(&program, node, is_resource, optional)?;
            if scope.nesting > NESTING_MAX {
                return Err(ExpressionError::NestedTooDeep { nesting_max: NESTING_MAX });
            }
            Ok((program, scope))
        };
        let (program, scope) = compile(&written.rule).map_err(|reason| ("rule", reason))?;
        let message = match written.message_expression.as_str() {
            "" => None,
            text => Some(compile(text).map_err(|reason| ("messageExpression", reason))?.0),
        };
        let type_name = node.type_.map_or("", super::node::Type::name);
        let includes_value = !matches!(type_name, "object" | "array");
        Ok(Rule { written, program, message, scope, type_name, includes_value })
    }

    /// Whether the rule reads the old value.
    pub(super) fn uses_old_self(&self) -> bool {
        self.scope.uses_old_self
    }

    /// Whether the rule applies with or without an old value.
    pub(super) fn runs_with(&self, has_old: bool) -> bool {
        has_old || !self.scope.uses_old_self || self.written.optional_old_self
    }

    /// Evaluates the rule. `path` is the path of the value, and `budget` the steps that are left.
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
                Ok(_) => self.failed(path, &EvaluationError::NotABool),
                Err(error) => self.failed(path, &error),
            }
        })
    }

    fn steps(&self, extent: Extent) -> u64 {
        let width = if self.scope.splits_strings { extent.entries.max(extent.text) } else { extent.entries };
        (width as u64).saturating_pow(self.scope.nesting).max(1)
    }

    fn name(&self) -> &str {
        let message = self.written.message.trim();
        if message.is_empty() { self.written.rule.trim() } else { message }
    }

    fn failed(&self, path: &str, error: &EvaluationError) -> Verdict {
        let detail = match error {
            EvaluationError::NoSuchOverload => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                self.name()
            ),
            _ => format!("{error} evaluating rule: {}", self.name()),
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
            Some(Reason::Duplicate) if self.includes_value => FieldError::duplicate(path, value.clone()),
            Some(Reason::Duplicate) => {
                let mut error = FieldError::duplicate(path, Value::Null);
                error.value = None;
                error
            }
            Some(Reason::Invalid) | None if self.includes_value => FieldError::invalid(path, value.clone(), detail),
            Some(Reason::Invalid) | None => FieldError::invalid_unshown(path, detail),
        }
    }

    fn evaluated_message(&self, scope: &Context<'_>) -> Option<String> {
        let Ok(Cel::String(text)) = execute(self.message.as_ref()?, scope) else { return None };
        let text = text.trim();
        let is_fine = !text.is_empty() && text.len() <= MESSAGE_LENGTH_MAX && !text.contains('\n');
        is_fine.then(|| text.to_owned())
    }
}

/// A value and its old value, converted for all rules of a node.
#[derive(Debug)]
pub(super) struct Bound {
    this: Cel,
    old: Option<Cel>,
    extent: Extent,
}

impl Bound {
    /// Converts the values.
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

/// Why an evaluation has no result, with the messages of cel-go.
#[derive(Debug, thiserror::Error)]
enum EvaluationError {
    #[error("no such overload")]
    NoSuchOverload,
    #[error("cel expression must evaluate to a bool")]
    NotABool,
    #[error("{0}")]
    Other(String),
}

/// Evaluates a program.
fn execute(program: &IdedExpr, scope: &Context<'_>) -> Result<Cel, EvaluationError> {
    // If the interpreter panics on unusual data, only this request fails, not the server.
    let result = catch_unwind(AssertUnwindSafe(|| scope.resolve(program)));
    result.unwrap_or_else(|_| Err(ExecutionError::function_error("", "internal error"))).map_err(evaluation_error)
}

fn evaluation_error(error: ExecutionError) -> EvaluationError {
    EvaluationError::Other(match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, message } => cel_go_message(&function, message),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnsupportedBinaryOperator(..) => return EvaluationError::NoSuchOverload,
        other => other.to_string(),
    })
}

/// Translates the most common error messages of the interpreter's functions.
fn cel_go_message(function: &str, message: String) -> String {
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
