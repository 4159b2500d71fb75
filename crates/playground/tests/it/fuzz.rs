//! Fuzz tests: the server answers every request without a panic, always with valid HTTP and JSON.
//!
//! The requests of all recordings are the corpus; their methods, paths, queries, media types and bodies are mutated at
//! random, as bytes and as JSON. `MUSTER_SEED` and `MUSTER_TIMES` select and multiply the runs.

use axum::body::Body;
use http_body_util::BodyExt;
use muster_playground::components::Shape;
use muster_playground::random::Random;
use muster_playground::{Server, Settings, kubectl};
use serde_json::{Value, json};

use crate::recorded_answers::{body_of, requests};

const SEEDS: u64 = 12;
const REQUESTS: usize = 800;
const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"];
const MEDIA_TYPES: [&str; 8] = [
    "application/json",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "",
    "text/html; charset=\u{1}",
];
const QUERIES: [&str; 16] = [
    "watch=true&timeoutSeconds=1",
    "watch=1&resourceVersion=1",
    "limit=1",
    "limit=-9223372036854775808",
    "continue=AAAA",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhL2IifQ",
    "labelSelector=a%20in%20(",
    "labelSelector=%00%ff,,,!!",
    "fieldSelector=metadata.name%3D%5C",
    "fieldSelector=a=b=c",
    "resourceVersion=18446744073709551616",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&watch=true&timeoutSeconds=1",
    "dryRun=All",
    "gracePeriodSeconds=-1",
    "propagationPolicy=Foreground",
];

fn strange_value(random: &mut Random) -> Value {
    match random.below(14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(i64::MAX),
        4 => json!(u64::MAX),
        5 => json!(1.5e300),
        6 => json!(""),
        7 => json!("\u{0}\u{ffff}é\n"),
        8 => json!("x".repeat(3000)),
        9 => json!([]),
        10 => json!({}),
        11 => json!([null, {}, []]),
        12 => json!({"": {"": null}, "~/": 1}),
        _ => json!("99999999999999999999Ei"),
    }
}

/// Inserts an unusual value at a random position.
fn mutate(value: &mut Value, random: &mut Random) {
    if random.per_mille(150) {
        *value = strange_value(random);
        return;
    }
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let key = fields.keys().nth(random.below(fields.len() as u64) as usize).cloned().expect("a key");
            match random.below(10) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(format!("{key}\u{1}"), strange_value(random))),
                _ => mutate(&mut fields[&key], random),
            }
        }
        Value::Array(entries) if !entries.is_empty() => {
            let index = random.below(entries.len() as u64) as usize;
            match random.below(10) {
                0 => drop(entries.remove(index)),
                1 => entries.push(entries[index].clone()),
                _ => mutate(&mut entries[index], random),
            }
        }
        other => *other = strange_value(random),
    }
}

/// Mutates bytes: truncated, duplicated, changed.
fn mutate_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        bytes.extend_from_slice(b"{\"");
        return;
    }
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(4) {
        0 => bytes.truncate(at),
        1 => bytes[at] = random.below(256) as u8,
        2 => drop(bytes.splice(at..at, b"[{\"a\":".repeat(200))),
        _ => {
            let copy = bytes[at..].to_vec();
            bytes.splice(at..at, copy);
        }
    }
}

fn mutated_body(recorded: &Value, random: &mut Random) -> Vec<u8> {
    let mut bytes = match random.below(10) {
        0..6 => {
            let mut body = recorded["body"].clone();
            mutate(&mut body, random);
            body.to_string().into_bytes()
        }
        _ => body_of(recorded).unwrap_or_default(),
    };
    if random.per_mille(200) {
        mutate_bytes(&mut bytes, random);
    }
    bytes
}

fn mutated_path(recorded: &Value, random: &mut Random) -> String {
    let mut path = recorded["path"].as_str().unwrap_or("/").to_owned();
    if random.per_mille(200) {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(QUERIES[random.below(QUERIES.len() as u64) as usize]);
    }
    if random.per_mille(100) {
        let mut bytes = path.into_bytes();
        mutate_bytes(&mut bytes, random);
        bytes.truncate(4000);
        path = String::from_utf8_lossy(&bytes).into_owned();
    }
    path
}

fn mutated_request(recorded: &Value, random: &mut Random) -> Option<http::Request<Body>> {
    let method = recorded["method"].as_str().unwrap_or("GET");
    let method = if random.per_mille(100) { METHODS[random.below(METHODS.len() as u64) as usize] } else { method };
    let written = recorded["contentType"].as_str().unwrap_or("application/json");
    let media_type =
        if random.per_mille(100) { MEDIA_TYPES[random.below(MEDIA_TYPES.len() as u64) as usize] } else { written };
    let mut request = http::Request::builder().method(method).uri(mutated_path(recorded, random));
    request = request.header("Content-Type", media_type);
    if random.per_mille(30) {
        request = request.header(
            "Accept",
            ["application/yaml", ";;;", "application/json;as=PartialObjectMetadata"][random.below(3) as usize],
        );
    }
    // Invalid HTTP never reaches the server.
    request.body(Body::from(mutated_body(recorded, random))).ok()
}

