//! `muster-lab bench controllers`: many JobSets at once, until all their Workloads and references exist; then one pod of
//! each fails, so that all of them restart, until all new pods have their references.
//!
//! The server, simulated controllers that create Jobs and pods, and Muster's controllers run in this process: the CPU
//! time is that of all of them. It is measured with the webhook, which sets references when pods are created, and
//! without, where the controllers set them.

use std::collections::BTreeSet;
use std::future::ready;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::{WatchStreamExt as _, watcher};
use muster_api::crds;
use muster_api::keys::annotations::POD_GROUP;
use muster_api::wire::{JobSet, Pod, Workload};
use muster_controllers::{Controllers, PriorityClasses, Settings, WatchAges, admission};
use muster_playground::components::{JobSets, Jobs, jobset};
use muster_playground::{Admission, AdmissionOperation, Server};
use serde_json::{Value, json};

use super::process::cpu_seconds;

/// The size of the benchmark.
#[derive(Args)]
pub(crate) struct Options {
    /// How many JobSets are created at once.
    #[arg(long, default_value_t = 1000)]
    job_sets: usize,
    /// How many pods each of them has.
    #[arg(long, default_value_t = 10)]
    pods: usize,
}

const CPU_SECONDS_MAX: f64 = 30.0;
const REQUESTS_MAX: usize = 64;
const TIME_MAX: Duration = Duration::from_secs(600);

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.job_sets == 0 || options.pods == 0 {
        bail!("there must be JobSets, and pods in them");
    }
    for with_webhook in [true, false] {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(measure(options, with_webhook))?;
    }
    Ok(())
}

async fn measure(options: &Options, with_webhook: bool) -> anyhow::Result<()> {
    let server = Server::start(muster_playground::Settings::default());
    let client = server.client();
    install(&client).await?;
    if with_webhook {
        server.set_webhook(Some(webhook()));
    }
    let clock = server.clock();
    let _owners = (Jobs::start(client.clone(), clock), JobSets::start(client.clone(), clock));
    let _controllers =
        Controllers::start(&client, Settings::default(), &WatchAges::default(), move || clock.now(), Arc::new(Some));
    let meter = Meter::start()?;
    let sets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &ApiResource::erase::<JobSet>(&()));
    let created = stream::iter(0..options.job_sets).map(|index| {
        let (sets, object) = (sets.clone(), job_set(index, options.pods));
        async move {
            sets.create(&PostParams::default(), &serde_json::from_value(object)?).await.map(drop).context("a JobSet")
        }
    });
    let created: Vec<anyhow::Result<()>> = created.buffer_unordered(REQUESTS_MAX).collect().await;
    created.into_iter().collect::<anyhow::Result<()>>()?;
    let wanted = options.job_sets * options.pods;
    let mut shown = Found::default();
    if tokio::time::timeout(TIME_MAX, shown.follow(&client, options.job_sets, wanted)).await.is_err() {
        let (workloads, referring) = (shown.workloads.len(), shown.referring.len());
        bail!("{workloads} of {} Workloads and {referring} of {wanted} references are there", options.job_sets);
    }
    let how = if with_webhook { "with the webhook" } else { "without a webhook" };
    meter.print(&format!("{} JobSets of {} pods, {how}", options.job_sets, options.pods))?;
    let firsts = first_pods(&client).await?;
    let meter = Meter::start()?;
    fail(&client, firsts).await?;
    let mut new = BTreeSet::new();
    if tokio::time::timeout(TIME_MAX, follow_restart(&client, &mut new, wanted)).await.is_err() {
        bail!("{} of {wanted} pods of the restart refer to their group", new.len());
    }
    meter.print("  all of them restarted at once")
}

/// The CPU time of this process since a moment.
struct Meter {
    began: Instant,
    cpu: f64,
}

impl Meter {
    fn start() -> anyhow::Result<Self> {
        Ok(Self { began: Instant::now(), cpu: cpu()? })
    }

    fn print(&self, what: &str) -> anyhow::Result<()> {
        let cpu = cpu()? - self.cpu;
        let met = if cpu <= CPU_SECONDS_MAX { "met" } else { "MISSED" };
        let took = self.began.elapsed().as_secs_f64();
        let target = format!("target at most {CPU_SECONDS_MAX:.0}: {met}");
        Ok(writeln!(std::io::stdout().lock(), "{what}: {cpu:.1} s of CPU in {took:.1} s   {target}")?)
    }
}

