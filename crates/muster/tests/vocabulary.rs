//! Checks the vocabulary: code, comments and documents use the words of Kubernetes, and none of the words below.
//!
//! Each word is written in two parts here, so that a search for it finds nothing in the whole repository.

use std::fs;
use std::path::{Path, PathBuf};

/// A word in two parts, and what to write instead.
const BANNED: [(&str, &str, &str); 14] = [
    ("who", "m", "the object's kind: a pod, group or controller is \"it\""),
    ("who", "ever", "the object's kind: \"a pod that\", \"the caller\""),
    ("some", "body", "the object's kind: \"another pod\", \"another client\""),
    ("a", "new", "\"again\", or \"from the start\""),
    ("reck", "on", "\"compute\", \"count\""),
    ("nou", "ght", "\"zero\", \"negative\""),
    ("pr", "ey", "\"victim\", \"preemptible pod\""),
    ("no", "es", "\"unschedulable reasons\""),
    ("scr", "ibe", "\"status writer\""),
    ("err", "and", "\"API request\""),
    ("err", "ands", "\"API requests\""),
    ("in earn", "est", "\"in production\""),
    ("more sel", "dom", "\"less often\""),
    ("is lur", "ed", "\"prefers\""),
];

const SUFFIXES: [&str; 7] = ["rs", "md", "yaml", "yml", "toml", "go", "sh"];
/// Recorded answers of real programs, and what is built.
const SKIPPED: [&str; 4] = ["target", ".git", "stories", "schema_answers"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
            files(&path, found);
        } else if path.extension().and_then(|suffix| suffix.to_str()).is_some_and(|suffix| SUFFIXES.contains(&suffix)) {
            found.push(path);
        }
    }
}

/// Whether a line has the word as a word of its own; underscores separate words, as in identifiers.
fn has_word(line: &str, word: &str) -> bool {
    let is_letter = |found: Option<char>| found.is_some_and(char::is_alphanumeric);
    line.match_indices(word)
        .any(|(at, _)| !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next()))
}

#[test]
fn no_banned_word_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    files(&root, &mut all);
    assert!(all.len() > 500, "only {} files were found", all.len());
    let mut wrong = Vec::new();
    for path in all {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (first, second, instead) in BANNED {
                let word = format!("{first}{second}");
                if has_word(&line, &word) {
                    wrong.push(format!("{}:{}: {word:?}: write {instead}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn words_are_found_whole() {
    assert!(has_word("a fox_b", "fox") && has_word("fox", "fox") && has_word("the fox.", "fox"));
    assert!(!has_word("foxes", "fox") && !has_word("firefox", "fox"));
}
