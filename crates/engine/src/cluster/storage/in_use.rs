//! What pods ask of a storage class, and which of them a change of its volumes or capacity concerns.
//!
//! A volume or some capacity that is taken matters only to pods that would get too little now. Without this distinction
//! a single claim that nothing can satisfy would make every placement concern all pods of the class.

use std::collections::BTreeMap;

/// What a pod asks of a storage class: its claims of that class which are to be bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    /// Their sizes.
    pub(super) sizes: Vec<i64>,
    /// Whether one of them has a selector: then not every volume that is large enough will do.
    pub(super) selects: bool,
}

/// A number in use, by so many pod classes, and the revision of the last change that concerns them.
type Revised<N> = BTreeMap<N, (u32, u64)>;

/// What pod classes ask of a storage class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InUse {
    /// How many claims of the class a pod has.
    counts: Revised<usize>,
    /// How large a claim is.
    sizes: Revised<i64>,
    /// The revision of the last change of any volume that nodes share.
    volumes_revision: u64,
}

impl InUse {
    /// Pods of a class ask this.
    pub(super) fn add(&mut self, asked: &Asked, revision: u64) {
        add(&mut self.counts, asked.sizes.len(), revision);
        for size in &asked.sizes {
            add(&mut self.sizes, *size, revision);
        }
    }

    /// There are no pods of that class any more.
    pub(super) fn remove(&mut self, asked: &Asked) {
        remove(&mut self.counts, &asked.sizes.len());
        for size in &asked.sizes {
            remove(&mut self.sizes, size);
        }
    }

    /// The most claims that a pod has.
    pub(super) fn count_max(&self) -> usize {
        self.counts.last_key_value().map_or(0, |(count, _)| *count)
    }

    /// So many volumes are left where another was taken or released: that concerns pods with more claims.
    pub(super) fn volumes_left(&mut self, left: usize, revision: u64) {
        self.volumes_revision = revision;
        for (_, (_, changed)) in self.counts.range_mut(left + 1..) {
            *changed = revision;
        }
    }

    /// The free capacity has changed between these amounts: that concerns claims that fit in one of them alone.
    pub(super) fn capacity_changed(&mut self, one: i64, other: i64, revision: u64) {
        let (less, more) = (one.min(other), one.max(other));
        if less < more {
            for (_, (_, changed)) in self.sizes.range_mut(less + 1..=more) {
                *changed = revision;
            }
        }
    }

    /// The revision of the last change that concerns a pod that asks this.
    pub(super) fn revision(&self, asked: &Asked) -> u64 {
        let of_size = |size: &i64| self.sizes.get(size).map_or(0, |(_, revision)| *revision);
        let of_count = self.counts.get(&asked.sizes.len()).map_or(0, |(_, revision)| *revision);
        let of_volumes = if asked.selects { self.volumes_revision } else { 0 };
        asked.sizes.iter().map(of_size).fold(of_count.max(of_volumes), u64::max)
    }
}

fn add<N: Ord>(numbers: &mut Revised<N>, number: N, revision: u64) {
    numbers.entry(number).or_insert((0, revision)).0 += 1;
}

fn remove<N: Ord>(numbers: &mut Revised<N>, number: &N) {
    if let Some((users, _)) = numbers.get_mut(number) {
        *users -= 1;
        if *users == 0 {
            numbers.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_concerns_those_that_get_too_little_now() {
        let asked = |sizes: &[i64], selects| Asked { sizes: sizes.to_vec(), selects };
        let (one, three, selective) = (asked(&[10], false), asked(&[50, 50, 1000], false), asked(&[20], true));
        let mut used = InUse::default();
        for (revision, asked) in [&one, &three, &selective].into_iter().enumerate() {
            used.add(asked, 1 + revision as u64);
        }
        let revisions = |used: &InUse| [&one, &three, &selective].map(|asked| used.revision(asked));
        assert_eq!((used.count_max(), revisions(&used)), (3, [1, 2, 3]));
        used.volumes_left(2, 5);
        assert_eq!(revisions(&used), [1, 5, 5], "two are enough for a single claim, but not any two for a selector");
        used.capacity_changed(60, 40, 6);
        assert_eq!(revisions(&used), [1, 6, 5]);
        used.capacity_changed(40, 40, 7);
        used.capacity_changed(9, 10, 8);
        assert_eq!(revisions(&used), [8, 6, 5], "it fits again");
        used.remove(&three);
        assert_eq!((used.count_max(), revisions(&used)), (1, [8, 0, 5]));
        used.remove(&one);
        used.remove(&selective);
        assert_eq!(used, InUse { volumes_revision: 5, ..InUse::default() });
    }
}
