//! Random numbers from a seed (SplitMix64): generated names, UIDs and faults are the same in every run of a seed.
//!
//! Must not be used for anything secret.

/// The alphabet of generated names: no vowels, so that no words appear.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX_LENGTH: usize = 5;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        self.draw() % bound
    }

    /// True with this probability, in thousandths.
    pub fn per_mille(&mut self, chance: u32) -> bool {
        self.below(1000) < u64::from(chance)
    }

    /// A UID in the form of a version 4 UUID.
    pub fn uid(&mut self) -> String {
        let high = (self.draw() & !0xf000) | 0x4000;
        let low = (self.draw() & !(0xc << 60)) | (0x8 << 60);
        let (first, second, third) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
        format!("{first:08x}-{second:04x}-{third:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
    }

    /// The suffix of a `generateName`.
    pub fn name_suffix(&mut self) -> String {
        let letters = NAME_LETTERS.len() as u64;
        (0..NAME_SUFFIX_LENGTH).map(|_| char::from(NAME_LETTERS[self.below(letters) as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_version_four_uuid() {
        let mut random = Random::new(7);
        for _ in 0..1000 {
            let uid = random.uid();
            let parts: Vec<&str> = uid.split('-').collect();
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uid}");
            assert!(parts[2].starts_with('4') && "89ab".contains(&parts[3][..1]), "{uid}");
        }
    }

    #[test]
    fn one_seed_gives_one_stream() {
        let stream = |seed| (0..5).scan(Random::new(seed), |random, _| Some(random.draw())).collect::<Vec<_>>();
        assert_eq!(stream(3), stream(3));
        assert_ne!(stream(3), stream(4));
    }
}
