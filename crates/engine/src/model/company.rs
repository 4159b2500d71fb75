//! The company that a pod keeps: beside whom it must be, may not be, would like to be, and how it is to be spread.
//!
//! All of it is said by selectors over other pods and by a label of nodes, whose values part the nodes into domains.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::labels::{Labels, Requirement};

/// Pods by namespace and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodSelector {
    /// Namespaces by name.
    pub namespaces: BTreeSet<String>,
    /// Namespaces by label, beside those that are named; an empty list is all of them, `None` is no more.
    pub namespaces_like: Option<Vec<Requirement>>,
    /// What the pod's labels must meet; an empty list is any pod.
    pub labels: Vec<Requirement>,
}

impl PodSelector {
    /// Whether a pod is meant, of a namespace with these labels.
    pub fn matches(&self, namespace: &str, of_namespace: &Labels, labels: &Labels) -> bool {
        let meets = |requirements: &[Requirement], labels: &Labels| requirements.iter().all(|one| one.matches(labels));
        let here = self.namespaces.contains(namespace)
            || self.namespaces_like.as_ref().is_some_and(|like| meets(like, of_namespace));
        here && meets(&self.labels, labels)
    }
}

/// Pods, in the same domain of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodTerm {
    /// Which pods.
    pub pods: PodSelector,
    /// The label of nodes whose values are the domains.
    pub topology_key: String,
}

/// A term that would be welcome, or unwelcome.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PreferredPodTerm {
    /// 1 to 100; below zero the pod would rather not be there.
    pub weight: i32,
    /// Who, and how near.
    pub term: PodTerm,
}

/// The company that a pod keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Company {
    /// One pod that matches all of these must be in each of their domains. The first of those who seek each other may
    /// go anywhere.
    pub seeks: Vec<PodTerm>,
    /// No pod that matches one of these may be in its domain.
    pub shuns: Vec<PodTerm>,
    /// Welcome and unwelcome company.
    pub prefers: Vec<PreferredPodTerm>,
}

impl Company {
    /// Whether the pod does not care.
    pub fn is_empty(&self) -> bool {
        self.seeks.is_empty() && self.shuns.is_empty() && self.prefers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::labels::Demand;

    #[test]
    fn namespaces_are_named_or_alike() {
        let team: Labels = [("team".to_owned(), "a".to_owned())].into();
        let none = Labels::new();
        let like = Requirement { key: "team".to_owned(), demand: Demand::In(vec!["a".to_owned()]) };
        let named = PodSelector { namespaces: ["ml".to_owned()].into(), ..PodSelector::default() };
        assert!(named.matches("ml", &none, &none) && !named.matches("web", &team, &none));
        let alike = PodSelector { namespaces_like: Some(vec![like]), ..named.clone() };
        assert!(alike.matches("ml", &none, &none) && alike.matches("web", &team, &none));
        assert!(!alike.matches("web", &none, &none));
        let all = PodSelector { namespaces_like: Some(Vec::new()), ..PodSelector::default() };
        assert!(all.matches("web", &none, &none));
        let nobody = Requirement { key: "app".to_owned(), demand: Demand::In(Vec::new()) };
        assert!(!PodSelector { labels: vec![nobody], ..all }.matches("web", &none, &none));
    }
}
