//! Intake: translates watch events into observations for the engine.
//!
//! No object is kept: of a pod a record stays, of a group object its definition and its status. After a relist, objects
//! that the list does not contain are treated as deleted. Nothing here waits or sends.

mod budget;
pub(crate) mod class;
mod features;
pub(crate) mod group_index;
pub(crate) mod instance;
mod inter_pod_affinity;
mod node;
pub(crate) mod owners;
mod pod;
mod pod_dependencies;
pub(crate) mod pod_record;
mod priorities;
pub(crate) mod raw;
mod replicas;
pub(crate) mod selectors;
pub(crate) mod spread;
pub(crate) mod storage;
#[cfg(test)]
mod tests;
mod unsupported;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::conditions::DISRUPTION_TARGET;
use muster_api::keys::events::{GROUP_REFERENCE_CHANGED, GROUP_REFERENCE_CONFLICT};
use muster_api::keys::group_reasons::PREEMPTION_BY_SCHEDULER;
use muster_api::owners::GangedOwners;
use muster_api::wire::condition::Condition;
use muster_api::wire::{Node, Pod, PodDisruptionBudget};
use muster_clock::millis;
use muster_engine::Observation;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{Membership, PodName, PodSpec, RefusalKind};
use muster_reflector::{Delta, Relist};

use crate::dialect::{Dialect, GroupObject, Reference};
use crate::gates::FeatureGates;
use crate::settings::{Profile, TaintKey};
use group_index::{GroupIndex, ObjectKey};
use owners::OwnerKind;
use pod::{pod_name, refusal, stage};
use pod_dependencies::PodDependencies;
use pod_record::{PodRecord, read_condition};
use priorities::Priorities;
use raw::{Guarded, RawObject};
use selectors::SelectorKind;
use storage::Storage;

/// Follows the scheduler's name in the `DisruptionTarget` message of a preempted pod; the kind of the preemptor comes
/// after it.
pub(crate) const PREEMPTION_MESSAGE: &str = ": preempting to accommodate a higher priority ";
/// The `DisruptionTarget` reason of a pod that is deleted by the eviction API.
const EVICTION_BY_API: &str = "EvictionByEvictionAPI";
/// The event reason of a pod that cannot be parsed.
const UNREADABLE: &str = "Unreadable";

/// A change seen by a watch. Most are of pods, which are the largest, so boxing them gains nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum WatchEvent {
    Pod(Delta<Guarded<Pod>>),
    Node(Delta<Guarded<Node>>),
    Class(Delta<Guarded<PriorityClass>>),
    Namespace(Delta<Guarded<Namespace>>),
    Budget(Delta<Guarded<PodDisruptionBudget>>),
    /// Objects that select pods.
    Selector(SelectorKind, Delta<RawObject>),
    /// PersistentVolumeClaims and PersistentVolumes.
    Storage(Storage, Delta<RawObject>),
    /// Owners whose pods may be gangs.
    Owner(OwnerKind, Delta<RawObject>),
    /// Group objects of a dialect, by its number.
    Group(usize, Delta<RawObject>),
}

