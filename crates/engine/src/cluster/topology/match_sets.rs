//! Match sets: label sets that the same selectors match.
//!
//! A match set lists the narrow selectors that match and the broad ones that do not. When a selector is new and lists
//! all label sets of a match set, or none of them is left that uses it, the match set changes in place and the classes
//! of its pods stay; otherwise label sets move to another one.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::model::ids::{ClassId, LabelSetId, MatchSetId, SelectorId, Slab};

/// Selectors, sorted.
pub(crate) type SelectorSet = SmallVec<[SelectorId; 2]>;

/// The selectors that list a label set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Listed {
    /// Narrow selectors that match.
    pub(super) matching: SelectorSet,
    /// Broad selectors that do not match.
    pub(super) not_matching: SelectorSet,
}

impl Listed {
    fn part(&mut self, broad: bool) -> &mut SelectorSet {
        if broad { &mut self.not_matching } else { &mut self.matching }
    }

    pub(super) fn add(&mut self, selector: SelectorId, broad: bool) {
        let part = self.part(broad);
        if let Err(place) = part.binary_search(&selector) {
            part.insert(place, selector);
        }
    }

    fn remove(&mut self, selector: SelectorId, broad: bool) {
        let part = self.part(broad);
        if let Ok(place) = part.binary_search(&selector) {
            part.remove(place);
        }
    }

    pub(super) fn contains(&self, selector: SelectorId, broad: bool) -> bool {
        let part = if broad { &self.not_matching } else { &self.matching };
        part.binary_search(&selector).is_ok()
    }

    pub(super) fn selectors(&self) -> impl Iterator<Item = SelectorId> + '_ {
        self.matching.iter().chain(&self.not_matching).copied()
    }

    /// A number that is equal for equal lists. It changes with every selector that is added or removed by a fixed
    /// amount, so that it need not be computed again.
    fn digest(&self) -> u64 {
        self.selectors().map(digest_of).fold(0, u64::wrapping_add)
    }
}

/// SplitMix64: neighbouring ids become unrelated numbers.
fn digest_of(selector: SelectorId) -> u64 {
    let mut number = u64::from(selector.0).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// A match set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MatchSet {
    pub(super) listed: Listed,
    digest: u64,
    pub(super) label_sets: BTreeSet<LabelSetId>,
    /// The classes of its pods.
    classes: BTreeSet<ClassId>,
}

/// All match sets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MatchSets {
    slab: Slab<MatchSet>,
    by_digest: BTreeMap<u64, BTreeSet<MatchSetId>>,
}

impl Default for MatchSets {
    fn default() -> Self {
        let mut sets = Self { slab: Slab::default(), by_digest: BTreeMap::new() };
        let id = sets.add(Listed::default());
        debug_assert_eq!(id, MatchSets::UNLISTED);
        sets
    }
}

impl MatchSets {
    /// The match set of label sets that no selector lists. It is always there.
    pub(crate) const UNLISTED: MatchSetId = MatchSetId(0);

    pub(super) fn get(&self, id: MatchSetId) -> &MatchSet {
        self.slab.get(id.0).expect("a match set in use exists")
    }

    fn get_mut(&mut self, id: MatchSetId) -> &mut MatchSet {
        self.slab.get_mut(id.0).expect("a match set in use exists")
    }

    /// The match set with these lists, if there is one; of several, one that has label sets.
    pub(super) fn find(&self, listed: &Listed) -> Option<MatchSetId> {
        self.find_other(listed, listed.digest(), None)
    }

    fn find_other(&self, listed: &Listed, digest: u64, except: Option<MatchSetId>) -> Option<MatchSetId> {
        let equal = self.by_digest.get(&digest)?.iter().copied();
        let equal = equal.filter(|id| Some(*id) != except && self.get(*id).listed == *listed);
        equal.min_by_key(|id| (self.get(*id).label_sets.is_empty(), *id))
    }

    /// Adds a match set; it stays as long as it has label sets or classes.
    pub(super) fn add(&mut self, listed: Listed) -> MatchSetId {
        let digest = listed.digest();
        let set = MatchSet { listed, digest, label_sets: BTreeSet::new(), classes: BTreeSet::new() };
        let id = MatchSetId(self.slab.insert(set));
        self.by_digest.entry(digest).or_default().insert(id);
        id
    }

    /// Changes a match set in place: a selector lists all its label sets now, or no longer exists.
    pub(super) fn change(&mut self, id: MatchSetId, selector: SelectorId, broad: bool, add: bool) {
        debug_assert_ne!(id, Self::UNLISTED, "the empty match set stays empty");
        let set = self.get_mut(id);
        let old = set.digest;
        if add {
            set.listed.add(selector, broad);
            set.digest = old.wrapping_add(digest_of(selector));
        } else {
            set.listed.remove(selector, broad);
            set.digest = old.wrapping_sub(digest_of(selector));
        }
        let new = set.digest;
        self.unlist_digest(old, id);
        self.by_digest.entry(new).or_default().insert(id);
    }

    /// Another match set with the same lists.
    pub(super) fn twin(&self, id: MatchSetId) -> Option<MatchSetId> {
        let set = self.slab.get(id.0)?;
        self.find_other(&set.listed, set.digest, Some(id))
    }

    pub(super) fn add_label_set(&mut self, id: MatchSetId, label_set: LabelSetId) {
        self.get_mut(id).label_sets.insert(label_set);
    }

    /// Removes a label set. Returns the lists of the match set if that was its last use.
    pub(super) fn remove_label_set(&mut self, id: MatchSetId, label_set: LabelSetId) -> Option<Listed> {
        self.get_mut(id).label_sets.remove(&label_set);
        self.remove_if_unused(id)
    }

    pub(super) fn add_class(&mut self, id: MatchSetId, class: ClassId) {
        self.get_mut(id).classes.insert(class);
    }

    /// Removes a class. Returns the lists of the match set if that was its last use.
    pub(super) fn remove_class(&mut self, id: MatchSetId, class: ClassId) -> Option<Listed> {
        self.get_mut(id).classes.remove(&class);
        self.remove_if_unused(id)
    }

    fn remove_if_unused(&mut self, id: MatchSetId) -> Option<Listed> {
        let set = self.get(id);
        if id == Self::UNLISTED || !set.label_sets.is_empty() || !set.classes.is_empty() {
            return None;
        }
        let set = self.slab.remove(id.0).expect("a match set in use exists");
        self.unlist_digest(set.digest, id);
        Some(set.listed)
    }

    fn unlist_digest(&mut self, digest: u64, id: MatchSetId) {
        let ids = self.by_digest.get_mut(&digest).expect("a match set is listed by its digest");
        ids.remove(&id);
        if ids.is_empty() {
            self.by_digest.remove(&digest);
        }
    }
}
