//! Tests of decoding against bodies encoded by Kubernetes' own code, and against malformed bytes.

use base64::Engine as _;
use muster_determinism::random::Random;

use super::*;

/// Objects in both encodings, as Kubernetes' own code writes them (`tools/protobuf` generates the file).
const ANSWERS: &str = include_str!("../../../playground/tests/protobuf_answers.jsonl");

fn answers() -> Vec<(Value, Vec<u8>)> {
    let answers = ANSWERS.lines().map(|line| {
        let mut answer: Value = serde_json::from_str(line).expect("an answer");
        let bytes = answer["protobuf"].as_str().expect("its bytes");
        let bytes = base64::engine::general_purpose::STANDARD.decode(bytes).expect("base64");
        (answer["json"].take(), bytes)
    });
    answers.collect()
}

/// Protobuf has neither null nor empty lists.
fn without_nothing(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_nothing);
            fields.retain(|_, value| !value.is_null());
        }
        Value::Array(entries) => entries.iter_mut().for_each(without_nothing),
        _ => {}
    }
}

#[test]
fn both_encodings_are_equivalent() {
    let answers = answers();
    assert!(answers.len() > 30);
    for (mut json, bytes) in answers {
        let mut read = read(&bytes, ("", "")).expect("a message");
        without_nothing(&mut json);
        without_nothing(&mut read);
        assert_eq!(read, json, "\n{read:#}\n{json:#}");
    }
}

#[test]
fn invalid_protobuf_is_rejected_with_the_reason() {
    let refused = |bytes: &[u8]| read(bytes, ("v1", "Pod")).expect_err("a refusal");
    assert_eq!(
        refused(b"{}").to_string(),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
    assert_eq!(refused(b"k8s\0\x0a\x05").to_string(), "unexpected EOF");
    let unknown = [b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Foo", &[][..]].concat();
    assert_eq!(refused(&unknown), ProtobufError::UnknownKind { api_version: "v1".to_owned(), kind: "Foo".to_owned() });
    // A pod whose metadata is a number.
    let wrong = b"k8s\0\x12\x02\x08\x01";
    assert_eq!(refused(wrong).to_string(), "proto: wrong wireType = 0 for field metadata");
}

#[test]
fn envelope_without_kind_has_the_expected_kind() {
    let read = read(b"k8s\0\x12\x05\x0a\x03\x0a\x01n", ("v1", "ConfigMap")).expect("a map");
    assert_eq!(read, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}}));
}

#[test]
fn split_message_is_merged() {
    // The metadata in two parts: a name, then a namespace; field 99 is of a newer version.
    let body = b"k8s\0\x12\x0d\x0a\x03\x0a\x01n\x9a\x06\x00\x0a\x03\x1a\x01s";
    let read = read(body, ("v1", "ConfigMap")).expect("a map");
    assert_eq!(read["metadata"], json!({"name": "n", "namespace": "s"}));
}

#[test]
fn too_many_values_are_rejected() {
    // A million empty containers of one pod.
    let spec: Vec<u8> = b"\x12\x00".repeat(1_000_000);
    let length = |length: usize| {
        let mut bytes = Vec::new();
        let mut rest = length;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    };
    let pod = [&b"\x12"[..], &length(spec.len()), &spec].concat();
    let body = [&b"k8s\0\x12"[..], &length(pod.len()), &pod].concat();
    let refused = read(&body, ("v1", "Pod")).expect_err("a refusal");
    assert_eq!(refused.to_string(), "the message has more than 500000 values");
}

/// Mutates messages as bytes get corrupted. Decoding must return; the result does not matter.
#[test]
fn no_input_panics() {
    let seed = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let times: u64 = std::env::var("MUSTER_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let answers = answers();
    let mut random = Random::new(seed);
    for round in 0..20_000 * times {
        let mut bytes = answers[random.below(answers.len() as u64) as usize].1.clone();
        for _ in 0..=random.below(4) {
            let at = 4 + random.below(bytes.len() as u64 - 4) as usize;
            match random.below(5) {
                0 => bytes[at] = random.below(256) as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes.truncate(at.max(6)),
                3 => bytes.insert(at, random.below(256) as u8),
                _ => {
                    let piece = bytes[at..].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        let read = std::panic::catch_unwind(|| read(&bytes, ("v1", "Pod")));
        assert!(read.is_ok(), "seed {seed}, round {round}: {bytes:?}");
    }
}