/// The result of a watch event.
#[derive(Debug, Default)]
pub(crate) struct IntakeOutput {
    /// Observations for the engine.
    pub(crate) observations: Vec<Observation>,
    /// Events on pods that are emitted at once, by reason and note.
    pub(crate) pod_events: Vec<(Arc<PodName>, &'static str, String)>,
    /// Pods that are no longer pending.
    pub(crate) no_longer_pending: Vec<Arc<PodName>>,
    /// Pods that became pending: group members and rejected pods.
    pub(crate) newly_pending: Vec<Arc<PodName>>,
    /// Objects that could not be parsed, for the log.
    pub(crate) errors: Vec<String>,
}

/// The state that is kept of the watched objects.
pub(crate) struct Intake {
    profiles: Vec<Profile>,
    startup_taints: Vec<TaintKey>,
    /// By scheduler name.
    profiles_by_name: BTreeMap<String, u16>,
    gates: FeatureGates,
    pods: BTreeMap<Arc<str>, PodRecord>,
    nodes: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    /// By namespace and name.
    budgets: BTreeSet<(String, String)>,
    priorities: Priorities,
    dependencies: PodDependencies,
    pub(crate) groups: GroupIndex,
    pod_relist: Relist<Arc<str>>,
    node_relist: Relist<String>,
    namespace_relist: Relist<String>,
    class_relist: Relist<String>,
    budget_relist: Relist<(String, String)>,
    group_relists: Vec<Relist<ObjectKey>>,
}

impl Intake {
    pub(crate) fn new(
        profiles: Vec<Profile>,
        startup_taints: Vec<TaintKey>,
        gates: FeatureGates,
        ganged: GangedOwners,
        dialects: Vec<Box<dyn Dialect>>,
    ) -> Self {
        let names = profiles
            .iter()
            .zip(0_u16..)
            .flat_map(|(profile, number)| profile.scheduler_names.iter().map(move |name| (name.clone(), number)));
        let profiles_by_name = names.collect();
        Self {
            dependencies: PodDependencies::new(&profiles, ganged),
            profiles,
            startup_taints,
            profiles_by_name,
            gates,
            pods: BTreeMap::new(),
            nodes: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            budgets: BTreeSet::new(),
            priorities: Priorities::default(),
            group_relists: dialects.iter().map(|_| Relist::default()).collect(),
            groups: GroupIndex::new(dialects, gates),
            pod_relist: Relist::default(),
            node_relist: Relist::default(),
            namespace_relist: Relist::default(),
            class_relist: Relist::default(),
            budget_relist: Relist::default(),
        }
    }

    /// Whether every watch has delivered a complete list.
    pub(crate) fn has_synced(&self) -> bool {
        self.pod_relist.has_synced()
            && self.node_relist.has_synced()
            && self.namespace_relist.has_synced()
            && self.class_relist.has_synced()
            && self.budget_relist.has_synced()
            && self.dependencies.has_synced()
            && self.group_relists.iter().all(Relist::has_synced)
    }

    /// The record of a pod.
    pub(crate) fn pod_record(&self, uid: &str) -> Option<&PodRecord> {
        self.pods.get(uid)
    }

    /// Handles a watch event.
    pub(crate) fn handle(&mut self, event: WatchEvent, now_ms: u64) -> IntakeOutput {
        let mut output = IntakeOutput::default();
        match event {
            WatchEvent::Pod(delta) => self.on_pod_delta(delta, now_ms, &mut output),
            WatchEvent::Node(delta) => self.on_node_delta(delta, &mut output),
            WatchEvent::Class(delta) => self.on_class_delta(delta, &mut output),
            WatchEvent::Namespace(delta) => self.on_namespace_delta(delta, &mut output),
            WatchEvent::Budget(delta) => self.on_budget_delta(delta, &mut output),
            WatchEvent::Selector(kind, delta) => {
                let updates = self.dependencies.on_selector_delta(kind, delta);
                self.emit_updates(updates, &mut output);
            }
            WatchEvent::Storage(kind, delta) => {
                let updates = self.dependencies.on_storage_delta(kind, delta);
                self.emit_updates(updates, &mut output);
            }
            WatchEvent::Owner(kind, delta) => {
                let updates = self.dependencies.on_owner_delta(kind, delta);
                self.emit_updates(updates, &mut output);
            }
            WatchEvent::Group(dialect, delta) => self.on_group_delta(dialect, delta, &mut output),
        }
        output
    }

    fn on_pod_delta(&mut self, delta: Delta<Guarded<Pod>>, now_ms: u64, output: &mut IntakeOutput) {
        let uid =
            |object: &Guarded<Pod>| Arc::<str>::from(kube::Resource::meta(object).uid.as_deref().unwrap_or_default());
        let known = || self.pods.keys().cloned().collect();
        let (object, gone) = self.pod_relist.apply(delta, uid, known);
        for uid in gone {
            self.pod_gone(&uid, output);
        }
        match object.map(|object| object.0) {
            Some(Ok(pod)) => self.pod_seen(&pod, now_ms, output),
            Some(Err(unreadable)) => {
                let text = raw::parse_error("Pod", &unreadable);
                if let Some(id) = raw::pod_name_of(&unreadable) {
                    output.pod_events.push((Arc::new(id), UNREADABLE, text.clone()));
                }
                output.errors.push(text);
            }
            None => {}
        }
    }

