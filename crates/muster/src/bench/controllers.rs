//! `muster bench controllers`: many JobSets at once, until all their Workloads and references are there.
//!
//! Server, the small controllers that make Jobs and pods, and Muster's controllers live in this process: the CPU time is
//! that of all of them. It is measured with the webhook, which gives pods their references when they are made, and
//! without, where the controllers do.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use futures::{StreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use muster_api::crds;
use muster_api::keys::annotations::POD_GROUP;
use muster_api::wire::{JobSet, Pod, Workload};
use muster_controllers::{Controllers, Settings, admission};
use muster_playground::clients::{JobSets, Jobs, jobset};
use muster_playground::{Admission, AdmissionOperation, Server};
use serde_json::{Value, json};

use super::process::cpu_seconds;

/// How much there is to do.
#[derive(Args)]
pub(crate) struct Options {
    /// How many JobSets are made at once.
    #[arg(long, default_value_t = 1000)]
    job_sets: usize,
    /// How many pods each of them has.
    #[arg(long, default_value_t = 10)]
    pods: usize,
}

const CPU_SECONDS_MAX: f64 = 30.0;
const REQUESTS_MAX: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(500);
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
        server.set_admission(Some(webhook()));
    }
    let clock = server.clock();
    let _owners = (Jobs::start(client.clone(), clock), JobSets::start(client.clone(), clock));
    let _controllers = Controllers::start(&client, Settings::default(), move || clock.now(), Arc::new(Some));
    let (began, before) = (Instant::now(), cpu()?);
    let sets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &ApiResource::erase::<JobSet>(&()));
    let made = stream::iter(0..options.job_sets).map(|index| {
        let (sets, object) = (sets.clone(), job_set(index, options.pods));
        async move {
            sets.create(&PostParams::default(), &serde_json::from_value(object)?).await.map(drop).context("a JobSet")
        }
    });
    let made: Vec<anyhow::Result<()>> = made.buffer_unordered(REQUESTS_MAX).collect().await;
    made.into_iter().collect::<anyhow::Result<()>>()?;
    let wanted = options.job_sets * options.pods;
    loop {
        let (workloads, referring) = count(&client).await?;
        if workloads == options.job_sets && referring == wanted {
            break;
        }
        if began.elapsed() > TIME_MAX {
            bail!("{workloads} of {} Workloads and {referring} of {wanted} references are there", options.job_sets);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let cpu = cpu()? - before;
    let met = if cpu <= CPU_SECONDS_MAX { "met" } else { "MISSED" };
    let how = if with_webhook { "with the webhook" } else { "without a webhook" };
    writeln!(
        std::io::stdout().lock(),
        "{} JobSets of {} pods, {how}: {cpu:.1} s of CPU in {:.1} s   target at most {CPU_SECONDS_MAX:.0}: {met}",
        options.job_sets,
        options.pods,
        began.elapsed().as_secs_f64(),
    )?;
    Ok(())
}

fn cpu() -> anyhow::Result<f64> {
    cpu_seconds(std::process::id()).context("reading CPU time")
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
    let admission = admission::Admission::new(Settings::default());
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
        "spec": {"replicatedJobs": [{"name": "w", "template": {
            "spec": {"parallelism": pods, "completions": pods, "template": template}}}]},
    })
}

/// How many Workloads there are, and how many pods that name a group.
async fn count(client: &kube::Client) -> anyhow::Result<(usize, usize)> {
    let workloads: Api<Workload> = Api::all(client.clone());
    let workloads = workloads.list_metadata(&ListParams::default()).await?.items.len();
    let pods: Api<Pod> = Api::all(client.clone());
    let pods = pods.list_metadata(&ListParams::default()).await?.items;
    let refers = |annotations: &std::collections::BTreeMap<String, String>| annotations.contains_key(POD_GROUP);
    let referring = pods.iter().filter(|pod| pod.metadata.annotations.as_ref().is_some_and(refers)).count();
    Ok((workloads, referring))
}
