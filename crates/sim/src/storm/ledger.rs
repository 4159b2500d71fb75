//! A ledger of all writes: sender, time and result, rule violations, and a digest.
//!
//! Invariant: its server state is never stale, so a write is checked against the state that it meets.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use muster_runtime::Fence;
use serde_json::Value;
use tokio::time::Instant;

use super::capacity::FreeCapacity;
use super::history::Histories;
use super::processes::SCHEDULE_TIMEOUT_MS;
use super::recorder::Actor;
use super::server_state::{GroupKey, Kind, Pod, Policy, ServerState};

/// After this time every process has seen the binds of another scheduler, even if watches failed.
const KNOWN_AFTER: Duration = Duration::from_secs(180);
/// The maximum number of recorded violations.
const VIOLATIONS_MAX: usize = 5;

/// Shared mutable state on one thread.
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

/// A write and its response code.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) actor: Actor,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) code: u16,
}

/// The ledger.
pub(super) struct Ledger {
    pub(super) state: ServerState,
    pub(super) histories: Histories,
    /// The violations, in order of occurrence.
    pub(super) violations: Vec<String>,
    /// The time of the last write that is not a heartbeat.
    pub(super) last_change: Instant,
    /// The last writes that are not heartbeats, for reports.
    pub(super) latest: Vec<String>,
    /// The number of writes by Muster that are not heartbeats.
    pub(super) muster_writes: u64,
    started: Instant,
    trace: bool,
    digest: std::collections::hash_map::DefaultHasher,
    fences: BTreeMap<Actor, (Fence, Option<Instant>)>,
    /// When another scheduler bound a pod, by UID.
    foreign_binds: BTreeMap<String, Instant>,
    /// When a pending pod of this priority last had a nominated node.
    nominated: BTreeMap<i64, Instant>,
    /// When a group object with this kind, name and UID last existed.
    objects: BTreeMap<(Kind, String, String), Instant>,
    /// When a pod was first seen running, by UID.
    running_since: BTreeMap<String, Instant>,
}

impl Ledger {
    pub(super) fn new(state: ServerState, trace: bool) -> Self {
        let now = Instant::now();
        Self {
            state,
            histories: Histories::default(),
            violations: Vec::new(),
            last_change: now,
            latest: Vec::new(),
            muster_writes: 0,
            started: now,
            trace,
            // Its keys are fixed, so the digest is reproducible.
            digest: std::collections::hash_map::DefaultHasher::new(),
            fences: BTreeMap::new(),
            foreign_binds: BTreeMap::new(),
            nominated: BTreeMap::new(),
            objects: BTreeMap::new(),
            running_since: BTreeMap::new(),
        }
    }

    /// A Muster process starts to write behind this fence.
    pub(super) fn process_started(&mut self, actor: Actor, fence: Fence) {
        self.fences.insert(actor, (fence, None));
    }

    /// A Muster process has ended.
    pub(super) fn process_ended(&mut self, actor: Actor) {
        self.fences.remove(&actor);
    }

    pub(super) fn note(&mut self, line: &str) {
        self.digest.write(line.as_bytes());
        if self.trace {
            println!("{:>9.3}s {line}", self.started.elapsed().as_secs_f64());
        }
    }

