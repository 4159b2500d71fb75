//! kubectl as the judge: stories of commands, with what they print on a real cluster.
//!
//! README.md beside the stories says how they are written, played elsewhere and recorded.

mod kubectls;
mod normal;
mod place;
mod play;
mod story;

use play::play;

#[test]
fn every_story_is_played() {
    let source = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl");
    for entry in std::fs::read_dir(folder).expect("the stories") {
        let name = entry.expect("a file").file_name().into_string().expect("a plain name");
        if let Some(story) = name.strip_suffix(".console") {
            assert!(source.contains(&format!("play(\"{story}\")")), "nobody plays {name}");
        }
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
