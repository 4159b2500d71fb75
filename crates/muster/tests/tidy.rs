//! Checks of the house rules: every file states its purpose, none is too long,
//! crates depend only on what they may, and the words are those of Kubernetes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 700;
const MEANINGLESS_NAMES: [&str; 6] = ["utils", "util", "common", "helpers", "helper", "misc"];

/// The crates of this project that each crate may depend on; tests may use more.
const ALLOWED: [(&str, &[&str]); 21] = [
    ("api", &[]),
    ("clock", &[]),
    ("controllers", &["api", "listener", "reflector"]),
    ("controlplane", &[]),
    ("determinism", &[]),
    ("engine", &[]),
    ("listener", &[]),
    ("muster-lab", &["api", "controllers", "engine", "muster", "oracle", "playground", "runtime", "sim"]),
    ("muster", &["api", "controllers", "engine", "runtime"]),
    ("oracle", &["engine"]),
    ("playground-client", &["api", "clock", "reflector"]),
    ("playground-controllers", &["api", "clock", "playground-client", "reflector"]),
    ("playground-kubectl", &["playground-schema", "playground-server"]),
    ("playground-kubelet", &["api", "clock", "playground-client", "reflector"]),
    ("playground-schema", &["api"]),
    ("playground-server", &["api", "clock", "determinism", "playground-schema", "playground-store"]),
    ("playground-store", &["api"]),
    (
        "playground",
        &[
            "clock",
            "determinism",
            "playground-controllers",
            "playground-kubectl",
            "playground-kubelet",
            "playground-schema",
            "playground-server",
        ],
    ),
    ("reflector", &[]),
    ("runtime", &["api", "clock", "engine", "listener", "reflector"]),
    ("sim", &["api", "controllers", "playground", "runtime"]),
];

/// External crates that a crate must not depend on.
const FORBIDDEN: [(&str, &[&str]); 9] = [
    ("engine", &["tokio", "kube", "k8s-openapi", "rand", "chrono", "jiff", "futures", "async"]),
    ("oracle", &["tokio", "kube", "k8s-openapi"]),
    ("api", &["tokio", "kube-client", "kube-runtime"]),
    ("controlplane", &["tokio", "kube"]),
    ("clock", &["kube", "k8s-openapi"]),
    ("determinism", &["tokio", "kube", "k8s-openapi"]),
    ("listener", &["kube", "k8s-openapi"]),
    ("playground-store", &["kube", "k8s-openapi", "jiff"]),
    ("playground-schema", &["tokio", "kube-client", "kube-runtime"]),
];

/// The modules of the engine by layer, lowest first. A module may import lower layers only.
const ENGINE_LAYERS: [&[&str]; 10] = [
    &["model", "validation_error"],
    &["config", "observation", "validate"],
    &["cluster"],
    &["filter", "score"],
    &["placement"],
    &["preemption"],
    &["diagnosis"],
    &["command", "queue"],
    &["scheduler"],
    &["invariants", "record", "status", "view"],
];

/// Words that are not used, and what to write instead. Each is in two parts, so that a search for it finds nothing here.
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

/// Files that people read.
const READ: [&str; 7] = ["rs", "md", "yaml", "yml", "toml", "go", "sh"];
/// Folders of recorded answers of real programs, and of what is built.
const SKIPPED: [&str; 4] = ["target", ".git", "stories", "schema_answers"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files under a folder that end with one of the suffixes, without what is built or was recorded elsewhere.
fn files(folder: &Path, suffixes: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !SKIPPED.contains(&name) {
            files(&path, suffixes, found);
        } else if path.extension().and_then(|suffix| suffix.to_str()).is_some_and(|one| suffixes.contains(&one)) {
            found.push(path);
        }
    }
}

#[test]
fn every_file_states_its_purpose_and_is_not_too_long() {
    let mut all = Vec::new();
    files(&root().join("crates"), &["rs"], &mut all);
    assert!(all.len() > 50);
    for path in all {
        let text = fs::read_to_string(&path).expect("a readable file");
        let shown = path.display();
        assert!(text.starts_with("//! "), "{shown} does not begin with a module comment");
        assert!(text.lines().count() <= LINES_MAX, "{shown} has more than {LINES_MAX} lines: split it");
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        assert!(!MEANINGLESS_NAMES.contains(&stem), "{shown} has a meaningless name");
    }
}

