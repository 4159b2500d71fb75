//! Watches the cluster and prints its story, a few times a second at most.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use muster_api::keys;
use muster_api::wire::Pod;
use tokio::time::Instant;

use super::pace;
use super::story::Story;

/// How long news is collected before it is told.
const COLLECT: Duration = Duration::from_millis(250);

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Seen {
    Pod(watcher::Event<Pod>),
    Group(watcher::Event<DynamicObject>),
}

/// What a narrator tells first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// How everything stands.
    TheStart,
    /// Only what happens from now on.
    Now,
}

/// Prints what happens, for ever.
pub(super) async fn narrate(client: kube::Client, began: Instant, from: From) {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).default_backoff();
    let mut streams = vec![pods.filter_map(|event| async { event.ok().map(Seen::Pod) }).boxed()];
    let kinds = [
        (keys::GROUP, keys::VERSION, "PodGroup"),
        (keys::GROUP, keys::VERSION, "Workload"),
        ("scheduling.k8s.io", "v1beta1", "PodGroup"),
    ];
    for (group, version, kind) in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let objects = watcher(Api::<DynamicObject>::all_with(client.clone(), &resource), watcher::Config::default());
        streams.push(objects.default_backoff().filter_map(|event| async { event.ok().map(Seen::Group) }).boxed());
    }
    let mut told = (Story::default(), from == From::TheStart);
    let take = |(story, _): &mut (Story, bool), event| take(story, event);
    let tell = |(story, aloud): &mut (Story, bool)| {
        let lines = story.take_lines();
        if std::mem::replace(aloud, true) {
            print(&lines, began);
        }
        ControlFlow::Continue(())
    };
    pace::listen(stream::select_all(streams), COLLECT, &mut told, take, tell).await;
}

fn take(story: &mut Story, event: Seen) {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    match event {
        Seen::Pod(Apply(pod) | InitApply(pod)) => story.see_pod(&pod),
        Seen::Pod(Delete(pod)) => story.lose_pod(&pod),
        Seen::Group(Apply(group) | InitApply(group)) => story.see_group(&value(&group)),
        Seen::Group(Delete(group)) => story.lose_group(&value(&group)),
        Seen::Pod(Init | InitDone) | Seen::Group(Init | InitDone) => {}
    }
}

fn value(object: &DynamicObject) -> serde_json::Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn print(lines: &[String], began: Instant) {
    let passed = began.elapsed().as_secs();
    let mut out = std::io::stdout().lock();
    for line in lines {
        // Nobody is there to read it if it cannot be written.
        let _ = writeln!(out, "{:>3}:{:02}  {line}", passed / 60, passed % 60);
    }
    let _ = out.flush();
}
