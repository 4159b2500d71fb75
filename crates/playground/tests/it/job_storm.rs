//! Jobs in bad weather: random settings, failing pods, users who pause, scale and delete, late watches and requests that
//! fail before or after they are done. At every step the rules hold, and at the end every pod is counted once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use muster_playground::clients::{Jobs, PodGarbage, PodGarbageSettings};
use muster_playground::random::Random;
use muster_playground::{Server, Settings};
use serde_json::json;

use crate::jobs::{index, is_live, phase};
use crate::kubelets::{kubelets, pass};
use crate::late;

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// What became of a pod, by a witness that misses nothing.
#[derive(Clone, Debug, Default)]
struct Fate {
    job: String,
    index: String,
    /// It ended or was deleted while its job held it.
    was_held: bool,
    is_over: bool,
    phase: String,
}

type Fates = Arc<Mutex<BTreeMap<String, Fate>>>;

fn owner(pod: &Pod) -> String {
    pod.owner_references().first().map(|owner| owner.uid.clone()).unwrap_or_default()
}

/// Watches all pods without a fault.
fn witness(client: Client) -> (Fates, tokio::task::JoinHandle<()>) {
    let fates = Fates::default();
    let book = Arc::clone(&fates);
    let task = tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(Api::<Pod>::default_namespaced(client), watcher::Config::default()));
        while let Some(event) = events.next().await {
            let Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) | watcher::Event::Delete(pod)) = event
            else {
                continue;
            };
            let mut book = book.lock().expect("a lock");
            let fate = book.entry(pod.uid().unwrap_or_default()).or_default();
            let is_over = !is_live(&pod);
            if is_over && !fate.is_over {
                fate.was_held = pod.finalizers().iter().any(|one| one == TRACKING);
            }
            fate.is_over |= is_over;
            fate.job = owner(&pod);
            index(&pod).clone_into(&mut fate.index);
            phase(&pod).clone_into(&mut fate.phase);
        }
    });
    (fates, task)
}

fn has_ended(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.status == "True" && ["Complete", "Failed"].contains(&one.type_.as_str()))
}

struct Storm {
    server: Server,
    random: Random,
    /// The most that was ever wanted at once; by the job's UID.
    parallelism_max: BTreeMap<String, usize>,
    made: u32,
}

