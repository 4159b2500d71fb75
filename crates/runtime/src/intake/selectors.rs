//! Objects that select pods: Services, ReplicationControllers, ReplicaSets and StatefulSets. Pods without topology
//! spread constraints are spread among the pods that such an object selects.
//!
//! Only the selector of an object is kept.
//! Must not depend on pods beyond their labels and owner.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::ApiResource;
use muster_api::invalid::FieldPath;
use muster_api::selector::{LabelSelector, Labels, WrittenLabelSelector};
use muster_api::wire::Pod;
use muster_engine::model::labels::{LabelOperator, Requirement};
use muster_reflector::{Delta, Key, Table, key_of};
use serde::Deserialize;

use super::class::requirement;
use super::raw::{RawObject, resource};

/// A kind that selects pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SelectorKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

impl SelectorKind {
    pub(crate) const ALL: [Self; 4] = [Self::Service, Self::ReplicationController, Self::ReplicaSet, Self::StatefulSet];

    /// The API version and the kind.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Service => ("v1", "Service"),
            Self::ReplicationController => ("v1", "ReplicationController"),
            Self::ReplicaSet => ("apps/v1", "ReplicaSet"),
            Self::StatefulSet => ("apps/v1", "StatefulSet"),
        }
    }

    /// The plural in API paths.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Service => "services",
            Self::ReplicationController => "replicationcontrollers",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
        }
    }

    /// Its API resource.
    pub(crate) fn resource(self) -> ApiResource {
        let (api_version, kind) = self.name();
        resource(api_version, kind, self.plural())
    }
}

/// The controller of a pod: kind and name.
pub(crate) type Owner = (SelectorKind, String);

/// The controller of a pod, if it is of a kind that selects pods.
pub(crate) fn owner(pod: &Pod) -> Option<Owner> {
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let is_of = |kind: &SelectorKind| {
        *kind != SelectorKind::Service && kind.name() == (owner.api_version.as_str(), owner.kind.as_str())
    };
    Some((SelectorKind::ALL.into_iter().find(is_of)?, owner.name.clone()))
}

/// The pods whose default spread an object affects, all in its namespace.
#[derive(Debug)]
pub(super) struct AffectedPods {
    pub(super) namespace: String,
    /// The object.
    owner: Owner,
    /// Its selector, before or after the change.
    selector: Option<Vec<Requirement>>,
}

impl AffectedPods {
    /// Whether the pod is one of them: a Service affects the pods that it selects, a controller its own.
    pub(super) fn contains(&self, labels: &Labels, owner: Option<&Owner>) -> bool {
        match self.owner.0 {
            SelectorKind::Service => self.selector.as_ref().is_some_and(|selector| selects(selector, labels)),
            _ => owner == Some(&self.owner),
        }
    }
}

/// The selectors of all objects.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    /// Of the kinds that are watched.
    tables: BTreeMap<SelectorKind, Table<Key, Vec<Requirement>>>,
    /// Names of Services by namespace and one requirement of their selector: the first.
    services: BTreeMap<(String, Requirement), BTreeSet<String>>,
}

fn selects(selector: &[Requirement], labels: &Labels) -> bool {
    selector.iter().all(|requirement| requirement.matches(labels))
}

#[derive(Deserialize)]
struct Selected<S> {
    #[serde(default = "nothing")]
    spec: Spec<S>,
}

#[derive(Deserialize)]
struct Spec<S> {
    selector: Option<S>,
}

fn nothing<S>() -> Spec<S> {
    Spec { selector: None }
}

impl Selectors {
    /// Nothing selects pods yet, and all kinds are watched.
    pub(super) fn watched() -> Self {
        Self { tables: SelectorKind::ALL.map(|kind| (kind, Table::default())).into(), ..Self::default() }
    }

    pub(super) fn has_synced(&self) -> bool {
        self.tables.values().all(Table::has_synced)
    }

