//! Checks that no watcher misses, repeats or reorders a change, in random runs against the model of the store.
//!
//! Full watchers are read after every step. Together they must report every resourceVersion exactly once, and their
//! events must add up to the model. All other watchers (by label, by field, by namespace; started anywhere, read late,
//! cut, overtaken by compaction) must report exactly what the full ones reported, as far as their selection includes
//! it.

use std::collections::BTreeMap;
use std::pin::Pin;

use axum::body::Body;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use http_body_util::BodyExt;
use muster_playground::random::Random;
use muster_playground::{Server, Settings};
use serde_json::{Value, json};

use crate::model::{KINDS, Model, ModelObject, NAMESPACES, ObjectId, body, definition};

const STEPS: usize = 150;
const SEEDS: u64 = 60;
/// Small, so that slow watchers are overtaken.
const WINDOW: usize = 40;
const COLOURS: [&str; 3] = ["red", "green", "blue"];

type Lines = Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>;

/// Type, name with namespace, resourceVersion, colour, node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportedEvent {
    event: String,
    id: (String, String),
    revision: u64,
    colour: String,
    node: String,
}

impl ReportedEvent {
    fn read(event: &Value) -> Self {
        let object = &event["object"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self {
            event: text(&event["type"]),
            id: (text(&metadata["namespace"]), text(&metadata["name"])),
            revision: text(&metadata["resourceVersion"]).parse().expect("a revision"),
            colour: text(&metadata["labels"]["colour"]),
            node: text(&object["spec"]["nodeName"]),
        }
    }
}

/// The selection of a watcher.
#[derive(Clone, Debug, Default)]
struct Filter {
    namespace: Option<&'static str>,
    colour: Option<&'static str>,
    unbound: bool,
}

impl Filter {
    fn random(random: &mut Random, kind: usize) -> Self {
        Self {
            namespace: random.per_mille(300).then(|| NAMESPACES[random.below(2) as usize]),
            colour: random.per_mille(600).then(|| COLOURS[random.below(3) as usize]),
            unbound: KINDS[kind].0 == "Pod" && random.per_mille(500),
        }
    }

    fn matches(&self, reported: &ReportedEvent) -> bool {
        self.namespace.is_none_or(|namespace| reported.id.0 == namespace)
            && self.colour.is_none_or(|colour| reported.colour == colour)
            && (!self.unbound || reported.node.is_empty())
    }

    fn path(&self, kind: usize) -> String {
        let (_, group, plural) = KINDS[kind];
        let mut path = match self.namespace {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}?"),
            None => format!("{group}/{plural}?"),
        };
        if let Some(colour) = self.colour {
            path = path + "labelSelector=colour%3D" + colour + "&";
        }
        if self.unbound {
            path.push_str("fieldSelector=spec.nodeName%3D&");
        }
        path
    }

    /// The events that this watcher must report, given those of a full one from `start` to `end`.
    fn project(&self, full_events: &[ReportedEvent], start: u64, end: u64) -> Vec<(String, (String, String), u64)> {
        let mut seen: BTreeMap<(String, String), bool> = BTreeMap::new();
        let mut out = Vec::new();
        for reported in full_events.iter().filter(|reported| reported.revision <= end) {
            let was = seen.get(&reported.id).copied().unwrap_or_default();
            let is = reported.event != "DELETED" && self.matches(reported);
            seen.insert(reported.id.clone(), is);
            let event = match (was, is) {
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
                (false, false) => continue,
            };
            if reported.revision > start {
                out.push((event.to_owned(), reported.id.clone(), reported.revision));
            }
        }
        out
    }

    /// The expected content of a list at `revision`.
    fn list(&self, full_events: &[ReportedEvent], revision: u64) -> BTreeMap<(String, String), u64> {
        let mut present = BTreeMap::new();
        for reported in full_events.iter().filter(|reported| reported.revision <= revision) {
            if reported.event != "DELETED" && self.matches(reported) {
                present.insert(reported.id.clone(), reported.revision);
            } else {
                present.remove(&reported.id);
            }
        }
        present
    }
}

struct Watcher {
    kind: usize,
    filter: Filter,
    lines: Lines,
    rest: Vec<u8>,
    start: u64,
    reported: Vec<ReportedEvent>,
    /// The resourceVersion of the last bookmark.
    bookmark: u64,
}

