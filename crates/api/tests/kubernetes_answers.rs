//! Differential test: quantities and pod requests equal those of Kubernetes' own code.
//!
//! `kubernetes_answers/answers.jsonl` has random quantities and pods with the results of the Go libraries;
//! `kubernetes_answers/main.go` is the program that produced them.

use muster_api::pod_requests::pod_requests;
use muster_api::quantity::Quantity;
use muster_api::wire::Pod;
use serde_json::{Value, json};

const ANSWERS: &str = include_str!("kubernetes_answers/answers.jsonl");

fn ours(line: &Value) -> Value {
    if let Some(text) = line["q"].as_str() {
        let quantity: Quantity = text.parse().unwrap();
        return json!([quantity.value(), quantity.milli_value().unwrap()]);
    }
    let pod: Pod = serde_json::from_value(line["pod"].clone()).unwrap();
    let answer = pod_requests(&pod, line["use"] == true).unwrap();
    json!([
        answer.requests,
        [answer.scoring_cpu_milli, answer.scoring_memory_bytes],
        [answer.placed_scoring_cpu_milli, answer.placed_scoring_memory_bytes],
    ])
}

#[test]
fn numbers_equal_those_of_kubernetes() {
    let lines: Vec<Value> = ANSWERS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 500);
    for line in lines {
        assert_eq!(ours(&line), line["answer"], "{line}");
    }
}