    fn on_node_delta(&mut self, delta: Delta<Guarded<Node>>, output: &mut IntakeOutput) {
        let name = |object: &Guarded<Node>| kube::Resource::meta(object).name.clone().unwrap_or_default();
        let known = || self.nodes.iter().cloned().collect();
        let (object, gone) = self.node_relist.apply(delta, name, known);
        for name in gone {
            if self.nodes.remove(&name) {
                output.observations.push(Observation::NodeGone { name });
            }
        }
        match object.map(|object| object.0) {
            Some(Ok(object)) => match node::node(&object, &self.startup_taints) {
                Ok(spec) => {
                    self.nodes.insert(spec.name.clone());
                    output.observations.push(Observation::NodeSeen(spec));
                }
                Err(error) => output.errors.push(error.on(object.object_name()).to_string()),
            },
            Some(Err(unreadable)) => output.errors.push(raw::parse_error("Node", &unreadable)),
            None => {}
        }
    }

    fn on_class_delta(&mut self, delta: Delta<Guarded<PriorityClass>>, output: &mut IntakeOutput) {
        let name = |object: &Guarded<PriorityClass>| kube::Resource::meta(object).name.clone().unwrap_or_default();
        let known = || self.priorities.names().cloned().collect();
        let (object, gone) = self.class_relist.apply(delta, name, known);
        let mut changed = false;
        for name in gone {
            changed |= self.priorities.on_deleted(&name);
        }
        match object.map(|object| object.0) {
            Some(Ok(class)) => changed |= self.priorities.on_applied(&class),
            Some(Err(unreadable)) => output.errors.push(raw::parse_error("PriorityClass", &unreadable)),
            None => {}
        }
        if changed {
            output.observations.extend(self.groups.refresh_all(&self.priorities));
        }
    }

    fn on_namespace_delta(&mut self, delta: Delta<Guarded<Namespace>>, output: &mut IntakeOutput) {
        let name = |object: &Guarded<Namespace>| kube::Resource::meta(object).name.clone().unwrap_or_default();
        let known = || self.namespaces.iter().cloned().collect();
        let (object, gone) = self.namespace_relist.apply(delta, name, known);
        for name in gone {
            if self.namespaces.remove(&name) {
                output.observations.push(Observation::NamespaceGone { name });
            }
        }
        match object.map(|object| object.0) {
            Some(Ok(namespace)) => {
                let (name, labels) = (namespace.metadata.name.unwrap_or_default(), namespace.metadata.labels);
                self.namespaces.insert(name.clone());
                let labels = labels.unwrap_or_default();
                output.observations.push(Observation::NamespaceSeen { name, labels });
            }
            Some(Err(unreadable)) => output.errors.push(raw::parse_error("Namespace", &unreadable)),
            None => {}
        }
    }

