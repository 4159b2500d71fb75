//! Random numbers that are the same on every machine: SplitMix64, with a seed that a failing test can print.
//!
//! Good enough for test instances; must not be used for anything secret.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound - 1`. The bias is negligible for tests.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "there is no number below zero");
        (self.draw() % bound as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "{low} to {high} is no range");
        low + (self.draw() % (high - low + 1) as u64) as i64
    }

    /// True with this probability in percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_numbers_match_the_published_algorithm() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn bounds_are_respected_and_reached() {
        let mut random = Random::new(7);
        let drawn: Vec<i64> = (0..200).map(|_| random.between(-1, 2)).collect();
        assert!((-1..=2).all(|number| drawn.contains(&number)));
        assert!(drawn.iter().all(|number| (-1..=2).contains(number)));
        let mut items = [0, 1, 2, 3, 4];
        random.shuffle(&mut items);
        items.sort_unstable();
        assert_eq!(items, [0, 1, 2, 3, 4]);
    }
}
