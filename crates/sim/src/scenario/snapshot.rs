//! A snapshot of the API state, as far as assertions need it.
//!
//! Must not depend on what is expected.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::ResourceExt;
use kube::api::ListParams;
use muster_api::selector::Labels;
use muster_api::wire::condition::Condition;
use muster_api::wire::{Node, Pod};
use serde_json::Value;

use super::assertions::{Assertions, ConditionAssertion, ObjectAssertion};
use super::model::ObjectName;
use super::pattern::{Glob, Pods};
use super::step_error::StepError;
use super::world::World;

/// The objects at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) pods: Vec<Pod>,
    /// The labels of each node.
    pub(super) nodes: BTreeMap<String, Labels>,
    /// The object of each requested group; `None` if it does not exist.
    pub(super) groups: BTreeMap<String, Option<Value>>,
    /// Requested objects.
    pub(super) objects: BTreeMap<ObjectName, Vec<Value>>,
    pub(super) events: Vec<Event>,
}

/// Namespace, name and UID of a pod.
pub(super) type PodKey = (String, String, String);

pub(super) fn key_of(pod: &Pod) -> PodKey {
    (pod.namespace().unwrap_or_default(), pod.name_any(), pod.uid().unwrap_or_default())
}

impl Snapshot {
    /// Reads everything that these assertions are about.
    pub(super) async fn take(world: &mut World, assertions: &Assertions) -> Result<Self, StepError> {
        let mut snapshot = Self { pods: world.list_pods().await?, ..Self::default() };
        world.record_pods(&snapshot.pods);
        if !assertions.one_domain.is_empty() {
            snapshot.nodes = nodes(world).await?;
        }
        let names: BTreeSet<&str> = assertions.groups.keys().map(|name| group_and_key(name).0).collect();
        for name in names {
            snapshot.groups.insert(name.to_owned(), group(world, name).await?);
        }
        let pattern = assertions.conditions.iter().map(ConditionAssertion::object);
        for object in pattern.chain(assertions.objects.iter().map(ObjectAssertion::object)) {
            if let Entry::Vacant(place) = snapshot.objects.entry(world.resolve(&object)) {
                let found = world.objects.find(place.key()).await?;
                place.insert(found.into_iter().filter_map(|one| serde_json::to_value(one).ok()).collect());
            }
        }
        if !assertions.events.is_empty() {
            snapshot.events = events(world).await?;
        }
        Ok(snapshot)
    }

    /// The matching pods, by their real namespace.
    pub(super) fn pods_of(&self, pattern: &Pods) -> Vec<&Pod> {
        let is_match = |pod: &&Pod| {
            pod.namespace().as_deref() == Some(&pattern.namespace) && pattern.name.matches(&pod.name_any())
        };
        self.pods.iter().filter(is_match).collect()
    }
}

/// Splits `name/key`, one replica of a group.
pub(super) fn group_and_key(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}

async fn nodes(world: &World) -> Result<BTreeMap<String, Labels>, StepError> {
    let api: Api<Node> = Api::all(world.objects.client());
    let listed = api.list(&ListParams::default()).await;
    let listed = listed.map_err(|error| StepError::request("list nodes", error))?;
    Ok(listed.items.into_iter().map(|node| (node.name_any(), node.metadata.labels.unwrap_or_default())).collect())
}

pub(super) async fn group(world: &mut World, name: &str) -> Result<Option<Value>, StepError> {
    let (api_version, kind) = world.scenario_carrier.form(name).kind();
    let object = ObjectName {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: world.namespace().to_owned(),
        name: Glob::new(name),
    };
    let found = world.objects.find(&object).await?;
    Ok(found.into_iter().next().and_then(|object| serde_json::to_value(object).ok()))
}

pub(super) async fn events(world: &World) -> Result<Vec<Event>, StepError> {
    let api: Api<Event> = Api::all(world.objects.client());
    let listed = api.list(&ListParams::default()).await;
    listed.map(|list| list.items).map_err(|error| StepError::request("list events", error))
}

/// A pod in one line.
pub(super) fn pod_line(pod: &Pod) -> String {
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let place = match pod.spec.node_name.as_str() {
        "" => "not bound".to_owned(),
        node => format!("on {node}"),
    };
    let nominated = &pod.status.nominated_node_name;
    let scheduled = Condition::find(&pod.status.conditions, "PodScheduled").filter(|one| !one.is_true());
    let parts = [
        Some(format!("{name} {place}")),
        Some(format!("{} {}", pod.status.phase, pod.status.reason).trim_end().to_owned()),
        (!nominated.is_empty()).then(|| format!("nominated to {nominated}")),
        pod.metadata.deletion_timestamp.as_ref().map(|_| "being deleted".to_owned()),
        scheduled.map(|one| format!("PodScheduled={} {}: {}", one.status, one.reason, one.message)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// An event in one line.
pub(super) fn event_line(event: &Event) -> String {
    let about = &event.involved_object;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (kind, name, reason) = (text(&about.kind), text(&about.name), text(&event.reason));
    format!("{} {name}: {reason}: {}", kind, text(&event.message))
}
