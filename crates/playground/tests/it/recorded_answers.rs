//! Replays recorded requests and compares the responses with those of kube-apiserver 1.37.1.
//!
//! Values that differ from run to run are placeholders on both sides (`normalize`). A step that is known to differ is
//! listed in `tests/known_differences.json` with its reason; a listed step that does not differ is a failure too.
//! `MUSTER_STORY=name` replays only recordings whose name contains it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http_body_util::BodyExt;
use muster_playground::{Server, Settings, kubectl};
use serde_json::{Map, Value, json};

use crate::normalize::Normalizer;
use crate::references::{fill, lookup};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn files() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(folder("stories")).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

/// All requests of all recordings, unresolved.
pub(crate) fn requests() -> Vec<Value> {
    let recordings =
        files().into_iter().map(|path| serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap());
    let steps = recordings.flat_map(|mut recording| recording["steps"].take().as_array().cloned().unwrap_or_default());
    steps.map(|mut step| step["do"].take()).filter(Value::is_object).collect()
}

/// Recording and step to the reason why it differs.
type Known = BTreeMap<String, BTreeMap<String, String>>;

#[tokio::test(start_paused = true)]
async fn recorded_answers_match() {
    let only = std::env::var("MUSTER_STORY").ok();
    let known: Known =
        serde_json::from_str(&std::fs::read_to_string(folder("known_differences.json")).unwrap()).unwrap();
    let (mut steps, mut wrong) = (0, Vec::new());
    for path in files() {
        let recording: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let name = recording["name"].as_str().unwrap().to_owned();
        if only.as_deref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let excused = known.get(&name).cloned().unwrap_or_default();
        let found = replay(&recording).await;
        steps += recording["steps"].as_array().map_or(0, Vec::len);
        let differing: BTreeSet<String> = found.iter().map(|difference| difference.step.clone()).collect();
        let unexcused = found.into_iter().filter(|difference| !excused.contains_key(&difference.step));
        wrong.extend(unexcused.map(|difference| difference.text));
        let stale = excused.keys().filter(|step| !differing.contains(*step));
        wrong.extend(stale.map(|step| format!("{name} step {step} is listed as different and is not")));
    }
    println!("{steps} steps, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

struct Difference {
    step: String,
    text: String,
}

/// The events of a watch that runs alongside the recording.
type Lines = Arc<Mutex<Vec<Value>>>;

async fn replay(recording: &Value) -> Vec<Difference> {
    let server = Server::start(Settings::default()).with_presentation(kubectl());
    let keeps_managers = recording["managedFields"] == true;
    let mut normalizer = Normalizer::new(server.now(), keeps_managers);
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    let mut watches: BTreeMap<String, Lines> = BTreeMap::new();
    let mut differences = Vec::new();
    for (index, step) in recording["steps"].as_array().unwrap().iter().enumerate() {
        if let Some(pause) = step["pauseMs"].as_u64() {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        if step["forget"] == true {
            server.compact();
            continue;
        }
        // A watch that the real server answered with one object is not a watch.
        let is_get = step["answer"]["code"] == 200 && step["answer"]["body"].is_object();
        let answer = if step["watch"].is_object() && is_get {
            let (answer, _) = request(&server, &fill(&step["watch"], &seen)).await;
            shown(&mut normalizer, &answer)
        } else if step["watch"].is_object() {
            let request_spec = fill(&step["watch"], &seen);
            watch(&server, &request_spec, &mut watches, &mut normalizer).await
        } else {
            let request_spec = fill(&step["do"], &seen);
            let (answer, mut raw) = request_until(&server, &request_spec, &step["until"]).await;
            if step["managedFieldsOnly"] == true {
                let answered = |answer: &Value| answer["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                let (ours, real) =
                    (answered(&raw).unwrap_or_default(), answered(&step["answer"]["body"]).unwrap_or_default());
                if !normalizer.alias(&ours, &real) {
                    differences.push(difference(
                        recording,
                        index,
                        step,
                        &["no new revision for new managers".to_owned()],
                    ));
                }
            }
            if let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| !keeps_managers) {
                metadata.remove("managedFields");
            }
            if let Some(id) = step["id"].as_str() {
                seen.insert(id.to_owned(), raw);
            }
            normalizer.learn(&answer["body"]);
            shown(&mut normalizer, &answer)
        };
        let unstable = step["unstable"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
        let mut lines = Vec::new();
        let (real, ours) = (comparable(&step["answer"]), comparable(&answer));
        compare(&real, &ours, "", &unstable, &mut lines);
        if !lines.is_empty() {
            // One write more or less is one difference, not one in every later step.
            let answered = |answer: &Value, field: &str| answer["body"]["metadata"][field].as_str().map(str::to_owned);
            if let (Some(real), Some(ours)) = (answered(&real, "resourceVersion"), answered(&ours, "resourceVersion")) {
                normalizer.follow(&ours, &real);
            }
            if let (Some(real), Some(ours)) = (answered(&real, "uid"), answered(&ours, "uid")) {
                normalizer.follow_uid(&ours, &real);
            }
            differences.push(difference(recording, index, step, &lines));
        }
    }
    differences
}

fn difference(recording: &Value, index: usize, step: &Value, lines: &[String]) -> Difference {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let request_spec = &step[if step["do"].is_object() { "do" } else { "watch" }];
    let number = (index + 1).to_string();
    let head = format!(
        "{} step {number}: {} {} {}",
        text(&recording["name"]),
        text(&request_spec["method"]),
        text(&request_spec["path"]),
        text(&step["note"])
    );
    Difference { step: number, text: format!("{head}\n    {}", lines.join("\n    ")) }
}

fn shown(normalizer: &mut Normalizer, answer: &Value) -> Value {
    let mut shown = normalizer.value(answer);
    shown["contentType"] = answer["contentType"].clone();
    shown
}

/// Removes what is the same for every response and not compared; COMPATIBILITY.md lists it.
fn comparable(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(fields) = answer.as_object_mut() {
        // How long a stream was watched depends on the recorder.
        fields.remove("closed");
    }
    // List items of built-in kinds do not repeat their kind on the real server.
    if let Some(items) = answer.pointer_mut("/body/items").and_then(Value::as_array_mut) {
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.remove("kind");
            item.remove("apiVersion");
        }
    }
    strip_nulls(&mut answer);
    strip_hashes(&mut answer);
    strip_column_words(&mut answer);
    answer
}

/// Hashes of storage versions are specific to the server that computed them.
fn strip_hashes(answer: &mut Value) {
    let resources = answer.pointer_mut("/body/resources").and_then(Value::as_array_mut);
    for resource in resources.into_iter().flatten().filter_map(Value::as_object_mut) {
        resource.remove("storageVersionHash");
    }
}

/// The descriptions of columns are our own.
fn strip_column_words(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let columns = fields.get_mut("columnDefinitions").and_then(Value::as_array_mut);
            for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
                column.remove("description");
            }
            fields.values_mut().for_each(strip_column_words);
        }
        Value::Array(entries) => entries.iter_mut().for_each(strip_column_words),
        _ => {}
    }
}