    pub(super) fn report_violation(&mut self, line: &str) {
        self.note(&format!("WRONG: {line}"));
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(format!("{:.3}s: {line}", self.started.elapsed().as_secs_f64()));
        }
    }

    /// The digest of all writes so far.
    pub(super) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Brings the server state up to date.
    pub(super) fn catch_up(&mut self) {
        match self.state.catch_up() {
            Ok(changes) => {
                let now = Instant::now();
                for change in &changes {
                    self.histories.pod_changed(change);
                    if let Some(pod) = change.after.as_ref().filter(|pod| pod.phase == "Running") {
                        self.running_since.entry(pod.uid.clone()).or_insert(now);
                    }
                }
                self.histories.update(&self.state);
                let nominated = self.state.pods.values().filter(|pod| pod.is_pending() && !pod.nominated.is_empty());
                self.nominated.extend(nominated.map(|pod| (pod.priority, now)));
                let objects = self.state.objects.iter();
                self.objects.extend(objects.map(|((kind, name), one)| ((*kind, name.clone(), one.uid.clone()), now)));
            }
            Err(error) => self.report_violation(&error.to_string()),
        }
    }

    /// Checks a write before the server handles it.
    pub(super) fn check_write(&mut self, actor: Actor, method: &Method, path: &str, body: &[u8]) {
        self.catch_up();
        if !matches!(actor, Actor::Muster(_)) || path.contains("/leases") {
            return;
        }
        self.check_fence(actor, method, path);
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if path.ends_with("/binding") {
            self.check_bind(path, &body);
        } else if *method == Method::DELETE {
            self.check_delete(path, &body);
        }
    }

    /// Records a write and its response.
    pub(super) fn record_write(&mut self, write: &Write, request: &[u8], response: &[u8]) {
        self.catch_up();
        let Write { actor, method, path, code } = write;
        let ok = *code < 300;
        let bound = ok && path.ends_with("/binding");
        if *actor == Actor::OtherScheduler && bound {
            let name = path.rsplit('/').nth(1).unwrap_or_default();
            let uids = self.state.pods.values().filter(|pod| pod.name == name).map(|pod| pod.uid.clone());
            let now = Instant::now();
            self.foreign_binds.extend(uids.collect::<Vec<_>>().into_iter().map(|uid| (uid, now)));
        }
        self.digest.write(response);
        let mut line = format!("{actor:?} {method} {path}: {code}");
        if self.trace && !path.contains("/leases") && *actor != Actor::Kubelets {
            let text = String::from_utf8_lossy(request);
            line = format!("{line} {}", text.chars().take(600).collect::<String>());
        }
        // The volume controller repeats its events for as long as a claim waits.
        let heartbeat = path.contains("/leases")
            || (*actor == Actor::Kubelets && path.contains("/nodes/"))
            || (*actor == Actor::Controllers && path.contains("/events"));
        if !heartbeat {
            self.last_change = Instant::now();
            self.muster_writes += u64::from(matches!(actor, Actor::Muster(_)));
            self.latest.push(line.clone());
            if self.latest.len() > 12 {
                self.latest.remove(0);
            }
        }
        self.note(&line);
    }

    /// A process writes only while its own fence is open and all others are closed.
    fn check_fence(&mut self, actor: Actor, method: &Method, path: &str) {
        let now = Instant::now();
        let far = now + Duration::from_secs(3600);
        for (fence, open_until) in self.fences.values_mut() {
            if let Some(until) = fence.deadline(far) {
                *open_until = Some(until);
            }
        }
        // A request sent in time may arrive at the moment the fence closes.
        let is_open = |until: &Option<Instant>| until.is_some_and(|until| now <= until);
        let open: Vec<Actor> =
            self.fences.iter().filter(|(_, (_, until))| is_open(until)).map(|(actor, _)| *actor).collect();
        if open != [actor] {
            self.report_violation(&format!("{actor:?} writes {method} {path} while these may: {open:?}"));
        }
    }

    /// No node gets more pods than it has capacity for. Recent binds of another scheduler are not counted: Muster may
    /// not have seen them.
    fn check_bind(&mut self, path: &str, body: &Value) {
        let name = path.rsplit('/').nth(1).unwrap_or_default();
        let node = body["target"]["name"].as_str().unwrap_or_default().to_owned();
        let Some(pod) = self.state.pods.values().find(|pod| pod.name == name) else { return };
        if body["metadata"]["uid"] != pod.uid.as_str() || !pod.node.is_empty() || pod.terminating {
            // The server refuses it.
            return;
        }
        let pod = pod.clone();
        let now = Instant::now();
        let known = |uid: &String| self.foreign_binds.get(uid).is_none_or(|at| now - *at >= KNOWN_AFTER);
        let capacity = FreeCapacity::of(&self.state, |pod| known(&pod.uid));
        let mut violations = Vec::new();
        if self.state.nodes.contains_key(&node) && !capacity.has_capacity(&pod, &node) {
            violations.push(format!("{name} is bound to {node}, which has no capacity for it"));
        }
        if !pod.ours || pod.gated || pod.unsupported {
            violations.push(format!("{name} is bound, and must not be: {pod:?}"));
        }
        if let Some(why) = self.state.why_not_bound_with_volumes(&pod, &node) {
            violations.push(format!("{name} is bound to {node}: {why}"));
        }
        violations.extend(self.other_pool(&pod, &node));
        for violation in violations {
            self.report_violation(&violation);
        }
    }

    /// A group that has to be in one pool never leaves it. Where another scheduler binds members is not known at once.
    fn other_pool(&self, pod: &Pod, node: &str) -> Option<String> {
        let (key, node) = (pod.group.as_ref()?, self.state.nodes.get(node)?);
        let pools = self.state.open_pools(key, &pod.uid)?;
        let is_ours = self.state.members(key).all(|member| member.ours);
        let text = || format!("{} is bound in pool {}, its group is in {pools:?}", pod.name, node.pool);
        (is_ours && !pools.contains(&node.pool.as_str())).then(text)
    }

    /// A pod is preempted only while a pod of higher priority is nominated.
    fn check_eviction(&mut self, pod: &Pod) {
        let now = Instant::now();
        let mut above = self.nominated.range(pod.priority + 1..);
        if !above.any(|(_, at)| now - *at < KNOWN_AFTER) {
            self.report_violation(&format!("Muster evicts {}, and no pod of higher priority is nominated", pod.name));
        }
        if pod.node.is_empty() {
            self.report_violation(&format!("Muster evicts {}, which is on no node", pod.name));
        }
    }

    /// Why a pod must not be rolled back: only a bind for this very object, whose start was never confirmed, may be, and
    /// only before the pod has run for the schedule timeout. Muster may learn of changes with a delay.
    fn why_not_of_open_start(&self, pod: &Pod, key: &GroupKey) -> Option<String> {
        let now = Instant::now();
        let stamp = |field: &str| pod.stamp[field].as_str().unwrap_or_default().to_owned();
        if stamp("pod") != pod.uid {
            return Some(format!("its stamp is {}", pod.stamp));
        }
        let object = self.objects.get(&(key.kind, key.object.clone(), stamp("group")));
        if object.is_none_or(|at| now - *at >= KNOWN_AFTER) {
            return Some(format!("it was bound for another object of the name {}: {}", key.object, pod.stamp));
        }
        if pod.stamp["confirmed"] != false {
            return Some(format!("it joined a gang that had started: {}", pod.stamp));
        }
        let runs = self.running_since.get(&pod.uid).map(|since| now - *since)?;
        let too_long = runs >= Duration::from_millis(SCHEDULE_TIMEOUT_MS) + KNOWN_AFTER;
        too_long.then(|| format!("it has run for {} s", runs.as_secs()))
    }

    /// Only bound members of a gang whose start is not confirmed are deleted, and only if a controller recreates them.
    fn check_delete(&mut self, path: &str, body: &Value) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let uid = body["preconditions"]["uid"].as_str().unwrap_or_default();
        if !path.contains("/pods/") || uid.is_empty() {
            self.report_violation(&format!("Muster deletes {path} without naming the UID"));
            return;
        }
        let Some(pod) = self.state.pods.get(uid) else { return };
        if pod.marked {
            return self.check_eviction(&pod.clone());
        }
        let gang = pod.group.as_ref().filter(|key| matches!(self.state.policy(key), Some(Policy::Gang(_)) | None));
        let violation = match gang {
            None => Some("it is no member of a gang".to_owned()),
            Some(_) if !pod.ours || !pod.controlled => Some("no controller would recreate it".to_owned()),
            Some(_) if pod.node.is_empty() || pod.finished() => Some("it is not on a node".to_owned()),
            Some(key) => self.histories.why_final(&self.state, key).or_else(|| self.why_not_of_open_start(pod, key)),
        };
        if let Some(violation) = violation {
            self.report_violation(&format!("Muster deletes pod {name}: {violation}"));
        }
    }
}
