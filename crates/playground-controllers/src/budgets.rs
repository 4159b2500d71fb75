//! The disruption controller: keeps the status of PodDisruptionBudgets (expected, desired and healthy pods, allowed
//! disruptions).
//!
//! It computes as the real disruption controller does. Must not evict anything.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use muster_api::invalid::FieldPath;
use muster_api::selector::WrittenLabelSelector;
use muster_clock::{self as clock, Clock};
use muster_playground_client::api_errors::is_not_found;
use muster_playground_client::task::Task;
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};

use super::owners::controller_of;
use super::pod_record::{PodRecord, is_terminating, ready_since, without_tolerations};
use super::reconcile::{Controller, WorkQueue, run};

/// How long an evicted pod may take until its deletion is visible.
const DISRUPTION_SECONDS: i64 = 120;
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// The disruption controller. It runs until this is dropped.
#[derive(Debug)]
pub struct Budgets {
    pub(super) task: Task,
}

impl Budgets {
    /// Starts the controller. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let events = stream::select_all([
            watch(Api::<PodDisruptionBudget>::all(client.clone()), Selection::default()).map(Event::Budget).boxed(),
            watch(Api::<PodRecord>::all(client.clone()), Selection::default()).map(Event::Pod).boxed(),
        ]);
        let controller = DisruptionController { client, clock, budgets: Cache::default(), pods: Cache::default() };
        Self { task: Task::start("disruption controller", run(controller, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Budget(Delta<PodDisruptionBudget>),
    Pod(Delta<PodRecord>),
}

struct DisruptionController {
    client: Client,
    clock: Clock,
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<PodRecord>,
}

/// How many pods there should be.
struct Expected {
    pods: i32,
    healthy: i32,
}

impl Controller for DisruptionController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Budget(event) => {
                let changes = self.budgets.apply(event).into_iter();
                changes.filter_map(|change| change.new).for_each(|budget| queue.add(key_of(&*budget)));
            }
            Event::Pod(event) => {
                for change in self.pods.apply(event.modify(strip_unused_fields)) {
                    for pod in [change.old, change.new].into_iter().flatten() {
                        let namespace = pod.namespace().unwrap_or_default();
                        let concerned = self.budgets.in_namespace(&namespace).filter(|budget| selects(budget, &pod));
                        concerned.for_each(|budget| queue.add(key_of(&**budget)));
                    }
                }
            }
        }
    }

    fn has_synced(&self) -> bool {
        self.budgets.has_synced() && self.pods.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(budget) = self.budgets.get(key) else { return Ok(None) };
        let pods: Vec<&PodRecord> =
            self.pods.in_namespace(&key.0).map(|pod| &**pod).filter(|pod| selects(budget, pod)).collect();
        let now = self.clock.now();
        let mut desired = PodDisruptionBudget::clone(budget);
        let status = desired.status.get_or_insert_default();
        let expected = match self.expected(budget, &pods).await {
            Ok(expected) => expected,
            Err(ScaleError::Api(error)) => return Err(error),
            Err(ScaleError::Budget(why)) => {
                // No disruption is allowed while the expected number of pods is unknown.
                status.disruptions_allowed = Some(0);
                let observed = status.observed_generation.unwrap_or_default();
                let list = status.conditions.get_or_insert_default();
                set_condition(list, ("False", "SyncFailed", &why), observed, now);
                self.write(budget, &desired).await?;
                return Ok(None);
            }
        };
        let mut disrupted = status.disrupted_pods.clone().unwrap_or_default();
        let next = drop_expired(&mut disrupted, &pods, now);
        let healthy = pods.iter().filter(|pod| is_healthy(pod, &disrupted)).count() as i32;
        let disruptions_allowed = if expected.pods > 0 { (healthy - expected.healthy).max(0) } else { 0 };
        status.current_healthy = Some(healthy);
        status.desired_healthy = Some(expected.healthy);
        status.expected_pods = Some(expected.pods);
        status.disruptions_allowed = Some(disruptions_allowed);
        status.disrupted_pods = (!disrupted.is_empty()).then_some(disrupted);
        status.observed_generation = budget.metadata.generation;
        let condition =
            if disruptions_allowed > 0 { ("True", "SufficientPods", "") } else { ("False", "InsufficientPods", "") };
        let observed = status.observed_generation.unwrap_or_default();
        set_condition(status.conditions.get_or_insert_default(), condition, observed, now);
        self.write(budget, &desired).await?;
        Ok(next.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or_default()))
    }
}

