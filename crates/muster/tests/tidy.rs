//! The house rules, checked: every file says its idea, none is too long, and no crate knows what it must not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 700;
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "common", "helpers", "helper", "misc"];

/// What a crate's manifest must not name among its ordinary dependencies.
const FORBIDDEN: [(&str, &[&str]); 15] = [
    ("engine", &["muster-", "tokio", "kube", "k8s-openapi", "rand", "chrono", "jiff", "futures", "async"]),
    ("oracle", &["muster-api", "tokio", "kube", "k8s-openapi"]),
    ("api", &["muster-", "tokio", "kube-client", "kube-runtime"]),
    ("controlplane", &["muster-", "tokio", "kube"]),
    ("determinism", &["muster-", "kube"]),
    ("playground-store", &["muster-playground", "muster-determinism", "kube"]),
    ("playground-schema", &["muster-playground", "muster-engine", "tokio"]),
    ("playground-server", &["muster-playground-k", "muster-playground-c", "muster-engine", "muster-oracle"]),
    ("playground-kubectl", &["muster-playground-c", "muster-playground-kubelet", "muster-engine", "muster-oracle"]),
    ("playground-client", &["muster-playground", "muster-engine", "muster-oracle"]),
    ("playground-controllers", &["muster-playground-s", "muster-playground-k", "muster-engine", "muster-oracle"]),
    ("playground-kubelet", &["muster-playground-s", "muster-playground-k", "muster-engine", "muster-oracle"]),
    ("playground", &["muster-engine", "muster-oracle"]),
    ("runtime", &["muster-playground", "muster-sim", "muster-oracle"]),
    ("muster", &["muster-playground", "muster-sim", "muster-oracle"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_says_its_idea_and_is_not_too_long() {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    assert!(files.len() > 50);
    for path in files {
        let text = fs::read_to_string(&path).expect("a readable file");
        let shown = path.display();
        assert!(text.starts_with("//! "), "{shown} does not begin with what it is for");
        assert!(text.lines().count() <= LINES_MAX, "{shown} has more than {LINES_MAX} lines: it is two ideas");
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        assert!(!EMPTY_NAMES.contains(&stem), "{shown} has a name that explains nothing");
    }
}

/// The ordinary dependencies of a manifest.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.split("[dependencies]").nth(1).expect("a list of dependencies");
    let section = section.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default())
}

#[test]
fn no_crate_knows_what_it_must_not() {
    for (name, forbidden) in FORBIDDEN {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).expect("a manifest");
        for dependency in dependencies(&manifest) {
            let known = forbidden.iter().any(|start| dependency.starts_with(start));
            assert!(!known, "{name} must not know {dependency}");
        }
    }
}

/// The crates of this project that a crate is built with, directly or not; tests do not count.
fn built_with(name: &str, found: &mut BTreeSet<String>) {
    let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).expect("a manifest");
    for dependency in dependencies(&manifest).filter_map(|dependency| dependency.strip_prefix("muster-")) {
        if found.insert(dependency.to_owned()) {
            built_with(dependency, found);
        }
    }
}

#[test]
fn what_a_cluster_runs_contains_no_test_bench() {
    let mut found = BTreeSet::new();
    built_with("muster", &mut found);
    assert!(found.contains("engine"), "{found:?}");
    let is_bench = |name: &&String| {
        name.starts_with("playground") || ["oracle", "sim", "controlplane", "determinism"].contains(&name.as_str())
    };
    assert_eq!(found.iter().filter(is_bench).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn the_crates_are_those_of_the_architecture() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let name = entry.expect("a crate").file_name().into_string().expect("a plain name");
        assert!(text.contains(&format!("| `crates/{name}` |")), "ARCHITECTURE.md does not tell of crates/{name}");
    }
}
