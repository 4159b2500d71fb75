//! The index of groups: the objects of all dialects, the groups and replicas that they define, and the pods that name
//! them.
//!
//! An object becomes engine groups here: one for each group or replica that a pod names. When an object, a
//! PriorityClass or a pod changes, the engine gets an observation of a group only if its spec differs from the last
//! one. Invariant: a group that the engine knows has a usable object.
//! Must not depend on how decisions are made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::invalid::InvalidField;
use muster_api::keys::annotations::LATER_PODS;
use muster_api::keys::conditions::POD_GROUP_SCHEDULED;
use muster_api::keys::group_reasons::{INVALID, UNSUPPORTED};
use muster_api::resolved_priority::ResolvedPriority;
use muster_api::wire::condition::Condition;
use muster_engine::Observation;
use muster_engine::model::group::{GroupKey, GroupSpec, LaterPods, Policy, QueuePosition, RecordedStart};
use muster_engine::model::tree::DEPTH_MAX;
use muster_reflector::{Delta, Table};

use super::class::class;
use super::instance::Instance;
use super::priorities::Priorities;
use super::profiles::Profiles;
use super::raw::RawObject;
use crate::dialect::{
    Dialect, GroupError, GroupObject, MadeFor, Parent, ParsedGroup, ParsedLaterPods, Reference, WithoutClass, is_ours,
    recorded_start,
};
use crate::gates::FeatureGates;

/// The key of a group object: dialect, namespace, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// The number of its dialect.
    pub(crate) dialect: usize,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(super) fn new(dialect: usize, metadata: &ObjectMeta) -> Self {
        let [namespace, name] = [&metadata.namespace, &metadata.name].map(|part| part.clone().unwrap_or_default());
        Self { dialect, namespace, name }
    }
}

/// Group objects and the groups that they define.
pub(crate) struct GroupIndex {
    /// The group APIs that are read.
    pub(crate) dialects: Vec<Box<dyn Dialect>>,
    gates: FeatureGates,
    profiles: Arc<Profiles>,
    /// By dialect.
    objects: Vec<Table<ObjectKey, GroupObject>>,
    instances: BTreeMap<GroupKey, Instance>,
    /// The groups of each object, whether the object exists or not.
    instances_by_object: BTreeMap<ObjectKey, BTreeSet<GroupKey>>,
    /// Objects whose status may have to be written.
    touched: BTreeSet<ObjectKey>,
    /// Groups whose condition has changed without a new report of the engine.
    report_again: BTreeSet<GroupKey>,
    /// Groups of groups, known or not, below which a pod of ours has named a group.
    with_pods_of_ours: BTreeSet<GroupKey>,
    /// Objects with ignored fields for which no event was emitted yet.
    ignored_fields: BTreeSet<ObjectKey>,
}

impl GroupIndex {
    pub(crate) fn new(dialects: Vec<Box<dyn Dialect>>, gates: FeatureGates, profiles: Arc<Profiles>) -> Self {
        Self {
            objects: dialects.iter().map(|_| Table::default()).collect(),
            dialects,
            gates,
            profiles,
            instances: BTreeMap::new(),
            instances_by_object: BTreeMap::new(),
            touched: BTreeSet::new(),
            report_again: BTreeSet::new(),
            with_pods_of_ours: BTreeSet::new(),
            ignored_fields: BTreeSet::new(),
        }
    }

    pub(crate) fn object(&self, key: &ObjectKey) -> Option<&GroupObject> {
        self.objects[key.dialect].entries.get(key)
    }

    pub(crate) fn instance(&self, key: &GroupKey) -> Option<&Instance> {
        self.instances.get(key)
    }

    pub(crate) fn instance_mut(&mut self, key: &GroupKey) -> Option<&mut Instance> {
        self.instances.get_mut(key)
    }

    /// The groups of an object.
    pub(crate) fn instances_of(&self, key: &ObjectKey) -> impl Iterator<Item = &GroupKey> {
        self.instances_by_object.get(key).into_iter().flatten()
    }

    /// Marks an object whose status may have to be written.
    pub(crate) fn touch(&mut self, key: &ObjectKey) {
        self.touched.insert(key.clone());
    }

