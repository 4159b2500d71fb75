//! Drops fields that are not in the schema.
//!
//! `apiVersion`, `kind` and `metadata` of an object and of embedded objects are kept: they do not belong to the schema.
//! Must not depend on where an object comes from.

use serde_json::{Map, Value};

use super::node::{Additional, Node};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

const METADATA_FIELDS: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Drops all unknown fields of an object and returns their paths in order.
pub(super) fn prune_object(object: &mut Value, root: &Node) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), dropped: Vec::new(), size: 0 };
    if let Value::Object(map) = object {
        pruner.map(map, root, true, root.preserve_unknown);
    }
    pruner.dropped.sort_unstable();
    pruner.dropped
}

/// Drops all unknown fields of a part of an object.
pub(super) fn prune_part(value: &mut Value, node: &Node) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), dropped: Vec::new(), size: 0 };
    pruner.value(value, Some(node), false);
    pruner.dropped
}

struct Pruner {
    path: String,
    dropped: Vec<String>,
    /// The total size of the paths in bytes.
    size: usize,
}

/// The most bytes of reported paths; a body without absurdly long names stays below it.
const DROPPED_SIZE_MAX: usize = 16 * 1024 * 1024;

impl Pruner {
    fn note(&mut self) {
        if self.size <= DROPPED_SIZE_MAX {
            self.size += self.path.len();
            self.dropped.push(self.path.clone());
        }
    }

    /// `keep` is set for the elements of a list that preserves unknown fields: they preserve them too.
    fn value(&mut self, value: &mut Value, node: Option<&Node>, keep: bool) {
        let keep = keep || node.is_some_and(|node| node.preserve_unknown);
        match (value, node) {
            (Value::Object(map), Some(node)) => self.map(map, node, node.embedded, keep),
            (Value::Object(_), None) if keep => {}
            (Value::Object(map), None) => {
                for name in std::mem::take(map).into_iter().map(|(name, _)| name) {
                    self.below(&name, Pruner::note);
                }
            }
            (Value::Array(items), node) => self.list(items, node, keep),
            _ => {}
        }
    }

    fn map(&mut self, map: &mut Map<String, Value>, node: &Node, has_meta: bool, keep: bool) {
        let mut unknown = Vec::new();
        for (name, value) in map.iter_mut() {
            let is_meta = META_FIELDS.contains(&name.as_str());
            if has_meta && is_meta {
                if name == "metadata" && !self.path.is_empty() {
                    self.below(name, |pruner| pruner.metadata(value));
                }
                continue;
            }
            let known = match (node.properties.get(name), &node.additional) {
                (Some(property), _) => Some(Some(property)),
                (None, Some(Additional::Of(each))) => Some(Some(&**each)),
                (None, Some(Additional::Allowed(_))) => Some(None),
                (None, None) => None,
            };
            match known {
                Some(known) => self.below(name, |pruner| pruner.value(value, known, false)),
                None if keep => {}
                None => unknown.push(name.clone()),
            }
        }
        for name in unknown {
            map.remove(&name);
            self.below(&name, Pruner::note);
        }
    }

    /// Embedded objects have standard metadata. The metadata of the object itself is pruned by the caller.
    fn metadata(&mut self, value: &mut Value) {
        let Value::Object(map) = value else { return };
        map.retain(|name, _| {
            let is_known = METADATA_FIELDS.contains(&name.as_str());
            if !is_known {
                self.below(name, Pruner::note);
            }
            is_known
        });
    }

    fn list(&mut self, items: &mut [Value], node: Option<&Node>, keep: bool) {
        let entry = node.and_then(|node| node.items.as_deref());
        for (index, item) in items.iter_mut().enumerate() {
            let length = self.path.len();
            self.path.extend(["[", &index.to_string(), "]"]);
            self.value(item, entry, keep);
            self.path.truncate(length);
        }
    }

    fn below(&mut self, name: &str, then: impl FnOnce(&mut Pruner)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        then(self);
        self.path.truncate(length);
    }
}
