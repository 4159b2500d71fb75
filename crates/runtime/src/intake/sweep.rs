//! Mark and sweep: what a list that starts anew does not name any more is gone.

use std::collections::BTreeSet;

/// A turn of a watch.
#[derive(Debug)]
pub(crate) enum Turn<T> {
    /// A whole list begins.
    Begin,
    /// One object of the list.
    Listed(T),
    /// The list is complete.
    Complete,
    /// The kind is not served: there are no such objects.
    Absent,
    /// An object is there, new or changed.
    Seen(T),
    /// An object is gone.
    Gone(T),
}

/// The state of one watch.
#[derive(Debug)]
pub(crate) struct Sweep<Key> {
    marked: Option<BTreeSet<Key>>,
    done: bool,
}

impl<Key> Default for Sweep<Key> {
    fn default() -> Self {
        Self { marked: None, done: false }
    }
}

impl<Key: Ord + Clone> Sweep<Key> {
    /// Whether a whole list has come.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Takes a turn: the object that is there, and the keys of those that are gone.
    pub(crate) fn turn<T>(
        &mut self,
        turn: Turn<T>,
        key: impl Fn(&T) -> Key,
        known: impl Fn() -> Vec<Key>,
    ) -> (Option<T>, Vec<Key>) {
        match turn {
            Turn::Begin => {
                self.marked = Some(BTreeSet::new());
                (None, Vec::new())
            }
            Turn::Listed(object) => {
                if let Some(marked) = &mut self.marked {
                    marked.insert(key(&object));
                }
                (Some(object), Vec::new())
            }
            Turn::Absent => {
                self.marked = None;
                self.done = true;
                (None, known())
            }
            Turn::Complete => {
                let marked = self.marked.take().unwrap_or_default();
                self.done = true;
                (None, known().into_iter().filter(|key| !marked.contains(key)).collect())
            }
            Turn::Seen(object) => (Some(object), Vec::new()),
            Turn::Gone(object) => (None, vec![key(&object)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let mut sweep = Sweep::default();
        let mut take = |turn| sweep.turn(turn, |key: &u32| *key, || vec![1, 2, 3]);
        assert_eq!(take(Turn::Begin), (None, vec![]));
        assert_eq!(take(Turn::Listed(2)), (Some(2), vec![]));
        assert_eq!(take(Turn::Complete), (None, vec![1, 3]));
        assert_eq!(take(Turn::Gone(3)), (None, vec![3]));
        assert!(sweep.is_done());
    }

    #[test]
    fn a_list_that_is_cut_short_sweeps_nothing() {
        let mut sweep = Sweep::default();
        let mut take = |turn| sweep.turn(turn, |key: &u32| *key, || vec![1, 2]);
        take(Turn::Begin);
        take(Turn::Listed(1));
        take(Turn::Begin);
        take(Turn::Listed(2));
        assert_eq!(take(Turn::Complete), (None, vec![1]));
    }
}
