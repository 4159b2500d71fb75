//! The objects that select pods: services, and the sets that make them. Pods that do not say how they are to be spread are
//! spread among those that such an object selects.
//!
//! Of an object only its selector is kept. It must not know pods beyond their labels and their owner.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::ApiResource;
use muster_api::invalid::FieldPath;
use muster_api::selector::{LabelSelector, Labels, WrittenLabelSelector};
use muster_api::wire::Pod;
use muster_engine::model::labels::{Demand, Requirement};
use serde::Deserialize;

use super::class::requirement;
use super::raw::{RawObject, names};

/// A kind that selects pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Selecting {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

impl Selecting {
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

    /// The name in paths.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Service => "services",
            Self::ReplicationController => "replicationcontrollers",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
        }
    }

    /// Where the API server has it.
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

/// A set that made a pod.
pub(crate) type Owner = (Selecting, String);

/// The set that made a pod, if it is of a kind that selects.
pub(crate) fn owner(pod: &Pod) -> Option<Owner> {
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let is_of = |kind: &Selecting| {
        *kind != Selecting::Service && kind.name() == (owner.api_version.as_str(), owner.kind.as_str())
    };
    Some((Selecting::ALL.into_iter().find(is_of)?, owner.name.clone()))
}

/// Where an object stands: kind, namespace, name.
pub(crate) type Key = (Selecting, String, String);

/// Selectors of objects.
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
    /// The names of those that ask for a label with a value, each under the first that it asks for.
    by_label: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Services {
    /// Takes in a service's selector, none if it is gone or selects nobody. Says whether that is news.
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

    /// The selectors that select a pod with these labels.
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
    /// Takes in an object. Says whether it selects other pods than before; one that cannot be read stays what it was.
    pub(crate) fn seen(&mut self, kind: Selecting, object: &RawObject) -> Result<bool, String> {
        let (namespace, name) = names(object);
        let told = |error: &dyn std::fmt::Display| format!("{} {namespace}/{name}: {error}", kind.name().1);
        let text = object.text.get();
        if let Selecting::Service | Selecting::ReplicationController = kind {
            let read = serde_json::from_str::<Selected<Labels>>(text).map_err(|error| told(&error))?;
            let Some(selector) = read.spec.selector else { return Ok(self.gone(&(kind, namespace, name))) };
            if kind == Selecting::Service {
                return Ok(self.services.entry(namespace).or_default().set(&name, Some(selector)));
            }
            return Ok(self.set_seen((kind, namespace, name), selector.iter().map(is).collect()));
        }
        let read = serde_json::from_str::<Selected<WrittenLabelSelector>>(text).map_err(|error| told(&error))?;
        let path = FieldPath::Root("spec.selector");
        let selector =
            WrittenLabelSelector::validate(read.spec.selector.as_ref(), &path).map_err(|error| told(&error))?;
        let key = (kind, namespace.clone(), name.clone());
        let LabelSelector::All(requirements) = selector else { return Ok(self.gone(&key)) };
        Ok(self.set_seen(key, requirements.iter().map(requirement).collect()))
    }

    fn set_seen(&mut self, key: Key, selector: Vec<Requirement>) -> bool {
        self.sets.insert(key, selector.clone()) != Some(selector)
    }

    /// Forgets an object. Says whether it selected anybody.
    pub(crate) fn gone(&mut self, (kind, namespace, name): &Key) -> bool {
        if *kind != Selecting::Service {
            return self.sets.remove(&(*kind, namespace.clone(), name.clone())).is_some();
        }
        let Some(services) = self.services.get_mut(namespace) else { return false };
        let known = services.set(name, None);
        if services.by_name.is_empty() {
            self.services.remove(namespace);
        }
        known
    }

    /// The objects of a kind that are known.
    pub(crate) fn known(&self, kind: Selecting) -> Vec<Key> {
        let services = self
            .services
            .iter()
            .flat_map(|(namespace, services)| services.by_name.keys().map(move |name| (namespace, name)));
        let services = services.map(|(namespace, name)| (Selecting::Service, namespace.clone(), name.clone()));
        services.chain(self.sets.keys().cloned()).filter(|key| key.0 == kind).collect()
    }

    /// Whether an object has a say in how a pod is spread.
    pub(crate) fn concerns(&self, (kind, namespace, name): &Key, labels: &Labels, owner: Option<&Owner>) -> bool {
        if *kind != Selecting::Service {
            return owner.is_some_and(|(of, owner)| of == kind && owner == name);
        }
        let selector = self.services.get(namespace).and_then(|services| services.by_name.get(name));
        selector.is_some_and(|selector| selects(selector, labels))
    }

    /// What those have in common among whom a pod is spread by default; empty if nobody selects it.
    pub(crate) fn of_pod(&self, namespace: &str, labels: &Labels, owner: Option<&Owner>) -> Vec<Requirement> {
        let meant = self.services.get(namespace).into_iter().flat_map(|services| services.of(labels));
        let mut said: Labels = meant.flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        let set = owner.and_then(|(kind, name)| self.sets.get(&(*kind, namespace.to_owned(), name.clone())));
        let mut more = Vec::new();
        for requirement in set.into_iter().flatten() {
            match (&requirement.demand, owner) {
                // A label that is said twice is said once.
                (Demand::In(values), _) if values.len() == 1 && said.get(&requirement.key) == values.first() => {}
                (Demand::In(values), Some((Selecting::ReplicationController, _))) => {
                    said.extend(values.first().map(|value| (requirement.key.clone(), value.clone())));
                }
                _ => more.push(requirement.clone()),
            }
        }
        said.iter().map(is).chain(more).collect()
    }
}

