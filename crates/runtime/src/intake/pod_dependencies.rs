//! How the engine observes a pod: what the pod itself says, and what its group and other objects add. These determine
//! the pods among which it is spread by default, and whether it has to wait for its gang.
//!
//! Nothing is changed here: the same pod, record and indexes give the same observation.

use std::sync::Arc;

use muster_api::owners::GangedOwners;
use muster_api::wire::Pod;
use muster_engine::model::inter_pod::Spread;
use muster_engine::model::pod::{Membership, PodSpec, RefusalKind};

use super::owners::{Owner as GangOwner, OwnerKind, Owners};
use super::pod::refusal;
use super::pod_record::PodRecord;
use super::selectors::{self, AffectedPods, Owner, Selectors};
use super::spread;
use crate::settings::{Profile, spreads_by_default};

/// The objects on which pods depend.
pub(super) struct Indexes {
    /// The default spread constraints of each profile.
    spread_defaults: Vec<Spread>,
    pub(super) selectors: Selectors,
    pub(super) owners: Owners,
}

impl Indexes {
    pub(super) fn new(profiles: &[Profile], ganged: GangedOwners) -> Self {
        Self {
            spread_defaults: profiles.iter().map(|profile| profile.spread_defaults.clone()).collect(),
            // Without default constraints the selectors are not needed.
            selectors: if spreads_by_default(profiles) { Selectors::watched() } else { Selectors::default() },
            owners: Owners::new(ganged, profiles.iter().flat_map(|one| one.scheduler_names.clone()).collect()),
        }
    }

    /// Whether every watch has delivered a complete list.
    pub(super) fn has_synced(&self) -> bool {
        self.selectors.has_synced() && self.owners.has_synced()
    }
}

/// A pod as specified, and its references to other objects.
pub(super) struct SpecifiedPod {
    pub(super) spec: PodSpec,
    owner: Option<Owner>,
    has_constraints: bool,
    /// The owner that may make it part of a gang, if it names no group itself.
    gang_owner: Option<GangOwner>,
}

impl SpecifiedPod {
    pub(super) fn new(pod: &Pod, spec: PodSpec, names_group: bool) -> Self {
        Self {
            spec,
            owner: selectors::owner(pod),
            has_constraints: !pod.spec.topology_spread_constraints.is_empty(),
            gang_owner: if names_group { None } else { GangOwner::of(pod) },
        }
    }

    /// Whether its default spread is affected.
    pub(super) fn is_spread_by(&self, affected: &AffectedPods) -> bool {
        !self.has_constraints && affected.contains(&self.spec.labels, self.owner.as_ref())
    }

    /// Whether this owner decides if it belongs to a gang.
    pub(super) fn is_owned_by(&self, kind: OwnerKind, name: &str) -> bool {
        self.gang_owner.as_ref().is_some_and(|owner| owner.is(kind, name))
    }
}

/// A pod as the engine observes it.
pub(super) struct ObservedPod {
    pub(super) spec: PodSpec,
    /// It has to wait until our controllers have set its group reference or completed its group.
    pub(super) is_held: bool,
}

/// The pod as the engine observes it. Pods of other schedulers only count, with their group.
pub(super) fn observe(pod: &SpecifiedPod, record: &PodRecord, indexes: &Indexes) -> ObservedPod {
    let mut spec = pod.spec.clone();
    spec.membership = record.group.as_ref().map(|key| Membership {
        group: (**key).clone(),
        subset: record.subset.to_string(),
        attempt: record.attempt.clone(),
    });
    if !spec.ours {
        return ObservedPod { spec, is_held: false };
    }
    let (namespace, is_pending) = (&pod.spec.id.namespace, spec.node.is_none());
    let refused = record.broken.clone().or(spec.refused.take());
    let unnamed = pod.gang_owner.as_ref().and_then(|owner| indexes.owners.hold_reason(namespace, owner));
    let held = unnamed.map(|error| refusal(RefusalKind::Reference, error)).or_else(|| record.held_by_group.clone());
    let held = held.filter(|_| is_pending);
    let is_held = held.is_some();
    spec.refused = refused.or(held);
    if let Some(spread) = default_spread(pod, indexes) {
        let class = Arc::make_mut(&mut spec.class);
        Arc::make_mut(class.inter_pod.get_or_insert_default()).spread = spread;
    }
    ObservedPod { spec, is_held }
}

/// The spread of a pod without own constraints among the pods that its Services and its controller select.
fn default_spread(pod: &SpecifiedPod, indexes: &Indexes) -> Option<Spread> {
    let (namespace, labels) = (&pod.spec.id.namespace, &pod.spec.labels);
    let defaults = &indexes.spread_defaults[usize::from(pod.spec.class.profile)];
    if pod.has_constraints || defaults.is_empty() {
        return None;
    }
    let selector = indexes.selectors.for_pod(namespace, labels, pod.owner.as_ref());
    (!selector.is_empty()).then(|| spread::for_selector(defaults, namespace, &selector))
}

