//! Slices and spread by brute force: whether so many equal pods can be in racks of blocks, part by part.

/// The rules of a group.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Every so many pods are in one rack; 1 for no slices.
    pub size: usize,
    /// Whether each slice has a rack of its own.
    pub alone: bool,
    /// Whether all pods are in one block.
    pub one_block: bool,
    /// Over how many domains they are spread.
    pub spread: Option<Spread>,
}

/// Over how many domains pods are spread.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Whether the domains are blocks, not racks.
    pub over_blocks: bool,
    /// At least so many, if there are as many pods.
    pub min: usize,
    /// At most so many.
    pub max: usize,
}

/// A rack: its block, and how many pods it has room for.
pub type Rack = (usize, usize);

impl Parts {
    /// Whether this many pods in each rack keep to the rules.
    pub fn hold(&self, racks: &[Rack], pods: &[usize]) -> bool {
        let used: Vec<(usize, usize)> =
            racks.iter().zip(pods).filter(|(_, pods)| **pods > 0).map(|((block, _), pods)| (*block, *pods)).collect();
        let mut blocks: Vec<usize> = used.iter().map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let all: usize = pods.iter().sum();
        let incomplete = used.iter().filter(|(_, pods)| !pods.is_multiple_of(self.size)).count();
        let is_spread = self.spread.is_none_or(|spread| {
            let domains = if spread.over_blocks { blocks.len() } else { used.len() };
            // A slice is in one domain.
            let parts = all.div_ceil(self.size);
            domains >= spread.min.min(parts) && domains <= spread.max
        });
        incomplete <= 1
            && is_spread
            && (!self.one_block || blocks.len() <= 1)
            && (!self.alone || used.iter().all(|(_, pods)| *pods <= self.size))
    }

    /// Whether so many pods can be placed.
    pub fn can_place(&self, racks: &[Rack], pods: usize) -> bool {
        let mut counts = vec![0; racks.len()];
        self.place(racks, pods, 0, &mut counts)
    }

    fn place(&self, racks: &[Rack], left: usize, at: usize, counts: &mut [usize]) -> bool {
        let Some((_, room)) = racks.get(at) else { return left == 0 && self.hold(racks, counts) };
        (0..=left.min(*room)).any(|pods| {
            counts[at] = pods;
            let found = self.place(racks, left - pods, at + 1, counts);
            counts[at] = 0;
            found
        })
    }

    /// How many of these pods start: all, else as many as whole slices and the last one have, at least the minimum; 0 if
    /// not even that.
    pub fn starts(&self, racks: &[Rack], pods: usize, minimum: usize) -> usize {
        let last = pods % self.size;
        let is_whole = |count: &usize| *count == minimum || [0, last].contains(&(count % self.size));
        let counts = (minimum.max(1)..=pods).rev().filter(is_whole);
        counts.into_iter().find(|count| self.can_place(racks, *count)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_need_whole_rooms() {
        let parts = Parts { size: 4, alone: false, one_block: false, spread: None };
        assert!(parts.can_place(&[(0, 4), (0, 2)], 6));
        assert!(!parts.can_place(&[(0, 3), (0, 3)], 6));
        assert_eq!(parts.starts(&[(0, 5), (0, 3)], 8, 2), 5 - 1);
        let alone = Parts { alone: true, ..parts };
        assert!(!alone.can_place(&[(0, 8)], 8) && alone.can_place(&[(0, 8), (1, 4)], 8));
    }

    #[test]
    fn spread_counts_domains() {
        let spread = Spread { over_blocks: true, min: 2, max: 2 };
        let parts = Parts { size: 1, alone: false, one_block: false, spread: Some(spread) };
        assert!(parts.can_place(&[(0, 3), (1, 1)], 4) && !parts.can_place(&[(0, 4)], 4));
        assert!(!parts.can_place(&[(0, 1), (1, 1), (2, 1)], 3));
    }
}
