//! Crash tests: a server with a state folder that is killed repeatedly loses nothing that it has acknowledged.
//!
//! The server is a process of its own, so that it cannot clean up before it ends. Clients write over HTTP; each records
//! the responses for its pods, and the requests without a response. After every restart the pods match the responses,
//! or the result of a request without a response.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use muster_playground::random::Random;
use muster_playground::{Server, Settings, StateError};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::raw_http::Wire;

const ROUNDS: u64 = 50;
const CLIENTS: u64 = 6;
const FOLDER: &str = "MUSTER_TEST_STATE";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process that the test below kills"]
async fn serve_until_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let server = Server::open(Settings::default(), Path::new(&folder)).expect("a state");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("\nserves {}", listener.local_addr().expect("an address"));
    server.serve(listener).await;
}

/// A folder that is removed with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("muster-state-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The server's process. It is killed with this value.
struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["crash_recovery::serve_until_killed", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = std::io::BufReader::new(child.stdout.take().expect("its output")).lines();
        let address = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("serves ")?.parse().ok());
        Self { child, address: address.expect("an address") }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

/// The recorded state of a pod: its metadata and node, or that it does not exist.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    Absent,
    There { uid: String, revision: u64, node: String, mark: String },
}

impl Known {
    fn of(pod: &Value) -> Self {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        Known::There {
            uid: text("/metadata/uid"),
            revision: text("/metadata/resourceVersion").parse().expect("a revision"),
            node: text("/spec/nodeName"),
            mark: text("/metadata/labels/mark"),
        }
    }

    fn revision(&self) -> u64 {
        if let Known::There { revision, .. } = self { *revision } else { 0 }
    }
}

/// A pod as its client has recorded it.
#[derive(Clone, Debug)]
struct Entry {
    known: Known,
    /// A request without a response.
    unanswered: Option<Operation>,
}

#[derive(Clone, Debug)]
enum Operation {
    Create,
    Mark(String),
    Bind(String),
    Delete,
}

/// One client and its pods.
struct Writer {
    random: Random,
    number: u64,
    pods: BTreeMap<String, Entry>,
    created: u64,
    uids: BTreeSet<String>,
    /// The highest resourceVersion in a response.
    highest: u64,
}

impl Writer {
    fn new(number: u64) -> Self {
        let random = Random::new(900 + number);
        Self { random, number, pods: BTreeMap::new(), created: 0, uids: BTreeSet::new(), highest: 0 }
    }

    fn choose(&mut self) -> (String, Operation) {
        let there: Vec<(&String, &Entry)> = self.pods.iter().filter(|(_, pod)| pod.known != Known::Absent).collect();
        if there.len() < 5 || (there.len() < 30 && self.random.per_mille(400)) {
            self.created += 1;
            return (format!("w{}-{}", self.number, self.created), Operation::Create);
        }
        let (name, entry) = there[self.random.below(there.len() as u64) as usize];
        let bound = matches!(&entry.known, Known::There { node, .. } if !node.is_empty());
        let operation = match self.random.below(3) {
            0 if !bound => Operation::Bind(format!("node-{}", self.random.below(9))),
            0 | 1 => Operation::Mark(format!("m{}", self.random.draw())),
            _ => Operation::Delete,
        };
        (name.clone(), operation)
    }

    /// Writes until the server is gone.
    async fn write(&mut self, address: SocketAddr, acknowledged: &watch::Sender<u64>) {
        let Ok(mut wire) = Wire::connect(address).await else { return };
        loop {
            let (name, operation) = self.choose();
            let known = self.pods.get(&name).map_or(Known::Absent, |entry| entry.known.clone());
            self.pods.insert(name.clone(), Entry { known, unanswered: Some(operation.clone()) });
            let Ok(observed) = self.execute(&mut wire, &name, &operation).await else { return };
            self.highest = self.highest.max(observed.revision());
            self.pods.insert(name, Entry { known: observed, unanswered: None });
            acknowledged.send_modify(|count| *count += 1);
        }
    }

