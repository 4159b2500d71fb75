//! The same observations give the same commands, byte for byte.

use muster_engine::Observation;
use muster_engine::model::node::NodeSpec;
use muster_engine::record::{Line, ReplayError, replay};
use serde_json::Value;

use crate::fake_cluster::FakeCluster;

#[test]
fn recording_replays_to_the_same_bytes() {
    let mut fake = FakeCluster::new();
    fake.keep_answers = true;
    fake.node("n0", 3);
    fake.node("n1", 2);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 4, 1);
    fake.pods_of("p", "", 3, 1);
    fake.advance(20_000);
    let lines = fake.engine.take_lines();
    assert!(lines.len() > 10);
    let answers = replay(lines.iter().map(String::as_str)).unwrap();
    assert_eq!(answers, fake.answers);
    assert!(answers.iter().any(|line| line.contains("Bind")));
}

#[test]
fn refused_observations_do_not_stop_a_replay() {
    let mut fake = FakeCluster::new();
    fake.keep_answers = true;
    let nameless = Observation::NodeSeen(NodeSpec::default());
    assert!(fake.engine.observe(fake.now, nameless).is_err());
    fake.node("n0", 1);
    fake.pod("p", "", 1);
    fake.settle();
    let lines = fake.engine.take_lines();
    assert_eq!(replay(lines.iter().map(String::as_str)).unwrap(), fake.answers);
}

#[test]
fn broken_recording_is_refused_by_line() {
    assert!(matches!(replay(["{\"Decide\":0}"]), Err(ReplayError::NoStart)));
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    let mut lines = fake.engine.take_lines();
    lines.push("{\"Observe\": nonsense".to_owned());
    let error = replay(lines.iter().map(String::as_str)).unwrap_err();
    assert!(error.to_string().starts_with("line 3: "), "{error}");
    let text = lines[0].replace("\"backoff_ms_initial\":1000", "\"backoff_ms_initial\":0");
    assert!(matches!(replay([text.as_str()]), Err(ReplayError::Config(_))));
}

/// Whether everything that a recording says is in what is read from it; newer fields may be added.
fn is_within(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            old.iter().all(|(key, value)| new.get(key).is_some_and(|read| is_within(value, read)))
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_within(old, new))
        }
        (old, new) => old == new,
    }
}

/// The names of fields and variants in recordings stay, whatever they are called in the code.
#[test]
fn recording_of_an_earlier_version_is_read_without_loss() {
    let recording = include_str!("../recordings/first.jsonl");
    for word in
        ["\"must\":[{", "\"shuns\":[{", "\"seeks\":[{", "TakeBackDone", "EvictDone", "gone_by_ms", "claim_ms_max"]
    {
        assert!(recording.contains(word), "the recording has no {word}");
    }
    for (number, text) in recording.lines().enumerate() {
        let line: Line = serde_json::from_str(text).unwrap_or_else(|error| panic!("line {}: {error}", number + 1));
        let (old, new) = (serde_json::from_str(text).unwrap(), serde_json::to_value(&line).unwrap());
        assert!(is_within(&old, &new), "line {} lost something: {old} was read as {new}", number + 1);
    }
    assert!(replay(recording.lines()).unwrap().iter().any(|commands| commands.contains("\"Evict\"")));
}
