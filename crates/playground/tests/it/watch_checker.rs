//! No watcher misses, repeats or reorders a change, over random runs against the model of the store.
//!
//! Full watchers are read after every step. Together they must tell every revision exactly once, and what they tell
//! must add up to the model. All other watchers (by label, by field, by namespace; started anywhere, read late, cut,
//! overtaken by compaction) must tell exactly what the full ones told, as far as their selection shows it.

use std::collections::BTreeMap;
use std::pin::Pin;

use axum::body::Body;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use http_body_util::BodyExt;
use muster_playground::random::Random;
use muster_playground::{Server, Settings};
use serde_json::{Value, json};

use crate::model::{KINDS, Model, NAMESPACES, Place, Thing, body, definition};

const STEPS: usize = 150;
const SEEDS: u64 = 60;
/// Small, so that slow watchers are overtaken.
const WINDOW: usize = 40;
const COLOURS: [&str; 3] = ["red", "green", "blue"];

type Lines = Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>;

/// Type, name with namespace, revision, colour, node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    event: String,
    place: (String, String),
    revision: u64,
    colour: String,
    node: String,
}

impl Told {
    fn read(event: &Value) -> Self {
        let object = &event["object"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self {
            event: text(&event["type"]),
            place: (text(&metadata["namespace"]), text(&metadata["name"])),
            revision: text(&metadata["resourceVersion"]).parse().expect("a revision"),
            colour: text(&metadata["labels"]["colour"]),
            node: text(&object["spec"]["nodeName"]),
        }
    }
}

/// What a watcher asks for.
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

    fn matches(&self, told: &Told) -> bool {
        self.namespace.is_none_or(|namespace| told.place.0 == namespace)
            && self.colour.is_none_or(|colour| told.colour == colour)
            && (!self.unbound || told.node.is_empty())
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

    /// What this watcher must tell of what a full one told after `start`, up to `end`.
    fn project(&self, truth: &[Told], start: u64, end: u64) -> Vec<(String, (String, String), u64)> {
        let mut seen: BTreeMap<(String, String), bool> = BTreeMap::new();
        let mut out = Vec::new();
        for told in truth.iter().filter(|told| told.revision <= end) {
            let was = seen.get(&told.place).copied().unwrap_or_default();
            let is = told.event != "DELETED" && self.matches(told);
            seen.insert(told.place.clone(), is);
            let event = match (was, is) {
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
                (false, false) => continue,
            };
            if told.revision > start {
                out.push((event.to_owned(), told.place.clone(), told.revision));
            }
        }
        out
    }

    /// What a list must show at `revision`.
    fn list(&self, truth: &[Told], revision: u64) -> BTreeMap<(String, String), u64> {
        let mut present = BTreeMap::new();
        for told in truth.iter().filter(|told| told.revision <= revision) {
            if told.event != "DELETED" && self.matches(told) {
                present.insert(told.place.clone(), told.revision);
            } else {
                present.remove(&told.place);
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
    told: Vec<Told>,
    /// How far the watcher was told that it stands.
    bookmark: u64,
}

enum Read {
    Open,
    Ended,
    Expired,
}

impl Watcher {
    /// Reads what there is.
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
                    Some("BOOKMARK") => self.bookmark = Told::read(&event).revision,
                    _ => self.told.push(Told::read(&event)),
                }
            }
        }
        Read::Open
    }

    fn check(&self, truth: &[Told], seed: u64) {
        let end = self.told.last().map_or(self.start, |told| told.revision).max(self.bookmark);
        let told: Vec<_> =
            self.told.iter().map(|told| (told.event.clone(), told.place.clone(), told.revision)).collect();
        assert_eq!(
            told,
            self.filter.project(truth, self.start, end),
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
    truth: Vec<Vec<Told>>,
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
            truth: vec![Vec::new(); KINDS.len()],
            watchers: Vec::new(),
            expired: 0,
            refused: 0,
        };
        run.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", Some(definition())).await;
        for name in NAMESPACES {
            run.ask("POST", "/api/v1/namespaces", "", Some(json!({"metadata": {"name": name}}))).await;
        }
        run.settle().await;
        for kind in 0..KINDS.len() {
            let watcher = run.open(kind, Filter::default(), run.server.revision()).await;
            run.full.push(watcher);
        }
        run
    }

