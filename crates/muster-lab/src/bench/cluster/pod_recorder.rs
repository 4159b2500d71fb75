//! A recorder of pods: observes every bind on its own watch, and checks gangs and nodes.
//!
//! It decodes only the needed fields of a pod, so that its own cost is negligible.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use serde::Deserialize;

use super::cases::Case;
use super::objects::PODS;

/// A partially bound gang counts as stuck after so long without another bind.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// The decoded fields of a pod.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PodFields {
    metadata: MetadataFields,
    #[serde(default)]
    spec: SpecFields,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataFields {
    #[serde(default)]
    name: String,
    resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecFields {
    node_name: Option<String>,
    scheduling_group: Option<GroupFields>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupFields {
    pod_group_name: String,
}

/// What was observed so far.
#[derive(Debug, Default)]
pub(crate) struct ObservedPods {
    node_of: HashMap<String, String>,
    load_of: HashMap<String, u64>,
    gangs: HashMap<String, Gang>,
    pub(crate) first_bind: Option<Instant>,
    pub(crate) last_bind: Option<Instant>,
    /// Nodes that were overcommitted at some time.
    pub(crate) overcommitted: BTreeSet<String>,
    /// Gangs that were stuck at some time with some but not all of their pods bound.
    pub(crate) partial: BTreeSet<String>,
    /// Pods that were on one node and then on another.
    pub(crate) moved: HashSet<String>,
    failure: Option<String>,
}

#[derive(Debug)]
struct Gang {
    bound: usize,
    last_bind: Instant,
}

impl ObservedPods {
    /// How many pods are bound.
    pub(crate) fn bound(&self) -> usize {
        self.node_of.len()
    }

    /// Forgets the times of binds, but not the nodes of pods.
    fn restart(&mut self) {
        (self.first_bind, self.last_bind) = (None, None);
    }

    fn observe(&mut self, pod: PodFields, pods_per_node: u64, now: Instant) {
        let Some(node) = pod.spec.node_name else { return };
        if let Some(before) = self.node_of.get(&pod.metadata.name) {
            if *before != node {
                self.moved.insert(pod.metadata.name);
            }
            return;
        }
        self.first_bind.get_or_insert(now);
        self.last_bind = Some(now);
        if let Some(group) = pod.spec.scheduling_group {
            let gang = self.gangs.entry(group.pod_group_name).or_insert(Gang { bound: 0, last_bind: now });
            gang.bound += 1;
            gang.last_bind = now;
        }
        let load = self.load_of.entry(node.clone()).or_insert(0);
        *load += 1;
        if *load > pods_per_node {
            self.overcommitted.insert(node.clone());
        }
        self.node_of.insert(pod.metadata.name, node);
    }

    fn observe_deletion(&mut self, pod: &PodFields) {
        let Some(node) = self.node_of.remove(&pod.metadata.name) else { return };
        if let Some(load) = self.load_of.get_mut(&node) {
            *load -= 1;
        }
        if let Some(gang) =
            pod.spec.scheduling_group.as_ref().and_then(|group| self.gangs.get_mut(&group.pod_group_name))
        {
            gang.bound -= 1;
        }
    }

    /// Looks for gangs that are stuck partially bound.
    fn check_gangs(&mut self, size: usize, now: Instant) {
        let resting = self.gangs.iter().filter(|(_, gang)| {
            (1..size).contains(&gang.bound) && now.saturating_duration_since(gang.last_bind) > STUCK_AFTER
        });
        self.partial.extend(resting.map(|(name, _)| name.clone()));
    }
}

/// A watch of all pods of a case.
pub(crate) struct PodRecorder {
    case: Case,
    seen: Arc<Mutex<ObservedPods>>,
    task: tokio::task::JoinHandle<()>,
}

impl PodRecorder {
    /// Starts the watch.
    pub(crate) fn start(client: kube::Client, case: Case) -> Self {
        let seen = Arc::new(Mutex::new(ObservedPods::default()));
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            if let Err(error) = watch(&client, case, &shared).await {
                lock(&shared).failure = Some(format!("{error:#}"));
            }
        });
        Self { case, seen, task }
    }

    /// Binds count from here.
    pub(crate) fn restart(&self) {
        lock(&self.seen).restart();
    }

    /// Reads what was observed.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&ObservedPods) -> T) -> anyhow::Result<T> {
        let mut seen = lock(&self.seen);
        if let Some(failure) = &seen.failure {
            bail!("the watch on pods failed: {failure}");
        }
        seen.check_gangs(self.case.size, Instant::now());
        Ok(read(&seen))
    }
}

