//! The forest: groups with a parent and groups of groups, as observed, and the trees that they make up.
//!
//! Parts of a tree are seen in any order and can be missing. A tree is composed of what leads to its root without a
//! gap;
//! everything else has a problem that says why it is no part of one. Must not depend on pods or on how trees are
//! scheduled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::group::{GroupKey, GroupPriority, GroupSpec, Policy, RecordedStart, Subset};
use crate::model::tree::{DEPTH_MAX, GroupTree, NODES_MAX, TreeMinimum, TreeNode};

/// The place of a group in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The root.
    pub(crate) root: GroupKey,
    /// Its position.
    pub(crate) node: usize,
    /// The subset whose members its pods are, if it is a leaf.
    pub(crate) subset: Option<Arc<str>>,
}

/// Why a group is no part of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// This parent, its own or one above, does not exist.
    Missing(GroupKey),
    /// Its place is not possible.
    Invalid {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// Why it is invalid.
        reason: &'static str,
    },
}

/// A composed tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Composed {
    /// The root, as the group that is scheduled.
    pub(crate) spec: GroupSpec,
    /// The groups, by position.
    pub(crate) keys: Vec<GroupKey>,
}

/// The groups of trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forest {
    specs: BTreeMap<GroupKey, GroupSpec>,
    /// By parent, which may not exist.
    children: BTreeMap<GroupKey, BTreeSet<GroupKey>>,
    /// By root.
    trees: BTreeMap<GroupKey, Vec<GroupKey>>,
    places: BTreeMap<GroupKey, Place>,
}

impl Forest {
    /// Whether a group is, or would be, a part of a tree.
    pub(crate) fn is_part(spec: &GroupSpec) -> bool {
        spec.parent.is_some() || matches!(spec.policy, Policy::Groups { .. })
    }

    /// The group as observed.
    pub(crate) fn spec(&self, key: &GroupKey) -> Option<&GroupSpec> {
        self.specs.get(key)
    }