    async fn ask(&mut self, method: &str, path: &str, media_type: &str, body: Option<Value>) -> (u16, Value) {
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
        Watcher { kind, filter, lines, rest: Vec::new(), start, told: Vec::new(), bookmark: 0 }
    }

    /// Lets the housekeeper finish.
    async fn settle(&mut self) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }

    fn pick(&mut self, live_only: bool) -> Option<Place> {
        let places: Vec<Place> = self
            .model
            .things
            .iter()
            .filter(|(_, thing)| !live_only || !thing.deleting)
            .map(|(place, _)| place.clone())
            .collect();
        if places.is_empty() { None } else { Some(places[self.random.below(places.len() as u64) as usize].clone()) }
    }

    fn path(place: &Place) -> String {
        let (_, group, plural) = KINDS[place.0];
        format!("{group}/namespaces/{}/{plural}/{}", place.1, place.2)
    }

    /// One random request, and what it must do.
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
        let owner = owner.filter(|owner| owner.1 == namespace).map(|place| {
            let uid = self.model.things[&place].uid.clone();
            (place, uid)
        });
        let (_, group, plural) = KINDS[kind];
        let object = body(kind, &name, colour, owner.as_ref());
        let (code, made) =
            self.ask("POST", &format!("{group}/namespaces/{namespace}/{plural}"), "", Some(object)).await;
        let place = (kind, namespace, name);
        if self.model.things.contains_key(&place) {
            assert_eq!((code, &made["reason"]), (409, &json!("AlreadyExists")), "seed {}", self.seed);
        } else {
            assert_eq!(code, 201, "seed {}: {made}", self.seed);
            self.model.things.insert(place, Thing::read(&made));
            self.model.collect_garbage();
        }
    }

    async fn merge_patch(&mut self) {
        let Some(place) = self.pick(false) else { return };
        let colour = (!self.random.per_mille(200)).then(|| COLOURS[self.random.below(3) as usize]);
        let patch = json!({"metadata": {"labels": {"colour": colour}}});
        let (code, object) = self.ask("PATCH", &Self::path(&place), "application/merge-patch+json", Some(patch)).await;
        assert_eq!(code, 200, "seed {}: {object}", self.seed);
        self.recolour(&place, colour);
    }

    fn recolour(&mut self, place: &Place, colour: Option<&str>) {
        let thing = self.model.things.get_mut(place).expect("it was picked");
        match colour {
            Some(colour) => drop(thing.labels.insert("colour".to_owned(), colour.to_owned())),
            None => drop(thing.labels.remove("colour")),
        }
    }

    async fn json_patch(&mut self) {
        let Some(place) = self.pick(false) else { return };
        let expected = COLOURS[self.random.below(3) as usize];
        let colour = COLOURS[self.random.below(3) as usize];
        let patch = json!([
            {"op": "test", "path": "/metadata/labels/colour", "value": expected},
            {"op": "replace", "path": "/metadata/labels/colour", "value": colour},
        ]);
        let (code, _) = self.ask("PATCH", &Self::path(&place), "application/json-patch+json", Some(patch)).await;
        if self.model.things[&place].labels.get("colour").map(String::as_str) == Some(expected) {
            assert_eq!(code, 200, "seed {}", self.seed);
            self.recolour(&place, Some(colour));
        } else {
            assert!((400..500).contains(&code), "seed {}: {code}", self.seed);
        }
    }

    /// A whole object, sometimes read long ago.
    async fn put(&mut self) {
        let Some(place) = self.pick(false) else { return };
        let (_, mut object) = self.ask("GET", &Self::path(&place), "", None).await;
        let colour = COLOURS[self.random.below(3) as usize];
        object["metadata"]["labels"] = json!({"colour": colour});
        let stale = self.random.per_mille(300);
        if stale {
            object["metadata"]["resourceVersion"] = json!("1");
        }
        let (code, _) = self.ask("PUT", &Self::path(&place), "", Some(object)).await;
        if stale {
            assert_eq!(code, 409, "seed {}", self.seed);
        } else {
            assert_eq!(code, 200, "seed {}", self.seed);
            self.recolour(&place, Some(colour));
        }
    }

    async fn patch_status(&mut self) {
        let Some(place) = self.pick(false).filter(|place| KINDS[place.0].0 == "Thing") else { return };
        let note = self.random.below(3).to_string();
        // The label must not change through the status.
        let patch = json!({"status": {"notes": {"n": note}}, "metadata": {"labels": {"colour": "none"}}});
        let path = format!("{}/status", Self::path(&place));
        let (code, _) = self.ask("PATCH", &path, "application/merge-patch+json", Some(patch)).await;
        assert_eq!(code, 200, "seed {}", self.seed);
        self.model.things.get_mut(&place).expect("it was picked").data.insert("n".to_owned(), note);
    }

    async fn change_finalizers(&mut self) {
        let Some(place) = self.pick(false) else { return };
        let thing = &self.model.things[&place];
        let mut finalizers = thing.finalizers.clone();
        let name = format!("test.example.com/f{}", self.random.below(2));
        if !finalizers.remove(&name) {
            finalizers.insert(name);
        }
        let grows = finalizers.len() > thing.finalizers.len();
        let deleting = thing.deleting;
        let patch = json!({"metadata": {"finalizers": finalizers}});
        let (code, _) = self.ask("PATCH", &Self::path(&place), "application/merge-patch+json", Some(patch)).await;
        if deleting && grows {
            assert_eq!(code, 422, "seed {}", self.seed);
        } else {
            assert_eq!(code, 200, "seed {}", self.seed);
            self.model.finalize(&place, finalizers);
        }
    }

    async fn delete(&mut self) {
        let Some(place) = self.pick(false) else { return };
        let thing = self.model.things[&place].clone();
        let wrong_uid = self.random.per_mille(150);
        let grace_zero = self.random.per_mille(500);
        let uid = if wrong_uid { "other".to_owned() } else { thing.uid };
        let mut options = json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"});
        if grace_zero {
            options["gracePeriodSeconds"] = json!(0);
        }
        let (code, _) = self.ask("DELETE", &Self::path(&place), "", Some(options)).await;
        if wrong_uid {
            assert_eq!(code, 409, "seed {}", self.seed);
        } else {
            assert_eq!(code, 200, "seed {}", self.seed);
            self.model.delete(&place, grace_zero);
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
        let (code, _) = self.ask("DELETE", &path, "", None).await;
        assert_eq!(code, 200, "seed {}", self.seed);
        let chosen = |(place, thing): (&Place, &Thing)| {
            let right = place.0 == kind
                && place.1 == namespace
                && thing.labels.get("colour").is_some_and(|found| found == colour);
            right.then(|| place.clone())
        };
        for place in self.model.things.iter().filter_map(chosen).collect::<Vec<_>>() {
            self.model.delete(&place, false);
        }
    }

    async fn bind(&mut self) {
        let Some(place) = self.pick(false).filter(|place| KINDS[place.0].0 == "Pod") else { return };
        let node = format!("node{}", self.random.below(3));
        let binding = json!({"metadata": {"name": place.2}, "target": {"kind": "Node", "name": node}});
        let (code, _) = self.ask("POST", &format!("{}/binding", Self::path(&place)), "", Some(binding)).await;
        let thing = self.model.things.get_mut(&place).expect("it was picked");
        if thing.deleting || thing.node.is_some() {
            assert_eq!(code, 409, "seed {}", self.seed);
        } else {
            assert_eq!(code, 201, "seed {}", self.seed);
            thing.node = Some(node);
        }
    }

    fn read_full(&mut self) {
        for (kind, watcher) in self.full.iter_mut().enumerate() {
            assert!(matches!(watcher.read(), Read::Open), "seed {}: a watcher that keeps up is not cut", self.seed);
            self.truth[kind] = watcher.told.clone();
        }
    }

    /// Every revision is told once, in order; what was told adds up to the model.
    async fn compare_with_model(&mut self) {
        let mut revisions: Vec<u64> = self.truth.iter().flatten().map(|told| told.revision).collect();
        revisions.sort_unstable();
        let start = self.full[0].start;
        let all: Vec<u64> = (start + 1..=self.server.revision()).collect();
        assert_eq!(revisions, all, "seed {}: each change is told exactly once", self.seed);
        for (kind, (name, group, plural)) in KINDS.into_iter().enumerate() {
            let (_, list) = self.ask("GET", &format!("{group}/{plural}"), "", None).await;
            let mut found = BTreeMap::new();
            for item in list["items"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                item["kind"] = json!(name);
                let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
                found.insert(
                    (text("namespace"), text("name")),
                    (Thing::read(&item), text("resourceVersion").parse::<u64>().unwrap()),
                );
            }
            let of_kind = self.model.things.iter().filter(|(place, _)| place.0 == kind);
            let wanted: BTreeMap<_, _> =
                of_kind.map(|(place, thing)| ((place.1.to_owned(), place.2.clone()), thing.clone())).collect();
            let shown: BTreeMap<_, _> =
                found.iter().map(|(place, (thing, _))| (place.clone(), thing.clone())).collect();
            assert_eq!(shown, wanted, "seed {}: {name}", self.seed);
            let told = Filter::default().list(&self.truth[kind], u64::MAX);
            let listed: BTreeMap<_, _> =
                found.iter().map(|(place, (_, revision))| (place.clone(), *revision)).collect();
            assert_eq!(told, listed, "seed {}: {name}", self.seed);
        }
    }

    /// Opens, reads and drops the other watchers as chance has it.
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
            watcher.check(&self.truth[watcher.kind], self.seed);
            match read {
                Read::Open if !self.random.per_mille(50) => index += 1,
                Read::Expired => {
                    // Who is overtaken starts again.
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
        let (code, list) = self.ask("GET", &filter.path(kind), "", None).await;
        assert_eq!(code, 200, "seed {}: {list}", self.seed);
        let revision: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let items = list["items"].as_array().into_iter().flatten();
        let shown: BTreeMap<_, _> = items
            .map(|item| Told::read(&json!({"type": "ADDED", "object": item})))
            .map(|told| (told.place, told.revision))
            .collect();
        assert_eq!(shown, filter.list(&self.truth[kind], revision), "seed {}: {filter:?}", self.seed);
        self.open(kind, filter, revision).await
    }
}

#[tokio::test(start_paused = true)]
async fn no_watcher_misses_repeats_or_reorders() {
    let times: u64 = std::env::var("MUSTER_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let only: Option<u64> = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let (mut told, mut expired, mut refused) = (0, 0, 0);
    for seed in only.map_or(0..SEEDS * times, |seed| seed..seed + 1) {
        let mut run = Run::start(seed).await;
        for _ in 0..STEPS {
            run.step().await;
            run.watch().await;
        }
        for watcher in &mut run.watchers {
            watcher.read();
            watcher.check(&run.truth[watcher.kind], seed);
        }
        told += run.truth.iter().map(Vec::len).sum::<usize>();
        expired += run.expired;
        refused += run.refused;
    }
    println!("{told} changes, {expired} watchers overtaken, {refused} requests refused");
    assert!(only.is_some() || (expired > 50 && refused > 500), "the runs were too tame: {expired} and {refused}");
}
