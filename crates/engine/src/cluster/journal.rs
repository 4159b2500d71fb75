//! A journal of changed nodes, so that caches per node only update those.
//!
//! The journal is bounded: a reader that is too far behind must rebuild its cache.

use crate::model::ids::NodeId;

/// One change of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Touch {
    pub(crate) node: NodeId,
    /// The node itself changed (labels, taints, capacity, existence), not only the pods on it.
    pub(crate) itself: bool,
}

/// The last changes. A position is the number of all earlier changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    touches: Vec<Touch>,
    dropped: u64,
}

impl Journal {
    /// The minimum number of changes that are kept, regardless of the size of the cluster.
    const KEPT_MIN: usize = 4096;

    pub(crate) fn touch(&mut self, touch: Touch, nodes: usize) {
        if self.touches.len() >= 8 * nodes + Self::KEPT_MIN {
            let half = self.touches.len() / 2;
            self.touches.drain(..half);
            self.dropped += half as u64;
        }
        self.touches.push(touch);
    }

    /// The position after the last change.
    pub(crate) fn end(&self) -> u64 {
        self.dropped + self.touches.len() as u64
    }

    /// The changes since a position, or `None` if some of them were dropped.
    pub(crate) fn since(&self, position: u64) -> Option<&[Touch]> {
        let start = position.checked_sub(self.dropped)?;
        self.touches.get(start as usize..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_that_is_too_far_behind_is_rejected() {
        let mut journal = Journal::default();
        let early = journal.end();
        for number in 0..=Journal::KEPT_MIN {
            journal.touch(Touch { node: NodeId(number as u32), itself: false }, 0);
        }
        assert_eq!(journal.since(early), None);
        let late = journal.end();
        journal.touch(Touch { node: NodeId(7), itself: true }, 0);
        assert_eq!(journal.since(late), Some(&[Touch { node: NodeId(7), itself: true }][..]));
        assert_eq!(journal.since(journal.end()), Some(&[][..]));
    }
}
