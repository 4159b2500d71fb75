//! Random runs of Jobs under faults: random settings, failing pods, users that suspend, scale and delete, late watches
//! and requests that fail before or after they are executed. The invariants hold at every step, and at the end every
//! pod is counted once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use muster_playground::components::{Jobs, PodGc, PodGcSettings};
use muster_playground::random::Random;
use muster_playground::{Server, Settings};
use serde_json::json;

use crate::jobs::{index, is_live, phase};
use crate::kubelets::{kubelets, pass};
use crate::late_client;

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The history of a pod, from a watch without faults.
#[derive(Clone, Debug, Default)]
struct PodHistory {
    job: String,
    index: String,
    /// It terminated or was deleted while it had the finalizer.
    had_finalizer: bool,
    is_terminated: bool,
    phase: String,
}

type PodHistories = Arc<Mutex<BTreeMap<String, PodHistory>>>;

fn owner(pod: &Pod) -> String {
    pod.owner_references().first().map(|owner| owner.uid.clone()).unwrap_or_default()
}

/// Watches all pods without faults.
fn record_pods(client: Client) -> (PodHistories, tokio::task::JoinHandle<()>) {
    let histories = PodHistories::default();
    let recorded = Arc::clone(&histories);
    let task = tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(Api::<Pod>::default_namespaced(client), watcher::Config::default()));
        while let Some(event) = events.next().await {
            let Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) | watcher::Event::Delete(pod)) = event
            else {
                continue;
            };
            let mut histories = recorded.lock().expect("a lock");
            let history = histories.entry(pod.uid().unwrap_or_default()).or_default();
            let is_terminated = !is_live(&pod);
            if is_terminated && !history.is_terminated {
                history.had_finalizer = pod.finalizers().iter().any(|one| one == TRACKING);
            }
            history.is_terminated |= is_terminated;
            history.job = owner(&pod);
            index(&pod).clone_into(&mut history.index);
            phase(&pod).clone_into(&mut history.phase);
        }
    });
    (histories, task)
}

fn has_ended(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.status == "True" && ["Complete", "Failed"].contains(&one.type_.as_str()))
}

struct FaultyRun {
    server: Server,
    random: Random,
    /// The highest parallelism that was ever set; by the job's UID.
    parallelism_max: BTreeMap<String, usize>,
    created: u32,
}

impl FaultyRun {
    fn client(&self) -> Client {
        self.server.client()
    }

    fn jobs(&self) -> Api<Job> {
        Api::default_namespaced(self.client())
    }

    async fn make_job(&mut self) {
        let mut number = |below: u64| self.random.below(below) as i32;
        let is_indexed = number(2) == 0;
        let replacement = ["Failed", "TerminatingOrFailed"][number(2) as usize];
        let mut spec = json!({
            "parallelism": number(5), "backoffLimit": number(6), "suspend": number(5) == 0,
            "podReplacementPolicy": replacement,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        });
        if is_indexed {
            spec["completionMode"] = json!("Indexed");
            if number(2) == 0 {
                spec["backoffLimitPerIndex"] = json!(number(3));
                spec["backoffLimit"] = json!(1000);
            }
        }
        if is_indexed || number(3) > 0 {
            spec["completions"] = json!(1 + number(6));
        }
        if number(6) == 0 {
            spec["activeDeadlineSeconds"] = json!(20 + number(100));
        }
        self.created += 1;
        let job = json!({"metadata": {"name": format!("job-{}", self.created)}, "spec": spec});
        let job = serde_json::from_value(job).expect("a job");
        self.jobs().create(&PostParams::default(), &job).await.expect("a new job");
    }

    async fn disturb(&mut self) {
        let jobs = self.jobs().list(&ListParams::default()).await.expect("jobs").items;
        if self.random.per_mille(300) && self.created < 8 {
            self.make_job().await;
        }
        let Some(job) = jobs.get(self.random.below(jobs.len().max(1) as u64) as usize) else { return };
        let patch = match self.random.below(12) {
            0 => json!({"spec": {"suspend": true}}),
            1 | 2 => json!({"spec": {"suspend": false}}),
            3 => json!({"spec": {"parallelism": self.random.below(6)}}),
            4 if self.random.per_mille(200) => {
                let policy = [PropagationPolicy::Background, PropagationPolicy::Foreground]
                    [self.random.below(2) as usize]
                    .clone();
                let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
                drop(self.jobs().delete(&job.name_any(), &parameters).await);
                return;
            }
            5 => {
                let pods: Api<Pod> = Api::default_namespaced(self.client());
                let all = pods.list(&ListParams::default()).await.expect("pods").items;
                if let Some(pod) = all.get(self.random.below(all.len().max(1) as u64) as usize) {
                    drop(pods.delete(&pod.name_any(), &DeleteParams::default()).await);
                }
                return;
            }
            6 if self.random.per_mille(300) => {
                // The watches cannot resume and have to relist.
                self.server.compact();
                return;
            }
            _ => return,
        };
        self.jobs().patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
    }

