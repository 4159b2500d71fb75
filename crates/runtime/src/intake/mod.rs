//! Intake: translates watch events into observations for the engine.
//!
//! No object is kept: of a pod a record stays, of a group object its definition and its status. After a relist, objects
//! that the list does not contain are treated as deleted. Nothing here waits or sends.

mod budget;
pub(crate) mod class;
mod features;
pub(crate) mod group_index;
mod group_reference;
pub(crate) mod instance;
mod inter_pod_affinity;
mod node;
pub(crate) mod owners;
mod pending_pods;
mod pod;
mod pod_dependencies;
pub(crate) mod pod_record;
mod pod_volumes;
mod priorities;
mod profiles;
mod rank;
pub(crate) mod raw;
mod recreated_owners;
mod replicas;
pub(crate) mod selectors;
pub(crate) mod spread;
pub(crate) mod storage;
#[cfg(test)]
mod tests;
mod unsupported;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use muster_api::keys::events::{GROUP_REFERENCE_CHANGED, GROUP_REFERENCE_CONFLICT};
use muster_api::owners::GangedOwners;
use muster_api::wire::{Node, Pod, PodDisruptionBudget};
use muster_engine::Observation;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodName, RefusalKind};
use muster_reflector::{Delta, Guarded, Key, Table, key_of, metadata_of};

use crate::dialect::{Dialect, GroupObject, MadeFor};
use crate::gates::FeatureGates;
use crate::settings::{Profile, TaintKey};
use group_index::{GroupIndex, ObjectKey};
use group_reference::NamedGroup;
use owners::OwnerKind;
use pending_pods::PendingPods;
use pod::{is_disruption_target, pod_name, refusal};
use pod_dependencies::{Indexes, SpecifiedPod, observe};
use pod_record::PodRecord;
use priorities::Priorities;
use profiles::Profiles;
use raw::RawObject;
use selectors::SelectorKind;
use storage::{Storage, StorageObjects};

/// Follows the scheduler's name in the `DisruptionTarget` message of a preempted pod; the kind of the preemptor comes
/// after it.
pub(crate) const PREEMPTION_MESSAGE: &str = ": preempting to accommodate a higher priority ";
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
    /// Claims, volumes, and what else there is of storage.
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
    profiles: Arc<Profiles>,
    startup_taints: Vec<TaintKey>,
    gates: FeatureGates,
    /// By UID.
    pods: Table<Arc<str>, PodRecord>,
    pending_pods: PendingPods,
    nodes: Table<Key, ()>,
    namespaces: Table<Key, ()>,
    budgets: Table<Key, ()>,
    storage: StorageObjects,
    priorities: Priorities,
    indexes: Indexes,
    pub(crate) groups: GroupIndex,
}

impl Intake {
    pub(crate) fn new(
        profiles: Vec<Profile>,
        startup_taints: Vec<TaintKey>,
        gates: FeatureGates,
        ganged: GangedOwners,
        dialects: Vec<Box<dyn Dialect>>,
    ) -> Self {
        let indexes = Indexes::new(&profiles, ganged);
        let profiles = Arc::new(Profiles::new(profiles));
        Self {
            indexes,
            profiles: profiles.clone(),
            startup_taints,
            gates,
            pods: Table::default(),
            pending_pods: PendingPods::default(),
            nodes: Table::default(),
            namespaces: Table::default(),
            budgets: Table::default(),
            storage: StorageObjects::default(),
            priorities: Priorities::default(),
            groups: GroupIndex::new(dialects, gates, profiles),
        }
    }

    /// Whether every watch has delivered a complete list.
    pub(crate) fn has_synced(&self) -> bool {
        self.pods.has_synced()
            && self.nodes.has_synced()
            && self.namespaces.has_synced()
            && self.priorities.has_synced()
            && self.budgets.has_synced()
            && self.storage.has_synced()
            && self.indexes.has_synced()
            && self.groups.has_synced()
    }

    /// The record of a pod.
    pub(crate) fn pod_record(&self, uid: &str) -> Option<&PodRecord> {
        self.pods.entries.get(uid)
    }