/// The regular dependencies of a manifest.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.split("[dependencies]").nth(1).expect("a list of dependencies");
    let section = section.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default())
}

fn manifest(name: &str) -> String {
    fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).expect("a manifest")
}

/// The crate of this project that a dependency names.
fn project_crate(dependency: &str) -> Option<&str> {
    if dependency == "muster" { Some(dependency) } else { dependency.strip_prefix("muster-") }
}

#[test]
fn no_crate_has_a_forbidden_dependency() {
    for (name, forbidden) in FORBIDDEN {
        for dependency in dependencies(&manifest(name)) {
            let known = forbidden.iter().any(|start| dependency.starts_with(start));
            assert!(!known, "{name} must not depend on {dependency}");
        }
    }
}

#[test]
fn every_crate_has_only_allowed_dependencies() {
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let name = entry.expect("a crate").file_name().into_string().expect("a plain name");
        let (_, allowed) = ALLOWED.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}: no row"));
        let manifest = manifest(&name);
        for ours in dependencies(&manifest).filter_map(project_crate) {
            assert!(allowed.contains(&ours), "{name} must not depend on {ours}");
        }
        // Dependencies in other sections would not be checked.
        for other in ["[dependencies.", "[build-dependencies", "[target."] {
            assert!(!manifest.contains(other), "{name}: {other}: dependencies belong in [dependencies]");
        }
    }
}

/// The crates of this project that a crate depends on, directly or not; without those of tests.
fn all_dependencies(name: &str, found: &mut BTreeSet<String>) {
    for dependency in dependencies(&manifest(name)).filter_map(project_crate) {
        if found.insert(dependency.to_owned()) {
            all_dependencies(dependency, found);
        }
    }
}

#[test]
fn production_binary_contains_no_test_code() {
    let mut found = BTreeSet::new();
    all_dependencies("muster", &mut found);
    assert!(found.contains("engine"), "{found:?}");
    let is_bench = |name: &&String| {
        name.starts_with("playground") || ["oracle", "sim", "controlplane", "determinism"].contains(&name.as_str())
    };
    assert_eq!(found.iter().filter(is_bench).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn architecture_lists_all_crates() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let name = entry.expect("a crate").file_name().into_string().expect("a plain name");
        assert!(text.contains(&format!("| `crates/{name}` |")), "ARCHITECTURE.md does not list crates/{name}");
    }
}

/// The modules of its crate that a file outside of tests imports. For a module directly below the root, `super` is the
/// crate, too.
fn imported_modules(text: &str, is_below_root: bool) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let roots: &[&str] = if is_below_root { &["crate::", "super::"] } else { &["crate::"] };
    let paths = lines.flat_map(move |line| {
        roots.iter().flat_map(move |root| line.match_indices(root).map(|(at, _)| &line[at + root.len()..]))
    });
    paths.map(|path| path.split(|one: char| !one.is_alphanumeric() && one != '_').next().unwrap_or_default())
}

#[test]
fn engine_modules_import_only_lower_layers() {
    let layer = |module: &str| ENGINE_LAYERS.iter().position(|modules| modules.contains(&module));
    let source = root().join("crates/engine/src");
    let mut all = Vec::new();
    files(&source, &["rs"], &mut all);
    let mut imports = 0;
    for path in all {
        let inner = path.strip_prefix(&source).expect("a file of the engine").with_extension("");
        let parts: Vec<&str> = inner.iter().filter_map(|part| part.to_str()).filter(|part| *part != "mod").collect();
        let module = parts[0];
        if module == "lib" {
            continue;
        }
        let own = layer(module).unwrap_or_else(|| panic!("the engine's module {module} is in no layer"));
        let text = fs::read_to_string(&path).expect("a readable file");
        for imported in imported_modules(&text, parts.len() == 1).filter(|imported| *imported != module) {
            imports += 1;
            let lower = layer(imported).is_some_and(|layer| layer < own);
            assert!(lower, "{}: {module} must not import {imported:?}", path.display());
        }
    }
    assert!(imports > 300, "only {imports} imports were found");
}

/// Whether a line has the word as a word of its own; underscores separate words, as in identifiers.
fn has_word(line: &str, word: &str) -> bool {
    let is_letter = |found: Option<char>| found.is_some_and(char::is_alphanumeric);
    line.match_indices(word)
        .any(|(at, _)| !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next()))
}

#[test]
fn no_banned_word_is_used() {
    let mut all = Vec::new();
    files(&root(), &READ, &mut all);
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