/// Fields that the real server prints as null; here they may be omitted.
const NULLS: [&str; 15] = [
    "columnDefinitions",
    "conditions",
    "containers",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "eventTime",
    "finishedAt",
    "firstTimestamp",
    "items",
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastTimestamp",
    "lastTransitionTime",
    "schedulingConstraints",
    "startedAt",
];

/// Null and absent are the same only where the real server prints null.
fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| !value.is_null() || !NULLS.contains(&key.as_str()));
            fields.values_mut().for_each(strip_nulls);
        }
        Value::Array(entries) => entries.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

fn compare(real: &Value, ours: &Value, path: &str, unstable: &[&str], lines: &mut Vec<String>) {
    if unstable.iter().any(|start| path.starts_with(start)) {
        return;
    }
    match (real, ours) {
        (Value::Object(real), Value::Object(ours)) => {
            let keys: BTreeSet<&String> = real.keys().chain(ours.keys()).collect();
            for key in keys {
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                let of = |fields: &Map<String, Value>| fields.get(key).cloned().unwrap_or_else(|| json!("<absent>"));
                compare(&of(real), &of(ours), &path, unstable, lines);
            }
        }
        (Value::Array(real), Value::Array(ours)) if real.len() == ours.len() => {
            for (index, (real, ours)) in real.iter().zip(ours).enumerate() {
                compare(real, ours, &format!("{path}/{index}"), unstable, lines);
            }
        }
        _ if real == ours => {}
        _ => lines.push(format!("{path}: real {real}, ours {ours}")),
    }
}

