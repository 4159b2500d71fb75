//! Checks that `docs/operations.md` lists every setting with its default and every flag (metrics have their own test).

use std::process::Command;

use muster_runtime::config::File;
use serde_json::Value;

const TEXT: &str = include_str!("../../../docs/operations.md");

fn leaves(path: &str, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(&path, value, found);
            }
        }
        _ => found.push((path.to_owned(), value.clone())),
    }
}

#[test]
fn every_setting_is_documented_with_its_default() {
    let mut found = Vec::new();
    leaves("", &serde_json::to_value(File::default()).unwrap(), &mut found);
    assert!(found.len() > 30);
    for (path, value) in found {
        let row = match &value {
            Value::Array(_) | Value::Object(_) => format!("| `{path}` | "),
            Value::String(text) => format!("| `{path}` | `{text}` |"),
            other => format!("| `{path}` | `{other}` |"),
        };
        assert!(TEXT.contains(&row), "docs/operations.md must contain {row}");
    }
    assert!(TEXT.contains("| `scoring.shape` |") && TEXT.contains("| `recordDir` |"), "settings without a default");
}

#[test]
fn every_flag_is_documented() {
    for command in ["run", "manifests", "replay"] {
        let out = Command::new(env!("CARGO_BIN_EXE_muster")).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(out.stdout).unwrap();
        let words = help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        let flags: Vec<&str> = words.filter(|word| word.starts_with("--") && word.len() > 3).collect();
        assert!(flags.contains(&"--help"));
        for flag in flags.into_iter().filter(|flag| *flag != "--help") {
            assert!(TEXT.contains(flag), "docs/operations.md must document {flag} of muster {command}");
        }
    }
}