fn is((key, value): (&String, &String)) -> Requirement {
    Requirement { key: key.clone(), demand: Demand::In(vec![value.clone()]) }
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
    fn services_and_the_set_that_made_a_pod_add_up() {
        let mut selectors = Selectors::default();
        let service = object("web", &json!({"selector": {"app": "web"}}));
        assert_eq!(selectors.seen(Selecting::Service, &service), Ok(true));
        assert_eq!(selectors.seen(Selecting::Service, &service), Ok(false), "nothing new");
        let set = json!({"selector": {"matchLabels": {"app": "web", "hash": "1"}}});
        assert_eq!(selectors.seen(Selecting::ReplicaSet, &object("web-1", &set)), Ok(true));
        let own = labels(&[("app", "web"), ("hash", "1")]);
        let owner = (Selecting::ReplicaSet, "web-1".to_owned());
        let said = |pairs: &[(&str, &str)]| labels(pairs).iter().map(is).collect::<Vec<_>>();
        assert_eq!(selectors.of_pod("ml", &own, None), said(&[("app", "web")]));
        assert_eq!(selectors.of_pod("ml", &own, Some(&owner)), said(&[("app", "web"), ("hash", "1")]));
        assert_eq!(selectors.of_pod("web", &own, Some(&owner)), said(&[]), "another namespace");
        assert_eq!(selectors.of_pod("ml", &labels(&[("app", "db")]), None), said(&[]), "the service does not mean it");
        assert!(selectors.gone(&(Selecting::Service, "ml".to_owned(), "web".to_owned())));
        assert_eq!(selectors.of_pod("ml", &own, None), said(&[]));
        assert_eq!(selectors.known(Selecting::ReplicaSet).len(), 1);
    }

    #[test]
    fn no_selector_selects_nobody_and_nonsense_is_told() {
        let mut selectors = Selectors::default();
        assert_eq!(selectors.seen(Selecting::Service, &object("web", &json!({}))), Ok(false));
        let bad = object("web", &json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}));
        let error = selectors.seen(Selecting::StatefulSet, &bad).unwrap_err();
        assert!(error.starts_with("StatefulSet ml/web: spec.selector.matchExpressions[0].operator"), "{error}");
    }

    #[test]
    fn only_a_controller_of_a_kind_that_selects_is_an_owner() {
        let pod = |api_version: &str, kind: &str, controller: bool| {
            let owner =
                json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "1", "controller": controller});
            let pod = json!({"metadata": {"ownerReferences": [owner]}, "spec": {"containers": []}});
            super::owner(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(pod("apps/v1", "ReplicaSet", true), Some((Selecting::ReplicaSet, "o".to_owned())));
        assert_eq!(pod("apps/v1", "ReplicaSet", false), None);
        assert_eq!(pod("batch/v1", "Job", true), None);
        assert_eq!(pod("apps/v1beta1", "StatefulSet", true), None);
    }
}
