//! Parses CEL expressions.
//!
//! Must not depend on what expressions are about.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr, operators};
use kube_cel::cel::parser::Parser;

/// Bounds on the length of an expression and its number of operators: a chain of operators is a tree as deep as the
/// chain is long, and walking it recurses.
const LENGTH_MAX: usize = 10_000;
const OPERATORS_MAX: usize = 600;

/// Parses an expression; the error describes the first mistake.
pub(super) fn compile(text: &str) -> Result<IdedExpr, String> {
    let operators = text.bytes().filter(|byte| b"+-*/%&|?.<>=![{".contains(byte)).count();
    if text.len() > LENGTH_MAX || operators > OPERATORS_MAX {
        return Err(format!(
            "the expression is too long: {} bytes with {operators} operators, at most {LENGTH_MAX} with {OPERATORS_MAX} are allowed",
            text.len()
        ));
    }
    let parsed = Parser::new().enable_optional_syntax(true).parse(text);
    let mut expression = parsed.map_err(|error| error.to_string())?;
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
            assert!(compile(&chain(terms)).unwrap_err().contains("too long"), "{terms}");
        }
    }
}
