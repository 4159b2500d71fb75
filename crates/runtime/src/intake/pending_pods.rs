//! The pending pods of ours as specified, so that they can be observed again when an object changes on which they
//! depend. Such objects can appear and change at any time.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::model::class::ClassSpec;
use muster_engine::model::pod::{PodName, PodRefusal, PodSpec};
use muster_reflector::Key;

use super::owners::OwnerKind;
use super::pod_dependencies::SpecifiedPod;
use super::selectors::AffectedPods;

/// A pending pod.
pub(super) struct PendingPod {
    pub(super) specified: SpecifiedPod,
    /// The derived values of the last observation.
    last_derived: (Arc<ClassSpec>, Option<Arc<PodRefusal>>),
}

impl PendingPod {
    /// Whether the observation differs from the last one, which it then replaces.
    pub(super) fn has_changed(&mut self, observed: &PodSpec) -> bool {
        let derived = (observed.class.clone(), observed.refused.clone());
        let changed = self.last_derived != derived;
        self.last_derived = derived;
        changed
    }
}

/// The pending pods of ours.
#[derive(Default)]
pub(super) struct PendingPods {
    /// By namespace and UID.
    pods: BTreeMap<String, BTreeMap<Arc<str>, PendingPod>>,
}

impl PendingPods {
    pub(super) fn get_mut(&mut self, id: &PodName) -> Option<&mut PendingPod> {
        self.pods.get_mut(&id.namespace)?.get_mut(id.uid.as_str())
    }

    /// Keeps a pod of ours while it is pending.
    pub(super) fn track(&mut self, specified: SpecifiedPod, observed: &PodSpec) {
        let id = &observed.id;
        if observed.node.is_some() {
            return self.forget(id);
        }
        let last_derived = (observed.class.clone(), observed.refused.clone());
        let of_namespace = self.pods.entry(id.namespace.clone()).or_default();
        of_namespace.insert(id.uid.as_str().into(), PendingPod { specified, last_derived });
    }

    pub(super) fn forget(&mut self, id: &PodName) {
        if let Some(pods) = self.pods.get_mut(&id.namespace) {
            pods.remove(id.uid.as_str());
            if pods.is_empty() {
                self.pods.remove(&id.namespace);
            }
        }
    }

    /// The pods whose default spread is affected.
    pub(super) fn spread_by(&self, affected: &[AffectedPods]) -> Vec<Arc<str>> {
        let of_each = |one: &AffectedPods| self.select(&one.namespace, |pod| pod.is_spread_by(one));
        affected.iter().flat_map(of_each).collect()
    }

    /// The pods of these owners.
    pub(super) fn owned_by(&self, kind: OwnerKind, owners: &[Key]) -> Vec<Arc<str>> {
        let of_each = |(namespace, name): &Key| self.select(namespace, |pod| pod.is_owned_by(kind, name));
        owners.iter().flat_map(of_each).collect()
    }

    fn select(&self, namespace: &str, is_affected: impl Fn(&SpecifiedPod) -> bool) -> Vec<Arc<str>> {
        let pods = self.pods.get(namespace).into_iter().flatten();
        pods.filter(|(_, pod)| is_affected(&pod.specified)).map(|(uid, _)| uid.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use muster_engine::Observation;
    use muster_engine::model::labels::{LabelOperator, NodeTerm, Requirement};
    use serde_json::{Value, json};

    use super::*;
    use crate::gates::FeatureGates;
    use crate::intake::raw::RawObject;
    use crate::intake::selectors::SelectorKind;
    use crate::intake::{Intake, WatchEvent};
    use crate::settings::Profile;
    use muster_api::owners::GangedOwners;
    use muster_engine::model::inter_pod::Spread;
    use muster_reflector::Delta;

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
