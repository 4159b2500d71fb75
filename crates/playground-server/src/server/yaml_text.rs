//! Decodes YAML as JSON values.
//!
//! Invariant: any input results in a value or an error; size and depth are bounded. A duplicate key is an error. Must
//! not depend on what the input is for.

use serde_json::Value;
use serde_saphyr::Error;
use serde_saphyr::options::DuplicateKeyPolicy;

/// Parses YAML. Words such as `yes` and `y` are booleans, as in Go.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    // File modes are written as 0644.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The first line is the message; the others quote the input.
        let why = error.to_string();
        format!("yaml: {}", why.lines().next().unwrap_or_default())
    })
}

/// Parses YAML with duplicate keys; the last one wins. Returns the first duplicate key.
pub(crate) fn parse_leniently(bytes: &[u8]) -> Result<(Value, Option<String>), String> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let strict = serde_saphyr::from_str::<Value>(text);
    let Err(Error::DuplicateMappingKey { key, location }) = strict.as_ref().map_err(Error::without_snippet) else {
        return parse(bytes).map(|value| (value, None));
    };
    let duplicate =
        format!("line {}: key {:?} already set in map", location.line(), key.as_deref().unwrap_or_default());
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
    };
    let value = serde_saphyr::from_str_with_options(text, options);
    value.map(|value| (value, Some(duplicate))).map_err(|error| format!("yaml: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_are_decoded_as_by_go() {
        let read = parse(b"a: y\nb: 'y'\nc: 1\nd: 1.5\ne: ~\nf: [x, \"1\"]\ng: 010\n").expect("a value");
        assert_eq!(read, json!({"a": true, "b": "y", "c": 1, "d": 1.5, "e": null, "f": ["x", "1"], "g": 8}));
    }

    #[test]
    fn invalid_yaml_is_rejected() {
        for text in ["a: [", "a: 1\na: 2\n", "a: *unknown", "\u{feff}: : :\n- x"] {
            assert!(parse(text.as_bytes()).expect_err(text).starts_with("yaml: "), "{text}");
        }
        assert!(parse(&[0xff]).is_err());
    }

    #[test]
    fn last_duplicate_key_wins_in_lenient_mode() {
        let (value, duplicate) = parse_leniently(b"a: 1\nb: 2\na: 3\n").expect("a value");
        assert_eq!(
            (value, duplicate.as_deref()),
            (json!({"a": 3, "b": 2}), Some("line 3: key \"a\" already set in map"))
        );
        assert_eq!(parse_leniently(b"a: 1\n").expect("a value").1, None);
        assert!(parse_leniently(b"a: [").is_err());
    }

    #[test]
    fn alias_expansion_is_bounded() {
        let levels = (1..12).map(|level| {
            let before = format!("*a{}", level - 1);
            format!("a{level}: &a{level} [{}]\n", [before.as_str(); 10].join(", "))
        });
        let text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned() + &levels.collect::<String>();
        assert!(parse(text.as_bytes()).is_err());
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
