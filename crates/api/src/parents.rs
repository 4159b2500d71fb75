//! Groups inside groups: who is whose parent, without circles and not too deep.
//!
//! The limit is that of Kubernetes: from a root down to a group of pods, at most four groups.
//! A parent that is not known (yet) ends the chain; whether to wait for it is the caller's choice.
//! It must not know what a group is: only names.

use std::collections::{BTreeMap, BTreeSet};

use crate::invalid::{FieldPath, InvalidField, shown};

/// The most groups on the way from a root to the innermost group, both counted.
pub const MAX_DEPTH: usize = 4;

/// The most names of a circle or chain that an error lists.
const NAMES_SHOWN: usize = 8;

/// Checks the chain of parents above `child`; `path` is the child's field that names its parent.
///
/// An error lists the groups on the way: the circle, or the chain that is too long.
pub fn check_parents(
    child: &str,
    parents: &BTreeMap<String, String>,
    path: &FieldPath<'_>,
) -> Result<(), InvalidField> {
    let mut chain = vec![child];
    let mut seen = BTreeSet::from([child]);
    // To the very end, not just to the limit: that it is a circle is the truer answer.
    while let Some(parent) = chain.last().and_then(|last| parents.get(*last)) {
        if !seen.insert(parent) {
            let start = chain.iter().position(|name| name == parent);
            let mut circle = chain.split_off(start.unwrap_or(0));
            circle.push(parent);
            let reason = format_args!("leads into a circle: {}", way(&circle));
            return Err(path.invalid(&parents.get(child), reason));
        }
        chain.push(parent);
    }
    if chain.len() > MAX_DEPTH {
        let reason = format_args!("is more than {MAX_DEPTH} groups deep: {}", way(&chain));
        return Err(path.invalid(&parents.get(child), reason));
    }
    Ok(())
}

fn way(names: &[&str]) -> String {
    let listed: Vec<_> = names.iter().take(NAMES_SHOWN).map(|name| shown(name)).collect();
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
    fn chains_up_to_the_limit_are_good() {
        let chain = [("a", "b"), ("b", "c"), ("c", "d")];
        for child in ["a", "b", "c", "d", "stranger"] {
            assert_eq!(check(child, &chain), Ok(()));
        }
    }

    #[test]
    fn a_deeper_chain_is_refused_for_those_too_deep_only() {
        let chain = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")];
        let expected = r#"parent: "b": is more than 4 groups deep: a -> b -> c -> d -> e"#;
        assert_eq!(check("a", &chain), Err(expected.to_owned()));
        assert_eq!(check("b", &chain), Ok(()));
    }

    #[test]
    fn circles_are_named() {
        for (child, pairs, expected) in [
            ("a", &[("a", "a")][..], r#"parent: "a": leads into a circle: a -> a"#),
            ("a", &[("a", "b"), ("b", "a")], r#"parent: "b": leads into a circle: a -> b -> a"#),
            ("x", &[("x", "a"), ("a", "b"), ("b", "a")], r#"parent: "a": leads into a circle: a -> b -> a"#),
        ] {
            assert_eq!(check(child, pairs), Err(expected.to_owned()));
        }
        let names: Vec<String> = (0..20).map(|index| format!("g{index}")).collect();
        let next = |index: usize| names[(index + 1) % 20].as_str();
        let pairs: Vec<_> = (0..20).map(|index| (names[index].as_str(), next(index))).collect();
        let error = check("g0", &pairs).unwrap_err();
        assert!(error.ends_with("circle: g0 -> g1 -> g2 -> g3 -> g4 -> g5 -> g6 -> g7 -> …"), "{error}");
    }

    proptest! {
        /// Any map: the answer is that of following parents a fixed number of times.
        #[test]
        fn good_exactly_if_the_root_is_near(links in prop::collection::btree_map(0..12_u8, 0..12_u8, 0..12)) {
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
