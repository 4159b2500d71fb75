//! Compares the handling of custom resources with Kubernetes' own code, including its errors.
//!
//! `schema_answers/answers.jsonl` has schemas, objects and selectors with the results of the Go libraries;
//! `schema_answers/main.go` is the program that computed them.

use muster_playground::schema::{FieldError, Schema};
use muster_playground::selectors::{FieldSelector, LabelSelector};
use serde_json::{Value, json};

const ANSWERS: &str = include_str!("schema_answers/answers.jsonl");

fn lines(with: &str) -> Vec<Value> {
    let all = ANSWERS.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line.get(with).is_some()).collect()
}

/// Go writes 1.0 and 1 as the same JSON.
fn as_go_writes(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            let float = number.as_f64().unwrap();
            if float.fract() == 0.0 && float.abs() < 9e15 { json!(float as i64) } else { json!(float) }
        }
        Value::Array(items) => items.iter().map(as_go_writes).collect(),
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), as_go_writes(value))).collect(),
        other => other.clone(),
    }
}

fn stored(schema: &Schema, object: &Value) -> (Value, Vec<String>) {
    let mut object = object.clone();
    let dropped = schema.prune(&mut object);
    schema.default(&mut object);
    (object, dropped)
}

fn ours(schema: &Schema, line: &Value) -> Value {
    let (new, dropped) = stored(schema, &line["new"]);
    let old = line.get("old").map(|old| stored(schema, old).0);
    let errors = match &old {
        Some(old) if line["status"] == true => schema.validate_status(&new, old),
        old => schema.validate(&new, old.as_ref()),
    };
    let mut errors: Vec<String> = errors.iter().map(|error| format!("{} {error}", error.reason())).collect();
    errors.sort_unstable();
    json!({"dropped": dropped, "stored": as_go_writes(&new), "errors": errors})
}

/// The error that we report must be one of those that Kubernetes reports, at the same field. Its text may differ:
/// theirs can name parts of Go or of cel-go.
fn is_reported_too(error: &FieldError, answer: &Value) -> bool {
    let place = format!("{} spec.validation.{}:", error.reason(), error.field);
    answer["refused"].as_array().unwrap().iter().any(|text| text.as_str().unwrap().starts_with(&place))
}

#[test]
fn custom_resources_are_handled_as_in_kubernetes() {
    let lines = lines("new");
    assert!(lines.len() > 500);
    let mut wrong = Vec::new();
    let mut written = Value::Null;
    for line in lines {
        let (name, answer) = (&line["name"], &line["answer"]);
        // A missing schema is that of the previous line.
        written = line.get("schema").cloned().unwrap_or(written);
        match Schema::parse(&written) {
            Err(error) if answer.get("refused").is_none() => wrong.push(format!("{name}: refused: {error}")),
            Err(error) if !is_reported_too(&error, answer) => {
                wrong.push(format!("{name}: refused\n  ours:   {error}\n  theirs: {answer}"));
            }
            Err(_) => {}
            Ok(_) if answer.get("refused").is_some() => wrong.push(format!("{name}: not refused: {answer}")),
            Ok(schema) => {
                let (ours, theirs) = (ours(&schema, &line), as_go_writes(answer));
                for part in ["dropped", "stored", "errors"] {
                    if ours[part] != theirs[part] {
                        wrong.push(format!("{name}: {part}\n  ours:   {}\n  theirs: {}", ours[part], theirs[part]));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of the answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Equal error texts, or the same selector as Kubernetes prints.
fn agree<Q: PartialEq, E: ToString>(parse: impl Fn(&str) -> Result<Q, E>, text: &str, answer: &Value) -> bool {
    match (parse(text), answer.get("printed")) {
        (Ok(ours), Some(printed)) => parse(printed.as_str().unwrap()).is_ok_and(|theirs| ours == theirs),
        (Err(error), None) => answer["error"] == error.to_string(),
        _ => false,
    }
}

#[test]
fn selectors_are_read_as_in_kubernetes() {
    for line in lines("labels") {
        assert!(agree(LabelSelector::parse, line["labels"].as_str().unwrap(), &line["answer"]), "{line}");
    }
    for line in lines("fields") {
        assert!(agree(FieldSelector::parse, line["fields"].as_str().unwrap(), &line["answer"]), "{line}");
    }
}
