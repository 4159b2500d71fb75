//! The witness: sees every bind on a watch of its own, and whether gangs or nodes came to harm.
//!
//! It reads of a pod only what it needs, so that its own work does not count.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use serde::Deserialize;

use super::cases::Case;
use super::objects::PODS;

/// A gang that is partly bound and to which nothing was added for so long is at rest.
const REST: Duration = Duration::from_secs(10);

/// What is read of a pod.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Glimpse {
    metadata: GlimpseMetadata,
    #[serde(default)]
    spec: GlimpseSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GlimpseMetadata {
    #[serde(default)]
    name: String,
    resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GlimpseSpec {
    node_name: Option<String>,
    scheduling_group: Option<GlimpseGroup>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GlimpseGroup {
    pod_group_name: String,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    node_of: HashMap<String, String>,
    load_of: HashMap<String, u64>,
    gangs: HashMap<String, Gang>,
    pub(crate) first_bind: Option<Instant>,
    pub(crate) last_bind: Option<Instant>,
    /// Nodes that had at some time more than they have room for.
    pub(crate) overcommitted: BTreeSet<String>,
    /// Gangs that were at some time at rest with some but not all of their pods bound.
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

impl Seen {
    /// How many pods are bound.
    pub(crate) fn bound(&self) -> usize {
        self.node_of.len()
    }

    /// Forgets when binds came, but not where pods are.
    fn restart(&mut self) {
        (self.first_bind, self.last_bind) = (None, None);
    }

    fn shown(&mut self, pod: Glimpse, pods_per_node: u64, now: Instant) {
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

    fn gone(&mut self, pod: &Glimpse) {
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

    /// Looks for gangs at rest that are not whole.
    fn look_at_gangs(&mut self, size: usize, now: Instant) {
        let resting = self.gangs.iter().filter(|(_, gang)| {
            (1..size).contains(&gang.bound) && now.saturating_duration_since(gang.last_bind) > REST
        });
        self.partial.extend(resting.map(|(name, _)| name.clone()));
    }
}

/// A watch on all pods of a case.
pub(crate) struct Witness {
    case: Case,
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Witness {
    /// Starts to watch.
    pub(crate) fn start(client: kube::Client, case: Case) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
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

    /// Looks at what was seen.
    pub(crate) fn look<T>(&self, ask: impl FnOnce(&Seen) -> T) -> anyhow::Result<T> {
        let mut seen = lock(&self.seen);
        if let Some(failure) = &seen.failure {
            bail!("the watch on pods failed: {failure}");
        }
        seen.look_at_gangs(self.case.size, Instant::now());
        Ok(ask(&seen))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches until something fails. A watch that ends is taken up where it ended.
async fn watch(client: &kube::Client, case: Case, seen: &Mutex<Seen>) -> anyhow::Result<()> {
    let mut version = "0".to_owned();
    loop {
        let request = kube::core::Request::new(PODS).watch(&WatchParams::default(), &version)?;
        let events = client.request_events::<Glimpse>(request).await.context("watching pods")?;
        futures::pin_mut!(events);
        while let Some(event) = events.try_next().await.context("reading a watch of pods")? {
            let pod = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    version.clone_from(&pod.metadata.resource_version);
                    lock(seen).shown(pod, case.pods_per_node(), Instant::now());
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
            lock(seen).gone(&pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, gang: Option<&str>) -> Glimpse {
        let group = gang.map(|gang| GlimpseGroup { pod_group_name: gang.to_owned() });
        Glimpse {
            metadata: GlimpseMetadata { name: name.to_owned(), resource_version: "1".to_owned() },
            spec: GlimpseSpec { node_name: (!node.is_empty()).then(|| node.to_owned()), scheduling_group: group },
        }
    }

    #[test]
    fn a_node_with_too_much_is_seen_even_if_it_is_relieved() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        seen.shown(pod("a", "n1", None), 1, now);
        seen.gone(&pod("a", "n1", None));
        seen.shown(pod("b", "n1", None), 1, now);
        assert!(seen.overcommitted.is_empty());
        seen.shown(pod("c", "n1", None), 1, now);
        seen.gone(&pod("b", "n1", None));
        assert_eq!((seen.bound(), seen.overcommitted.len()), (1, 1));
    }

    #[test]
    fn a_pod_counts_once_and_may_not_move() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        seen.shown(pod("a", "", None), 9, now);
        assert_eq!((seen.bound(), seen.first_bind), (0, None));
        seen.shown(pod("a", "n1", None), 9, now);
        seen.shown(pod("a", "n1", None), 9, now + REST);
        assert_eq!((seen.bound(), seen.last_bind, seen.moved.len()), (1, Some(now), 0));
        seen.shown(pod("a", "n2", None), 9, now);
        assert_eq!(seen.moved.len(), 1);
    }

    #[test]
    fn a_gang_in_part_is_harm_only_at_rest() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        seen.shown(pod("a", "n1", Some("g")), 9, now);
        seen.look_at_gangs(2, now + REST / 2);
        assert!(seen.partial.is_empty());
        seen.look_at_gangs(2, now + REST * 2);
        assert_eq!(seen.partial.len(), 1);
        let mut whole = Seen::default();
        whole.shown(pod("a", "n1", Some("g")), 9, now);
        whole.shown(pod("b", "n1", Some("g")), 9, now);
        whole.look_at_gangs(2, now + REST * 2);
        assert!(whole.partial.is_empty());
    }
}
