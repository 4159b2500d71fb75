//! Parses the `fieldPath` of a rule, such as `.spec.x` or `['a.b']`.
//!
//! Must not depend on rules.

use super::node::{Additional, Node};

/// A path below a value with this schema, as errors print it; `None` if it is invalid.
pub(super) fn normalize(written: &str, node: &Node) -> Option<String> {
    let mut node = node;
    let mut out = String::new();
    let mut rest = written;
    while let Some(first) = rest.chars().next() {
        let name = match first {
            '.' => {
                let end = rest[1..].find(['.', '[', ']']).map_or(rest.len(), |end| end + 1);
                let name = &rest[1..end];
                if name.is_empty() {
                    return None;
                }
                rest = &rest[end..];
                name.to_owned()
            }
            '[' => {
                let (name, after) = quoted(&rest[1..])?;
                rest = after.strip_prefix(']')?;
                name
            }
            _ => return None,
        };
        if !node.properties.is_empty() {
            node = node.properties.get(&name)?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        } else if let Some(Additional::Of(each)) = &node.additional {
            node = each;
            out.extend(["[", &name, "]"]);
        } else {
            return None;
        }
    }
    Some(out)
}

/// Splits a string in single quotes from the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let body = text.strip_prefix('\'')?;
    let mut out = String::new();
    let mut chars = body.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '\'' => return Some((out, &body[index + 1..])),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some('a') => out.push('\u{7}'),
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some('v') => out.push('\u{b}'),
                Some(same @ ('\'' | '\\')) => out.push(same),
                _ => return None,
            },
            c => out.push(c),
        }
    }
    None
}