enum Read {
    Open,
    Ended,
    Expired,
}

impl Watcher {
    /// Reads the available events.
    fn read(&mut self) -> Read {
        while let Some(next) = self.lines.next().now_or_never() {
            let Some(chunk) = next else { return Read::Ended };
            self.rest.extend_from_slice(&chunk.expect("no broken stream"));
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).expect("a line of JSON");
                match event["type"].as_str() {
                    Some("ERROR") => {
                        assert_eq!(event["object"]["code"], 410, "{event}");
                        return Read::Expired;
                    }
                    Some("BOOKMARK") => self.bookmark = ReportedEvent::read(&event).revision,
                    _ => self.reported.push(ReportedEvent::read(&event)),
                }
            }
        }
        Read::Open
    }

    fn check(&self, full_events: &[ReportedEvent], seed: u64) {
        let end = self.reported.last().map_or(self.start, |reported| reported.revision).max(self.bookmark);
        let reported: Vec<_> = self
            .reported
            .iter()
            .map(|reported| (reported.event.clone(), reported.id.clone(), reported.revision))
            .collect();
        assert_eq!(
            reported,
            self.filter.project(full_events, self.start, end),
            "seed {seed}: {:?} from {}",
            self.filter,
            self.start
        );
    }
}

struct Run {
    seed: u64,
    server: Server,
    random: Random,
    model: Model,
    full: Vec<Watcher>,
    full_events: Vec<Vec<ReportedEvent>>,
    watchers: Vec<Watcher>,
    expired: usize,
    refused: usize,
}

impl Run {
    async fn start(seed: u64) -> Self {
        let server = Server::start(Settings { seed, window: WINDOW, ..Settings::default() });
        let mut run = Self {
            seed,
            server,
            random: Random::new(seed),
            model: Model::default(),
            full: Vec::new(),
            full_events: vec![Vec::new(); KINDS.len()],
            watchers: Vec::new(),
            expired: 0,
            refused: 0,
        };
        run.send_request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", Some(definition()))
            .await;
        for name in NAMESPACES {
            run.send_request("POST", "/api/v1/namespaces", "", Some(json!({"metadata": {"name": name}}))).await;
        }
        run.settle().await;
        for kind in 0..KINDS.len() {
            let watcher = run.open(kind, Filter::default(), run.server.revision()).await;
            run.full.push(watcher);
        }
        run
    }

    async fn send_request(&mut self, method: &str, path: &str, media_type: &str, body: Option<Value>) -> (u16, Value) {
        let request = http::Request::builder().method(method).uri(path).header("Content-Type", media_type);
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let response = self.server.answer(request.body(body).expect("a request")).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        assert_ne!(code, 500, "seed {}: {method} {path}: {}", self.seed, String::from_utf8_lossy(&bytes));
        self.refused += usize::from(code >= 400);
        (code, serde_json::from_slice(&bytes).expect("JSON"))
    }

    async fn open(&mut self, kind: usize, filter: Filter, start: u64) -> Watcher {
        let path = format!("{}watch=true&allowWatchBookmarks=true&resourceVersion={start}", filter.path(kind));
        let request = http::Request::builder().uri(path).body(Body::empty()).expect("a request");
        let response = self.server.answer(request).await;
        assert_eq!(response.status(), 200);
        let lines = Box::pin(response.into_body().into_data_stream());
        Watcher { kind, filter, lines, rest: Vec::new(), start, reported: Vec::new(), bookmark: 0 }
    }

