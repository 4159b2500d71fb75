//! Parses CEL expressions.
//!
//! Must not depend on what expressions are about.

use kube_cel::cel::common::ast::{EntryExpr, Expr, operators};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{IdedExpr, ParseErrors};

/// Bounds on the length of an expression and its number of operators: a chain of operators is a tree as deep as the
/// chain is long, and walking it recurses.
const LENGTH_MAX: usize = 10_000;
const OPERATORS_MAX: usize = 600;

/// Why an expression is rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpressionError {
    #[error(
        "compilation failed: the expression is too long: {bytes} bytes with {operators} operators, at most {LENGTH_MAX} with {OPERATORS_MAX} are allowed"
    )]
    TooLong { bytes: usize, operators: usize },
    #[error("compilation failed: {0}")]
    Syntax(#[from] ParseErrors),
    #[error("compilation failed: the parser failed")]
    ParserPanicked,
    #[error("compilation failed: undefined field '{0}'")]
    UndefinedField(String),
    #[error("compilation failed: undeclared reference to '{0}' (in container '')")]
    UndeclaredReference(String),
    #[error("compilation failed: the function or macro '{0}' is not supported by the playground")]
    UnsupportedFunction(String),
    #[error("loops may be nested at most {nesting_max} deep")]
    NestedTooDeep { nesting_max: u32 },
}

/// Parses an expression; the error describes the first mistake.
pub(super) fn compile(text: &str) -> Result<IdedExpr, ExpressionError> {
    let operators = text.bytes().filter(|byte| b"+-*/%&|?.<>=![{".contains(byte)).count();
    if text.len() > LENGTH_MAX || operators > OPERATORS_MAX {
        return Err(ExpressionError::TooLong { bytes: text.len(), operators });
    }
    let mut expression = Parser::new().enable_optional_syntax(true).parse(text)?;
    rewrite_optional_select(&mut expression);
    Ok(expression)
}

/// Rewrites `a.?b` as `a[?'b']`: the two are equivalent, but the interpreter fails on the first if `b` is missing.
fn rewrite_optional_select(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => rewrite_optional_select(&mut select.operand),
        Expr::Call(call) => {
            if call.func_name == operators::OPT_SELECT {
                operators::OPT_INDEX.clone_into(&mut call.func_name);
            }
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(rewrite_optional_select);
        }
        Expr::Comprehension(of) => {
            let of = &mut **of;
            for part in [&mut of.iter_range, &mut of.accu_init, &mut of.loop_cond, &mut of.loop_step, &mut of.result] {
                rewrite_optional_select(part);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(rewrite_optional_select),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| rewrite_optional_select_in_entry(&mut entry.expr)),
        Expr::Struct(of) => of.entries.iter_mut().for_each(|entry| rewrite_optional_select_in_entry(&mut entry.expr)),
    }
}

fn rewrite_optional_select_in_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => rewrite_optional_select(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            rewrite_optional_select(&mut entry.key);
            rewrite_optional_select(&mut entry.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_would_overflow_the_stack_are_rejected() {
        let chain = |terms: usize| vec!["self.x"; terms].join(" + ");
        assert!(compile(&chain(100)).is_ok());
        for terms in [4000, 20_000] {
            assert!(matches!(compile(&chain(terms)), Err(ExpressionError::TooLong { .. })), "{terms}");
        }
    }
}
