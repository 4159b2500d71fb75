//! Checks that `docs/playground.md` lists every flag of `muster-lab up` and every annotation of simulated pods.

use std::process::Command;

const TEXT: &str = include_str!("../../../docs/playground.md");

#[test]
fn every_flag_is_documented() {
    let out = Command::new(env!("CARGO_BIN_EXE_muster-lab")).args(["up", "--help"]).output().unwrap();
    let help = String::from_utf8(out.stdout).unwrap();
    let words = help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    let flags: Vec<&str> = words.filter(|word| word.starts_with("--") && word.len() > 3).collect();
    assert!(flags.contains(&"--help"));
    for flag in flags.into_iter().filter(|flag| *flag != "--help") {
        assert!(TEXT.contains(flag), "docs/playground.md must document {flag}");
    }
}

#[test]
fn every_annotation_of_simulated_pods_is_documented() {
    for key in muster_playground::components::annotations::ALL {
        assert!(TEXT.contains(&format!("| `{key}` | ")), "docs/playground.md must document {key}");
    }
}
