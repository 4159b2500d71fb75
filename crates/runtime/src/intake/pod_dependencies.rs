//! Pod properties that come from other objects: the pods among which it is spread by default, the places of its
//! volumes, and whether it belongs to a gang.
//!
//! These objects can appear and change at any time. So pending pods of ours are kept as specified, and are observed
//! again when a change affects them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::owners::GangedOwners;
use muster_api::wire::Pod;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::inter_pod::Spread;
use muster_engine::model::pod::{PodRefusal, PodSpec, RefusalKind};

use super::owners::{self, Owner as GangOwner, OwnerKind, Owners};
use super::pod::refusal;
use super::raw::{RawObject, names};
use super::selectors::{self, Owner, SelectorKind, Selectors};
use super::spread;
use super::storage::{self, Storage, UsedClaim, Volumes};
use crate::settings::{Profile, spreads_by_default};
use muster_reflector::{Delta, Relist};

/// A pending pod as specified, and its references to other objects.
struct PendingPod {
    spec: PodSpec,
    owner: Option<Owner>,
    has_constraints: bool,
    claims: Vec<UsedClaim>,
    /// The owner that may make it part of a gang, if it names no group itself.
    gang_owner: Option<GangOwner>,
    /// Why its group does not accept it yet, according to its leader and its controller.
    held: Option<Arc<PodRefusal>>,
    /// The derived values of the last observation.
    last_derived: Option<(Arc<ClassSpec>, Option<Arc<PodRefusal>>)>,
}

/// The state of other objects, and the pending pods that depend on them.
pub(super) struct PodDependencies {
    /// The default spread constraints of each profile.
    spread_defaults: Vec<Spread>,
    selectors: Selectors,
    selector_relists: BTreeMap<SelectorKind, Relist<selectors::Key>>,
    volumes: Volumes,
    storage_relists: BTreeMap<Storage, Relist<(String, String)>>,
    owners: Owners,
    owner_relists: BTreeMap<OwnerKind, Relist<owners::Key>>,
    /// The pending pods of ours, by namespace and UID.
    pending_pods: BTreeMap<String, BTreeMap<Arc<str>, PendingPod>>,
}

/// The pods that have changed, and an error if the object could not be parsed.
pub(super) type PodUpdates = (Vec<PodSpec>, Option<String>);

impl PodDependencies {
    pub(super) fn new(profiles: &[Profile], ganged: GangedOwners) -> Self {
        let spread_defaults: Vec<Spread> = profiles.iter().map(|profile| profile.spread_defaults.clone()).collect();
        // Without default constraints the selectors are not needed.
        let spreads = spreads_by_default(profiles);
        Self {
            spread_defaults,
            selectors: Selectors::default(),
            selector_relists: SelectorKind::ALL
                .into_iter()
                .filter(|_| spreads)
                .map(|kind| (kind, Relist::default()))
                .collect(),
            volumes: Volumes::default(),
            storage_relists: Storage::ALL.into_iter().map(|kind| (kind, Relist::default())).collect(),
            owners: Owners::new(ganged, profiles.iter().flat_map(|one| one.scheduler_names.clone()).collect()),
            owner_relists: owners::watched(ganged).map(|kind| (kind, Relist::default())).collect(),
            pending_pods: BTreeMap::new(),
        }
    }

    /// Whether every watch has delivered a complete list.
    pub(super) fn has_synced(&self) -> bool {
        self.selector_relists.values().all(Relist::has_synced)
            && self.storage_relists.values().all(Relist::has_synced)
            && self.owner_relists.values().all(Relist::has_synced)
    }

    pub(super) fn on_selector_delta(&mut self, kind: SelectorKind, delta: Delta<RawObject>) -> PodUpdates {
        let Some(relist) = self.selector_relists.get_mut(&kind) else { return PodUpdates::default() };
        let key = |object: &RawObject| {
            let (namespace, name) = names(object);
            (kind, namespace, name)
        };
        let (object, deleted) = relist.apply(delta, key, || self.selectors.keys(kind));
        let mut affected = Vec::new();
        for key in deleted {
            affected.extend(self.affected_by(&key));
            self.selectors.on_deleted(&key);
        }
        let mut parse_error = None;
        if let Some(object) = object {
            // The pods that it selected before, and those that it selects now.
            let key = key(&object);
            let before = self.affected_by(&key);
            match self.selectors.on_applied(kind, &object) {
                Ok(true) => affected.extend(before.into_iter().chain(self.affected_by(&key))),
                Ok(false) => {}
                Err(error) => parse_error = Some(error),
            }
        }
        (self.refresh(affected), parse_error)
    }