    fn on_budget_delta(&mut self, delta: Delta<Guarded<PodDisruptionBudget>>, output: &mut IntakeOutput) {
        let key = |object: &Guarded<PodDisruptionBudget>| {
            let meta = kube::Resource::meta(object);
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        let known = || self.budgets.iter().cloned().collect();
        let (object, gone) = self.budget_relist.apply(delta, key, known);
        for key in gone {
            if self.budgets.remove(&key) {
                let (namespace, name) = key;
                output.observations.push(Observation::BudgetGone { namespace, name });
            }
        }
        match object.map(|object| object.0) {
            Some(Ok(object)) => match budget::budget(&object) {
                Ok(spec) => {
                    self.budgets.insert((spec.namespace.clone(), spec.name.clone()));
                    output.observations.push(Observation::BudgetSeen(spec));
                }
                Err(error) => output.errors.push(error.on(object.object_name()).to_string()),
            },
            Some(Err(unreadable)) => output.errors.push(raw::parse_error("PodDisruptionBudget", &unreadable)),
            None => {}
        }
    }

    /// Emits observations of pods whose dependencies have changed.
    fn emit_updates(&mut self, (pods, error): pod_dependencies::PodUpdates, output: &mut IntakeOutput) {
        for spec in pods {
            if let Some(record) = self.pods.get_mut(spec.id.uid.as_str()) {
                record.refused = spec.refused.is_some();
                record.held &= record.refused;
            }
            output.observations.push(Observation::PodSeen(spec));
        }
        output.errors.extend(error);
    }

    fn on_group_delta(&mut self, dialect: usize, delta: Delta<RawObject>, output: &mut IntakeOutput) {
        let key = |object: &RawObject| ObjectKey {
            dialect,
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
        };
        match delta {
            Delta::NotServed => self.groups.set_served(dialect, false),
            Delta::ListStarted | Delta::Deleted(_) => {}
            Delta::Listed(_) | Delta::ListDone | Delta::Applied(_) => self.groups.set_served(dialect, true),
        }
        let known = || self.groups.objects_of(dialect).cloned().collect();
        let (object, gone) = self.group_relists[dialect].apply(delta, key, known);
        for key in gone {
            output.observations.extend(self.groups.object_gone(&key, &self.priorities));
        }
        if let Some(object) = object {
            let key = key(&object);
            let was_led = self.groups.is_led(&key);
            output.observations.extend(self.handle_group_text(dialect, object.text.get()));
            let group = self.groups.instances_of(&key).next().cloned();
            if let Some(group) = group.filter(|_| was_led || self.groups.is_led(&key)) {
                self.on_replica_changed(&group, output);
            }
        }
    }

    /// Handles a group object from the response to a write. The response is outdated if the object has been deleted or
    /// recreated since.
    pub(crate) fn handle_group_response(&mut self, dialect: usize, text: &str) -> Vec<Observation> {
        let metadata = raw::metadata_of(text);
        let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
        let known = self.groups.object(&ObjectKey { dialect, namespace, name });
        if known.is_none_or(|known| Some(&known.uid) != metadata.uid.as_ref()) {
            return Vec::new();
        }
        self.handle_group_text(dialect, text)
    }

    /// Handles the text of a group object.
    fn handle_group_text(&mut self, dialect: usize, text: &str) -> Vec<Observation> {
        let mut object: GroupObject = self.groups.dialects[dialect].read(text);
        if object.name.is_empty() {
            return Vec::new();
        }
        object.members_since_ms = self.members_since(&object);
        self.groups.object_seen(dialect, object, &self.priorities)
    }

    fn pod_gone(&mut self, uid: &Arc<str>, output: &mut IntakeOutput) {
        let Some(record) = self.pods.remove(uid) else { return };
        self.dependencies.forget(&record.id.namespace, uid);
        output.observations.push(Observation::PodGone { uid: uid.to_string() });
        if let Some(group) = &record.group {
            output.observations.extend(self.groups.leave(group, uid));
            self.on_leader_changed(group, uid, output);
        }
        output.no_longer_pending.push(record.id);
    }

    fn pod_seen(&mut self, pod: &Pod, now_ms: u64, output: &mut IntakeOutput) {
        let id = pod_name(pod);
        if id.uid.is_empty() {
            return output.errors.push(format!("{}: metadata.uid: \"\": must be set", pod.object_name()));
        }
        let uid: Arc<str> = id.uid.as_str().into();
        let named = self.named_group(pod);
        let has_group = |record: &PodRecord| record.group.is_some() || record.broken.is_some();
        let is_single = self.pods.get(&uid).is_some_and(|record| record.ours && !has_group(record));
        let is_pending = pod.spec.node_name.is_empty();
        if is_single && is_pending && !matches!(named.reference, Ok(None)) && self.dependencies.may_join_late(pod) {
            // The reference that it was held back for: it starts over as a group member.
            self.pod_gone(&uid, output);
        }
        let names_group = !matches!(named.reference, Ok(None)) || self.pods.get(&uid).is_some_and(has_group);
        let known = self.pods.get(&uid).map(|record| record.id.clone());
        let id = known.clone().unwrap_or_else(|| Arc::new(id));
        let profile = self.profiles_by_name.get(&pod.spec.scheduler_name).copied();
        let ours = profile.is_some();
        let profile = profile.map(|number| (number, &self.profiles[usize::from(number)]));
        let (mut spec, flaw) = pod::pod(pod, id.clone(), profile);
        if let Some(flaw) = flaw.filter(|_| spec.node.is_some()) {
            output.errors.push(flaw.on(pod.object_name()).to_string());
        }
        let own = ours.then(|| spec.clone());
        if ours {
            spec = self.dependencies.apply_to(pod, spec, names_group);
        }
        if known.is_none() {
            self.add_record(&uid, id.clone(), &named, pod, output);
        }
        self.update_record(&uid, pod, &spec, &named, now_ms, output);
        let held = self.held_by_replica(&uid).filter(|_| ours && spec.node.is_none());
        if let Some(record) = self.pods.get_mut(&uid).filter(|_| held.is_some()) {
            (record.held, record.refused) = (true, true);
        }
        spec.refused = spec.refused.or_else(|| held.clone());
        let Some(record) = self.pods.get(&uid) else { return };
        spec.membership =
            record.group.as_ref().map(|key| Membership { group: (**key).clone(), subset: record.subset.to_string() });
        spec.marked = self.is_disruption_target(pod);
        if let Some(broken) = record.broken.as_ref().filter(|_| ours) {
            spec.refused = Some(broken.clone());
        }
        if !record.is_pending() {
            output.no_longer_pending.push(id);
        }
        if let Some(mut own) = own {
            (own.membership, own.marked) = (spec.membership.clone(), spec.marked);
            own.refused = record.broken.clone().or(own.refused);
            self.dependencies.track(&uid, pod, own, &spec, (names_group, held));
        }
        let group = record.group.clone();
        output.observations.push(Observation::PodSeen(spec));
        if let Some(group) = group {
            self.on_leader_changed(&group, &uid, output);
        }
    }

    /// Whether the pod's status shows that a Muster with one of our scheduler names preempts it.
    fn is_disruption_target(&self, pod: &Pod) -> bool {
        let target = Condition::find(&pod.status.conditions, DISRUPTION_TARGET).filter(|one| one.is_true());
        let by_us = |message: &str| {
            let name = message.split_once(PREEMPTION_MESSAGE).map(|(name, _)| name);
            name.is_some_and(|name| self.profiles_by_name.contains_key(name))
        };
        // The eviction API overwrites our condition when it deletes a pod.
        let is_evicted_by_api =
            |one: &Condition| one.reason == EVICTION_BY_API && pod.metadata.deletion_timestamp.is_some();
        target
            .is_some_and(|one| is_evicted_by_api(one) || (one.reason == PREEMPTION_BY_SCHEDULER && by_us(&one.message)))
    }

    /// The group that the pod names now.
    fn named_group(&self, pod: &Pod) -> NamedGroup {
        if !self.gates.generic_workload {
            return NamedGroup { reference: Ok(None), conflict: false };
        }
        let mut found = Vec::new();
        for (number, dialect) in self.groups.dialects.iter().enumerate() {
            found.extend(dialect.reference(pod).map(|reference| (number, reference)));
        }
        if let [(first, _), (second, _), ..] = found.as_slice() {
            let names = [self.groups.dialects[*first].origin(), self.groups.dialects[*second].origin()];
            let reason = "the pod names groups in more than one way, which is ambiguous";
            let error = FieldPath::Root("metadata.annotations").invalid(&names, reason);
            return NamedGroup { reference: Err(error), conflict: true };
        }
        let reference =
            found.pop().map(|(number, reference)| reference.map(|reference| (number, reference))).transpose();
        NamedGroup { reference, conflict: false }
    }

    fn add_record(
        &mut self,
        uid: &Arc<str>,
        id: Arc<PodName>,
        named: &NamedGroup,
        pod: &Pod,
        output: &mut IntakeOutput,
    ) {
        let mut group: Option<Arc<GroupKey>> = None;
        let mut subset = "";
        let broken = named.reference.as_ref().err().map(|error| refusal(RefusalKind::Reference, error.clone()));
        match &named.reference {
            Ok(Some((dialect, reference))) => {
                let ours = self.profiles_by_name.contains_key(&pod.spec.scheduler_name);
                let member = (uid.clone(), ours);
                let joined = self.groups.join(*dialect, &id.namespace, reference, member, &self.priorities);
                output.observations.extend(joined.1);
                group = Some(Arc::new(joined.0));
                subset = &reference.subset;
            }
            Err(error) if named.conflict => {
                output.pod_events.push((id.clone(), GROUP_REFERENCE_CONFLICT, error.to_string()));
            }
            Ok(None) | Err(_) => {}
        }
        let record = PodRecord {
            id,
            group,
            broken,
            subset: subset.into(),
            priority: pod.spec.priority.unwrap_or(0),
            ours: false,
            gated: false,
            refused: false,
            terminating: false,
            stage: pod_record::Stage::Pending,
            replica_size: replicas::size_for_worker(pod),
            created_ms: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| millis(time.0)),
            pending_since_ms: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| millis(time.0)),
            version: None,
            condition: None,
            changed_reference: None,
            held: false,
        };
        self.pods.insert(uid.clone(), record);
    }