    /// All groups.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &GroupKey> {
        self.specs.keys()
    }

    /// The place of a group in a tree.
    pub(crate) fn place(&self, key: &GroupKey) -> Option<&Place> {
        self.places.get(key)
    }

    /// The groups of a tree by position.
    pub(crate) fn tree(&self, root: &GroupKey) -> &[GroupKey] {
        self.trees.get(root).map_or(&[], |keys| keys)
    }

    /// Adds or updates a group. Returns whether it has changed.
    pub(crate) fn put(&mut self, spec: GroupSpec) -> bool {
        if self.specs.get(&spec.key) == Some(&spec) {
            return false;
        }
        self.unlink(&spec.key);
        if let Some(parent) = &spec.parent {
            self.children.entry(parent.clone()).or_default().insert(spec.key.clone());
        }
        self.specs.insert(spec.key.clone(), spec);
        true
    }

    /// Removes a group.
    pub(crate) fn remove(&mut self, key: &GroupKey) {
        self.unlink(key);
        self.specs.remove(key);
    }

    fn unlink(&mut self, key: &GroupKey) {
        let Some(parent) = self.specs.get(key).and_then(|spec| spec.parent.clone()) else { return };
        if let Some(children) = self.children.get_mut(&parent) {
            children.remove(key);
            if children.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    /// The root above a group, itself if it has no parent.
    pub(crate) fn root_of(&self, key: &GroupKey) -> Result<GroupKey, Problem> {
        let mut path = vec![key.clone()];
        loop {
            let at = &path[path.len() - 1];
            let Some(spec) = self.specs.get(at) else { return Err(Problem::Missing(at.clone())) };
            if path.len() > 1 && !matches!(spec.policy, Policy::Groups { .. }) {
                let reason = "it is not a group of groups";
                return Err(Problem::Invalid { field: "parent", value: at.to_string(), reason });
            }
            let Some(parent) = spec.parent.clone() else { return Ok(at.clone()) };
            let is_cycle = path.contains(&parent);
            path.push(parent);
            if is_cycle || path.len() > DEPTH_MAX {
                let value = path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> ");
                let reason =
                    if is_cycle { "a group cannot be its own ancestor" } else { "a tree has at most 4 levels" };
                return Err(Problem::Invalid { field: "parent", value, reason });
            }
        }
    }

    /// Why a group that has no place is no part of a tree.
    pub(crate) fn problem(&self, key: &GroupKey) -> Option<Problem> {
        if self.places.contains_key(key) {
            return None;
        }
        let spec = self.specs.get(key)?;
        let invalid = |field, value: String, reason| Some(Problem::Invalid { field, value, reason });
        let parent = match (self.root_of(key), &spec.parent) {
            (Err(problem), _) => return Some(problem),
            (Ok(_), None) => return None,
            (Ok(_), Some(parent)) => parent,
        };
        if let Some(problem) = self.problem(parent) {
            return Some(problem);
        }
        match own_problem(spec, self.own_priority(parent)) {
            Some(problem) => Some(problem),
            None => invalid("parent", parent.to_string(), "its tree has too many groups"),
        }
    }

    /// The priority that protects a group.
    fn own_priority(&self, key: &GroupKey) -> Option<i32> {
        let mut at = self.specs.get(key)?;
        for _ in 0..DEPTH_MAX {
            if let GroupPriority::Own(own) = at.priority {
                return Some(own);
            }
            at = self.specs.get(at.parent.as_ref()?)?;
        }
        None
    }

    /// The groups below a group, each after its parent, itself included.
    pub(crate) fn below(&self, key: &GroupKey) -> Vec<GroupKey> {
        let mut all = vec![key.clone()];
        let mut seen = BTreeSet::from([key.clone()]);
        let mut at = 0;
        while let Some(next) = all.get(at).cloned() {
            let children = self.children.get(&next).into_iter().flatten();
            all.extend(children.filter(|child| seen.insert((*child).clone())).cloned());
            at += 1;
        }
        all
    }

    /// Composes the tree of a root and records the places of its groups. Returns it with the groups that have lost
    /// their
    /// place; `None` if there is no such root.
    pub(crate) fn compose(&mut self, root: &GroupKey) -> (Option<Composed>, Vec<GroupKey>) {
        let composed = self.specs.get(root).filter(|spec| spec.parent.is_none()).and_then(|spec| self.tree_of(spec));
        let keys = composed.as_ref().map_or_else(Vec::new, |composed| composed.keys.clone());
        let before = if keys.is_empty() {
            self.trees.remove(root).unwrap_or_default()
        } else {
            self.trees.insert(root.clone(), keys.clone()).unwrap_or_default()
        };
        let now: BTreeSet<&GroupKey> = keys.iter().collect();
        let is_here = |places: &BTreeMap<GroupKey, Place>, key: &GroupKey| {
            places.get(key).is_some_and(|place| place.root == *root)
        };
        let lost: Vec<GroupKey> =
            before.into_iter().filter(|key| !now.contains(key) && is_here(&self.places, key)).collect();
        for key in &lost {
            self.places.remove(key);
        }
        for (node, key) in keys.into_iter().enumerate() {
            let subset = composed.as_ref().and_then(|composed| {
                let tree = composed.spec.policy.tree()?;
                tree.subset(node).map(|_| tree.nodes()[node].name.as_str().into())
            });
            self.places.insert(key, Place { root: root.clone(), node, subset });
        }
        (composed, lost)
    }

    fn tree_of(&self, root: &GroupSpec) -> Option<Composed> {
        let Policy::Groups { min_groups } = root.policy else { return None };
        let mut nodes = vec![TreeNode::new("", 0, TreeMinimum::Groups(min_groups.max(1)))];
        let mut keys = vec![root.key.clone()];
        let mut stack: Vec<(GroupKey, usize, usize)> = self.children_of(&root.key, 0, 1);
        while let Some((key, parent, depth)) = stack.pop() {
            let Some(spec) = self.specs.get(&key) else { continue };
            let above = spec.parent.as_ref().and_then(|parent| self.own_priority(parent));
            if own_problem(spec, above).is_some() || depth >= DEPTH_MAX || nodes.len() >= NODES_MAX {
                continue;
            }
            let Some(minimum) = minimum(&spec.policy) else { continue };
            let at = nodes.len();
            nodes.push(TreeNode {
                name: spec.key.name.clone(),
                parent,
                minimum,
                topology: spec.topology.clone(),
                disruption_mode: spec.disruption_mode,
                priority: match spec.priority {
                    GroupPriority::Own(own) if above.is_some_and(|above| own > above) => Some(own),
                    _ => None,
                },
            });
            keys.push(key.clone());
            if matches!(minimum, TreeMinimum::Groups(_)) {
                stack.extend(self.children_of(&key, at, depth + 1));
            }
        }
        let tree = GroupTree::from(nodes);
        let recorded = self.recorded(&tree, &keys);
        let policy = Policy::Tree(Arc::new(tree));
        Some(Composed { spec: GroupSpec { policy, recorded, ..root.clone() }, keys })
    }

    /// The children of a group, the oldest last: the stack is read from its end.
    fn children_of(&self, key: &GroupKey, at: usize, depth: usize) -> Vec<(GroupKey, usize, usize)> {
        let children = self.children.get(key).into_iter().flatten().take(NODES_MAX);
        let mut children: Vec<(u64, &GroupKey)> =
            children.filter_map(|child| Some((self.specs.get(child)?.created_ms, child))).collect();
        children.sort_unstable();
        children.into_iter().rev().map(|(_, child)| (child.clone(), at, depth)).collect()
    }

    /// The start of a tree as its leaves record it.
    fn recorded(&self, tree: &GroupTree, keys: &[GroupKey]) -> RecordedStart {
        let (mut minimum, mut decided, mut is_known) = (Vec::new(), None, true);
        for (leaf, rule) in tree.leaves().iter().zip(tree.rules()) {
            let recorded = self.specs.get(&keys[*leaf]).map(|spec| &spec.recorded);
            let reached = match recorded {
                Some(RecordedStart::Confirmed { minimum: of_leaf, decided_ms }) => {
                    is_known &= decided_ms.is_some();
                    decided = decided.max(*decided_ms);
                    let sum = |list: &Vec<Subset>| list.iter().map(|one| one.min_member).sum();
                    of_leaf.as_ref().map_or(rule.min_member, sum)
                }
                _ => 0,
            };
            minimum.push(Subset { name: rule.name, min_member: reached });
        }
        if minimum.iter().all(|one| one.min_member == 0) {
            return RecordedStart::None;
        }
        RecordedStart::Confirmed { minimum: Some(minimum), decided_ms: decided.filter(|_| is_known) }
    }
}

/// What a group of a tree needs. Without a minimum it needs one pod, or one group.
fn minimum(policy: &Policy) -> Option<TreeMinimum> {
    match policy {
        Policy::Gang { min_count } => Some(TreeMinimum::Pods((*min_count).max(1))),
        Policy::Basic { .. } => Some(TreeMinimum::Pods(1)),
        Policy::Groups { min_groups } => Some(TreeMinimum::Groups((*min_groups).max(1))),
        Policy::Subsets(_) | Policy::Tree(_) => None,
    }
}

/// What a group cannot have in a tree, given the priority of its parent.
fn own_problem(spec: &GroupSpec, above: Option<i32>) -> Option<Problem> {
    let invalid = |field, value: String, reason| Some(Problem::Invalid { field, value, reason });
    if minimum(&spec.policy).is_none() {
        return invalid("policy", "subsets".to_owned(), "a group of a tree has no subsets");
    }
    if !spec.min_resources.is_empty() {
        return invalid("minResources", format!("{:?}", spec.min_resources), "a group of a tree has none");
    }
    if !spec.later.is_empty() {
        return invalid("later", spec.later.len().to_string(), "a group of a tree has no later pods");
    }
    match (spec.priority, above) {
        (GroupPriority::Own(own), Some(above)) if own < above => {
            invalid("priority", own.to_string(), "a group has at least the priority of its parent")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> GroupKey {
        GroupKey { namespace: "ml".into(), name: name.into(), ..GroupKey::default() }
    }

    fn group(name: &str, parent: &str, policy: Policy) -> GroupSpec {
        let parent = (!parent.is_empty()).then(|| key(parent));
        GroupSpec { parent, ..GroupSpec::with_policy(key(name), policy) }
    }

    fn groups(name: &str, parent: &str, min_groups: u32) -> GroupSpec {
        group(name, parent, Policy::Groups { min_groups })
    }

    fn gang(name: &str, parent: &str, min_count: u32) -> GroupSpec {
        group(name, parent, Policy::Gang { min_count })
    }

    fn composed(forest: &mut Forest, root: &str) -> Vec<String> {
        let composed = forest.compose(&key(root)).0;
        composed.map_or_else(Vec::new, |composed| composed.keys.iter().map(|key| key.name.clone()).collect())
    }

    #[test]
    fn parts_are_composed_in_any_order_by_age() {
        let mut forest = Forest::default();
        forest.put(gang("b", "root", 1));
        forest.put(GroupSpec { created_ms: 1, ..gang("a", "root", 1) });
        forest.put(gang("deep", "inner", 1));
        assert_eq!(forest.problem(&key("deep")), Some(Problem::Missing(key("inner"))));
        forest.put(groups("root", "", 2));
        assert_eq!(composed(&mut forest, "root"), ["root", "b", "a"]);
        forest.put(groups("inner", "root", 1));
        assert_eq!(composed(&mut forest, "root"), ["root", "b", "inner", "deep", "a"]);
        assert_eq!(forest.problem(&key("deep")), None);
        forest.remove(&key("inner"));
        assert_eq!(forest.compose(&key("root")).1, [key("inner"), key("deep")]);
        assert_eq!(forest.problem(&key("deep")), Some(Problem::Missing(key("inner"))));
    }

    fn invalid(forest: &Forest, name: &str) -> (&'static str, String) {
        match forest.problem(&key(name)) {
            Some(Problem::Invalid { field, value, .. }) => (field, value),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cycles_depth_and_contradictory_priorities_are_named() {
        let mut forest = Forest::default();
        forest.put(groups("a", "b", 1));
        forest.put(groups("b", "a", 1));
        assert_eq!(invalid(&forest, "a"), ("parent", "ml/a -> ml/b -> ml/a".to_owned()));
        forest.put(groups("1", "", 1));
        for (name, parent) in [("2", "1"), ("3", "2"), ("4", "3")] {
            forest.put(groups(name, parent, 1));
        }
        forest.put(gang("5", "4", 1));
        composed(&mut forest, "1");
        assert_eq!(invalid(&forest, "5").0, "parent");
        forest.put(GroupSpec { priority: GroupPriority::Own(10), ..groups("top", "", 1) });
        forest.put(GroupSpec { priority: GroupPriority::Own(9), ..gang("low", "top", 1) });
        forest.put(GroupSpec { priority: GroupPriority::Own(11), ..gang("high", "top", 1) });
        assert_eq!(composed(&mut forest, "top"), ["top", "high"]);
        assert_eq!(invalid(&forest, "low"), ("priority", "9".to_owned()));
        forest.put(gang("under", "high", 1));
        assert_eq!(invalid(&forest, "under"), ("parent", "ml/high".to_owned()));
    }
}