    /// The pending pods whose default spread depends on an object.
    fn affected_by(&self, key: &selectors::Key) -> Vec<(String, Arc<str>)> {
        let pods = self.pending_pods.get(&key.1).into_iter().flatten().filter(|(_, pending)| !pending.has_constraints);
        let theirs =
            pods.filter(|(_, pending)| self.selectors.affects(key, &pending.spec.labels, pending.owner.as_ref()));
        theirs.map(|(uid, _)| (key.1.clone(), uid.clone())).collect()
    }

    pub(super) fn on_storage_delta(&mut self, kind: Storage, delta: Delta<RawObject>) -> PodUpdates {
        let Some(relist) = self.storage_relists.get_mut(&kind) else { return PodUpdates::default() };
        let (object, deleted) = relist.apply(delta, names, || self.volumes.keys(kind));
        let mut changed: BTreeSet<(String, String)> =
            deleted.into_iter().filter(|key| self.volumes.on_deleted(kind, key)).collect();
        let mut parse_error = None;
        if let Some(object) = object {
            match self.volumes.on_applied(kind, &object) {
                Ok(is_new) => changed.extend(is_new.then(|| names(&object))),
                Err(error) => parse_error = Some(error),
            }
        }
        if changed.is_empty() {
            return (Vec::new(), parse_error);
        }
        let uses = |namespace: &String, (_, claim): &UsedClaim| {
            let claim = (namespace.clone(), claim.clone());
            match kind {
                Storage::Claim => changed.contains(&claim),
                Storage::Volume => self
                    .volumes
                    .volume_of(&claim)
                    .is_some_and(|name| changed.contains(&(String::new(), name.to_owned()))),
            }
        };
        let mut affected = Vec::new();
        for (namespace, pods) in &self.pending_pods {
            let pods = pods.iter().filter(|(_, pending)| pending.claims.iter().any(|used| uses(namespace, used)));
            affected.extend(pods.map(|(uid, _)| (namespace.clone(), uid.clone())));
        }
        (self.refresh(affected), parse_error)
    }

    pub(super) fn on_owner_delta(&mut self, kind: OwnerKind, delta: Delta<RawObject>) -> PodUpdates {
        let Some(relist) = self.owner_relists.get_mut(&kind) else { return PodUpdates::default() };
        match delta {
            Delta::NotServed => self.owners.set_served(kind, false),
            Delta::ListStarted | Delta::Deleted(_) => {}
            Delta::Listed(_) | Delta::ListDone | Delta::Applied(_) => self.owners.set_served(kind, true),
        }
        let (object, deleted) = relist.apply(delta, names, || self.owners.keys(kind));
        let mut changed: Vec<owners::Key> =
            deleted.into_iter().filter(|key| self.owners.on_deleted(kind, key)).collect();
        changed.extend(object.filter(|object| self.owners.on_applied(kind, object)).map(|object| names(&object)));
        let mut affected = Vec::new();
        for (namespace, name) in changed {
            let pods = self.pending_pods.get(&namespace).into_iter().flatten();
            let theirs =
                pods.filter(|(_, pending)| pending.gang_owner.as_ref().is_some_and(|owner| owner.is(kind, &name)));
            affected.extend(theirs.map(|(uid, _)| (namespace.clone(), uid.clone())));
        }
        (self.refresh(affected), None)
    }

    /// Whether a pod that names no group is held back because it belongs to a gang.
    pub(super) fn is_held(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        pod.spec.node_name.is_empty()
            && GangOwner::of(pod).is_some_and(|owner| self.owners.hold_reason(namespace, &owner).is_some())
    }

    /// Whether a pod may get its group reference later: its owner is of a kind whose pods get it from us.
    pub(super) fn may_join_late(&self, pod: &Pod) -> bool {
        GangOwner::of(pod).is_some_and(|owner| self.owners.is_managed(&owner))
    }

    /// The affected pods whose derived values have changed.
    fn refresh(&mut self, affected: Vec<(String, Arc<str>)>) -> Vec<PodSpec> {
        let mut updated = Vec::new();
        for (namespace, uid) in affected {
            let Some(pending) = self.pending_pods.get(&namespace).and_then(|pods| pods.get(&uid)) else { continue };
            let spec = self.resolve(pending);
            if pending.last_derived.as_ref().is_none_or(|old| *old != (spec.class.clone(), spec.refused.clone())) {
                let pending = self.pending_pods.get_mut(&namespace).and_then(|pods| pods.get_mut(&uid));
                pending.expect("just seen").last_derived = Some((spec.class.clone(), spec.refused.clone()));
                updated.push(spec);
            }
        }
        updated
    }

