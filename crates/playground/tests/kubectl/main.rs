//! kubectl tests: commands with the output that they have on a real cluster.
//!
//! README.md in this folder describes how test cases are written, run elsewhere and recorded.

mod kubectls;
mod normalize;
mod real;
mod runner;
mod test_case;
mod test_cluster;

use runner::run_test_case;

/// The names of all test cases.
fn test_cases() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl");
    let files = std::fs::read_dir(folder).expect("the test cases").map(|entry| entry.expect("a file").file_name());
    let names = files.filter_map(|file| Some(file.to_str()?.strip_suffix(".console")?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn every_test_case_is_run() {
    let source = include_str!("main.rs");
    for name in test_cases() {
        assert!(source.contains(&format!("run_test_case(\"{name}\")")), "no test runs {name}");
    }
}

#[test]
fn about() {
    run_test_case("about");
}

#[test]
fn apply() {
    run_test_case("apply");
}

#[test]
fn change() {
    run_test_case("change");
}

#[test]
fn create() {
    run_test_case("create");
}

#[test]
fn custom() {
    run_test_case("custom");
}

#[test]
fn delete() {
    run_test_case("delete");
}

#[test]
fn describe() {
    run_test_case("describe");
}

#[test]
fn drain() {
    run_test_case("drain");
}

#[test]
fn get() {
    run_test_case("get");
}

#[test]
fn server_side_apply() {
    run_test_case("server-side-apply");
}

#[test]
fn workloads() {
    run_test_case("workloads");
}