    pub(crate) fn take_touched(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.touched)
    }

    pub(crate) fn take_ignored_fields(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.ignored_fields)
    }

    /// Whether every watch has delivered a complete list.
    pub(super) fn has_synced(&self) -> bool {
        self.objects.iter().all(Table::has_synced)
    }

    /// Whether the cluster serves the kind of a dialect, as far as is known.
    pub(crate) fn is_served(&self, dialect: usize) -> bool {
        self.objects[dialect].is_served() != Some(false)
    }

    /// Applies an event: the object that exists now, and the keys of those that are gone.
    pub(super) fn apply(&mut self, dialect: usize, delta: Delta<RawObject>) -> (Option<RawObject>, Vec<ObjectKey>) {
        let was_served = self.is_served(dialect);
        let applied = self.objects[dialect].apply(delta, |object| ObjectKey::new(dialect, &object.metadata));
        // The conditions of pods that wait for such an object mention whether its kind is served.
        if self.is_served(dialect) != was_served {
            let of_it = self.instances.iter().filter(|(_, instance)| instance.object.dialect == dialect);
            self.report_again.extend(of_it.map(|(key, _)| key.clone()));
        }
        applied
    }

    pub(crate) fn take_report_again(&mut self) -> BTreeSet<GroupKey> {
        std::mem::take(&mut self.report_again)
    }

    /// An object was added or changed. An event that is older than the known object is ignored.
    pub(crate) fn object_seen(
        &mut self,
        dialect: usize,
        mut object: GroupObject,
        priorities: &Priorities,
    ) -> Vec<Observation> {
        let key = ObjectKey { dialect, namespace: object.namespace.clone(), name: object.name.clone() };
        if self.object(&key).is_some_and(|known| is_older(&object, known)) {
            return Vec::new();
        }
        if object.is_group {
            self.ensure_instance(dialect, &key.namespace, &Reference::to_object(&key.name));
        }
        let same = self.object(&key).filter(|known| known.uid == object.uid);
        object.members_since_ms = object.members_since_ms.or(same.and_then(|known| known.members_since_ms));
        object.priorities = same.map(|known| known.priorities.clone()).unwrap_or_default();
        let reported = same.map(|known| &known.ignored_fields);
        if reported.map_or(!object.ignored_fields.is_empty(), |reported| *reported != object.ignored_fields) {
            self.ignored_fields.insert(key.clone());
        }
        self.reset_if_recreated(&key, &object);
        self.objects[dialect].entries.insert(key.clone(), object);
        self.touch(&key);
        self.ensure_trees(&key);
        let observations = self.refresh(&key, priorities);
        let groups: Vec<GroupKey> = self.instances_of(&key).cloned().collect();
        for group in &groups {
            if self.with_pods_of_ours.contains(group)
                && let Some(instance) = self.instances.get_mut(group)
            {
                instance.was_ours = true;
            }
            self.mark_ancestors(group);
        }
        observations
    }

    /// Makes sure that all groups of a tree exist for each replica of which one does.
    fn ensure_trees(&mut self, key: &ObjectKey) {
        let Some(object) = self.object(key).filter(|object| !object.is_group) else { return };
        let Ok(groups) = &object.groups else { return };
        if groups.iter().all(|(_, group)| group.parent.is_none()) {
            return;
        }
        let parents: BTreeMap<&str, Option<&str>> = groups
            .iter()
            .map(|(name, group)| (name.as_str(), group.parent.as_ref().map(|parent| parent.group.as_str())))
            .collect();
        let root = |name: &str| {
            let step = |at: &&str| parents.get(at).copied().flatten();
            std::iter::successors(parents.get_key_value(name).map(|(name, _)| *name), step).take(DEPTH_MAX + 1).last()
        };
        let present = self.instances_of(key).filter_map(|group| self.instances.get(group));
        let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
        for instance in present {
            let Some(of_tree) = root(&instance.group) else { continue };
            let same = parents.keys().filter(|name| root(name) == Some(of_tree));
            wanted.extend(same.map(|name| ((*name).to_owned(), instance.replica.clone())));
        }
        for (group, replica) in wanted {
            let reference = Reference { object: key.name.clone(), group, replica, subset: String::new() };
            self.ensure_instance(key.dialect, &key.namespace, &reference);
        }
    }

    /// What concerns pods of ours in a group also concerns them in the groups above it.
    fn mark_ancestors(&mut self, key: &GroupKey) {
        if self.instances.get(key).is_none_or(|instance| !instance.was_ours) {
            return;
        }
        let mut at = key.clone();
        for _ in 0..DEPTH_MAX {
            let parent = self.instances.get(&at).and_then(|instance| instance.sent.as_ref()?.parent.clone());
            let Some(parent) = parent else { return };
            self.with_pods_of_ours.insert(parent.clone());
            let Some(instance) = self.instances.get_mut(&parent) else { return };
            if !std::mem::replace(&mut instance.was_ours, true) {
                self.touched.insert(instance.object.clone());
            }
            at = parent;
        }
    }

    /// Resets the groups of an object that is made for another owner than before: they have yet to start. Any other
    /// object that is recreated is for the existing pods, and running pods go on.
    fn reset_if_recreated(&mut self, key: &ObjectKey, object: &GroupObject) {
        for group in self.instances_by_object.get(key).into_iter().flatten() {
            let Some(instance) = self.instances.get_mut(group) else { continue };
            if instance.made_for.is_some() && object.made_for.is_some() && instance.made_for != object.made_for {
                instance.reset();
            }
            instance.made_for.clone_from(&object.made_for);
        }
    }

    /// The owner that the groups of an object were made for when it was last seen.
    pub(crate) fn made_for(&self, key: &ObjectKey) -> Option<&MadeFor> {
        self.instances_of(key).find_map(|group| self.instances.get(group)?.made_for.as_ref())
    }

    /// The object of a group.
    pub(crate) fn object_of(&self, group: &GroupKey) -> Option<&GroupObject> {
        self.object(&self.instances.get(group)?.object)
    }

    /// The minimum of a group, as the engine knows it.
    pub(crate) fn minimum_of(&self, group: &GroupKey) -> Option<u32> {
        match self.instances.get(group)?.sent.as_ref()?.policy {
            Policy::Gang { min_count } => Some(min_count),
            Policy::Basic { .. } | Policy::Subsets(_) | Policy::Groups { .. } | Policy::Tree(_) => None,
        }
    }

    /// Sets the time from which on pods are members of a group.
    pub(crate) fn set_members_since(
        &mut self,
        group: &GroupKey,
        since_ms: u64,
        priorities: &Priorities,
    ) -> Option<Observation> {
        let key = &self.instances.get(group)?.object;
        let object = self.objects[key.dialect].entries.get_mut(key)?;
        object.members_since_ms = Some(since_ms);
        self.refresh_instance(group, priorities)
    }

    /// An object is gone.
    pub(crate) fn object_gone(&mut self, key: &ObjectKey, priorities: &Priorities) -> Vec<Observation> {
        if self.objects[key.dialect].entries.remove(key).is_none() {
            return Vec::new();
        }
        self.touch(key);
        let observations = self.refresh(key, priorities);
        for group in self.instances_by_object.get(key).cloned().unwrap_or_default() {
            self.forget_if_empty(&group);
        }
        observations
    }

    /// The PriorityClasses changed: groups whose priority could not be resolved may have one now.
    pub(crate) fn refresh_all(&mut self, priorities: &Priorities) -> Vec<Observation> {
        let keys: Vec<ObjectKey> = self.objects.iter().flat_map(|table| table.entries.keys().cloned()).collect();
        keys.iter().flat_map(|key| self.refresh(key, priorities)).collect()
    }

    /// Adds a new pod to the group that it names.
    pub(crate) fn join(
        &mut self,
        dialect: usize,
        namespace: &str,
        reference: &Reference,
        (uid, ours): (Arc<str>, bool),
        priorities: &Priorities,
    ) -> (GroupKey, Vec<Observation>) {
        let key = self.ensure_instance(dialect, namespace, reference);
        let object = self.instances[&key].object.clone();
        let known = self.instances_of(&object).count();
        self.ensure_trees(&object);
        let observations: Vec<Observation> = if self.instances_of(&object).count() == known {
            self.refresh_instance(&key, priorities).into_iter().collect()
        } else {
            self.refresh(&object, priorities)
        };
        if let Some(instance) = self.instances.get_mut(&key) {
            instance.members.insert(uid);
            if ours && !std::mem::replace(&mut instance.was_ours, true) {
                // From now on this object's problems concern pods of ours.
                let object = instance.object.clone();
                if instance.error.is_some() {
                    self.report_again.insert(key.clone());
                }
                if self.object(&object).is_some_and(|object| !object.ignored_fields.is_empty()) {
                    self.ignored_fields.insert(object);
                }
            }
        }
        self.mark_ancestors(&key);
        self.member_changed(&key);
        (key, observations)
    }

    /// A pod that named a group is gone.
    pub(crate) fn leave(&mut self, key: &GroupKey, uid: &str) -> Vec<Observation> {
        self.member_changed(key);
        let Some(instance) = self.instances.get_mut(key) else { return Vec::new() };
        instance.members.remove(uid);
        // The groups of a tree are there as long as one of them has pods.
        let tree = self.tree_of(key);
        if tree.iter().filter_map(|key| self.instances.get(key)).any(|instance| !instance.members.is_empty()) {
            return Vec::new();
        }
        tree.iter().filter_map(|key| self.forget_if_empty(key)).collect()
    }

    /// The groups of the same tree and replica, if they are in one object; else the group alone.
    fn tree_of(&self, key: &GroupKey) -> Vec<GroupKey> {
        let Some(instance) = self.instances.get(key) else { return Vec::new() };
        let has_parent = |key: &GroupKey| {
            let sent = self.instances.get(key).and_then(|one| one.sent.as_ref());
            sent.is_some_and(|sent| sent.parent.is_some())
        };
        if self.object(&instance.object).is_none_or(|object| object.is_group) || !has_parent(key) {
            return vec![key.clone()];
        }
        let root = |key: &GroupKey| {
            let above = |at: &GroupKey| self.instances.get(at)?.sent.as_ref()?.parent.clone();
            std::iter::successors(Some(key.clone()), above).take(DEPTH_MAX + 1).last()
        };
        let of_tree = root(key);
        self.instances_of(&instance.object).filter(|other| root(other) == of_tree).cloned().collect()
    }

    /// Something changed about a member.
    pub(crate) fn member_changed(&mut self, key: &GroupKey) {
        if let Some(instance) = self.instances.get(key) {
            self.touched.insert(instance.object.clone());
        }
    }

    fn ensure_instance(&mut self, dialect: usize, namespace: &str, reference: &Reference) -> GroupKey {
        let key = reference.key(self.dialects[dialect].origin(), namespace);
        if !self.instances.contains_key(&key) {
            let object = ObjectKey { dialect, namespace: namespace.to_owned(), name: reference.object.clone() };
            self.instances_by_object.entry(object.clone()).or_default().insert(key.clone());
            let made_for = self.object(&object).and_then(|known| known.made_for.clone());
            let instance = Instance { made_for, ..Instance::new(object, &reference.group, &reference.replica) };
            self.instances.insert(key.clone(), instance);
        }
        key
    }

    /// Forgets a group that no pod names, unless its object, if that is the group itself, exists.
    fn forget_if_empty(&mut self, key: &GroupKey) -> Option<Observation> {
        let instance = self.instances.get(key)?;
        let is_object = self.object(&instance.object).is_some_and(|object| object.is_group);
        if is_object || !instance.members.is_empty() {
            return None;
        }
        let instance = self.instances.remove(key)?;
        self.with_pods_of_ours.remove(key);
        if let Some(keys) = self.instances_by_object.get_mut(&instance.object) {
            keys.remove(key);
            if keys.is_empty() {
                self.instances_by_object.remove(&instance.object);
            }
        }
        instance.sent.map(|_| Observation::GroupGone { key: key.clone() })
    }

    /// Resolves the priorities of an object's groups, as far as that is possible: from what its status records, or from
    /// the classes of this moment. From then on changes of classes do not change them.
    fn resolve_priorities(&mut self, key: &ObjectKey, priorities: &Priorities) {
        let Some(object) = self.objects[key.dialect].entries.get_mut(key).filter(|_| priorities.has_synced()) else {
            return;
        };
        for (name, group) in object.groups.iter().flatten() {
            let field = &group.priority;
            let by_server = field.number_by_server().is_some();
            let of_members = field.class.is_none() && field.without_class != WithoutClass::Default && !by_server;
            if of_members || object.priorities.get(name).is_some_and(|known| known.class == field.class) {
                continue;
            }
            let mut shown = object.current_status.instances.iter().filter(|((of, _), _)| of == name);
            let recorded = shown.find_map(|(_, shown)| ResolvedPriority::read(&shown.conditions));
            let recorded = recorded.filter(|recorded| recorded.class == field.class);
            if let Some(resolved) = recorded.or_else(|| priorities.resolve(field).ok().flatten()) {
                object.priorities.insert(name.clone(), resolved);
            }
        }
    }

    fn refresh(&mut self, key: &ObjectKey, priorities: &Priorities) -> Vec<Observation> {
        self.resolve_priorities(key, priorities);
        let groups: Vec<GroupKey> = self.instances_of(key).cloned().collect();
        groups.iter().filter_map(|group| self.refresh_instance(group, priorities)).collect()
    }

    /// Updates the group's spec; returns an observation if it has changed.
    fn refresh_instance(&mut self, key: &GroupKey, priorities: &Priorities) -> Option<Observation> {
        let instance = self.instances.get(key)?;
        let spec = match self.object(&instance.object) {
            None => Err(None),
            Some(object) => self.spec_of(key, instance, object, priorities).map_err(Some),
        };
        let shown = self.object(&instance.object).map(|object| shown_conditions(object, instance));
        let instance = self.instances.get_mut(key)?;
        if let Some(shown) = shown
            && instance.conditions.is_empty()
        {
            instance.conditions = shown;
        }
        let (spec, error) = match spec {
            Ok(spec) => (Some(spec), None),
            Err(error) => (None, error),
        };
        if instance.error != error {
            instance.error = error;
            self.report_again.insert(key.clone());
            self.touched.insert(instance.object.clone());
        }
        if instance.sent == spec {
            return None;
        }
        instance.sent.clone_from(&spec);
        instance.recorded = spec.as_ref().map(|spec| spec.recorded.clone());
        Some(spec.map_or_else(|| Observation::GroupGone { key: key.clone() }, Observation::GroupSeen))
    }

    fn spec_of(
        &self,
        key: &GroupKey,
        instance: &Instance,
        object: &GroupObject,
        priorities: &Priorities,
    ) -> Result<GroupSpec, GroupError> {
        let groups = object.groups.as_ref().map_err(Clone::clone)?;
        let Some((_, group)) = groups.iter().find(|(name, _)| *name == instance.group) else {
            let names: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("it has no group {:?}; it has {}", instance.group, names.join(", "));
            return Err(GroupError::invalid(message));
        };
        let policy = self.policy(group);
        let recorded = instance.recorded.clone().unwrap_or_else(|| start_in_status(object, instance, &policy));
        let (priority, preemption_policy) = priorities.of(
            group,
            &object.namespace,
            object.priorities.get(&instance.group),
            self.gates.workload_aware_preemption,
        )?;
        Ok(GroupSpec {
            key: key.clone(),
            policy,
            priority,
            preemption_policy,
            disruption_mode: group.disruption_mode,
            topology: group.topology.clone(),
            schedule_timeout_ms: group.schedule_timeout_ms,
            min_resources: group.min_resources.clone(),
            later: later_pods(key, object, group, &self.profiles)?,
            preemption_cost: object.preemption_cost.clone()?,
            degraded_policy: group.degraded_policy,
            // Without minimums, subsets have no meaning either.
            open: group.open || !self.gates.gang_scheduling,
            queue_position: group
                .ranked_by_object
                .then(|| QueuePosition { created_ms: object.created_ms, uid: object.uid.as_str().into() }),
            parent: group
                .parent
                .as_ref()
                .filter(|_| self.gates.gang_scheduling)
                .map(|parent| key_of_parent(key, object, parent)),
            created_ms: if group.parent.is_some() { object.created_ms } else { 0 },
            recorded,
            members_since_ms: object.members_since_ms,
            uid: object.uid.clone(),
            owner: object.made_for.as_ref().map(|owner| owner.uid().to_owned()),
        })
    }

    /// The policy under the feature gates.
    fn policy(&self, group: &ParsedGroup) -> Policy {
        match &group.policy {
            Policy::Gang { .. } | Policy::Subsets(_) | Policy::Groups { .. } if !self.gates.gang_scheduling => {
                Policy::Basic { desired_count: None }
            }
            Policy::Basic { .. } if !self.gates.basic_policy_desired_count => Policy::Basic { desired_count: None },
            policy => policy.clone(),
        }
    }
}