#[tokio::test(start_paused = true)]
async fn every_mutated_request_is_answered() {
    let times: u64 = std::env::var("MUSTER_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let only: Option<u64> = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let corpus = requests();
    let mut codes = std::collections::BTreeMap::<u16, usize>::new();
    for seed in only.map_or(0..SEEDS * times, |seed| seed..seed + 1) {
        let server = Server::start(Settings { seed, window: 200, ..Settings::default() }).with_presentation(kubectl());
        let mut random = Random::new(seed);
        for turn in 0..REQUESTS {
            let recorded = &corpus[random.below(corpus.len() as u64) as usize];
            let Some(request) = mutated_request(recorded, &mut random) else { continue };
            let shown = format!("seed {seed} turn {turn}: {} {}", request.method(), request.uri());
            let response = server.answer(request).await;
            let code = response.status().as_u16();
            *codes.entry(code).or_default() += 1;
            let json = response
                .headers()
                .get("Content-Type")
                .is_some_and(|header| header.as_bytes().starts_with(b"application/json"));
            let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| json && !line.is_empty()) {
                let value: Value = serde_json::from_slice(line).unwrap_or_else(|error| panic!("{shown}: {error}"));
                assert!(code < 400 || value["kind"] == "Status", "{shown}: {code} {value}");
            }
            tokio::task::yield_now().await;
        }
        check_stored_objects(&server, seed).await;
    }
    println!("{codes:?}");
    assert!(
        only.is_some() || codes.keys().filter(|code| **code >= 400).count() >= 8,
        "the garbage was too tame: {codes:?}"
    );
}

/// Every stored object has the mandatory metadata.
async fn check_stored_objects(server: &Server, seed: u64) {
    for path in ["/api/v1/pods", "/api/v1/configmaps", "/api/v1/nodes", "/apis/policy/v1/poddisruptionbudgets"] {
        let request = http::Request::builder().uri(path).body(Body::empty()).expect("a request");
        let bytes = server.answer(request).await.into_body().collect().await.expect("a body").to_bytes();
        let list: Value = serde_json::from_slice(&bytes).expect("JSON");
        for item in list["items"].as_array().expect("items") {
            for field in ["name", "uid", "resourceVersion", "creationTimestamp"] {
                assert!(item["metadata"][field].is_string(), "seed {seed}: {path}: no {field} in {item}");
            }
        }
    }
}

/// A mutated request as the bytes of a connection, which may be truncated, duplicated or not HTTP at all.
fn mutated_connection(recorded: &Value, random: &mut Random) -> Vec<u8> {
    let body = mutated_body(recorded, random);
    let method = METHODS[random.below(METHODS.len() as u64) as usize];
    let method = if random.per_mille(100) { method } else { recorded["method"].as_str().unwrap_or("GET") };
    let length = if random.per_mille(50) { random.below(5_000_000) as usize } else { body.len() };
    let framing = match random.below(20) {
        0 => "Transfer-Encoding: chunked".to_owned(),
        1 => format!("Content-Length: {length}\r\nContent-Length: 1"),
        2 => "Expect: 100-continue".to_owned(),
        _ => format!("Content-Length: {length}"),
    };
    let media_type = MEDIA_TYPES[random.below(MEDIA_TYPES.len() as u64) as usize];
    let path = mutated_path(recorded, random);
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\n{framing}\r\n\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend(body);
    for _ in 0..random.below(3) {
        mutate_bytes(&mut bytes, random);
    }
    bytes
}

#[tokio::test]
async fn mutated_connections_are_answered_or_cut_off() {
    use crate::raw_http::Wire;
    use tokio::io::AsyncWriteExt;
    let times: u64 = std::env::var("MUSTER_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let only: Option<u64> = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let corpus = requests();
    let mut codes = std::collections::BTreeMap::<String, usize>::new();
    for seed in only.map_or(0..3 * times, |seed| seed..seed + 1) {
        let server = Server::start(Settings { seed, window: 200, ..Settings::default() }).with_presentation(kubectl());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn({
            let server = server.clone();
            async move { server.serve(listener).await }
        });
        let mut random = Random::new(seed);
        for turn in 0..400 {
            let recorded = &corpus[random.below(corpus.len() as u64) as usize];
            let bytes = mutated_connection(recorded, &mut random);
            let mut wire = Wire::connect(address).await.expect("a connection");
            // The server may close the connection before it has read everything, which counts as an answer.
            if wire.send(&bytes).await.is_err() || wire.stream.get_mut().shutdown().await.is_err() {
                continue;
            }
            let response = tokio::time::timeout(std::time::Duration::from_secs(60), wire.rest()).await;
            let response = response.unwrap_or_else(|_| panic!("seed {seed} turn {turn}: no end")).unwrap_or_default();
            let line = String::from_utf8_lossy(&response[..response.len().min(15)]).into_owned();
            assert!(response.is_empty() || line.starts_with("HTTP/1."), "seed {seed} turn {turn}: {line}");
            *codes.entry(line.split(' ').nth(1).unwrap_or("cut off").to_owned()).or_default() += 1;
        }
        check_stored_objects(&server, seed).await;
        serving.abort();
    }
    println!("{codes:?}");
    assert!(only.is_some() || codes.len() >= 8, "the garbage was too tame: {codes:?}");
}

#[test]
fn mutated_shapes_are_read_or_rejected() {
    let sound = json!({"pools": [
        {"name": "gpu", "count": 4, "capacity": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
         "allocatable": {"cpu": "60"}, "labels": {"a.example.com/b": "c"},
         "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
         "domains": [{"key": "topology.kubernetes.io/zone", "count": 2}]},
    ]});
    let mut random = Random::new(11);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..5000 {
        let mut shape = sound.clone();
        mutate(&mut shape, &mut random);
        let mut bytes = shape.to_string().into_bytes();
        if random.per_mille(200) {
            mutate_bytes(&mut bytes, &mut random);
        }
        match Shape::from_json(&String::from_utf8_lossy(&bytes)) {
            Ok(shape) => good += shape.nodes().expect("a shape that was read has nodes").len().min(1),
            Err(error) => bad += error.to_string().len().min(1),
        }
    }
    assert!(good > 50 && bad > 1000, "{good} read, {bad} refused");
}
