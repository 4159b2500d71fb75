//! Parsing CEL expressions.
//!
//! It must not know what expressions are about.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr, operators};
use kube_cel::cel::parser::Parser;

/// The longest expression, and the most signs in it: a chain of operators is as deep a tree as it is long, and whoever
/// walks it needs a piece of the stack for each.
const LENGTH_MAX: usize = 10_000;
const SIGNS_MAX: usize = 600;

/// Parses an expression; the error says what is wrong with it.
pub(super) fn compile(text: &str) -> Result<IdedExpr, String> {
    let signs = text.bytes().filter(|byte| b"+-*/%&|?.<>=![{".contains(byte)).count();
    if text.len() > LENGTH_MAX || signs > SIGNS_MAX {
        return Err(format!(
            "the expression is too long: {} bytes with {signs} signs, at most {LENGTH_MAX} with {SIGNS_MAX} are taken",
            text.len()
        ));
    }
    let parsed = Parser::new().enable_optional_syntax(true).parse(text);
    let mut expression = parsed.map_err(|error| error.to_string())?;
    mend(&mut expression);
    Ok(expression)
}

/// The interpreter fails at `a.?b` where there is no `b`, but not at `a[?'b']`, which is the same.
fn mend(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => mend(&mut select.operand),
        Expr::Call(call) => {
            if call.func_name == operators::OPT_SELECT {
                operators::OPT_INDEX.clone_into(&mut call.func_name);
            }
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(mend);
        }
        Expr::Comprehension(of) => {
            let of = &mut **of;
            for part in [&mut of.iter_range, &mut of.accu_init, &mut of.loop_cond, &mut of.loop_step, &mut of.result] {
                mend(part);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(mend),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| mend_entry(&mut entry.expr)),
        Expr::Struct(of) => of.entries.iter_mut().for_each(|entry| mend_entry(&mut entry.expr)),
    }
}

fn mend_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => mend(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            mend(&mut entry.key);
            mend(&mut entry.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_would_overflow_the_stack_are_refused() {
        let chain = |terms: usize| vec!["self.x"; terms].join(" + ");
        assert!(compile(&chain(100)).is_ok());
        for terms in [4000, 20_000] {
            assert!(compile(&chain(terms)).unwrap_err().contains("too long"), "{terms}");
        }
    }
}
