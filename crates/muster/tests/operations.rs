//! `docs/operations.md` tells of every setting with its default and of every flag (of metrics too: their own test sees to
//! it), `docs/playground.md` of every flag of `muster up` and every annotation of simulated pods.

use std::process::Command;

use muster_runtime::config::File;
use serde_json::Value;

const TEXT: &str = include_str!("../../../docs/operations.md");
const PLAYGROUND: &str = include_str!("../../../docs/playground.md");

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
fn every_setting_is_told_with_its_default() {
    let mut found = Vec::new();
    leaves("", &serde_json::to_value(File::default()).unwrap(), &mut found);
    assert!(found.len() > 30);
    for (path, value) in found {
        let row = match &value {
            Value::Array(_) | Value::Object(_) => format!("| `{path}` | "),
            Value::String(text) => format!("| `{path}` | `{text}` |"),
            other => format!("| `{path}` | `{other}` |"),
        };
        assert!(TEXT.contains(&row), "docs/operations.md should have {row}");
    }
    assert!(TEXT.contains("| `scoring.shape` |") && TEXT.contains("| `recordDir` |"), "those without a default");
}

#[test]
fn every_flag_is_told() {
    for (command, file, text) in [
        ("run", "operations", TEXT),
        ("manifests", "operations", TEXT),
        ("replay", "operations", TEXT),
        ("up", "playground", PLAYGROUND),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_muster")).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(out.stdout).unwrap();
        let words = help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        let flags: Vec<&str> = words.filter(|word| word.starts_with("--") && word.len() > 3).collect();
        assert!(flags.contains(&"--help"));
        for flag in flags.into_iter().filter(|flag| *flag != "--help") {
            assert!(text.contains(flag), "docs/{file}.md should tell of {flag} of muster {command}");
        }
    }
}

#[test]
fn every_annotation_of_simulated_pods_is_told() {
    for key in muster_playground::clients::annotations::ALL {
        assert!(PLAYGROUND.contains(&format!("| `{key}` | ")), "docs/playground.md should tell of {key}");
    }
}
