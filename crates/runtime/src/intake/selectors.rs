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
use serde::Deserialize;

use super::class::requirement;
use super::raw::{RawObject, names};

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
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: self.plural().to_owned(),
        }
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

/// The key of an object: kind, namespace, name.
pub(crate) type Key = (SelectorKind, String, String);

/// The selectors of all objects.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    /// By namespace.
    services: BTreeMap<String, Services>,
    sets: BTreeMap<Key, Vec<Requirement>>,
}

/// The services of a namespace.
#[derive(Debug, Default)]
struct Services {
    by_name: BTreeMap<String, Labels>,
    /// Names of services by one label of their selector: the first.
    by_label: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Services {
    /// Sets the selector of a service, `None` if it is gone or has none. Returns whether it has changed.
    fn set(&mut self, name: &str, selector: Option<Labels>) -> bool {
        if self.by_name.get(name) == selector.as_ref() {
            return false;
        }
        if let Some(old) = self.by_name.remove(name)
            && let Some(label) = anchor(&old)
            && let Some(names) = self.by_label.get_mut(&label)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_label.remove(&label);
            }
        }
        if let Some(new) = selector {
            if let Some(label) = anchor(&new) {
                self.by_label.entry(label).or_default().insert(name.to_owned());
            }
            self.by_name.insert(name.to_owned(), new);
        }
        true
    }

    /// The selectors that match these labels.
    fn of(&self, labels: &Labels) -> impl Iterator<Item = &Labels> {
        let anchored = labels.iter().filter_map(|(key, value)| self.by_label.get(&(key.clone(), value.clone())));
        anchored.flatten().filter_map(|name| self.by_name.get(name)).filter(move |selector| selects(selector, labels))
    }
}

fn anchor(selector: &Labels) -> Option<(String, String)> {
    selector.first_key_value().map(|(key, value)| (key.clone(), value.clone()))
}

fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[derive(Deserialize)]
struct Selected<S> {
    #[serde(default = "nothing")]
    spec: Spec<S>,
}

#[derive(Deserialize)]
struct Spec<S> {
    #[serde(default = "none")]
    selector: Option<S>,
}

fn nothing<S>() -> Spec<S> {
    Spec { selector: None }
}

fn none<S>() -> Option<S> {
    None
}

impl Selectors {
    /// Handles an object. Returns whether its selector has changed; an object that cannot be parsed keeps its old
    /// selector.
    pub(crate) fn on_applied(&mut self, kind: SelectorKind, object: &RawObject) -> Result<bool, String> {
        let (namespace, name) = names(object);
        let with_object = |error: &dyn std::fmt::Display| format!("{} {namespace}/{name}: {error}", kind.name().1);
        let text = object.text.get();
        if let SelectorKind::Service | SelectorKind::ReplicationController = kind {
            let read = serde_json::from_str::<Selected<Labels>>(text).map_err(|error| with_object(&error))?;
            let Some(selector) = read.spec.selector else { return Ok(self.on_deleted(&(kind, namespace, name))) };
            if kind == SelectorKind::Service {
                return Ok(self.services.entry(namespace).or_default().set(&name, Some(selector)));
            }
            return Ok(self.put_set((kind, namespace, name), selector.iter().map(is).collect()));
        }
        let read = serde_json::from_str::<Selected<WrittenLabelSelector>>(text).map_err(|error| with_object(&error))?;
        let path = FieldPath::Root("spec.selector");
        let selector =
            WrittenLabelSelector::validate(read.spec.selector.as_ref(), &path).map_err(|error| with_object(&error))?;
        let key = (kind, namespace.clone(), name.clone());
        let LabelSelector::All(requirements) = selector else { return Ok(self.on_deleted(&key)) };
        Ok(self.put_set(key, requirements.iter().map(requirement).collect()))
    }

    fn put_set(&mut self, key: Key, selector: Vec<Requirement>) -> bool {
        self.sets.insert(key, selector.clone()) != Some(selector)
    }

    /// Removes an object. Returns whether it had a selector.
    pub(crate) fn on_deleted(&mut self, (kind, namespace, name): &Key) -> bool {
        if *kind != SelectorKind::Service {
            return self.sets.remove(&(*kind, namespace.clone(), name.clone())).is_some();
        }
        let Some(services) = self.services.get_mut(namespace) else { return false };
        let known = services.set(name, None);
        if services.by_name.is_empty() {
            self.services.remove(namespace);
        }
        known
    }

    /// The keys of all objects of a kind.
    pub(crate) fn keys(&self, kind: SelectorKind) -> Vec<Key> {
        let services = self
            .services
            .iter()
            .flat_map(|(namespace, services)| services.by_name.keys().map(move |name| (namespace, name)));
        let services = services.map(|(namespace, name)| (SelectorKind::Service, namespace.clone(), name.clone()));
        services.chain(self.sets.keys().cloned()).filter(|key| key.0 == kind).collect()
    }

    /// Whether an object affects how a pod is spread by default.
    pub(crate) fn affects(&self, (kind, namespace, name): &Key, labels: &Labels, owner: Option<&Owner>) -> bool {
        if *kind != SelectorKind::Service {
            return owner.is_some_and(|(of, owner)| of == kind && owner == name);
        }
        let selector = self.services.get(namespace).and_then(|services| services.by_name.get(name));
        selector.is_some_and(|selector| selects(selector, labels))
    }

    /// The combined selector of the pods among which a pod is spread by default; empty if nothing selects it.
    pub(crate) fn for_pod(&self, namespace: &str, labels: &Labels, owner: Option<&Owner>) -> Vec<Requirement> {
        let matching = self.services.get(namespace).into_iter().flat_map(|services| services.of(labels));
        let mut required: Labels = matching.flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        let set = owner.and_then(|(kind, name)| self.sets.get(&(*kind, namespace.to_owned(), name.clone())));
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

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn selectors_of_services_and_of_the_controller_are_combined() {
        let mut selectors = Selectors::default();
        let service = object("web", &json!({"selector": {"app": "web"}}));
        assert_eq!(selectors.on_applied(SelectorKind::Service, &service), Ok(true));
        assert_eq!(selectors.on_applied(SelectorKind::Service, &service), Ok(false), "nothing new");
        let set = json!({"selector": {"matchLabels": {"app": "web", "hash": "1"}}});
        assert_eq!(selectors.on_applied(SelectorKind::ReplicaSet, &object("web-1", &set)), Ok(true));
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
        assert!(selectors.on_deleted(&(SelectorKind::Service, "ml".to_owned(), "web".to_owned())));
        assert_eq!(selectors.for_pod("ml", &own, None), required(&[]));
        assert_eq!(selectors.keys(SelectorKind::ReplicaSet).len(), 1);
    }

    #[test]
    fn a_missing_selector_selects_no_pod_and_an_invalid_one_is_an_error() {
        let mut selectors = Selectors::default();
        assert_eq!(selectors.on_applied(SelectorKind::Service, &object("web", &json!({}))), Ok(false));
        let bad = object("web", &json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}));
        let error = selectors.on_applied(SelectorKind::StatefulSet, &bad).unwrap_err();
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