    /// A pod of ours with its derived values.
    pub(super) fn apply_to(&self, pod: &Pod, spec: PodSpec, names_group: bool) -> PodSpec {
        self.resolve(&pending_pod(pod, spec, names_group))
    }

    /// Keeps a pod of ours while it is pending.
    pub(super) fn track(
        &mut self,
        uid: &Arc<str>,
        pod: &Pod,
        spec: PodSpec,
        derived: &PodSpec,
        (names_group, held): (bool, Option<Arc<PodRefusal>>),
    ) {
        let namespace = spec.id.namespace.clone();
        if spec.node.is_some() {
            self.forget(&namespace, uid);
        } else {
            let last_derived = Some((derived.class.clone(), derived.refused.clone()));
            let pending = PendingPod { held, last_derived, ..pending_pod(pod, spec, names_group) };
            self.pending_pods.entry(namespace).or_default().insert(uid.clone(), pending);
        }
    }

    /// Sets why members have to wait for their group; returns those for which that has changed.
    pub(super) fn hold_members(
        &mut self,
        namespace: &str,
        held: Vec<(Arc<str>, Option<Arc<PodRefusal>>)>,
    ) -> PodUpdates {
        let mut affected = Vec::new();
        for (uid, held) in held {
            let Some(pending) = self.pending_pods.get_mut(namespace).and_then(|pods| pods.get_mut(&uid)) else {
                continue;
            };
            pending.held = held;
            affected.push((namespace.to_owned(), uid));
        }
        (self.refresh(affected), None)
    }

    /// Whether our controllers raise the minimum of a replica's group once its workers may start.
    pub(super) fn minimums_are_raised(&self) -> bool {
        self.owners.minimums_are_raised()
    }

    pub(super) fn forget(&mut self, namespace: &str, uid: &str) {
        if let Some(pods) = self.pending_pods.get_mut(namespace) {
            pods.remove(uid);
            if pods.is_empty() {
                self.pending_pods.remove(namespace);
            }
        }
    }

    fn resolve(&self, pending: &PendingPod) -> PodSpec {
        let mut spec = pending.spec.clone();
        let namespace = &spec.id.namespace;
        let mut class = None;
        if !pending.claims.is_empty() {
            match self.volumes.places(namespace, &pending.claims) {
                Ok(places) => class.get_or_insert_with(|| (*pending.spec.class).clone()).volumes = places,
                // A pod on a node has its volumes, whether we know them or not.
                Err(_) if spec.node.is_some() => {}
                Err((kind, error)) => _ = spec.refused.get_or_insert_with(|| refusal(kind, error)),
            }
        }
        if let Some(owner) = pending.gang_owner.as_ref().filter(|_| spec.node.is_none())
            && let Some(error) = self.owners.hold_reason(namespace, owner)
        {
            spec.refused.get_or_insert_with(|| refusal(RefusalKind::Reference, error));
        }
        spec.refused = spec.refused.or_else(|| pending.held.clone());
        let defaults = &self.spread_defaults[usize::from(spec.class.profile)];
        if !pending.has_constraints && !defaults.is_empty() {
            let selector = self.selectors.for_pod(namespace, &spec.labels, pending.owner.as_ref());
            if !selector.is_empty() {
                let class = class.get_or_insert_with(|| (*pending.spec.class).clone());
                let mut constraints = class.inter_pod.as_deref().cloned().unwrap_or_default();
                constraints.spread = spread::for_selector(defaults, namespace, &selector);
                class.inter_pod = Some(Arc::new(constraints));
            }
        }
        if let Some(class) = class {
            spec.class = Arc::new(class);
        }
        spec
    }
}

fn pending_pod(pod: &Pod, spec: PodSpec, names_group: bool) -> PendingPod {
    let has_constraints = !pod.spec.topology_spread_constraints.is_empty();
    let gang_owner = if names_group { None } else { GangOwner::of(pod) };
    let (owner, claims) = (selectors::owner(pod), storage::claims(pod));
    PendingPod { spec, owner, has_constraints, claims, gang_owner, held: None, last_derived: None }
}

#[cfg(test)]
mod tests {
    use muster_engine::Observation;
    use muster_engine::model::labels::{LabelOperator, NodeTerm, Requirement};
    use serde_json::{Value, json};

    use super::*;
    use crate::gates::FeatureGates;
    use crate::intake::{Intake, WatchEvent};