impl Storm {
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
        self.made += 1;
        let job = json!({"metadata": {"name": format!("job-{}", self.made)}, "spec": spec});
        let job = serde_json::from_value(job).expect("a job");
        self.jobs().create(&PostParams::default(), &job).await.expect("a new job");
    }

    async fn disturb(&mut self) {
        let jobs = self.jobs().list(&ListParams::default()).await.expect("jobs").items;
        if self.random.per_mille(300) && self.made < 8 {
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
                // The watches cannot go on from where they were: they list again.
                self.server.compact();
                return;
            }
            _ => return,
        };
        self.jobs().patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
    }

    /// Places the pods that wait, each with an end of its own.
    async fn place(&mut self) {
        let pods: Api<Pod> = Api::default_namespaced(self.client());
        for pod in pods.list(&ListParams::default()).await.expect("pods").items {
            let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            if is_placed || !is_live(&pod) || self.random.per_mille(300) {
                continue;
            }
            let code = if self.random.per_mille(650) { 0 } else { 1 + self.random.below(3) };
            let plan = json!({"metadata": {"annotations": {
                "playground.muster.dev/run-seconds": (1 + self.random.below(20)).to_string(),
                "playground.muster.dev/exit-code": code.to_string(),
            }}});
            let name = pod.name_any();
            pods.patch(&name, &PatchParams::default(), &Patch::Merge(plan)).await.expect("a plan");
            let node = format!("n-{}", self.random.below(4));
            let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
            let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(binding.to_string().into_bytes()).expect("a request");
            self.client().request::<serde_json::Value>(request).await.expect("a bind");
        }
    }

    /// What must hold at any time.
    async fn check(&mut self, place: &str) {
        let jobs = self.jobs().list(&ListParams::default()).await.expect("jobs").items;
        for job in &jobs {
            let wanted = job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1) as usize;
            let most = self.parallelism_max.entry(job.uid().unwrap_or_default()).or_default();
            *most = wanted.max(*most);
        }
        let pods: Api<Pod> = Api::default_namespaced(self.client());
        let mut live: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in pods.list(&ListParams::default()).await.expect("pods").items.iter().filter(|pod| is_live(pod)) {
            live.entry(owner(pod)).or_default().push(index(pod).to_owned());
        }
        for (job, indexes) in live {
            let most = self.parallelism_max.get(&job).copied().unwrap_or_default();
            assert!(
                indexes.len() <= most,
                "{place}: {} live pods of a job that never wanted more than {most}",
                indexes.len()
            );
            let distinct: BTreeSet<&String> = indexes.iter().filter(|index| !index.is_empty()).collect();
            let indexed = indexes.iter().filter(|index| !index.is_empty()).count();
            assert_eq!(distinct.len(), indexed, "{place}: two live pods of one index: {indexes:?}");
        }
    }

    async fn calm(&mut self) {
        for job in self.jobs().list(&ListParams::default()).await.expect("jobs").items {
            let patch = json!({"spec": {"suspend": false, "parallelism": 3}});
            self.parallelism_max.entry(job.uid().unwrap_or_default()).and_modify(|most| *most = (*most).max(3));
            self.jobs().patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
        }
        for step in 0..150 {
            self.place().await;
            pass(60.0).await;
            self.check(&format!("calm {step}")).await;
            let jobs = self.jobs().list(&ListParams::default()).await.expect("jobs").items;
            if jobs.iter().all(has_ended) {
                break;
            }
        }
        pass(120.0).await;
    }

    /// What the statuses say against what the witness saw.
    async fn judge(&self, fates: &BTreeMap<String, Fate>, place: &str) {
        let pods: Api<Pod> = Api::default_namespaced(self.client());
        for pod in pods.list(&ListParams::default()).await.expect("pods").items {
            assert_eq!(pod.finalizers(), [""; 0], "{place}: {} is still held", pod.name_any());
        }
        for job in self.jobs().list(&ListParams::default()).await.expect("jobs").items {
            let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
            let status = job.status.clone().unwrap_or_default();
            assert!(has_ended(&job), "{place}: {name} has no end: {status:?}");
            let mine: Vec<&Fate> = fates.values().filter(|fate| fate.job == uid && fate.was_held).collect();
            let ends: Vec<String> = mine.iter().map(|fate| format!("{}{}", fate.index, &fate.phase[..1])).collect();
            let told = (status.succeeded.unwrap_or(0) as usize, status.failed.unwrap_or(0) as usize);
            let ended = |well: bool| mine.iter().filter(move |fate| (fate.phase == "Succeeded") == well);
            let is_indexed = job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed");
            let successes = ended(true).map(|fate| fate.index.clone());
            let succeeded = if is_indexed { successes.collect::<BTreeSet<_>>().len() } else { successes.count() };
            assert_eq!(told, (succeeded, ended(false).count()), "{place}: {name} {ends:?} {status:?}");
            assert_eq!((status.active, status.terminating), (None, Some(0)), "{place}: {name}");
        }
    }
}

async fn run(seed: u64) {
    let start = "2026-01-01T00:00:00Z".parse().expect("a date");
    let server = Server::start(Settings { start: Some(start), seed, ..Settings::default() });
    let lag = Duration::from_secs(2);
    let client =
        if seed.is_multiple_of(2) { late::client(&server, lag) } else { late::faulty_client(&server, lag, seed) };
    let _keeper = Jobs::start(client, server.clock());
    let _sweeper = PodGarbage::start(server.client(), PodGarbageSettings::default(), server.clock());
    let _kubelets = kubelets(&server, 4);
    let (fates, watching) = witness(server.client());
    let mut storm = Storm { server, random: Random::new(seed), parallelism_max: BTreeMap::new(), made: 0 };
    pass(1.0).await;
    for step in 0..150 {
        storm.disturb().await;
        storm.check(&format!("seed {seed}, step {step}")).await;
        storm.place().await;
        let seconds = storm.random.below(40) as f64 / 10.0;
        pass(seconds).await;
        storm.check(&format!("seed {seed}, step {step}")).await;
    }
    storm.calm().await;
    watching.abort();
    let fates = fates.lock().expect("a lock").clone();
    storm.judge(&fates, &format!("seed {seed}")).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_every_pod_is_counted_once() {
    for seed in 0..8 {
        run(seed).await;
    }
}