async fn request_until(server: &Server, request_spec: &Value, until: &Value) -> (Value, Value) {
    const ATTEMPTS: usize = 200;
    for _ in 0..ATTEMPTS {
        let (answer, raw) = request(server, request_spec).await;
        if until.is_null() || holds(until, &answer) {
            return (answer, raw);
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    request(server, request_spec).await
}

fn holds(until: &Value, answer: &Value) -> bool {
    if !until["code"].is_null() && until["code"] != answer["code"] {
        return false;
    }
    let Some(path) = until["path"].as_str() else { return true };
    let value = lookup(&answer["body"], path).cloned().unwrap_or_default();
    (until["equals"].is_null() || value == until["equals"])
        && until["exists"].as_bool().is_none_or(|exists| value.is_null() != exists)
}

/// The body of a recorded request.
pub(crate) fn body_of(request_spec: &Value) -> Option<Vec<u8>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !request_spec["body"].is_null() {
        return Some(request_spec["body"].to_string().into_bytes());
    }
    if request_spec["bodyText"].is_string() {
        return Some(text(&request_spec["bodyText"]).into_bytes());
    }
    let repeat = &request_spec["bodyRepeat"];
    let count = repeat["count"].as_u64()? as usize;
    let parts = [
        text(&repeat["before"]),
        text(&repeat["unit"]).repeat(count),
        text(&repeat["middle"]),
        text(&repeat["unitAfter"]).repeat(count),
        text(&repeat["after"]),
    ];
    Some(parts.concat().into_bytes())
}

fn build(request_spec: &Value) -> http::Request<Body> {
    let path = request_spec["path"].as_str().unwrap_or_default();
    let path: String = path
        .bytes()
        .map(|byte| match byte {
            b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 128.. => format!("%{byte:02X}"),
            _ => char::from(byte).to_string(),
        })
        .collect();
    let mut request = http::Request::builder().method(request_spec["method"].as_str().unwrap_or("GET")).uri(path);
    request = request.header("Accept", request_spec["accept"].as_str().unwrap_or("application/json"));
    request = request.header("User-Agent", "stories");
    let body = body_of(request_spec);
    let written = request_spec["contentType"].as_str();
    if let Some(content_type) = written.filter(|text| !text.is_empty()) {
        request = request.header("Content-Type", content_type);
    } else if body.is_some() && written != Some("") {
        request = request.header("Content-Type", "application/json");
    }
    request.body(body.map_or_else(Body::empty, Body::from)).unwrap()
}

async fn request(server: &Server, request_spec: &Value) -> (Value, Value) {
    let response = server.answer(build(request_spec)).await;
    let mut answer = head(&response);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if answer["contentType"].as_str().unwrap_or_default().contains("json") && !text.is_empty() {
        let raw: Value = serde_json::from_str(&text).unwrap();
        answer["body"] = raw.clone();
        (answer, raw)
    } else {
        answer["text"] = json!(text);
        (answer, json!(text))
    }
}

fn head(response: &http::Response<Body>) -> Value {
    let mut answer = json!({
        "code": response.status().as_u16(),
        "contentType": response.headers().get("Content-Type").map(|value| value.to_str().unwrap()),
    });
    let mut kept = Map::new();
    for name in ["Retry-After", "Warning", "Allow"] {
        let values: Vec<&str> =
            response.headers().get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        match &*values {
            [] => {}
            [only] => drop(kept.insert(name.to_owned(), json!(only))),
            all => drop(kept.insert(name.to_owned(), json!(all))),
        }
    }
    if !kept.is_empty() {
        answer["headers"] = Value::Object(kept);
    }
    answer
}

/// Opens a watch, collects events from an open one, or both.
async fn watch(
    server: &Server,
    request_spec: &Value,
    watches: &mut BTreeMap<String, Lines>,
    normalizer: &mut Normalizer,
) -> Value {
    let want = request_spec["events"].as_u64().map_or(usize::MAX, |count| count as usize);
    let seconds = request_spec["seconds"].as_f64().unwrap_or(10.0);
    let (lines, mut answer) = if let Some(name) = request_spec["collect"].as_str() {
        (Arc::clone(&watches[name]), json!({"code": 200}))
    } else {
        let response = server.answer(build(request_spec)).await;
        let mut answer = head(&response);
        if answer["code"] != 200 {
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            answer["body"] = serde_json::from_slice(&bytes).unwrap();
            return shown(normalizer, &answer);
        }
        (collect(response), answer)
    };
    if let Some(name) = request_spec["open"].as_str() {
        watches.insert(name.to_owned(), lines);
        return json!({"code": answer["code"]});
    }
    let ends = tokio::time::Instant::now() + Duration::from_secs_f64(seconds);
    while lines.lock().unwrap().len() < want && tokio::time::Instant::now() < ends {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let events: Vec<Value> = {
        let mut lines = lines.lock().unwrap();
        let count = lines.len().min(want);
        lines.drain(..count).collect()
    };
    normalizer.learn(&json!(events));
    answer["events"] = events.iter().map(|event| normalizer.event(event)).collect();
    answer
}

fn collect(response: http::Response<Body>) -> Lines {
    let lines = Lines::default();
    let filled = Arc::clone(&lines);
    tokio::spawn(async move {
        let mut stream = response.into_body().into_data_stream();
        let mut rest = Vec::new();
        while let Some(Ok(chunk)) = stream.next().await {
            rest.extend_from_slice(&chunk);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                filled.lock().unwrap().push(serde_json::from_slice(&line).unwrap());
            }
        }
    });
    lines
}
