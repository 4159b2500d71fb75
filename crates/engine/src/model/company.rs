//! The company that a pod keeps: beside whom it must be, may not be, would like to be, and how it is to be spread.
//!
//! All of it is said by selectors over other pods and by a label of nodes, whose values part the nodes into domains.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::labels::{Demand, Labels, Requirement};

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
    /// No pod at all.
    pub fn nobody() -> Self {
        let never = Requirement { key: String::new(), demand: Demand::In(Vec::new()) };
        Self { labels: vec![never], ..Self::default() }
    }

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

/// Pods that are to be spread evenly over the domains of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SpreadTerm {
    /// Which pods.
    pub pods: PodSelector,
    /// The label of nodes whose values are the domains.
    pub topology_key: String,
    /// By how many a domain may be ahead of the last.
    pub skew_max: u32,
    /// With fewer domains than this, the last counts as empty.
    pub domains_min: u32,
    /// Nodes that the pod's own selector and affinity rule out do not count.
    pub minds_affinity: bool,
    /// Nodes with taints that the pod does not tolerate do not count.
    pub minds_taints: bool,
}

/// How a pod and its like are to be spread.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// The pod waits rather than be ahead.
    pub must: Vec<SpreadTerm>,
    /// The pod would rather not be ahead.
    pub should: Vec<SpreadTerm>,
    /// A node that lacks one of the labels in `should` is still judged by the others.
    pub bears_missing_labels: bool,
}

impl Spread {
    /// Whether the pod may be anywhere.
    pub fn is_empty(&self) -> bool {
        self.must.is_empty() && self.should.is_empty()
    }
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
    /// How evenly those like it are to be spread.
    pub spread: Spread,
}

impl Company {
    /// Whether the pod does not care.
    pub fn is_empty(&self) -> bool {
        self.seeks.is_empty() && self.shuns.is_empty() && self.prefers.is_empty() && self.spread.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