    /// Applies an event. Returns the pods that it affects, and an error if the object cannot be parsed: it keeps its
    /// old selector then.
    pub(super) fn on_delta(
        &mut self,
        kind: SelectorKind,
        delta: Delta<RawObject>,
    ) -> (Vec<AffectedPods>, Option<String>) {
        let Some(table) = self.tables.get_mut(&kind) else { return (Vec::new(), None) };
        let (object, gone) = table.apply(delta, key_of);
        let affected = |(namespace, name): &Key, selector: Option<Vec<Requirement>>| AffectedPods {
            namespace: namespace.clone(),
            owner: (kind, name.clone()),
            selector,
        };
        let mut pods: Vec<AffectedPods> = gone.iter().map(|key| affected(key, self.set(kind, key, None))).collect();
        let Some(object) = object else { return (pods, None) };
        match read(kind, &object) {
            Ok(new) => {
                let key = key_of(&object);
                let old = self.set(kind, &key, new.clone());
                if old != new {
                    pods.extend([affected(&key, old), affected(&key, new)]);
                }
                (pods, None)
            }
            Err(error) => (pods, Some(error)),
        }
    }

    /// Sets the selector of an object, `None` if it is gone or has none. Returns the old one.
    fn set(&mut self, kind: SelectorKind, key: &Key, selector: Option<Vec<Requirement>>) -> Option<Vec<Requirement>> {
        let first = |selector: &Option<Vec<Requirement>>| {
            let first = selector.as_ref().filter(|_| kind == SelectorKind::Service)?.first()?;
            Some((key.0.clone(), first.clone()))
        };
        let added = first(&selector);
        let table = self.tables.get_mut(&kind)?;
        let old = match selector {
            Some(selector) => table.entries.insert(key.clone(), selector),
            None => table.entries.remove(key),
        };
        if let Some(place) = first(&old)
            && let Some(names) = self.services.get_mut(&place)
        {
            names.remove(&key.1);
            if names.is_empty() {
                self.services.remove(&place);
            }
        }
        if let Some(place) = added {
            self.services.entry(place).or_default().insert(key.1.clone());
        }
        old
    }

