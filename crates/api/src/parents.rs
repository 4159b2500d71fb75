//! Validation of nested groups: no cycles, limited depth.
//!
//! The limit is that of Kubernetes: from a root down to a group of pods, at most four groups. An unknown parent ends
//! the chain; whether to wait for it is the caller's choice. Must not depend on groups, only on names.

use std::collections::{BTreeMap, BTreeSet};

use crate::invalid::{FieldPath, InvalidField, truncated};

/// The maximum number of groups from a root to the innermost group, inclusive.
pub const MAX_DEPTH: usize = 4;

/// The maximum number of names of a cycle or chain in an error.
const NAMES_SHOWN: usize = 8;

/// Checks the chain of parents above `child`; `path` is the child's field that names its parent.
///
/// An error lists the groups of the cycle, or of the chain that is too long.
pub fn check_parents(
    child: &str,
    parents: &BTreeMap<String, String>,
    path: &FieldPath<'_>,
) -> Result<(), InvalidField> {
    let mut chain = vec![child];
    let mut seen = BTreeSet::from([child]);
    // Follow the chain to its end, not just to the limit: a cycle is the more useful error.
    while let Some(parent) = chain.last().and_then(|last| parents.get(*last)) {
        if !seen.insert(parent) {
            let start = chain.iter().position(|name| name == parent);
            let mut cycle = chain.split_off(start.unwrap_or(0));
            cycle.push(parent);
            let reason = format_args!("leads into a cycle: {}", format_chain(&cycle));
            return Err(path.invalid(&parents.get(child), reason));
        }
        chain.push(parent);
    }
    if chain.len() > MAX_DEPTH {
        let reason = format_args!("is more than {MAX_DEPTH} groups deep: {}", format_chain(&chain));
        return Err(path.invalid(&parents.get(child), reason));
    }
    Ok(())
}

fn format_chain(names: &[&str]) -> String {
    let listed: Vec<_> = names.iter().take(NAMES_SHOWN).map(|name| truncated(name)).collect();
    let more = if listed.len() < names.len() { " -> …" } else { "" };
    format!("{}{more}", listed.join(" -> "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(child: &str, pairs: &[(&str, &str)]) -> Result<(), String> {
        let parents = pairs.iter().map(|(child, parent)| ((*child).to_owned(), (*parent).to_owned()));
        let path = FieldPath::Root("parent");
        check_parents(child, &parents.collect(), &path).map_err(|error| error.to_string())
    }

    #[test]
    fn chains_up_to_the_limit_are_valid() {
        let chain = [("a", "b"), ("b", "c"), ("c", "d")];
        for child in ["a", "b", "c", "d", "unknown"] {
            assert_eq!(check(child, &chain), Ok(()));
        }
    }

    #[test]
    fn deeper_chain_is_refused_only_for_groups_below_the_limit() {
        let chain = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")];
        let expected = r#"parent: "b": is more than 4 groups deep: a -> b -> c -> d -> e"#;
        assert_eq!(check("a", &chain), Err(expected.to_owned()));
        assert_eq!(check("b", &chain), Ok(()));
    }

    #[test]
    fn cycles_are_named() {
        for (child, pairs, expected) in [
            ("a", &[("a", "a")][..], r#"parent: "a": leads into a cycle: a -> a"#),
            ("a", &[("a", "b"), ("b", "a")], r#"parent: "b": leads into a cycle: a -> b -> a"#),
            ("x", &[("x", "a"), ("a", "b"), ("b", "a")], r#"parent: "a": leads into a cycle: a -> b -> a"#),
        ] {
            assert_eq!(check(child, pairs), Err(expected.to_owned()));
        }
        let names: Vec<String> = (0..20).map(|index| format!("g{index}")).collect();
        let next = |index: usize| names[(index + 1) % 20].as_str();
        let pairs: Vec<_> = (0..20).map(|index| (names[index].as_str(), next(index))).collect();
        let error = check("g0", &pairs).unwrap_err();
        assert!(error.ends_with("cycle: g0 -> g1 -> g2 -> g3 -> g4 -> g5 -> g6 -> g7 -> …"), "{error}");
    }

    proptest! {
        /// For any map, the result equals following parents a fixed number of times.
        #[test]
        fn valid_exactly_if_root_is_within_the_limit(links in prop::collection::btree_map(0..12_u8, 0..12_u8, 0..12)) {
            let parents: BTreeMap<String, String> =
                links.iter().map(|(child, parent)| (child.to_string(), parent.to_string())).collect();
            for child in 0..12_u8 {
                let above = (1..=MAX_DEPTH).try_fold(child, |at, _| links.get(&at).copied());
                let checked = check_parents(&child.to_string(), &parents, &FieldPath::Root("parent"));
                prop_assert_eq!(checked.is_ok(), above.is_none());
            }
        }
    }
}