    /// Handles a watch event.
    pub(crate) fn handle(&mut self, event: WatchEvent, now_ms: u64) -> IntakeOutput {
        let mut output = IntakeOutput::default();
        match event {
            WatchEvent::Pod(delta) => self.on_pod_delta(delta, now_ms, &mut output),
            WatchEvent::Node(delta) => {
                let read = |object: Node| {
                    let spec = node::node(&object, &self.startup_taints);
                    spec.map(Observation::NodeSeen).map_err(|error| error.on(object.object_name()).to_string())
                };
                observe_objects(&mut self.nodes, delta, read, |(_, name)| Observation::NodeGone { name }, &mut output);
            }
            WatchEvent::Namespace(delta) => {
                let read = |Namespace { metadata, .. }| {
                    let (name, labels) = (metadata.name.unwrap_or_default(), metadata.labels.unwrap_or_default());
                    Ok(Observation::NamespaceSeen { name, labels })
                };
                let gone = |(_, name)| Observation::NamespaceGone { name };
                observe_objects(&mut self.namespaces, delta, read, gone, &mut output);
            }
            WatchEvent::Budget(delta) => {
                let read = |object: PodDisruptionBudget| {
                    let spec = budget::budget(&object);
                    spec.map(Observation::BudgetSeen).map_err(|error| error.on(object.object_name()).to_string())
                };
                let gone = |(namespace, name)| Observation::BudgetGone { namespace, name };
                observe_objects(&mut self.budgets, delta, read, gone, &mut output);
            }
            WatchEvent::Class(delta) => {
                let had_synced = self.priorities.has_synced();
                let (changed, error) = self.priorities.on_delta(delta);
                if changed || !had_synced {
                    output.observations.extend(self.groups.refresh_all(&self.priorities));
                }
                output.errors.extend(error);
            }
            WatchEvent::Selector(kind, delta) => {
                let (affected, error) = self.indexes.selectors.on_delta(kind, delta);
                self.observe_again(self.pending_pods.spread_by(&affected), &mut output);
                output.errors.extend(error);
            }
            WatchEvent::Storage(kind, delta) => {
                let (seen, error) = self.storage.on_delta(kind, delta);
                output.observations.extend(seen.into_iter().map(|one| Observation::Storage(Box::new(one))));
                output.errors.extend(error);
            }
            WatchEvent::Owner(kind, delta) => {
                let changed = self.indexes.owners.on_delta(kind, delta);
                self.observe_again(self.pending_pods.owned_by(kind, &changed), &mut output);
            }
            WatchEvent::Group(dialect, delta) => self.on_group_delta(dialect, delta, &mut output),
        }
        output
    }

    fn on_pod_delta(&mut self, delta: Delta<Guarded<Pod>>, now_ms: u64, output: &mut IntakeOutput) {
        let uid = |object: &Guarded<Pod>| Arc::<str>::from(object.meta().uid.as_deref().unwrap_or_default());
        let (object, gone) = self.pods.apply(delta, uid);
        for uid in gone {
            self.pod_gone(&uid, output);
        }
        let Some(object) = object else { return };
        let unreadable = object.object.as_ref().err().and_then(raw::pod_name_of);
        match raw::parsed(object) {
            Ok(pod) => self.pod_seen(&pod, now_ms, output),
            Err(error) => {
                output.pod_events.extend(unreadable.map(|id| (Arc::new(id), UNREADABLE, error.clone())));
                output.errors.push(error);
            }
        }
    }

    fn on_group_delta(&mut self, dialect: usize, delta: Delta<RawObject>, output: &mut IntakeOutput) {
        let (object, gone) = self.groups.apply(dialect, delta);
        for key in gone {
            output.observations.extend(self.groups.object_gone(&key, &self.priorities));
        }
        let Some(object) = object else { return };
        self.handle_group_text(dialect, &object.metadata, object.text.get(), output);
    }

    /// Handles a group object from the response to a write. The response is outdated if the object has been deleted or
    /// recreated since.
    pub(crate) fn handle_group_response(&mut self, dialect: usize, text: &str) -> IntakeOutput {
        let (metadata, mut output) = (metadata_of(text), IntakeOutput::default());
        let known = self.groups.object(&ObjectKey::new(dialect, &metadata));
        if known.is_some_and(|known| Some(&known.uid) == metadata.uid.as_ref()) {
            self.handle_group_text(dialect, &metadata, text, &mut output);
        }
        output
    }

    /// Handles the text of a group object.
    fn handle_group_text(&mut self, dialect: usize, metadata: &ObjectMeta, text: &str, output: &mut IntakeOutput) {
        let key = ObjectKey::new(dialect, metadata);
        let former = self.groups.made_for(&key).cloned();
        output.observations.extend(self.observe_group_text(dialect, text));
        let made_for = self.groups.made_for(&key);
        // The minimum of a replica's group matters to its members, too.
        if former.as_ref() != made_for || matches!(made_for, Some(MadeFor::Leader { .. })) {
            let groups: Vec<GroupKey> = self.groups.instances_of(&key).cloned().collect();
            for group in &groups {
                self.on_owner_changed(group, output);
            }
        }
    }

    fn observe_group_text(&mut self, dialect: usize, text: &str) -> Vec<Observation> {
        let mut object: GroupObject = self.groups.dialects[dialect].read(text);
        if object.name.is_empty() {
            return Vec::new();
        }
        object.members_since_ms = self.members_since(&object);
        self.groups.object_seen(dialect, object, &self.priorities)
    }

    fn pod_gone(&mut self, uid: &Arc<str>, output: &mut IntakeOutput) {
        let Some(record) = self.pods.entries.remove(uid) else { return };
        self.pending_pods.forget(&record.id);
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
        let dialects = if self.gates.generic_workload { &*self.groups.dialects } else { &[] };
        let named = NamedGroup::of(pod, dialects);
        if self.joins_late(&uid, pod, &named) {
            // The reference that it was held back for: it starts over as a group member.
            self.pod_gone(&uid, output);
        }
        if !self.pods.entries.contains_key(&uid) {
            self.add_record(&uid, id, &named, pod, output);
        }
        self.observe_pod(&uid, pod, &named, now_ms, output);
    }

