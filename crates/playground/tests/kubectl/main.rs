//! kubectl as the judge: stories of commands, with what they print on a real cluster.
//!
//! README.md beside the stories says how they are written, played elsewhere and recorded.

mod kubectls;
mod normal;
mod place;
mod play;
mod real;
mod story;

use play::play;

/// The names of all stories.
fn stories() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl");
    let files = std::fs::read_dir(folder).expect("the stories").map(|entry| entry.expect("a file").file_name());
    let names = files.filter_map(|file| Some(file.to_str()?.strip_suffix(".console")?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn every_story_is_played() {
    let source = include_str!("main.rs");
    for name in stories() {
        assert!(source.contains(&format!("play(\"{name}\")")), "nobody plays {name}");
    }
}

#[test]
fn about_story() {
    play("about");
}

#[test]
fn apply_story() {
    play("apply");
}

#[test]
fn change_story() {
    play("change");
}

#[test]
fn create_story() {
    play("create");
}

#[test]
fn custom_story() {
    play("custom");
}

#[test]
fn delete_story() {
    play("delete");
}

#[test]
fn describe_story() {
    play("describe");
}

#[test]
fn drain_story() {
    play("drain");
}

#[test]
fn get_story() {
    play("get");
}

#[test]
fn server_side_apply_story() {
    play("server-side-apply");
}

#[test]
fn workloads_story() {
    play("workloads");
}
