//! The same observations give the same commands, byte for byte.

use muster_engine::Observation;
use muster_engine::model::node::NodeSpec;
use muster_engine::record::{ReplayError, replay};

use crate::world::World;

#[test]
fn a_recording_replays_to_the_same_bytes() {
    let mut world = World::new();
    world.keep_answers = true;
    world.node("n0", 3);
    world.node("n1", 2);
    world.gang("g", 3);
    world.pods_of("a", "g", 4, 1);
    world.pods_of("p", "", 3, 1);
    world.pass(20_000);
    let lines = world.engine.take_lines();
    assert!(lines.len() > 10);
    let answers = replay(lines.iter().map(String::as_str)).unwrap();
    assert_eq!(answers, world.answers);
    assert!(answers.iter().any(|line| line.contains("Bind")));
}

#[test]
fn what_was_refused_does_not_stop_a_replay() {
    let mut world = World::new();
    world.keep_answers = true;
    let nameless = Observation::NodeSeen(NodeSpec::default());
    assert!(world.engine.observe(world.now, nameless).is_err());
    world.node("n0", 1);
    world.pod("p", "", 1);
    world.settle();
    let lines = world.engine.take_lines();
    assert_eq!(replay(lines.iter().map(String::as_str)).unwrap(), world.answers);
}

#[test]
fn a_broken_recording_is_refused_by_line() {
    assert!(matches!(replay(["{\"Decide\":0}"]), Err(ReplayError::NoStart)));
    let mut world = World::new();
    world.node("n0", 1);
    let mut lines = world.engine.take_lines();
    lines.push("{\"Observe\": nonsense".to_owned());
    let error = replay(lines.iter().map(String::as_str)).unwrap_err();
    assert!(error.to_string().starts_with("line 3: "), "{error}");
    let text = lines[0].replace("\"backoff_ms_initial\":1000", "\"backoff_ms_initial\":0");
    assert!(matches!(replay([text.as_str()]), Err(ReplayError::Config(_))));
}