/// Why the number of pods is unknown.
enum ScaleError {
    /// The budget cannot be evaluated.
    Budget(String),
    /// A request failed; retried later.
    Api(kube::Error),
}

impl DisruptionController {
    /// Writes the status if it has changed.
    async fn write(&self, old: &PodDisruptionBudget, new: &PodDisruptionBudget) -> Result<(), kube::Error> {
        if old.status == new.status {
            return Ok(());
        }
        let budgets: Api<PodDisruptionBudget> =
            Api::namespaced(self.client.clone(), &old.namespace().unwrap_or_default());
        match budgets.replace_status(&old.name_any(), &PostParams::default(), new).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn expected(&self, budget: &PodDisruptionBudget, pods: &[&PodRecord]) -> Result<Expected, ScaleError> {
        let Some(spec) = &budget.spec else { return Ok(Expected { pods: 0, healthy: 0 }) };
        match (&spec.max_unavailable, &spec.min_available) {
            (Some(max_unavailable), _) => {
                let scale = self.scale(pods).await?;
                let unavailable = scaled_value(max_unavailable, scale).map_err(ScaleError::Budget)?;
                Ok(Expected { pods: scale, healthy: (scale - unavailable).max(0) })
            }
            (None, Some(IntOrString::Int(min_available))) => {
                Ok(Expected { pods: pods.len() as i32, healthy: *min_available })
            }
            (None, Some(min_available)) => {
                let scale = self.scale(pods).await?;
                Ok(Expected { pods: scale, healthy: scaled_value(min_available, scale).map_err(ScaleError::Budget)? })
            }
            (None, None) => Ok(Expected { pods: 0, healthy: 0 }),
        }
    }

    /// The total number of pods that their controllers desire. Pods without a controller are not counted.
    async fn scale(&self, pods: &[&PodRecord]) -> Result<i32, ScaleError> {
        let mut found: BTreeMap<String, i32> = BTreeMap::new();
        let mut seen_owners: Vec<&str> = Vec::new();
        for pod in pods {
            let Some(owner) = controller_of(*pod) else { continue };
            if seen_owners.contains(&owner.uid.as_str()) {
                continue;
            }
            seen_owners.push(&owner.uid);
            let namespace = pod.namespace().unwrap_or_default();
            match self.scale_of(owner, &namespace).await {
                Ok(Some((uid, replicas))) => drop(found.insert(uid, replicas)),
                Ok(None) => {
                    return Err(ScaleError::Budget(format!("found no controllers for pod {:?}", pod.name_any())));
                }
                Err(error) => return Err(ScaleError::Api(error)),
            }
        }
        Ok(found.values().fold(0, |sum: i32, replicas| sum.saturating_add(*replicas)))
    }

    /// The controller that sets the number of pods, and its desired number.
    async fn scale_of(&self, owner: &OwnerReference, namespace: &str) -> Result<Option<(String, i32)>, kube::Error> {
        if owner.kind != "ReplicaSet" || !owner.api_version.starts_with("apps/") {
            return self.scale_of_any(owner, namespace).await;
        }
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace);
        let Some(set) = sets.get_opt(&owner.name).await?.filter(|set| set.uid().as_ref() == Some(&owner.uid)) else {
            return Ok(None);
        };
        let above = set.owner_references().iter().find(|owner| owner.controller == Some(true));
        let Some(above) = above.filter(|above| above.kind == "Deployment") else {
            let replicas = set.spec.replicas.unwrap_or(1);
            return Ok(Some((owner.uid.clone(), replicas)));
        };
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let deployment = deployments.get_opt(&above.name).await?;
        let deployment = deployment.filter(|deployment| deployment.uid().as_ref() == Some(&above.uid));
        Ok(deployment.map(|deployment| (above.uid.clone(), deployment.spec.replicas.unwrap_or(1))))
    }