    fn get(&self, kind: SelectorKind, namespace: &str, name: &str) -> Option<&Vec<Requirement>> {
        self.tables.get(&kind)?.entries.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The selectors of the Services that select a pod.
    fn of_services(&self, namespace: &str, labels: &Labels) -> impl Iterator<Item = &Vec<Requirement>> {
        let names = labels.iter().filter_map(|label| self.services.get(&(namespace.to_owned(), is(label)))).flatten();
        let selectors = names.filter_map(|name| self.get(SelectorKind::Service, namespace, name));
        selectors.filter(|selector| selects(selector, labels))
    }

    /// The combined selector of the pods among which a pod is spread by default; empty if nothing selects it.
    pub(crate) fn for_pod(&self, namespace: &str, labels: &Labels, owner: Option<&Owner>) -> Vec<Requirement> {
        // A Service requires values that the pod has.
        let value = |Requirement { key, .. }: &Requirement| Some((key.clone(), labels.get(key)?.clone()));
        let mut required: Labels = self.of_services(namespace, labels).flatten().filter_map(value).collect();
        let set = owner.and_then(|(kind, name)| self.get(*kind, namespace, name));
        let mut more = Vec::new();
        for requirement in set.into_iter().flatten() {
            match (&requirement.operator, owner) {
                // A label that a service already requires is not repeated.
                (LabelOperator::In(values), _)
                    if values.len() == 1 && required.get(&requirement.key) == values.first() => {}
                (LabelOperator::In(values), Some((SelectorKind::ReplicationController, _))) => {
                    required.extend(values.first().map(|value| (requirement.key.clone(), value.clone())));
                }
                _ => more.push(requirement.clone()),
            }
        }
        required.iter().map(is).chain(more).collect()
    }
}

/// The selector of an object; `None` if it has none.
fn read(kind: SelectorKind, object: &RawObject) -> Result<Option<Vec<Requirement>>, String> {
    let with_object = |error: &dyn std::fmt::Display| {
        let (namespace, name) = key_of(object);
        format!("{} {namespace}/{name}: {error}", kind.name().1)
    };
    let text = object.text.get();
    if let SelectorKind::Service | SelectorKind::ReplicationController = kind {
        let read = serde_json::from_str::<Selected<Labels>>(text).map_err(|error| with_object(&error))?;
        return Ok(read.spec.selector.map(|selector| selector.iter().map(is).collect()));
    }
    let read = serde_json::from_str::<Selected<WrittenLabelSelector>>(text).map_err(|error| with_object(&error))?;
    let path = FieldPath::Root("spec.selector");
    match WrittenLabelSelector::validate(read.spec.selector.as_ref(), &path).map_err(|error| with_object(&error))? {
        LabelSelector::Nothing => Ok(None),
        LabelSelector::All(requirements) => Ok(Some(requirements.iter().map(requirement).collect())),
    }
}

fn is((key, value): (&String, &String)) -> Requirement {
    Requirement { key: key.clone(), operator: LabelOperator::In(vec![value.clone()]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(name: &str, spec: &Value) -> RawObject {
        let text = json!({"metadata": {"namespace": "ml", "name": name}, "spec": spec}).to_string();
        serde_json::from_str(&text).unwrap()
    }

    /// Whether the event changes a selector, or the error.
    fn apply(selectors: &mut Selectors, kind: SelectorKind, object: RawObject) -> Result<bool, String> {
        match selectors.on_delta(kind, Delta::Applied(object)) {
            (affected, None) => Ok(!affected.is_empty()),
            (_, Some(error)) => Err(error),
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn selectors_of_services_and_of_the_controller_are_combined() {
        let mut selectors = Selectors::watched();
        let service = object("web", &json!({"selector": {"app": "web"}}));
        assert_eq!(apply(&mut selectors, SelectorKind::Service, service.clone()), Ok(true));
        assert_eq!(apply(&mut selectors, SelectorKind::Service, service.clone()), Ok(false), "nothing new");
        let set = json!({"selector": {"matchLabels": {"app": "web", "hash": "1"}}});
        assert_eq!(apply(&mut selectors, SelectorKind::ReplicaSet, object("web-1", &set)), Ok(true));
        let own = labels(&[("app", "web"), ("hash", "1")]);
        let owner = (SelectorKind::ReplicaSet, "web-1".to_owned());
        let required = |pairs: &[(&str, &str)]| labels(pairs).iter().map(is).collect::<Vec<_>>();
        assert_eq!(selectors.for_pod("ml", &own, None), required(&[("app", "web")]));
        assert_eq!(selectors.for_pod("ml", &own, Some(&owner)), required(&[("app", "web"), ("hash", "1")]));
        assert_eq!(selectors.for_pod("web", &own, Some(&owner)), required(&[]), "another namespace");
        assert_eq!(
            selectors.for_pod("ml", &labels(&[("app", "db")]), None),
            required(&[]),
            "the service does not select it"
        );
        let (affected, _) = selectors.on_delta(SelectorKind::Service, Delta::Deleted(service));
        assert!(affected[0].contains(&own, None) && !affected[0].contains(&labels(&[("app", "db")]), None));
        assert_eq!(selectors.for_pod("ml", &own, None), required(&[]));
        assert!(selectors.services.is_empty());
        let (affected, _) = selectors.on_delta(SelectorKind::ReplicaSet, Delta::NotServed);
        assert!(affected[0].contains(&own, Some(&owner)) && !affected[0].contains(&own, None));
    }

    #[test]
    fn a_missing_selector_selects_no_pod_and_an_invalid_one_is_an_error() {
        let mut selectors = Selectors::watched();
        assert_eq!(apply(&mut selectors, SelectorKind::Service, object("web", &json!({}))), Ok(false));
        let bad = object("web", &json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}));
        let error = apply(&mut selectors, SelectorKind::StatefulSet, bad).unwrap_err();
        assert!(error.starts_with("StatefulSet ml/web: spec.selector.matchExpressions[0].operator"), "{error}");
    }

    #[test]
    fn only_a_controller_of_a_selecting_kind_is_an_owner() {
        let pod = |api_version: &str, kind: &str, controller: bool| {
            let owner =
                json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "1", "controller": controller});
            let pod = json!({"metadata": {"ownerReferences": [owner]}, "spec": {"containers": []}});
            super::owner(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(pod("apps/v1", "ReplicaSet", true), Some((SelectorKind::ReplicaSet, "o".to_owned())));
        assert_eq!(pod("apps/v1", "ReplicaSet", false), None);
        assert_eq!(pod("batch/v1", "Job", true), None);
        assert_eq!(pod("apps/v1beta1", "StatefulSet", true), None);
    }
}