    /// Binds the pending pods, each with its own outcome.
    async fn bind_pods(&mut self) {
        let pods: Api<Pod> = Api::default_namespaced(self.client());
        for pod in pods.list(&ListParams::default()).await.expect("pods").items {
            let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            if is_placed || !is_live(&pod) || self.random.per_mille(300) {
                continue;
            }
            let code = if self.random.per_mille(650) { 0 } else { 1 + self.random.below(3) };
            let behavior = json!({"metadata": {"annotations": {
                "playground.muster.dev/run-seconds": (1 + self.random.below(20)).to_string(),
                "playground.muster.dev/exit-code": code.to_string(),
            }}});
            let name = pod.name_any();
            pods.patch(&name, &PatchParams::default(), &Patch::Merge(behavior)).await.expect("a patch");
            let node = format!("n-{}", self.random.below(4));
            let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
            let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(binding.to_string().into_bytes()).expect("a request");
            self.client().request::<serde_json::Value>(request).await.expect("a bind");
        }
    }

    /// The invariants at any time.
    async fn check(&mut self, context: &str) {
        let jobs = self.jobs().list(&ListParams::default()).await.expect("jobs").items;
        for job in &jobs {
            let desired = job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1) as usize;
            let max = self.parallelism_max.entry(job.uid().unwrap_or_default()).or_default();
            *max = desired.max(*max);
        }
        let pods: Api<Pod> = Api::default_namespaced(self.client());
        let mut live: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in pods.list(&ListParams::default()).await.expect("pods").items.iter().filter(|pod| is_live(pod)) {
            live.entry(owner(pod)).or_default().push(index(pod).to_owned());
        }
        for (job, indexes) in live {
            let max = self.parallelism_max.get(&job).copied().unwrap_or_default();
            assert!(
                indexes.len() <= max,
                "{context}: {} live pods of a job whose parallelism was never above {max}",
                indexes.len()
            );
            let distinct: BTreeSet<&String> = indexes.iter().filter(|index| !index.is_empty()).collect();
            let indexed = indexes.iter().filter(|index| !index.is_empty()).count();
            assert_eq!(distinct.len(), indexed, "{context}: two live pods of one index: {indexes:?}");
        }
    }

    async fn converge(&mut self) {
        for job in self.jobs().list(&ListParams::default()).await.expect("jobs").items {
            let patch = json!({"spec": {"suspend": false, "parallelism": 3}});
            self.parallelism_max.entry(job.uid().unwrap_or_default()).and_modify(|max| *max = (*max).max(3));
            self.jobs().patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
        }
        for step in 0..150 {
            self.bind_pods().await;
            pass(60.0).await;
            self.check(&format!("converge {step}")).await;
            let jobs = self.jobs().list(&ListParams::default()).await.expect("jobs").items;
            if jobs.iter().all(has_ended) {
                break;
            }
        }
        pass(120.0).await;
    }

    /// Compares the statuses with the recorded pods.
    async fn check_counts(&self, histories: &BTreeMap<String, PodHistory>, context: &str) {
        let pods: Api<Pod> = Api::default_namespaced(self.client());
        for pod in pods.list(&ListParams::default()).await.expect("pods").items {
            assert_eq!(pod.finalizers(), [""; 0], "{context}: {} still has the finalizer", pod.name_any());
        }
        for job in self.jobs().list(&ListParams::default()).await.expect("jobs").items {
            let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
            let status = job.status.clone().unwrap_or_default();
            assert!(has_ended(&job), "{context}: {name} is not finished: {status:?}");
            let mine: Vec<&PodHistory> =
                histories.values().filter(|history| history.job == uid && history.had_finalizer).collect();
            let ends: Vec<String> =
                mine.iter().map(|history| format!("{}{}", history.index, &history.phase[..1])).collect();
            let reported = (status.succeeded.unwrap_or(0) as usize, status.failed.unwrap_or(0) as usize);
            let ended = |well: bool| mine.iter().filter(move |history| (history.phase == "Succeeded") == well);
            let is_indexed = job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed");
            let successes = ended(true).map(|history| history.index.clone());
            let succeeded = if is_indexed { successes.collect::<BTreeSet<_>>().len() } else { successes.count() };
            assert_eq!(reported, (succeeded, ended(false).count()), "{context}: {name} {ends:?} {status:?}");
            assert_eq!((status.active, status.terminating), (None, Some(0)), "{context}: {name}");
        }
    }
}

async fn run(seed: u64) {
    let start = "2026-01-01T00:00:00Z".parse().expect("a date");
    let server = Server::start(Settings { start: Some(start), seed, ..Settings::default() });
    let lag = Duration::from_secs(2);
    let client = if seed.is_multiple_of(2) {
        late_client::client(&server, lag)
    } else {
        late_client::faulty_client(&server, lag, seed)
    };
    let _controller = Jobs::start(client, server.clock());
    let _pod_gc = PodGc::start(server.client(), PodGcSettings::default(), server.clock());
    let _kubelets = kubelets(&server, 4);
    let (histories, watching) = record_pods(server.client());
    let mut run = FaultyRun { server, random: Random::new(seed), parallelism_max: BTreeMap::new(), created: 0 };
    pass(1.0).await;
    for step in 0..150 {
        run.disturb().await;
        run.check(&format!("seed {seed}, step {step}")).await;
        run.bind_pods().await;
        let seconds = run.random.below(40) as f64 / 10.0;
        pass(seconds).await;
        run.check(&format!("seed {seed}, step {step}")).await;
    }
    run.converge().await;
    watching.abort();
    let histories = histories.lock().expect("a lock").clone();
    run.check_counts(&histories, &format!("seed {seed}")).await;
}

#[tokio::test(start_paused = true)]
async fn every_pod_is_counted_once_under_faults() {
    for seed in 0..8 {
        run(seed).await;
    }
}
