//! Tournament tree over slots: finds the best of many keys that change one at a time.
//!
//! Reading the best key takes constant time, changing a key at most the height of the tree.

/// Keys by slot; zero means not a candidate. Among equal keys the lowest slot wins.
#[derive(Clone, Debug, Default)]
pub(super) struct Tournament {
    /// A heap-shaped tree of keys: the root is 1, the leaves are the last half.
    tree: Vec<u32>,
    leaves: usize,
}

impl Tournament {
    /// Builds the tree over these keys.
    pub(super) fn new(keys: &[u32]) -> Self {
        let leaves = keys.len().next_power_of_two();
        let mut tree = vec![0; 2 * leaves];
        tree[leaves..leaves + keys.len()].copy_from_slice(keys);
        for place in (1..leaves).rev() {
            tree[place] = tree[2 * place].max(tree[2 * place + 1]);
        }
        Self { tree, leaves }
    }

    pub(super) fn key(&self, slot: usize) -> u32 {
        self.tree[self.leaves + slot]
    }

    /// Changes one key.
    pub(super) fn set(&mut self, slot: usize, key: u32) {
        let mut place = self.leaves + slot;
        self.tree[place] = key;
        while place > 1 {
            let winner = self.tree[place].max(self.tree[place ^ 1]);
            place /= 2;
            if self.tree[place] == winner {
                break;
            }
            self.tree[place] = winner;
        }
    }

    /// The slot with the best key, if any is a candidate.
    pub(super) fn best(&self) -> Option<usize> {
        let key = self.tree.get(1).copied().filter(|key| *key > 0)?;
        let mut place = 1;
        while place < self.leaves {
            place *= 2;
            if self.tree[place] != key {
                place += 1;
            }
        }
        Some(place - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_tree_has_no_best() {
        assert_eq!(Tournament::default().best(), None);
        assert_eq!(Tournament::new(&[]).best(), None);
        assert_eq!(Tournament::new(&[0]).best(), None);
        assert_eq!(Tournament::new(&[3]).best(), Some(0));
    }

    proptest! {
        #[test]
        fn tree_agrees_with_linear_scan(keys in prop::collection::vec(0_u32..6, 1..40), changes in prop::collection::vec((0_usize..40, 0_u32..6), 0..60)) {
            let mut keys = keys;
            let mut tree = Tournament::new(&keys);
            for (slot, key) in changes {
                let slot = slot % keys.len();
                keys[slot] = key;
                tree.set(slot, key);
                let best = keys.iter().copied().max().filter(|key| *key > 0);
                let first = best.and_then(|best| keys.iter().position(|key| *key == best));
                prop_assert_eq!(tree.best(), first);
                prop_assert_eq!(tree.key(slot), key);
            }
        }
    }
}