    fn update_record(
        &mut self,
        uid: &Arc<str>,
        pod: &Pod,
        spec: &PodSpec,
        named: &NamedGroup,
        now_ms: u64,
        output: &mut IntakeOutput,
    ) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let was_pending = record.is_pending();
        record.ours = spec.ours;
        if record.gated && !spec.gated {
            record.pending_since_ms = now_ms;
        }
        record.gated = spec.gated;
        record.refused = spec.refused.is_some() || record.broken.is_some();
        let names_no_group = record.group.is_none() && record.broken.is_none() && matches!(named.reference, Ok(None));
        record.held = spec.ours && names_no_group && self.dependencies.is_held(pod);
        record.terminating = spec.terminating;
        record.stage = stage(pod);
        record.condition = read_condition(pod).filter(|_| spec.ours);
        let version = pod.metadata.resource_version.as_deref().filter(|_| spec.ours && spec.node.is_none());
        record.version = version.map(Into::into);
        if record.is_pending() && !was_pending && (record.group.is_some() || record.refused) {
            output.newly_pending.push(record.id.clone());
        }
        if let Some(group) = &record.group {
            self.groups.member_changed(group);
        }
        let same = match (&named.reference, &record.group) {
            (Ok(Some((dialect, reference))), Some(key)) => {
                let named = reference.key(self.groups.dialects[*dialect].origin(), &record.id.namespace);
                named == **key && *reference.subset == *record.subset
            }
            (Ok(None), None) => record.broken.is_none(),
            (Err(_), None) => record.broken.is_some(),
            _ => false,
        };
        if same {
            record.changed_reference = None;
            return;
        }
        let now = named.describe();
        if record.changed_reference.as_deref() != Some(now.as_str()) {
            record.changed_reference = Some(now.as_str().into());
            let none = || if record.broken.is_some() { "a broken reference" } else { "no group" }.to_owned();
            let was = record.group.as_ref().map_or_else(none, |key| format!("the group {key}"));
            let sentence = format!("The pod was first seen with {was}; it now names {now}. That has no effect.");
            output.pod_events.push((record.id.clone(), GROUP_REFERENCE_CHANGED, sentence));
        }
    }
}

/// The group that a pod names.
struct NamedGroup {
    /// The dialect and the reference, nothing, or an error.
    reference: Result<Option<(usize, Reference)>, InvalidField>,
    /// Whether more than one dialect is used.
    conflict: bool,
}

impl NamedGroup {
    fn describe(&self) -> String {
        match &self.reference {
            Ok(None) => "no group".to_owned(),
            Err(error) => error.to_string(),
            Ok(Some((_, reference))) => {
                let parts = [&reference.object, &reference.group, &reference.replica, &reference.subset];
                let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
                format!("the group {}", parts.join("/"))
            }
        }
    }
}
