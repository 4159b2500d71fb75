//! The book of everything that was written: by whom, when, what came of it; what is wrong with it; a digest of it all.
//!
//! Invariant: the truth in it is never behind the server, so a write is judged against the state that it meets.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use muster_runtime::Fence;
use serde_json::Value;
use tokio::time::Instant;

use super::deeds::Stories;
use super::room::Room;
use super::tap::Actor;
use super::truth::{Pod, Policy, Truth};

/// After so long everybody knows what another scheduler has done, whatever happened to the watches.
const KNOWN_AFTER: Duration = Duration::from_secs(180);
/// The most wrongs that are kept.
const WRONGS_MAX: usize = 5;

/// Something that several hold on one thread at a time.
pub(super) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    pub(super) fn borrow(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write and its answer.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) actor: Actor,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) code: u16,
}

/// The book.
pub(super) struct Book {
    pub(super) truth: Truth,
    pub(super) stories: Stories,
    /// What is wrong, in the order of its happening.
    pub(super) wrongs: Vec<String>,
    /// When somebody last wrote something that is no sign of life.
    pub(super) last_change: Instant,
    /// The last such writes, for a report.
    pub(super) latest: Vec<String>,
    /// How many writes Muster has sent that are no sign of life.
    pub(super) muster_writes: u64,
    started: Instant,
    trace: bool,
    digest: std::collections::hash_map::DefaultHasher,
    fences: BTreeMap<Actor, (Fence, Option<Instant>)>,
    /// When others bound a pod, by UID.
    foreign_binds: BTreeMap<String, Instant>,
    /// When somebody of this priority last waited for a place that was kept free.
    nominated: BTreeMap<i64, Instant>,
}

impl Book {
    pub(super) fn new(truth: Truth, trace: bool) -> Self {
        let now = Instant::now();
        Self {
            truth,
            stories: Stories::default(),
            wrongs: Vec::new(),
            last_change: now,
            latest: Vec::new(),
            muster_writes: 0,
            started: now,
            trace,
            // Its keys are fixed.
            digest: std::collections::hash_map::DefaultHasher::new(),
            fences: BTreeMap::new(),
            foreign_binds: BTreeMap::new(),
            nominated: BTreeMap::new(),
        }
    }

    /// A Muster process begins to work behind this fence.
    pub(super) fn fenced(&mut self, actor: Actor, fence: Fence) {
        self.fences.insert(actor, (fence, None));
    }

    /// A Muster process is no more.
    pub(super) fn ended(&mut self, actor: Actor) {
        self.fences.remove(&actor);
    }

    pub(super) fn note(&mut self, line: &str) {
        self.digest.write(line.as_bytes());
        if self.trace {
            println!("{:>9.3}s {line}", self.started.elapsed().as_secs_f64());
        }
    }

    pub(super) fn wrong(&mut self, line: &str) {
        self.note(&format!("WRONG: {line}"));
        if self.wrongs.len() < WRONGS_MAX {
            self.wrongs.push(format!("{:.3}s: {line}", self.started.elapsed().as_secs_f64()));
        }
    }

    /// The digest of all that was written so far.
    pub(super) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Brings the truth up to date.
    pub(super) fn catch_up(&mut self) {
        match self.truth.catch_up() {
            Ok(changes) => {
                for change in &changes {
                    self.stories.pod_changed(change);
                }
                self.stories.look(&self.truth);
                let nominated = self.truth.pods.values().filter(|pod| pod.waits() && !pod.nominated.is_empty());
                self.nominated.extend(nominated.map(|pod| (pod.priority, Instant::now())));
            }
            Err(why) => self.wrong(&why),
        }
    }

    /// A write reaches the server.
    pub(super) fn arrives(&mut self, actor: Actor, method: &Method, path: &str, body: &[u8]) {
        self.catch_up();
        if !matches!(actor, Actor::Muster(_)) || path.contains("/leases") {
            return;
        }
        self.judge_fence(actor, method, path);
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if path.ends_with("/binding") {
            self.judge_bind(path, &body);
        } else if *method == Method::DELETE {
            self.judge_delete(path, &body);
        }
    }