impl Drop for PodRecorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(seen: &Mutex<ObservedPods>) -> MutexGuard<'_, ObservedPods> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches until an error. A watch that ends is resumed.
async fn watch(client: &kube::Client, case: Case, seen: &Mutex<ObservedPods>) -> anyhow::Result<()> {
    let mut version = "0".to_owned();
    loop {
        let request = kube::core::Request::new(PODS).watch(&WatchParams::default(), &version)?;
        let events = client.request_events::<PodFields>(request).await.context("watching pods")?;
        futures::pin_mut!(events);
        while let Some(event) = events.try_next().await.context("reading a watch of pods")? {
            let pod = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    version.clone_from(&pod.metadata.resource_version);
                    lock(seen).observe(pod, case.pods_per_node(), Instant::now());
                    continue;
                }
                WatchEvent::Deleted(pod) => pod,
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => bail!("{} {}", status.code, status.message),
            };
            version.clone_from(&pod.metadata.resource_version);
            lock(seen).observe_deletion(&pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, gang: Option<&str>) -> PodFields {
        let group = gang.map(|gang| GroupFields { pod_group_name: gang.to_owned() });
        PodFields {
            metadata: MetadataFields { name: name.to_owned(), resource_version: "1".to_owned() },
            spec: SpecFields { node_name: (!node.is_empty()).then(|| node.to_owned()), scheduling_group: group },
        }
    }

    #[test]
    fn overcommitted_node_stays_recorded() {
        let (mut seen, now) = (ObservedPods::default(), Instant::now());
        seen.observe(pod("a", "n1", None), 1, now);
        seen.observe_deletion(&pod("a", "n1", None));
        seen.observe(pod("b", "n1", None), 1, now);
        assert!(seen.overcommitted.is_empty());
        seen.observe(pod("c", "n1", None), 1, now);
        seen.observe_deletion(&pod("b", "n1", None));
        assert_eq!((seen.bound(), seen.overcommitted.len()), (1, 1));
    }

    #[test]
    fn pod_counts_once_and_must_not_move() {
        let (mut seen, now) = (ObservedPods::default(), Instant::now());
        seen.observe(pod("a", "", None), 9, now);
        assert_eq!((seen.bound(), seen.first_bind), (0, None));
        seen.observe(pod("a", "n1", None), 9, now);
        seen.observe(pod("a", "n1", None), 9, now + STUCK_AFTER);
        assert_eq!((seen.bound(), seen.last_bind, seen.moved.len()), (1, Some(now), 0));
        seen.observe(pod("a", "n2", None), 9, now);
        assert_eq!(seen.moved.len(), 1);
    }

    #[test]
    fn partially_bound_gang_counts_only_if_stuck() {
        let (mut seen, now) = (ObservedPods::default(), Instant::now());
        seen.observe(pod("a", "n1", Some("g")), 9, now);
        seen.check_gangs(2, now + STUCK_AFTER / 2);
        assert!(seen.partial.is_empty());
        seen.check_gangs(2, now + STUCK_AFTER * 2);
        assert_eq!(seen.partial.len(), 1);
        let mut whole = ObservedPods::default();
        whole.observe(pod("a", "n1", Some("g")), 9, now);
        whole.observe(pod("b", "n1", Some("g")), 9, now);
        whole.check_gangs(2, now + STUCK_AFTER * 2);
        assert!(whole.partial.is_empty());
    }
}
