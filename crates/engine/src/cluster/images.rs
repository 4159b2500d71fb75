//! How many nodes have each image.
//!
//! The image locality score of a node depends on how many other nodes have the image, so caches of scores must notice
//! changes: every image has a version, and so has the number of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::node::Node;
use crate::model::ids::Slab;

/// The images of nodes, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    by_name: BTreeMap<Arc<str>, Image>,
    changes: u64,
    /// When an image was last removed from its last node.
    emptied: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Image {
    nodes: u32,
    changed: u64,
}

impl Images {
    /// How many nodes have an image.
    pub(crate) fn nodes(&self, name: &str) -> u32 {
        self.by_name.get(name).map_or(0, |image| image.nodes)
    }

    /// When any of these images was last added to or removed from a node; zero if no node has them.
    pub(crate) fn changed(&self, names: &[Arc<str>]) -> u64 {
        let known = names.iter().filter_map(|name| self.by_name.get(name));
        known.map(|image| image.changed.max(self.emptied)).max().unwrap_or(0)
    }

    fn change(&mut self, name: &Arc<str>, add: bool) {
        self.changes += 1;
        let image = self.by_name.entry(name.clone()).or_default();
        image.changed = self.changes;
        image.nodes = if add { image.nodes + 1 } else { image.nodes - 1 };
        if image.nodes == 0 {
            self.by_name.remove(name);
            self.emptied = self.changes;
        }
    }

    /// The images of a node have changed.
    pub(super) fn replace(&mut self, old: &BTreeMap<Arc<str>, i64>, new: &BTreeMap<Arc<str>, i64>) {
        for name in old.keys().filter(|name| !new.contains_key(*name)) {
            self.change(name, false);
        }
        for name in new.keys().filter(|name| !old.contains_key(*name)) {
            self.change(name, true);
        }
    }

    /// Whether the counts equal a recount.
    pub(super) fn match_recount(&self, nodes: &Slab<Node>) -> bool {
        let mut fresh: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
        for name in nodes.iter().flat_map(|(_, node)| node.images.keys()) {
            *fresh.entry(name).or_default() += 1;
        }
        fresh.into_iter().eq(self.by_name.iter().map(|(name, image)| (name, image.nodes)))
    }
}
