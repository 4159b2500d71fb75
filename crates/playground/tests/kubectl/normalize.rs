//! Replaces output that varies from run to run: ages, times, UIDs, resource versions, addresses, generated names.
//!
//! Invariant: normalized output stays the same when normalized again. Must not depend on test cases or commands.

use std::sync::LazyLock;

use regex::Regex;

/// Patterns and their replacements, in order.
static REPLACEMENTS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    // The alphabet of generated names.
    const DRAWN: &str = "[bcdfghjklmnpqrstvwxz2456789]";
    let words = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}".to_owned(), "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)".to_owned(), "<time>"),
        (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}".to_owned(), "<time>"),
        (r"https?://(127\.0\.0\.1|localhost):\d+".to_owned(), "<server>"),
        (r#"(resourceVersion"?: )"\d+""#.to_owned(), "$1<revision>"),
        (r#"(\\"resourceVersion\\":)\\"\d+\\""#.to_owned(), "$1<revision>"),
        // Why a node is unreachable depends on the machine.
        (r"dial tcp: .*".to_owned(), "dial tcp: <failed>"),
        (r"\b10\.\d+\.\d+\.\d+\b".to_owned(), "<ip>"),
        (format!(r"-{DRAWN}{{8,10}}-{DRAWN}{{5}}\b"), "-<hash>-<drawn>"),
        (format!(r"(pod-template-hash)([=:] ?){DRAWN}{{8,10}}\b"), "$1$2<hash>"),
        (format!(r"(controller-revision-hash)([=:] ?)([a-z0-9.-]*-)?{DRAWN}{{8,10}}\b"), "$1$2<hash>"),
        (format!(r"([a-z])-{DRAWN}{{8,10}}\b"), "$1-<hash>"),
        (format!(r"([a-z0-9])-{DRAWN}{{5}}\b"), "$1-<drawn>"),
        (r"/kubectl-\d+\.yaml|/kubectl-edit-\d+\.yaml".to_owned(), "/<file>"),
        (r"^(Duration:\s+).*$".to_owned(), "$1<age>"),
        // Since 1.34 kubectl prints the namespace too.
        (r"( deleted| force deleted) from \S+ namespace".to_owned(), "$1"),
        (r"^(Client Version: ).*$".to_owned(), "$1<version>"),
        (r"^(Kustomize Version: ).*$".to_owned(), "$1<version>"),
    ];
    words.into_iter().map(|(pattern, word)| (Regex::new(&pattern).expect("a pattern"), word)).collect()
});

static LOGGED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ ").expect("a pattern"));
static GAP: LazyLock<Regex> = LazyLock::new(|| Regex::new(" {2,}").expect("a pattern"));
static AGE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(<unknown>|<invalid>|(\d+[smhdy]){1,2}( \(x\d+ over (\d+[smhd]){1,2}\))?( ago)?)$")
        .expect("a pattern")
});

/// Normalized lines.
pub(crate) fn lines(text: &str) -> Vec<String> {
    // kubectl's own log lines are not part of a test case.
    let mut lines: Vec<String> = text.lines().filter(|line| !LOGGED.is_match(line)).map(line).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    ages(&mut lines);
    lines
}

fn line(line: &str) -> String {
    let line = line.replace('\t', "  ");
    REPLACEMENTS
        .iter()
        .fold(line.trim_end().to_owned(), |line, (pattern, word)| pattern.replace_all(&line, *word).into_owned())
}

/// Replaces the cells of age columns. The columns of a table are separated by two or more spaces.
fn ages(lines: &mut [String]) {
    let mut columns: Vec<usize> = Vec::new();
    for line in lines {
        let cells: Vec<&str> = GAP.split(line).collect();
        let of_ages = ["AGE", "Age", "LAST SEEN", "DURATION"];
        let found: Vec<usize> = (0..cells.len()).filter(|index| of_ages.contains(&cells[*index])).collect();
        if !found.is_empty() {
            columns = found;
        } else if cells.len() == 1 {
            // A table ends at a line without columns.
            columns.clear();
        } else {
            let cells: Vec<String> = cells.iter().map(|cell| (*cell).to_owned()).collect();
            for column in &columns {
                let Some(age) = cells.get(*column).filter(|age| AGE.is_match(age)) else { continue };
                *line = match (column, line.strip_prefix(age.as_str())) {
                    (0, Some(rest)) => format!("<age>{rest}"),
                    _ => line.replacen(&format!("  {age}"), "  <age>", 1),
                };
            }
        }
    }
}

/// Whether two outputs are equal apart from the width of columns.
pub(crate) fn same(left: &[String], right: &[String]) -> bool {
    let plain = |line: &String| GAP.replace_all(line.trim_end(), "  ").into_owned();
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| plain(left) == plain(right))
}

#[test]
fn normalization_is_idempotent() {
    let text = "\
NAME         READY   AGE     NODE
web-x7k2p    1/1     2m13s   node-0
a            1/1     5s      node-1

LAST SEEN   TYPE
318d        Normal

uid: 0a1b2c3d-0000-4000-8000-0123456789ab
  resourceVersion: \"12\"
Start Time:   Mon, 02 Jan 2026 03:04:05 +0000
at 2026-01-02T03:04:05Z the cpu was 100m
Tolerations:  for 300s
pod \"a\" deleted from story namespace
web-6d4cf56db6-x7k2p
";
    let normal = lines(text);
    assert_eq!(
        normal,
        [
            "NAME         READY   AGE     NODE",
            "web-<drawn>    1/1     <age>   node-0",
            "a            1/1     <age>      node-1",
            "",
            "LAST SEEN   TYPE",
            "<age>        Normal",
            "",
            "uid: <uid>",
            "  resourceVersion: <revision>",
            "Start Time:   <time>",
            "at <time> the cpu was 100m",
            "Tolerations:  for 300s",
            "pod \"a\" deleted",
            "web-<hash>-<drawn>",
        ]
    );
    assert_eq!(lines(&normal.join("\n")), normal);
    assert!(same(&normal[2..3], &["a  1/1  <age>  node-1".to_owned()]));
    assert!(!same(&normal[2..3], &["a 1/1  <age>  node-1".to_owned()]));
}
