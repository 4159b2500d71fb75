//! A small random number generator of our own, so that a seed means the same run for ever.

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        if list.is_empty() { None } else { list.get(self.below(list.len() as u64) as usize) }
    }
}

/// The seeds of a run: so many, or as many as `MUSTER_SEEDS` says, or only the one in `MUSTER_SEED`.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test may ask which seed to run")]
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("MUSTER_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("MUSTER_SEEDS").unwrap_or(count)).collect(),
    }
}