    /// Lets the housekeeper finish.
    async fn settle(&mut self) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }

    fn pick(&mut self, live_only: bool) -> Option<ObjectId> {
        let ids: Vec<ObjectId> = self
            .model
            .objects
            .iter()
            .filter(|(_, object)| !live_only || !object.deleting)
            .map(|(id, _)| id.clone())
            .collect();
        if ids.is_empty() { None } else { Some(ids[self.random.below(ids.len() as u64) as usize].clone()) }
    }

    fn path(id: &ObjectId) -> String {
        let (_, group, plural) = KINDS[id.0];
        format!("{group}/namespaces/{}/{plural}/{}", id.1, id.2)
    }

    /// Sends one random request and updates the model.
    async fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.create().await,
            25..40 => self.merge_patch().await,
            40..50 => self.json_patch().await,
            50..60 => self.put().await,
            60..66 => self.patch_status().await,
            66..72 => self.change_finalizers().await,
            72..88 => self.delete().await,
            88..91 => self.delete_collection().await,
            91..97 => self.bind().await,
            _ => self.server.compact(),
        }
        self.settle().await;
        self.read_full();
        self.compare_with_model().await;
    }

    async fn create(&mut self) {
        let kind = self.random.below(3) as usize;
        let namespace = NAMESPACES[self.random.below(2) as usize];
        let name = format!("n{}", self.random.below(6));
        let colour = COLOURS[self.random.below(3) as usize];
        let owner = if self.random.per_mille(300) { self.pick(false) } else { None };
        let owner = owner.filter(|owner| owner.1 == namespace).map(|id| {
            let uid = self.model.objects[&id].uid.clone();
            (id, uid)
        });
        let (_, group, plural) = KINDS[kind];
        let object = body(kind, &name, colour, owner.as_ref());
        let (code, created) =
            self.send_request("POST", &format!("{group}/namespaces/{namespace}/{plural}"), "", Some(object)).await;
        let id = (kind, namespace, name);
        if self.model.objects.contains_key(&id) {
            assert_eq!((code, &created["reason"]), (409, &json!("AlreadyExists")), "seed {}", self.seed);
        } else {
            assert_eq!(code, 201, "seed {}: {created}", self.seed);
            self.model.objects.insert(id, ModelObject::read(&created));
            self.model.collect_garbage();
        }
    }

    async fn merge_patch(&mut self) {
        let Some(id) = self.pick(false) else { return };
        let colour = (!self.random.per_mille(200)).then(|| COLOURS[self.random.below(3) as usize]);
        let patch = json!({"metadata": {"labels": {"colour": colour}}});
        let (code, object) =
            self.send_request("PATCH", &Self::path(&id), "application/merge-patch+json", Some(patch)).await;
        assert_eq!(code, 200, "seed {}: {object}", self.seed);
        self.recolour(&id, colour);
    }

    fn recolour(&mut self, id: &ObjectId, colour: Option<&str>) {
        let object = self.model.objects.get_mut(id).expect("it was picked");
        match colour {
            Some(colour) => drop(object.labels.insert("colour".to_owned(), colour.to_owned())),
            None => drop(object.labels.remove("colour")),
        }
    }

    async fn json_patch(&mut self) {
        let Some(id) = self.pick(false) else { return };
        let expected = COLOURS[self.random.below(3) as usize];
        let colour = COLOURS[self.random.below(3) as usize];
        let patch = json!([
            {"op": "test", "path": "/metadata/labels/colour", "value": expected},
            {"op": "replace", "path": "/metadata/labels/colour", "value": colour},
        ]);
        let (code, _) = self.send_request("PATCH", &Self::path(&id), "application/json-patch+json", Some(patch)).await;
        if self.model.objects[&id].labels.get("colour").map(String::as_str) == Some(expected) {
            assert_eq!(code, 200, "seed {}", self.seed);
            self.recolour(&id, Some(colour));
        } else {
            assert!((400..500).contains(&code), "seed {}: {code}", self.seed);
        }
    }

    /// A whole object, sometimes an outdated one.
    async fn put(&mut self) {
        let Some(id) = self.pick(false) else { return };
        let (_, mut object) = self.send_request("GET", &Self::path(&id), "", None).await;
        let colour = COLOURS[self.random.below(3) as usize];
        object["metadata"]["labels"] = json!({"colour": colour});
        let stale = self.random.per_mille(300);
        if stale {
            object["metadata"]["resourceVersion"] = json!("1");
        }
        let (code, _) = self.send_request("PUT", &Self::path(&id), "", Some(object)).await;
        if stale {
            assert_eq!(code, 409, "seed {}", self.seed);
        } else {
            assert_eq!(code, 200, "seed {}", self.seed);
            self.recolour(&id, Some(colour));
        }
    }

    async fn patch_status(&mut self) {
        let Some(id) = self.pick(false).filter(|id| KINDS[id.0].0 == "Thing") else { return };
        let note = self.random.below(3).to_string();
        // The label must not change through the status.
        let patch = json!({"status": {"notes": {"n": note}}, "metadata": {"labels": {"colour": "none"}}});
        let path = format!("{}/status", Self::path(&id));
        let (code, _) = self.send_request("PATCH", &path, "application/merge-patch+json", Some(patch)).await;
        assert_eq!(code, 200, "seed {}", self.seed);
        self.model.objects.get_mut(&id).expect("it was picked").data.insert("n".to_owned(), note);
    }

    async fn change_finalizers(&mut self) {
        let Some(id) = self.pick(false) else { return };
        let object = &self.model.objects[&id];
        let mut finalizers = object.finalizers.clone();
        let name = format!("test.example.com/f{}", self.random.below(2));
        if !finalizers.remove(&name) {
            finalizers.insert(name);
        }
        let grows = finalizers.len() > object.finalizers.len();
        let deleting = object.deleting;
        let patch = json!({"metadata": {"finalizers": finalizers}});
        let (code, _) = self.send_request("PATCH", &Self::path(&id), "application/merge-patch+json", Some(patch)).await;
        if deleting && grows {
            assert_eq!(code, 422, "seed {}", self.seed);
        } else {
            assert_eq!(code, 200, "seed {}", self.seed);
            self.model.finalize(&id, finalizers);
        }
    }

    async fn delete(&mut self) {
        let Some(id) = self.pick(false) else { return };
        let object = self.model.objects[&id].clone();
        let wrong_uid = self.random.per_mille(150);
        let grace_zero = self.random.per_mille(500);
        let uid = if wrong_uid { "other".to_owned() } else { object.uid };
        let mut options = json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"});
        if grace_zero {
            options["gracePeriodSeconds"] = json!(0);
        }
        let (code, _) = self.send_request("DELETE", &Self::path(&id), "", Some(options)).await;
        if wrong_uid {
            assert_eq!(code, 409, "seed {}", self.seed);
        } else {
            assert_eq!(code, 200, "seed {}", self.seed);
            self.model.delete(&id, grace_zero);
        }
    }

    async fn delete_collection(&mut self) {
        let kind = self.random.below(3) as usize;
        let namespace = NAMESPACES[self.random.below(2) as usize];
        let colour = COLOURS[self.random.below(3) as usize];
        let (_, group, plural) = KINDS[kind];
        let path = format!(
            "{group}/namespaces/{namespace}/{plural}?labelSelector=colour%3D{colour}&propagationPolicy=Background"
        );
        let (code, _) = self.send_request("DELETE", &path, "", None).await;
        assert_eq!(code, 200, "seed {}", self.seed);
        let chosen = |(id, object): (&ObjectId, &ModelObject)| {
            let right =
                id.0 == kind && id.1 == namespace && object.labels.get("colour").is_some_and(|found| found == colour);
            right.then(|| id.clone())
        };
        for id in self.model.objects.iter().filter_map(chosen).collect::<Vec<_>>() {
            self.model.delete(&id, false);
        }
    }

    async fn bind(&mut self) {
        let Some(id) = self.pick(false).filter(|id| KINDS[id.0].0 == "Pod") else { return };
        let node = format!("node{}", self.random.below(3));
        let binding = json!({"metadata": {"name": id.2}, "target": {"kind": "Node", "name": node}});
        let (code, _) = self.send_request("POST", &format!("{}/binding", Self::path(&id)), "", Some(binding)).await;
        let object = self.model.objects.get_mut(&id).expect("it was picked");
        if object.deleting || object.node.is_some() {
            assert_eq!(code, 409, "seed {}", self.seed);
        } else {
            assert_eq!(code, 201, "seed {}", self.seed);
            object.node = Some(node);
        }
    }

    fn read_full(&mut self) {
        for (kind, watcher) in self.full.iter_mut().enumerate() {
            assert!(matches!(watcher.read(), Read::Open), "seed {}: a watcher that keeps up is not cut", self.seed);
            self.full_events[kind] = watcher.reported.clone();
        }
    }

    /// Every resourceVersion is reported once, in order; the events add up to the model.
    async fn compare_with_model(&mut self) {
        let mut revisions: Vec<u64> = self.full_events.iter().flatten().map(|reported| reported.revision).collect();
        revisions.sort_unstable();
        let start = self.full[0].start;
        let all: Vec<u64> = (start + 1..=self.server.revision()).collect();
        assert_eq!(revisions, all, "seed {}: each change is reported exactly once", self.seed);
        for (kind, (name, group, plural)) in KINDS.into_iter().enumerate() {
            let (_, list) = self.send_request("GET", &format!("{group}/{plural}"), "", None).await;
            let mut found = BTreeMap::new();
            for item in list["items"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                item["kind"] = json!(name);
                let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
                found.insert(
                    (text("namespace"), text("name")),
                    (ModelObject::read(&item), text("resourceVersion").parse::<u64>().unwrap()),
                );
            }
            let of_kind = self.model.objects.iter().filter(|(id, _)| id.0 == kind);
            let expected: BTreeMap<_, _> =
                of_kind.map(|(id, object)| ((id.1.to_owned(), id.2.clone()), object.clone())).collect();
            let shown: BTreeMap<_, _> = found.iter().map(|(id, (object, _))| (id.clone(), object.clone())).collect();
            assert_eq!(shown, expected, "seed {}: {name}", self.seed);
            let reported = Filter::default().list(&self.full_events[kind], u64::MAX);
            let listed: BTreeMap<_, _> = found.iter().map(|(id, (_, revision))| (id.clone(), *revision)).collect();
            assert_eq!(reported, listed, "seed {}: {name}", self.seed);
        }
    }

    /// Opens, reads and drops the other watchers at random.
    async fn watch(&mut self) {
        if self.watchers.len() < 12 && self.random.per_mille(300) {
            let kind = self.random.below(3) as usize;
            let filter = Filter::random(&mut self.random, kind);
            let watcher = self.list_and_watch(kind, filter).await;
            self.watchers.push(watcher);
        }
        let mut index = 0;
        while index < self.watchers.len() {
            if !self.random.per_mille(250) {
                index += 1;
                continue;
            }
            let read = self.watchers[index].read();
            let watcher = &self.watchers[index];
            watcher.check(&self.full_events[watcher.kind], self.seed);
            match read {
                Read::Open if !self.random.per_mille(50) => index += 1,
                Read::Expired => {
                    // An overtaken watcher restarts.
                    self.expired += 1;
                    let old = self.watchers.swap_remove(index);
                    let again = self.list_and_watch(old.kind, old.filter).await;
                    self.watchers.push(again);
                }
                Read::Open | Read::Ended => drop(self.watchers.swap_remove(index)),
            }
        }
    }

    async fn list_and_watch(&mut self, kind: usize, filter: Filter) -> Watcher {
        let (code, list) = self.send_request("GET", &filter.path(kind), "", None).await;
        assert_eq!(code, 200, "seed {}: {list}", self.seed);
        let revision: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let items = list["items"].as_array().into_iter().flatten();
        let shown: BTreeMap<_, _> = items
            .map(|item| ReportedEvent::read(&json!({"type": "ADDED", "object": item})))
            .map(|reported| (reported.id, reported.revision))
            .collect();
        assert_eq!(shown, filter.list(&self.full_events[kind], revision), "seed {}: {filter:?}", self.seed);
        self.open(kind, filter, revision).await
    }
}

#[tokio::test(start_paused = true)]
async fn no_watcher_misses_repeats_or_reorders_events() {
    let times: u64 = std::env::var("MUSTER_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let only: Option<u64> = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let (mut reported, mut expired, mut refused) = (0, 0, 0);
    for seed in only.map_or(0..SEEDS * times, |seed| seed..seed + 1) {
        let mut run = Run::start(seed).await;
        for _ in 0..STEPS {
            run.step().await;
            run.watch().await;
        }
        for watcher in &mut run.watchers {
            watcher.read();
            watcher.check(&run.full_events[watcher.kind], seed);
        }
        reported += run.full_events.iter().map(Vec::len).sum::<usize>();
        expired += run.expired;
        refused += run.refused;
    }
    println!("{reported} changes, {expired} watchers overtaken, {refused} requests rejected");
    assert!(only.is_some() || (expired > 50 && refused > 500), "the runs were too tame: {expired} and {refused}");
}