    /// A write was answered.
    pub(super) fn done(&mut self, written: &Written, asked: &[u8], said: &[u8]) {
        self.catch_up();
        let Written { actor, method, path, code } = written;
        let ok = *code < 300;
        let bound = ok && path.ends_with("/binding");
        if *actor == Actor::Rival && bound {
            let name = path.rsplit('/').nth(1).unwrap_or_default();
            let uids = self.truth.pods.values().filter(|pod| pod.name == name).map(|pod| pod.uid.clone());
            let now = Instant::now();
            self.foreign_binds.extend(uids.collect::<Vec<_>>().into_iter().map(|uid| (uid, now)));
        }
        self.digest.write(said);
        let mut line = format!("{actor:?} {method} {path}: {code}");
        if self.trace && !path.contains("/leases") && *actor != Actor::Kubelets {
            let text = String::from_utf8_lossy(asked);
            line = format!("{line} {}", text.chars().take(600).collect::<String>());
        }
        let sign_of_life = path.contains("/leases") || (*actor == Actor::Kubelets && path.contains("/nodes/"));
        if !sign_of_life {
            self.last_change = Instant::now();
            self.muster_writes += u64::from(matches!(actor, Actor::Muster(_)));
            self.latest.push(line.clone());
            if self.latest.len() > 12 {
                self.latest.remove(0);
            }
        }
        self.note(&line);
    }

    /// Nothing is written by a process whose fence is closed, nor while another's is open.
    fn judge_fence(&mut self, actor: Actor, method: &Method, path: &str) {
        let now = Instant::now();
        let far = now + Duration::from_secs(3600);
        for (fence, open_until) in self.fences.values_mut() {
            if let Some(until) = fence.deadline(far) {
                *open_until = Some(until);
            }
        }
        // A request that was sent in time may arrive in the very moment in which the fence closes.
        let is_open = |until: &Option<Instant>| until.is_some_and(|until| now <= until);
        let open: Vec<Actor> =
            self.fences.iter().filter(|(_, (_, until))| is_open(until)).map(|(actor, _)| *actor).collect();
        if open != [actor] {
            self.wrong(&format!("{actor:?} writes {method} {path} while these may: {open:?}"));
        }
    }

    /// No node is given more than it has. What another scheduler did a moment ago nobody can know.
    fn judge_bind(&mut self, path: &str, body: &Value) {
        let name = path.rsplit('/').nth(1).unwrap_or_default();
        let node = body["target"]["name"].as_str().unwrap_or_default().to_owned();
        let Some(pod) = self.truth.pods.values().find(|pod| pod.name == name) else { return };
        if body["metadata"]["uid"] != pod.uid.as_str() || !pod.node.is_empty() || pod.terminating {
            // The server refuses it.
            return;
        }
        let pod = pod.clone();
        let now = Instant::now();
        let known = |uid: &String| self.foreign_binds.get(uid).is_none_or(|at| now - *at >= KNOWN_AFTER);
        let room = Room::of(&self.truth, |pod| known(&pod.uid));
        let mut wrongs = Vec::new();
        if self.truth.nodes.contains_key(&node) && !room.has_room(&pod, &node) {
            wrongs.push(format!("{name} is bound to {node}, which has no room for it"));
        }
        if !pod.ours || pod.gated || pod.flawed {
            wrongs.push(format!("{name} is bound, and must not be: {pod:?}"));
        }
        for wrong in wrongs {
            self.wrong(&wrong);
        }
    }

    /// Nobody is evicted unless somebody more important waits for a place that is kept free.
    fn judge_eviction(&mut self, pod: &Pod) {
        let now = Instant::now();
        let mut above = self.nominated.range(pod.priority + 1..);
        if !above.any(|(_, at)| now - *at < KNOWN_AFTER) {
            self.wrong(&format!("Muster evicts {}, and nobody more important is nominated", pod.name));
        }
        if pod.node.is_empty() {
            self.wrong(&format!("Muster evicts {}, which is on no node", pod.name));
        }
    }

    /// Only bound members of a gang whose start is not confirmed are deleted, and only if they are made again.
    fn judge_delete(&mut self, path: &str, body: &Value) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let uid = body["preconditions"]["uid"].as_str().unwrap_or_default();
        if !path.contains("/pods/") || uid.is_empty() {
            self.wrong(&format!("Muster deletes {path} without naming the UID"));
            return;
        }
        let Some(pod) = self.truth.pods.get(uid) else { return };
        if pod.marked {
            return self.judge_eviction(&pod.clone());
        }
        let gang = pod.group.as_ref().filter(|key| matches!(self.truth.policy(key), Some(Policy::Gang(_)) | None));
        let wrong = match gang {
            None => Some("it is no member of a gang".to_owned()),
            Some(_) if !pod.ours || !pod.controlled => Some("nobody would make it again".to_owned()),
            Some(_) if pod.node.is_empty() || pod.finished() => Some("it is not on a node".to_owned()),
            Some(key) => self.stories.settled(&self.truth, key),
        };
        if let Some(wrong) = wrong {
            self.wrong(&format!("Muster deletes pod {name}: {wrong}"));
        }
    }
}
