//! Text that must fit into a field of the API.

/// The text, truncated to this many characters with a mark at the end.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The same for a limit in bytes.
pub(crate) fn cut_bytes(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mut end = bytes_max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// The first sentence, without its full stop.
pub(crate) fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("été", 3), "été");
        assert_eq!(cut("été", 2), "ét…");
        assert_eq!(cut_bytes("été", 5), "été");
        let long = cut_bytes(&"é".repeat(2000), 1024);
        assert!(long.len() <= 1024 && long.ends_with('…'));
    }
}
