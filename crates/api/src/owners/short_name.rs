//! Shortens names: a name that is too long is cut, and a hash of the whole name is appended.

/// The length of the hash.
const HASH_CHARS: usize = 10;

/// The name if it has at most `chars_max` characters (ASCII), else a prefix of it with a hash of the whole name.
pub fn short_name(name: &str, chars_max: usize) -> String {
    if name.len() <= chars_max {
        return name.to_owned();
    }
    let kept = chars_max.saturating_sub(HASH_CHARS + 1);
    let mut end = kept.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    // No two separators in a row at the cut.
    let start = name[..end].trim_end_matches(['-', '.']);
    format!("{start}-{:010x}", fnv1a(name.as_bytes()) & 0xff_ffff_ffff)
}

/// FNV-1a with 64 bits: names are not secret, and the function is stable.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_shortened_distinct_and_stable() {
        assert_eq!(short_name("short", 63), "short");
        let long = "a".repeat(60);
        let (one, two) = (short_name(&format!("{long}-0-abc"), 63), short_name(&format!("{long}-1-abc"), 63));
        assert_ne!(one, two);
        assert!(one.len() == 63 && two.len() == 63, "{one} {two}");
        assert!(!short_name(&format!("{}-{long}", "a".repeat(51)), 63).contains("--"));
        assert_eq!(short_name("abcdefghijklmnopqrst", 15), "abcd-bba32d3e4d");
    }
}