#[cfg(test)]
mod tests {
    use muster_engine::model::group::GroupKey;
    use muster_engine::model::pod::PodRefusal;
    use muster_reflector::Delta;
    use serde_json::{Value, json};

    use super::super::pod::{pod as specified, pod_name};
    use super::super::raw::RawObject;
    use super::*;
    use crate::intake::selectors::SelectorKind;

    fn indexes() -> Indexes {
        Indexes::new(&[Profile::default()], GangedOwners::all())
    }

    fn raw(object: &Value) -> RawObject {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    /// A pod of ours, unless the profile is missing, with an owner whose pods are gangs; and its record.
    fn pod(spec: &Value, profile: Option<&Profile>) -> (SpecifiedPod, PodRecord) {
        let mut object = json!({
            "metadata": {"namespace": "ml", "name": "a", "uid": "1",
                "labels": {"app": "web", "leaderworkerset.sigs.k8s.io/name": "lws"}},
            "spec": {"containers": []},
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let pod: Pod = serde_json::from_value(object).unwrap();
        let id = Arc::new(pod_name(&pod));
        let (spec, _) = specified(&pod, id.clone(), profile.map(|profile| (0, profile)));
        (SpecifiedPod::new(&pod, spec, false), PodRecord::new(id, &pod))
    }

    fn refused(reason: &str) -> Arc<PodRefusal> {
        let (field, value) = (String::new(), String::new());
        Arc::new(PodRefusal { kind: RefusalKind::Reference, field, value, reason: reason.to_owned() })
    }

    #[test]
    fn the_most_lasting_refusal_is_shown_and_waiting_for_the_gang_comes_last() {
        let (indexes, profile) = (indexes(), Profile::default());
        let (mut pod, mut record) = pod(&json!({}), Some(&profile));
        let reason = |pod: &SpecifiedPod, record: &PodRecord, indexes: &Indexes| {
            let observed = observe(pod, record, indexes);
            (observed.spec.refused.map(|refused| refused.reason.clone()), observed.is_held)
        };
        record.broken = Some(refused("broken"));
        assert_eq!(reason(&pod, &record, &indexes), (Some("broken".to_owned()), true));
        record.broken = None;
        pod.spec.refused = Some(refused("invalid"));
        assert_eq!(reason(&pod, &record, &indexes), (Some("invalid".to_owned()), true));
        pod.spec.refused = None;
        assert!(reason(&pod, &record, &indexes).0.unwrap().contains("names no group"));
        (pod.gang_owner, record.held_by_group) = (None, Some(refused("no leader")));
        assert_eq!(reason(&pod, &record, &indexes), (Some("no leader".to_owned()), true));
        record.held_by_group = None;
        assert_eq!(reason(&pod, &record, &indexes), (None, false));
    }

    #[test]
    fn a_pod_on_a_node_waits_for_nothing() {
        let profile = Profile::default();
        let (pod, mut record) = pod(&json!({"nodeName": "n1"}), Some(&profile));
        record.held_by_group = Some(refused("no leader"));
        let observed = observe(&pod, &record, &indexes());
        assert_eq!((observed.spec.refused, observed.is_held), (None, false));
    }

    #[test]
    fn pods_of_other_schedulers_have_a_group_and_nothing_else_is_added() {
        let (pod, mut record) = pod(&json!({}), None);
        let group = GroupKey {
            origin: "test".to_owned(),
            namespace: "ml".to_owned(),
            name: "g".to_owned(),
            replica: String::new(),
        };
        (record.group, record.subset) = (Some(Arc::new(group.clone())), "ps".into());
        (record.broken, record.held_by_group) = (Some(refused("broken")), Some(refused("no leader")));
        let observed = observe(&pod, &record, &indexes());
        let membership = Some(Membership { group, subset: "ps".to_owned(), attempt: None });
        assert_eq!(observed.spec, PodSpec { membership, ..pod.spec.clone() });
        assert!(!observed.is_held);
    }

    #[test]
    fn a_pod_with_own_constraints_is_not_spread_by_default() {
        let (mut indexes, profile) = (indexes(), Profile::default());
        let service = raw(&json!({"metadata": {"namespace": "ml", "name": "s"}, "spec": {"selector": {"app": "web"}}}));
        indexes.selectors.on_delta(SelectorKind::Service, Delta::Applied(service));
        let (mut pod, record) = pod(&json!({}), Some(&profile));
        let spread = |pod: &SpecifiedPod| observe(pod, &record, &indexes).spec.class.inter_pod.clone();
        assert_eq!(spread(&pod).expect("the Service selects it").spread.schedule_anyway.len(), 2);
        pod.has_constraints = true;
        assert_eq!(spread(&pod), None);
    }
}
