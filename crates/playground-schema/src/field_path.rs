//! Parses the `fieldPath` of a rule, such as `.spec.x` or `['a.b']`.
//!
//! Must not depend on rules.

use super::node::{Additional, Node};

/// Checks a path below a value with this schema, and returns it as errors print it.
pub(super) fn normalize(written: &str, node: &Node) -> Result<String, String> {
    let mut node = node;
    let mut out = String::new();
    let mut rest = written;
    while let Some(first) = rest.chars().next() {
        let name = match first {
            '.' => {
                let end = rest[1..].find(['.', '[', ']']).map_or(rest.len(), |end| end + 1);
                let name = &rest[1..end];
                if name.is_empty() {
                    return Err("unexpected end of JSON path".to_owned());
                }
                rest = &rest[end..];
                name.to_owned()
            }
            '[' => {
                let (name, after) = quoted(&rest[1..])?;
                rest = after.strip_prefix(']').ok_or("expected ]")?;
                name
            }
            _ => return Err(format!("expected [ or . but got: {rest}")),
        };
        if !node.properties.is_empty() {
            node = node.properties.get(&name).ok_or("does not refer to a valid field")?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        } else if let Some(Additional::Of(each)) = &node.additional {
            node = each;
            out.extend(["[", &name, "]"]);
        } else {
            return Err("does not refer to a valid field".to_owned());
        }
    }
    Ok(out)
}

/// Splits a string in single quotes from the rest.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let body = text.strip_prefix('\'').ok_or_else(|| format!("expected single quoted string but got {text}"))?;
    let mut out = String::new();
    let mut chars = body.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '\'' => return Ok((out, &body[index + 1..])),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some('a') => out.push('\u{7}'),
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some('v') => out.push('\u{b}'),
                Some(same @ ('\'' | '\\')) => out.push(same),
                _ => return Err("invalid string literal".to_owned()),
            },
            c => out.push(c),
        }
    }
    Err("unexpected end of JSON path".to_owned())
}