fn cpu() -> anyhow::Result<f64> {
    cpu_seconds(std::process::id()).context("reading CPU time")
}

/// The names of the pods with the first index, one of each set.
async fn first_pods(client: &kube::Client) -> anyhow::Result<Vec<String>> {
    let first = ListParams::default().labels("batch.kubernetes.io/job-completion-index=0");
    let pods = Api::<Pod>::default_namespaced(client.clone()).list_metadata(&first).await?;
    Ok(pods.iter().map(kube::ResourceExt::name_any).collect())
}

/// Reports that pods have failed. No Job retries, so each set restarts.
async fn fail(client: &kube::Client, pods: Vec<String>) -> anyhow::Result<()> {
    let api = Api::<Pod>::default_namespaced(client.clone());
    let patch = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let failed = stream::iter(pods).map(|name| {
        let (api, patch) = (&api, &patch);
        async move { api.patch_status(&name, &PatchParams::default(), patch).await.map(drop) }
    });
    let failed: Vec<kube::Result<()>> = failed.buffer_unordered(REQUESTS_MAX).collect().await;
    Ok(failed.into_iter().collect::<kube::Result<()>>()?)
}

/// Watches until so many pods of the first restart refer to their group.
async fn follow_restart(client: &kube::Client, found: &mut BTreeSet<String>, wanted: usize) {
    let mut pods = names(Api::<PartialObjectMeta<Pod>>::all(client.clone()), |metadata| {
        let attempt = metadata.labels.as_ref().and_then(|labels| labels.get("jobset.sigs.k8s.io/restart-attempt"));
        attempt.is_some_and(|attempt| attempt == "1") && has_reference(metadata)
    });
    while found.len() < wanted {
        if let Some(name) = pods.next().await {
            found.insert(name);
        }
    }
}

fn has_reference(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(POD_GROUP))
}

async fn install(client: &kube::Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for text in [crds::WORKLOADS, crds::PODGROUPS] {
        definitions.create(&PostParams::default(), &serde_saphyr::from_str(text)?).await?;
    }
    Ok(jobset::install(client).await?)
}

fn webhook() -> Admission {
    use AdmissionOperation::{Create, Update};
    let admission = admission::Admission::new(Settings::default(), PriorityClasses::unknown());
    Admission::new("muster.dev", move |review| admission.review(&review))
        .about("jobset.x-k8s.io", "jobsets", &[Create, Update])
        .about("batch", "jobs", &[Create, Update])
}

fn job_set(index: usize, pods: usize) -> Value {
    let template = json!({"spec": {"schedulerName": "muster", "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox"}]}});
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": format!("js-{index}"), "annotations": {"muster.dev/gang-mode": "Gang"}},
        "spec": {"failurePolicy": {"maxRestarts": 1}, "replicatedJobs": [{"name": "w", "template": {
            "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}}}]},
    })
}

/// The number of Workloads, and of pods that reference a group.
#[derive(Default)]
struct Found {
    workloads: BTreeSet<String>,
    referring: BTreeSet<String>,
}

impl Found {
    /// Watches until both counts are reached. Listing all pods repeatedly would be a third of the measured cost.
    async fn follow(&mut self, client: &kube::Client, workloads: usize, referring: usize) {
        let mut workloads_seen = names(Api::<PartialObjectMeta<Workload>>::all(client.clone()), |_| true);
        let mut pods = names(Api::<PartialObjectMeta<Pod>>::all(client.clone()), has_reference);
        while self.workloads.len() < workloads || self.referring.len() < referring {
            tokio::select! {
                Some(name) = workloads_seen.next() => self.workloads.insert(name),
                Some(name) = pods.next() => self.referring.insert(name),
            };
        }
    }
}

/// The names of the objects for which a predicate holds, each as often as it is observed.
fn names<K>(api: Api<PartialObjectMeta<K>>, is_match: fn(&ObjectMeta) -> bool) -> BoxStream<'static, String>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let events = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    // A failed watch is restarted.
    let shown = events.filter_map(async |object| object.ok());
    shown.filter(move |object| ready(is_match(&object.metadata))).map(|object| object.name_any()).boxed()
}