    fn raw(object: &Value) -> RawObject {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn pods(observations: Vec<Observation>) -> Vec<PodSpec> {
        let pod = |one| if let Observation::PodSeen(spec) = one { Some(spec) } else { None };
        observations.into_iter().filter_map(pod).collect()
    }

    fn apply_pod(intake: &mut Intake, spec: &Value) -> PodSpec {
        let mut pod = json!({
            "metadata": {"namespace": "ml", "name": "a", "uid": "1", "labels": {"app": "web"}},
            "spec": {"schedulerName": "muster", "containers": []},
        });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let delta = Delta::Applied(serde_json::from_str(&pod.to_string()).unwrap());
        pods(intake.handle(WatchEvent::Pod(delta), 0).observations).remove(0)
    }

    fn intake() -> Intake {
        let pool = Requirement { key: "pool".to_owned(), operator: LabelOperator::In(vec!["batch".to_owned()]) };
        let batch = Profile {
            scheduler_names: vec!["batch".to_owned()],
            enforced_terms: Some(vec![NodeTerm { labels: vec![pool], names: Vec::new() }]),
            spread_defaults: Spread::default(),
            ..Profile::default()
        };
        Intake::new(
            vec![Profile::default(), batch],
            Vec::new(),
            FeatureGates::default(),
            GangedOwners::default(),
            Vec::new(),
        )
    }

    #[test]
    fn a_pod_is_observed_again_when_its_claim_is_bound_and_when_the_volume_is_deleted() {
        let mut intake = intake();
        let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
        let refused = apply_pod(&mut intake, &spec).refused.unwrap();
        assert_eq!(refused.field, "spec.volumes[0].persistentVolumeClaim.claimName");
        assert!(intake.pod_record("1").unwrap().refused);
        let labels = json!({"topology.kubernetes.io/zone": "a"});
        let volume = raw(&json!({"metadata": {"name": "pv", "labels": labels}}));
        intake.handle(WatchEvent::Storage(Storage::Volume, Delta::Applied(volume.clone())), 0);
        let claim = raw(&json!({
            "metadata": {"namespace": "ml", "name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "pv"},
        }));
        let observed =
            pods(intake.handle(WatchEvent::Storage(Storage::Claim, Delta::Applied(claim.clone())), 0).observations);
        assert!(observed[0].refused.is_none() && observed[0].class.volumes[0].zones.len() == 1, "{observed:?}");
        assert!(!intake.pod_record("1").unwrap().refused);
        assert!(
            intake.handle(WatchEvent::Storage(Storage::Claim, Delta::Applied(claim)), 0).observations.is_empty(),
            "nothing changed"
        );
        let observed =
            pods(intake.handle(WatchEvent::Storage(Storage::Volume, Delta::Deleted(volume)), 0).observations);
        assert!(observed[0].refused.is_some());
    }

    #[test]
    fn a_service_spreads_pending_pods_without_constraints() {
        let mut intake = intake();
        assert_eq!(apply_pod(&mut intake, &json!({})).class.inter_pod, None);
        let service = raw(&json!({"metadata": {"namespace": "ml", "name": "s"}, "spec": {"selector": {"app": "web"}}}));
        let delta = Delta::Applied(service.clone());
        let observed = pods(intake.handle(WatchEvent::Selector(SelectorKind::Service, delta), 0).observations);
        let spread = &observed[0].class.inter_pod.as_ref().unwrap().spread;
        assert_eq!((spread.schedule_anyway.len(), spread.scores_nodes_without_keys), (2, true));
        let constrained = json!({"topologySpreadConstraints":
            [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]});
        assert!(
            apply_pod(&mut intake, &constrained).class.inter_pod.as_ref().unwrap().spread.schedule_anyway.is_empty(),
            "it has its own constraints"
        );
        let observed =
            intake.handle(WatchEvent::Selector(SelectorKind::Service, Delta::Deleted(service)), 0).observations;
        assert!(observed.is_empty(), "it is not affected");
    }

    #[test]
    fn the_scheduler_name_selects_the_profile() {
        let mut intake = intake();
        let of = |intake: &mut Intake, name: &str| apply_pod(intake, &json!({"schedulerName": name}));
        let batch = of(&mut intake, "batch");
        assert_eq!((batch.ours, batch.class.profile), (true, 1));
        assert!(batch.class.enforced_terms.is_some());
        assert_eq!(of(&mut intake, "muster").class.enforced_terms, None);
        assert!(!of(&mut intake, "default-scheduler").ours);
    }
}
