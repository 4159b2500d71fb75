//! Watches the cluster and prints its events, a few times a second at most.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use muster_api::keys;
use muster_api::wire::Pod;
use tokio::time::Instant;

use super::cluster_log::ClusterLog;
use super::throttle;

/// How long events are collected before they are printed.
const COLLECT: Duration = Duration::from_millis(250);

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Observed {
    Pod(watcher::Event<Pod>),
    Group(watcher::Event<DynamicObject>),
}

/// What is printed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The current state.
    TheStart,
    /// Only what happens from now on.
    Now,
}

/// Prints events forever.
pub(super) async fn print_log(client: kube::Client, began: Instant, from: From) {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).default_backoff();
    let mut streams = vec![pods.filter_map(|event| async { event.ok().map(Observed::Pod) }).boxed()];
    let kinds = [
        (keys::GROUP, keys::VERSION, "PodGroup"),
        (keys::GROUP, keys::VERSION, "Workload"),
        ("scheduling.k8s.io", "v1beta1", "PodGroup"),
    ];
    for (group, version, kind) in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let objects = watcher(Api::<DynamicObject>::all_with(client.clone(), &resource), watcher::Config::default());
        streams.push(objects.default_backoff().filter_map(|event| async { event.ok().map(Observed::Group) }).boxed());
    }
    let mut printed = (ClusterLog::default(), from == From::TheStart);
    let observe = |(log, _): &mut (ClusterLog, bool), event| observe(log, event);
    let print_new = |(log, prints): &mut (ClusterLog, bool)| {
        let lines = log.take_lines();
        if std::mem::replace(prints, true) {
            print(&lines, began);
        }
        ControlFlow::Continue(())
    };
    throttle::listen(stream::select_all(streams), COLLECT, &mut printed, observe, print_new).await;
}

fn observe(log: &mut ClusterLog, event: Observed) {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    match event {
        Observed::Pod(Apply(pod) | InitApply(pod)) => log.observe_pod(&pod),
        Observed::Pod(Delete(pod)) => log.pod_deleted(&pod),
        Observed::Group(Apply(group) | InitApply(group)) => log.observe_group(&value(&group)),
        Observed::Group(Delete(group)) => log.group_deleted(&value(&group)),
        Observed::Pod(Init | InitDone) | Observed::Group(Init | InitDone) => {}
    }
}

fn value(object: &DynamicObject) -> serde_json::Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn print(lines: &[String], began: Instant) {
    let passed = began.elapsed().as_secs();
    let mut out = std::io::stdout().lock();
    for line in lines {
        // Errors are ignored: the terminal may be closed.
        let _ = writeln!(out, "{:>3}:{:02}  {line}", passed / 60, passed % 60);
    }
    let _ = out.flush();
}
