//! Which nodes changed, in order, so that whoever keeps something per node can repair just those.
//!
//! The journal has a limit: a reader that fell too far behind is told so and starts afresh.

use crate::model::ids::NodeId;

/// One change of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Touch {
    pub(crate) node: NodeId,
    /// The node itself changed (labels, taints, room, existence), not only what is on it.
    pub(crate) itself: bool,
}

/// The last changes. A position is the number of touches ever made before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    touches: Vec<Touch>,
    dropped: u64,
}

impl Journal {
    /// Keep at least so many touches whatever the size of the cluster.
    const KEPT_MIN: usize = 4096;

    pub(crate) fn touch(&mut self, touch: Touch, nodes: usize) {
        if self.touches.len() >= 8 * nodes + Self::KEPT_MIN {
            let half = self.touches.len() / 2;
            self.touches.drain(..half);
            self.dropped += half as u64;
        }
        self.touches.push(touch);
    }

    /// The position after the last touch.
    pub(crate) fn end(&self) -> u64 {
        self.dropped + self.touches.len() as u64
    }

    /// The touches since a position, or `None` if some of them are forgotten.
    pub(crate) fn since(&self, position: u64) -> Option<&[Touch]> {
        let start = position.checked_sub(self.dropped)?;
        self.touches.get(start as usize..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_fell_behind_is_told() {
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