    async fn execute(&mut self, wire: &mut Wire, name: &str, operation: &Operation) -> std::io::Result<Known> {
        let path = format!("{PODS}/{name}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "i"}]},
        });
        let binding = |node: &str| {
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"kind": "Node", "name": node}})
        };
        let answer = match operation {
            Operation::Create => wire.send_request("POST", PODS, &pod).await?,
            Operation::Mark(mark) => {
                wire.send_request("PATCH", &path, &json!({"metadata": {"labels": {"mark": mark}}})).await?
            }
            Operation::Bind(node) => wire.send_request("POST", &format!("{path}/binding"), &binding(node)).await?,
            Operation::Delete => wire.send_request("DELETE", &path, &json!({"gracePeriodSeconds": 0})).await?,
        };
        assert!(answer.code < 300, "{operation:?} {name}: {}", answer.value());
        match operation {
            Operation::Delete => Ok(Known::Absent),
            Operation::Bind(_) => {
                // The response to a binding does not contain the pod, so it is read, which may fail as well.
                self.pods.get_mut(name).expect("it was entered").unanswered = Some(operation.clone());
                Ok(Known::of(&wire.send_request("GET", &path, &Value::Null).await?.value()))
            }
            _ => {
                let observed = Known::of(&answer.value());
                if let (Operation::Create, Known::There { uid, .. }) = (operation, &observed) {
                    assert!(self.uids.insert(uid.clone()), "{name}: the UID {uid} came before");
                }
                Ok(observed)
            }
        }
    }

    /// Compares the stored pods with the recorded ones, and continues from the stored ones.
    fn check(&mut self, round: u64, found: &BTreeMap<String, Known>) {
        for (name, entry) in &mut self.pods {
            let now = found.get(name).cloned().unwrap_or(Known::Absent);
            let fits = now == entry.known
                || match (&entry.unanswered, &now) {
                    (Some(Operation::Create), Known::There { .. }) | (Some(Operation::Delete), Known::Absent) => true,
                    (Some(Operation::Mark(wanted)), Known::There { mark, .. }) => wanted == mark,
                    (Some(Operation::Bind(wanted)), Known::There { node, .. }) => wanted == node,
                    _ => false,
                };
            assert!(fits, "round {round}: {name} was recorded as {entry:?} and is {now:?}");
            *entry = Entry { known: now, unanswered: None };
        }
        let mine = format!("w{}-", self.number);
        for name in found.keys().filter(|name| name.starts_with(&mine)) {
            assert!(self.pods.contains_key(name), "round {round}: {name} was never requested");
        }
    }
}