/// The key of the parent of a group: of the same replica, if it is in the same object.
fn key_of_parent(key: &GroupKey, object: &GroupObject, parent: &Parent) -> GroupKey {
    let origin = parent.origin.to_owned();
    if object.is_group {
        return GroupKey {
            origin,
            namespace: key.namespace.clone(),
            name: parent.group.clone(),
            replica: String::new(),
        };
    }
    GroupKey { origin, name: format!("{}/{}", object.name, parent.group), ..key.clone() }
}

/// The pods that the owner of a group creates later.
fn later_pods(
    key: &GroupKey,
    object: &GroupObject,
    group: &ParsedGroup,
    profiles: &Profiles,
) -> Result<Vec<Vec<LaterPods>>, GroupError> {
    let part = |part: &ParsedLaterPods| {
        let name = if object.is_group { part.group.clone() } else { format!("{}/{}", object.name, part.group) };
        let group = GroupKey { name, replica: String::new(), ..key.clone() };
        let profile = profiles.of(&part.pod.spec.scheduler_name).or_else(|| profiles.first());
        let mut class = class(&part.pod, profile).map_err(|error| InvalidField {
            field: format!("metadata.annotations[{LATER_PODS}]: {}", error.field),
            ..error
        })?;
        // Terms about other pods are not part of it.
        class.inter_pod = None;
        Ok(LaterPods { group, count: part.count, class: Arc::new(class) })
    };
    let stages = group.later.iter().map(|stage| stage.iter().map(part).collect());
    let later: Vec<Vec<LaterPods>> = stages.collect::<Result<_, GroupError>>()?;
    if !later.is_empty() && !later.iter().flatten().any(|part| part.group == *key) {
        let reason = format!("annotation {LATER_PODS}: the group {key} itself is not in it");
        return Err(GroupError::invalid(reason));
    }
    Ok(later)
}