    /// The same through the scale subresource of any kind.
    async fn scale_of_any(
        &self,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<(String, i32)>, kube::Error> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let kind = GroupVersionKind::gvk(group, version, &owner.kind);
        let (resource, _) = match kube::discovery::pinned_kind(&self.client, &kind).await {
            Err(error) if is_not_found(&error) || matches!(error, kube::Error::Discovery(_)) => return Ok(None),
            found => found?,
        };
        let owners: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        match owners.get_scale(&owner.name).await {
            Err(error) if is_not_found(&error) => Ok(None),
            scale => Ok(scale?.spec.map(|spec| (owner.uid.clone(), spec.replicas.unwrap_or_default()))),
        }
    }
}

/// Drops fields that this controller does not use, which are most of the memory when there are many pods.
fn strip_unused_fields(pod: &mut PodRecord) {
    without_tolerations(pod);
    pod.metadata.annotations = None;
    pod.spec.volumes = None;
}

fn selects(budget: &PodDisruptionBudget, pod: &PodRecord) -> bool {
    let selector: Option<&LabelSelector> = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let Some(selector) = selector else { return false };
    let written = serde_json::to_value(selector).and_then(serde_json::from_value::<WrittenLabelSelector>);
    // An invalid selector covers no pods.
    written.is_ok_and(|written| {
        let checked = WrittenLabelSelector::validate(Some(&written), &FieldPath::Root("spec.selector"));
        checked.is_ok_and(|checked| checked.matches(pod.labels()))
    })
}

fn is_healthy(pod: &PodRecord, disrupted: &BTreeMap<String, Time>) -> bool {
    !is_terminating(pod) && !disrupted.contains_key(&pod.name_any()) && ready_since(pod).is_some()
}

/// Drops pods that are terminating or whose eviction did not happen in time. Returns when the next entry expires.
fn drop_expired(disrupted: &mut BTreeMap<String, Time>, pods: &[&PodRecord], now: Timestamp) -> Option<Timestamp> {
    let expiry = |time: &Time| clock::after(time.0, DISRUPTION_SECONDS);
    disrupted.retain(|name, time| {
        let pod = pods.iter().find(|pod| pod.name_any() == *name);
        pod.is_some_and(|pod| !is_terminating(pod)) && expiry(time) > now
    });
    disrupted.values().map(expiry).min()
}

/// An absolute number, or a percentage of the total, rounded up.
fn scaled_value(amount: &IntOrString, total: i32) -> Result<i32, String> {
    match amount {
        IntOrString::Int(number) => Ok(*number),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i32>().ok());
            let percent = percent.ok_or_else(|| format!("{text:?} is neither a number nor a percentage"))?;
            let hundredths = i64::from(percent) * i64::from(total);
            Ok(i32::try_from(hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0))
                .unwrap_or(i32::MAX))
        }
    }
}

fn set_condition(list: &mut Vec<Condition>, condition: (&str, &str, &str), observed_generation: i64, now: Timestamp) {
    let (status, reason, message) = condition;
    let old = list.iter_mut().find(|one| one.type_ == DISRUPTION_ALLOWED);
    let since = old.as_ref().filter(|one| one.status == status).map(|one| one.last_transition_time.clone());
    let condition = Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: Some(observed_generation),
        last_transition_time: since.unwrap_or(Time(now)),
    };
    match old {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_is_rounded_up() {
        for (amount, total, expected) in [
            (IntOrString::Int(3), 10, Ok(3)),
            (IntOrString::String("30%".to_owned()), 10, Ok(3)),
            (IntOrString::String("31%".to_owned()), 10, Ok(4)),
            (IntOrString::String("1%".to_owned()), 1, Ok(1)),
            (IntOrString::String("100%".to_owned()), 7, Ok(7)),
            (IntOrString::String("0%".to_owned()), 7, Ok(0)),
        ] {
            assert_eq!(scaled_value(&amount, total), expected, "{amount:?}");
        }
        assert!(scaled_value(&IntOrString::String("half".to_owned()), 2).is_err());
    }
}
