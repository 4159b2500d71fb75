//! Counts of the requests of a client by verb and resource, and the times of its binds.
//!
//! Written by the front, outside of the measured process, so that no request is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::bench::process::cpu_seconds;

/// The resources that a scheduler must watch before it decides.
pub(crate) const WATCHED: [&str; 14] = [
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "poddisruptionbudgets.policy",
    "podgroups.muster.dev",
    "podgroups.scheduling.k8s.io",
    "priorityclasses.scheduling.k8s.io",
    "replicasets.apps",
    "replicationcontrollers",
    "services",
    "statefulsets.apps",
    "workloads.muster.dev",
];

/// A request, by verb and resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKind {
    pub(crate) verb: &'static str,
    /// `pods/binding`, `podgroups.muster.dev/status`.
    pub(crate) resource: String,
}

impl RequestKind {
    /// Classifies a request.
    pub(crate) fn of(method: &http::Method, uri: &http::Uri) -> Self {
        let is_watch = uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
        let verb = match method.as_str() {
            "GET" if is_watch => "watch",
            "GET" => "read",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "other",
        };
        Self { verb, resource: resource_of(uri.path()) }
    }

    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb, "watch" | "read")
    }

    pub(crate) fn is_bind(&self) -> bool {
        self.verb == "create" && self.resource == "pods/binding"
    }

    /// Whether it reports on a group: its status, or an event.
    pub(crate) fn is_group_report(&self) -> bool {
        let group_status = self.resource.contains("groups.") || self.resource.starts_with("workloads.");
        (group_status && self.resource.ends_with("/status")) || self.resource.starts_with("events.")
    }
}

fn resource_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        other => return other.join("/"),
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let Some(plural) = rest.first() else { return "discovery".to_owned() };
    let dot = if group.is_empty() { "" } else { "." };
    let below = rest.get(2).map(|below| format!("/{below}")).unwrap_or_default();
    format!("{plural}{dot}{group}{below}")
}

/// The counts since the ledger was last reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// The process whose CPU time is read at the first bind.
    pid: u32,
    pub(crate) requests: BTreeMap<RequestKind, u64>,
    /// Failed requests.
    pub(crate) refused: BTreeMap<String, u64>,
    watched: BTreeSet<String>,
    /// When the last of the required watches was opened.
    pub(crate) synced: Option<Instant>,
    /// Successful binds.
    pub(crate) binds: u64,
    pub(crate) first_bind: Option<Instant>,
    pub(crate) first_bind_cpu_seconds: f64,
    pub(crate) last_bind: Option<Instant>,
    pub(crate) last_write: Option<Instant>,
}

impl Counts {
    /// The required watches that are still missing.
    pub(crate) fn unwatched(&self) -> Vec<&'static str> {
        WATCHED.into_iter().filter(|name| !self.watched.contains(*name)).collect()
    }

    pub(crate) fn watches(&self, resource: &str) -> bool {
        self.watched.contains(resource)
    }

    pub(crate) fn sum(&self, wanted: impl Fn(&RequestKind) -> bool) -> u64 {
        self.requests.iter().filter(|(request, _)| wanted(request)).map(|(_, count)| count).sum()
    }
}

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    counts: Mutex<Counts>,
}

impl Ledger {
    /// Resets the counts.
    pub(crate) fn open(&self, pid: u32) {
        *self.lock() = Counts { pid, ..Counts::default() };
    }

    /// The counts so far.
    pub(crate) fn read(&self) -> Counts {
        self.lock().clone()
    }

    pub(crate) fn binds(&self) -> u64 {
        self.lock().binds
    }

    /// Records a request.
    pub(crate) fn requested(&self, request: &RequestKind) {
        let mut counts = self.lock();
        *counts.requests.entry(request.clone()).or_insert(0) += 1;
        if request.verb == "watch" {
            counts.watched.insert(request.resource.clone());
            if counts.synced.is_none() && counts.unwatched().is_empty() {
                counts.synced = Some(Instant::now());
            }
        }
        if request.is_write() {
            counts.last_write = Some(Instant::now());
        }
        if request.is_bind() && counts.first_bind.is_none() {
            counts.first_bind = Some(Instant::now());
            counts.first_bind_cpu_seconds = cpu_seconds(counts.pid).unwrap_or(0.0);
        }
    }

    /// Records a response.
    pub(crate) fn responded(&self, request: &RequestKind, code: http::StatusCode) {
        let mut counts = self.lock();
        if !code.is_success() {
            *counts.refused.entry(format!("{} {}: {}", request.verb, request.resource, code.as_u16())).or_insert(0) +=
                1;
        } else if request.is_bind() {
            counts.binds += 1;
            counts.last_bind = Some(Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str) -> (&'static str, String) {
        let request = RequestKind::of(&method.parse().unwrap(), &uri.parse().unwrap());
        (request.verb, request.resource)
    }

    #[test]
    fn requests_are_classified() {
        let of = |verb, resource: &str| (verb, resource.to_owned());
        assert_eq!(request("POST", "/api/v1/namespaces/a/pods/p/binding?x=1"), of("create", "pods/binding"));
        assert_eq!(request("GET", "/api/v1/pods?limit=5&watch=true"), of("watch", "pods"));
        assert_eq!(request("GET", "/api/v1/pods?limit=5"), of("read", "pods"));
        assert_eq!(request("GET", "/api/v1/namespaces/a"), of("read", "namespaces"));
        assert_eq!(request("GET", "/apis/muster.dev/v1alpha1"), of("read", "discovery"));
        let status = "/apis/muster.dev/v1alpha1/namespaces/a/podgroups/g/status";
        assert_eq!(request("PATCH", status), of("patch", "podgroups.muster.dev/status"));
        let events = "/apis/events.k8s.io/v1/namespaces/a/events";
        assert_eq!(request("POST", events), of("create", "events.events.k8s.io"));
        assert!(RequestKind::of(&http::Method::PATCH, &status.parse().unwrap()).is_group_report());
        assert!(RequestKind::of(&http::Method::POST, &events.parse().unwrap()).is_group_report());
    }

    #[test]
    fn synced_when_all_watches_are_open() {
        let ledger = Ledger::default();
        for (number, resource) in WATCHED.into_iter().enumerate() {
            assert_eq!(ledger.read().unwatched().len(), WATCHED.len() - number);
            assert!(ledger.read().synced.is_none());
            ledger.requested(&RequestKind { verb: "watch", resource: resource.to_owned() });
        }
        assert!(ledger.read().synced.is_some());
    }
}
