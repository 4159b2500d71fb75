//! Dense indexes into the engine's arenas.
//!
//! An id is a slot number. A slot is reused after its owner is removed, so no id may be kept beyond the removal of what
//! it refers to; `invariants` checks this.

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u32);
    };
}

dense_id!(
    /// A node's slot in the cluster.
    NodeId
);
dense_id!(
    /// A pod's slot in the cluster.
    PodId
);
dense_id!(
    /// A group's slot in the cluster.
    GroupId
);
dense_id!(
    /// A pod class's slot in the cluster.
    ClassId
);
dense_id!(
    /// A resource name's index in every resource vector.
    ResourceId
);

dense_id!(
    /// A pod selector in the selector index.
    SelectorId
);
dense_id!(
    /// Pods of one namespace with the same labels.
    LabelSetId
);
dense_id!(
    /// The label sets that the same selectors match.
    MatchSetId
);
dense_id!(
    /// An affinity or anti-affinity term of existing pods.
    AffinityTermId
);
dense_id!(
    /// A topology key: a node label whose values are domains.
    TopologyKeyId
);
dense_id!(
    /// Counts of matching pods by topology domain.
    DomainCountsId
);
dense_id!(
    /// The nodes that a topology spread constraint counts pods on.
    EligibleNodesId
);
dense_id!(
    /// A claim's slot in the storage.
    ClaimId
);
dense_id!(
    /// A volume's slot in the storage.
    VolumeId
);

/// Ids by which vectors are indexed.
macro_rules! indexes_vectors {
    ($($name:ident)*) => {
        $(impl $name {
            /// The slot number.
            pub(crate) fn slot(self) -> usize {
                self.0 as usize
            }
        })*
    };
}

indexes_vectors!(NodeId PodId GroupId ResourceId);

/// A slab: values in numbered slots; the lowest free slot is filled first.
///
/// Filling the lowest free slot keeps ids independent of anything but the order of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: std::collections::BTreeSet<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: std::collections::BTreeSet::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop_first() {
            self.slots[slot as usize] = Some(value);
            return slot;
        }
        let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 slots");
        self.slots.push(Some(value));
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let value = self.slots.get_mut(slot as usize)?.take();
        if value.is_some() {
            self.free.insert(slot);
        }
        value
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Occupied slots in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, value)| Some((slot as u32, value.as_ref()?)))
    }

    /// One past the highest slot ever used: the size for arrays indexed by slot.
    pub(crate) fn bound(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn lowest_free_slot_is_filled_first() {
        let mut slab = Slab::default();
        for value in 0..4 {
            slab.insert(value);
        }
        slab.remove(2);
        slab.remove(1);
        assert_eq!(slab.insert(10), 1);
        assert_eq!(slab.insert(11), 2);
        assert_eq!(slab.insert(12), 4);
        assert_eq!(slab.iter().count(), 5);
        assert_eq!(slab.remove(9), None);
    }
}