/// Whether an event is older than the known object. The versions of one object can be compared as numbers.
fn is_older(new: &GroupObject, known: &GroupObject) -> bool {
    let number = |object: &GroupObject| object.resource_version.parse::<u64>().ok();
    new.uid == known.uid && matches!((number(new), number(known)), (Some(new), Some(known)) if new < known)
}

fn shown_conditions(object: &GroupObject, instance: &Instance) -> Vec<Condition> {
    let key = (instance.group.clone(), instance.replica.clone());
    let shown = object.current_status.instances.get(&key).map(|shown| shown.conditions.clone()).unwrap_or_default();
    // A condition about an error is set again if the error is still there.
    let is_error =
        |one: &Condition| one.kind == POD_GROUP_SCHEDULED && (one.reason == INVALID || one.reason == UNSUPPORTED);
    shown.into_iter().filter(|one| is_ours(&one.kind) && !is_error(one)).collect()
}

/// The start of a group according to the API.
fn start_in_status(object: &GroupObject, instance: &Instance, policy: &Policy) -> RecordedStart {
    let shown = shown_conditions(object, instance);
    let unknown = RecordedStart::Confirmed { minimum: None, decided_ms: None };
    match recorded_start::read(&shown, &policy.rules()) {
        Some(recorded) => recorded,
        // The status is truncated: a group that it does not show may have started and must not be rolled back.
        None if object.current_status.is_truncated && shown.is_empty() => unknown,
        // Another scheduler may have started it, with an unknown minimum.
        None if object.current_status.may_have_started => unknown,
        // It was a basic group, which starts with its first pod. Its running pods stay if it has become a gang.
        None if Condition::find(&shown, POD_GROUP_SCHEDULED).is_some_and(Condition::is_true) => unknown,
        None => RecordedStart::None,
    }
}