/// All pods, and the resourceVersion of the list.
async fn list(address: SocketAddr) -> (u64, BTreeMap<String, Known>) {
    let mut wire = Wire::connect(address).await.expect("a connection");
    let list = wire.send_request("GET", PODS, &Value::Null).await.expect("a list").value();
    let revision = list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    let pods = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}")).iter();
    let named = pods.map(|pod| (pod["metadata"]["name"].as_str().expect("a name").to_owned(), Known::of(pod)));
    (revision.expect("a revision"), named.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_are_never_lost() {
    let folder = Folder::new("killed");
    let seed = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(77);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut writers: Vec<Writer> = (0..CLIENTS).map(Writer::new).collect();
    let (mut highest, mut total) = (0, 0);
    for round in 0..ROUNDS {
        let mut served = Served::start(&folder.0);
        let (revision, found) = list(served.address).await;
        assert!(revision >= highest, "round {round}: revision {revision} after {highest}");
        for writer in &mut writers {
            writer.check(round, &found);
        }
        let uids: BTreeSet<&String> = writers.iter().flat_map(|writer| &writer.uids).collect();
        assert_eq!(uids.len(), writers.iter().map(|writer| writer.uids.len()).sum::<usize>(), "a UID came twice");
        let (acknowledged, mut count) = watch::channel(0);
        let address = served.address;
        let writing: Vec<_> = writers
            .drain(..)
            .map(|mut writer| {
                let acknowledged = acknowledged.clone();
                tokio::spawn(async move {
                    writer.write(address, &acknowledged).await;
                    writer
                })
            })
            .collect();
        drop(acknowledged);
        let enough = random.below(60);
        // The channel closes with the clients, and these end with the server.
        let reached = count.wait_for(|count| *count >= enough).await.is_ok();
        let ended = served.child.try_wait().expect("its state");
        assert!(reached && ended.is_none(), "round {round}: it ended by itself: {ended:?}");
        drop(served);
        for task in writing {
            writers.push(task.await.expect("a client"));
        }
        total += *count.borrow();
        highest = writers.iter().map(|writer| writer.highest).max().unwrap_or(0).max(revision);
    }
    assert!(total > 500, "only {total} writes");
    assert!(
        writers.iter().any(|writer| writer.pods.values().any(|pod| pod.unanswered.is_some())),
        "no request was left unanswered"
    );
}

#[tokio::test]
async fn cluster_continues_after_restart() {
    let folder = Folder::new("again");
    let server = Server::open(Settings::default(), &folder.0).expect("a state");
    assert!(matches!(Server::open(Settings::default(), &folder.0), Err(StateError::InUse { .. })));
    let definition = crate::model::definition();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send_request(&server, "POST", definitions, &definition).await.0, 201);
    let things = "/apis/test.example.com/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    // The housekeeper serves the definition while this waits.
    let mut created = send_request(&server, "POST", things, &thing).await;
    while created.0 == 404 {
        created = send_request(&server, "POST", things, &thing).await;
    }
    assert_eq!(created.0, 201, "{}", created.1);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "gone"});
    let orphan = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "orphan", "finalizers": ["a.example.com/b"]}});
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(send_request(&server, "POST", maps, &orphan).await.0, 201);
    let revision = server.revision();
    drop(server);

    let server = Server::open(Settings::default(), &folder.0).expect("the state again");
    let (code, list) = send_request(&server, "GET", things, &Value::Null).await;
    assert_eq!((code, &list["items"][0]), (200, &created.1), "a custom object and its kind");
    assert_eq!(server.revision(), revision, "nothing was written by starting again");
    let watch = format!("{maps}?watch=true&timeoutSeconds=1&resourceVersion=");
    let (_, expired) = send_request(&server, "GET", &format!("{watch}{}", revision - 1), &Value::Null).await;
    assert_eq!((&expired["type"], &expired["object"]["code"]), (&json!("ERROR"), &json!(410)));
    // A client that had seen everything continues its watch.
    let from_here = format!("{watch}{revision}");
    let at_end = send_request(&server, "GET", &from_here, &Value::Null);
    let late =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late", "ownerReferences": [owner]}});
    let (event, created) = tokio::join!(at_end, send_request(&server, "POST", maps, &late));
    assert_eq!((created.0, &event.1["object"]["metadata"]["name"]), (201, &json!("late")), "{}", event.1);
    // The housekeeper completes its pending work after a restart: the owner does not exist.
    drop(server);
    let server = Server::open(Settings::default(), &folder.0).expect("the state again");
    let mut left = send_request(&server, "GET", maps, &Value::Null).await.1;
    while left["items"].as_array().expect("items").len() > 1 {
        tokio::task::yield_now().await;
        left = send_request(&server, "GET", maps, &Value::Null).await.1;
    }
    assert_eq!(left["items"][0]["metadata"]["name"], "orphan");
}

async fn send_request(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    use http_body_util::BodyExt;
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let response = server.answer(request.body(axum::body::Body::from(body)).expect("a request")).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    (code, serde_json::from_slice(line).unwrap_or_default())
}
