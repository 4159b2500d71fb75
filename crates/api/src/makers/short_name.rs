//! Names that fit: a name that is too long keeps its beginning, and a hash of all of it at the end.

/// How many characters a hash has.
const HASH_CHARS: usize = 10;

/// The name if it has at most `chars_max` characters (ASCII), else its beginning with a hash of the whole behind it.
pub fn short_name(name: &str, chars_max: usize) -> String {
    if name.len() <= chars_max {
        return name.to_owned();
    }
    let kept = chars_max.saturating_sub(HASH_CHARS + 1);
    let mut end = kept.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    // No name may have two separators in a row where it was cut.
    let start = name[..end].trim_end_matches(['-', '.']);
    format!("{start}-{:010x}", fnv1a(name.as_bytes()) & 0xff_ffff_ffff)
}

/// FNV-1a of 64 bits: names are no secrets, and it never changes.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_fit_stay_apart_and_never_change() {
        assert_eq!(short_name("short", 63), "short");
        let long = "a".repeat(60);
        let (one, two) = (short_name(&format!("{long}-0-abc"), 63), short_name(&format!("{long}-1-abc"), 63));
        assert_ne!(one, two);
        assert!(one.len() == 63 && two.len() == 63, "{one} {two}");
        assert!(!short_name(&format!("{}-{long}", "a".repeat(51)), 63).contains("--"));
        assert_eq!(short_name("abcdefghijklmnopqrst", 15), "abcd-bba32d3e4d");
    }
}