    /// Whether a single pod of ours names a group now and may: its owner is of a kind whose pods get the reference from
    /// our controllers.
    fn joins_late(&self, uid: &str, pod: &Pod, named: &NamedGroup) -> bool {
        let is_single = self.pods.entries.get(uid).is_some_and(|record| record.ours && !record.named_group());
        let is_managed = || owners::Owner::of(pod).is_some_and(|owner| self.indexes.owners.is_managed(&owner));
        is_single && pod.spec.node_name.is_empty() && !named.is_none() && is_managed()
    }

    /// Records a new pod and adds it to the group that it names.
    fn add_record(&mut self, uid: &Arc<str>, id: PodName, named: &NamedGroup, pod: &Pod, output: &mut IntakeOutput) {
        let mut record = PodRecord::new(Arc::new(id), pod);
        match &named.reference {
            Ok(Some((dialect, reference))) => {
                let member = (uid.clone(), self.profiles.of(&pod.spec.scheduler_name).is_some());
                let namespace = &record.id.namespace;
                let (group, observations) = self.groups.join(*dialect, namespace, reference, member, &self.priorities);
                output.observations.extend(observations);
                (record.group, record.subset) = (Some(Arc::new(group)), reference.subset.as_str().into());
            }
            Err(error) => {
                if named.conflict {
                    output.pod_events.push((record.id.clone(), GROUP_REFERENCE_CONFLICT, error.to_string()));
                }
                record.broken = Some(refusal(RefusalKind::Reference, error.clone()));
            }
            Ok(None) => {}
        }
        self.pods.entries.insert(uid.clone(), record);
    }

    /// Updates the record of a pod and emits its observation.
    fn observe_pod(&mut self, uid: &Arc<str>, pod: &Pod, named: &NamedGroup, now_ms: u64, output: &mut IntakeOutput) {
        let profile = self.profiles.of(&pod.spec.scheduler_name);
        let Some(record) = self.pods.entries.get_mut(uid) else { return };
        let (mut spec, flaw) = pod::pod(pod, record.id.clone(), profile);
        spec.marked = is_disruption_target(pod, |name| self.profiles.of(name).is_some());
        if let Some(flaw) = flaw.filter(|_| spec.node.is_some()) {
            output.errors.push(flaw.on(pod.object_name()).to_string());
        }
        let was_pending = record.is_pending();
        record.update(pod, &spec, now_ms);
        let change = record.note_reference(named, &self.groups.dialects);
        output.pod_events.extend(change.map(|note| (record.id.clone(), GROUP_REFERENCE_CHANGED, note)));
        if let Some(group) = &record.group {
            self.groups.member_changed(group);
        }
        let specified = SpecifiedPod::new(pod, spec, !named.is_none() || record.named_group());
        let held = self.held_by_group(uid);
        let Some(record) = self.pods.entries.get_mut(uid) else { return };
        record.held_by_group = held;
        let observed = observe(&specified, record, &self.indexes);
        record.held = observed.is_held;
        record.refused = observed.spec.refused.is_some() || record.broken.is_some();
        if !record.is_pending() {
            output.no_longer_pending.push(record.id.clone());
        } else if !was_pending && (record.group.is_some() || record.refused) {
            output.newly_pending.push(record.id.clone());
        }
        let group = record.group.clone();
        if observed.spec.ours {
            self.pending_pods.track(specified, &observed.spec);
        }
        output.observations.push(Observation::PodSeen(observed.spec));
        if let Some(group) = group {
            self.on_leader_changed(&group, uid, output);
        }
    }

    /// Observes pending pods again after a change of their group or of other objects, if that makes a difference.
    fn observe_again(&mut self, uids: Vec<Arc<str>>, output: &mut IntakeOutput) {
        for uid in uids {
            let Some(record) = self.pods.entries.get_mut(&uid) else { continue };
            let Some(pending) = self.pending_pods.get_mut(&record.id) else { continue };
            let spec = observe(&pending.specified, record, &self.indexes).spec;
            if pending.has_changed(&spec) {
                record.refused = spec.refused.is_some();
                record.held &= record.refused;
                output.observations.push(Observation::PodSeen(spec));
            }
        }
    }
}

/// Handles an event of a kind of which only the keys are kept: every object that can be read is observed.
fn observe_objects<K: Resource<DynamicType: Default>>(
    known: &mut Table<Key, ()>,
    delta: Delta<Guarded<K>>,
    read: impl FnOnce(K) -> Result<Observation, String>,
    gone: impl Fn(Key) -> Observation,
    output: &mut IntakeOutput,
) {
    let (object, deleted) = known.apply(delta, key_of);
    output.observations.extend(deleted.into_iter().filter(|key| known.entries.remove(key).is_some()).map(gone));
    let Some(object) = object else { return };
    let key = key_of(&object);
    match raw::parsed(object).and_then(read) {
        Ok(observation) => {
            known.entries.insert(key, ());
            output.observations.push(observation);
        }
        Err(error) => output.errors.push(error),
    }
}
