//! Inter-pod affinity and anti-affinity, required and preferred, and topology spread constraints of a pod.
//!
//! Each term selects other pods and names a topology key: a node label whose values divide the nodes into domains.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::labels::{LabelOperator, Labels, Requirement};

/// A selector of pods by namespace and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodSelector {
    /// Namespaces by name.
    pub namespaces: BTreeSet<String>,
    /// A namespace selector, in addition to `namespaces`; an empty list selects all namespaces, `None` selects none.
    #[serde(rename = "namespaces_like")]
    pub namespace_selector: Option<Vec<Requirement>>,
    /// The label selector; an empty list selects every pod.
    pub labels: Vec<Requirement>,
}

impl PodSelector {
    /// A selector that matches no pod.
    pub fn none() -> Self {
        let never = Requirement { key: String::new(), operator: LabelOperator::In(Vec::new()) };
        Self { labels: vec![never], ..Self::default() }
    }

    /// Whether a pod of this namespace, which has these labels, matches.
    pub fn matches(&self, namespace: &str, of_namespace: &Labels, labels: &Labels) -> bool {
        let meets = |requirements: &[Requirement], labels: &Labels| requirements.iter().all(|one| one.matches(labels));
        let here = self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|like| meets(like, of_namespace));
        here && meets(&self.labels, labels)
    }
}

/// An affinity term: pods in the same topology domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodTerm {
    /// The pod selector.
    pub pods: PodSelector,
    /// The node label whose values are the topology domains.
    pub topology_key: String,
}

/// A preferred affinity or anti-affinity term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PreferredPodTerm {
    /// 1 to 100 for affinity, negative for anti-affinity.
    pub weight: i32,
    /// The term.
    pub term: PodTerm,
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SpreadTerm {
    /// The pod selector.
    pub pods: PodSelector,
    /// The node label whose values are the topology domains.
    pub topology_key: String,
    /// `maxSkew`: by how many pods a domain may exceed the domain with the fewest.
    #[serde(rename = "skew_max")]
    pub max_skew: u32,
    /// `minDomains`: with fewer domains than this, the global minimum counts as zero.
    #[serde(rename = "domains_min")]
    pub min_domains: u32,
    /// `nodeAffinityPolicy: Honor`: nodes that do not match the pod's node selector and affinity are not counted.
    #[serde(rename = "minds_affinity")]
    pub honors_node_affinity: bool,
    /// `nodeTaintsPolicy: Honor`: nodes with taints that the pod does not tolerate are not counted.
    #[serde(rename = "minds_taints")]
    pub honors_node_taints: bool,
}

/// The topology spread constraints of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// Constraints with `whenUnsatisfiable: DoNotSchedule`.
    #[serde(rename = "must")]
    pub do_not_schedule: Vec<SpreadTerm>,
    /// Constraints with `whenUnsatisfiable: ScheduleAnyway`.
    #[serde(rename = "should")]
    pub schedule_anyway: Vec<SpreadTerm>,
    /// Nodes that lack a topology key of `schedule_anyway` are still scored by the other constraints.
    #[serde(rename = "bears_missing_labels")]
    pub scores_nodes_without_keys: bool,
}

impl Spread {
    /// Whether there are no constraints.
    pub fn is_empty(&self) -> bool {
        self.do_not_schedule.is_empty() && self.schedule_anyway.is_empty()
    }
}

/// The inter-pod constraints of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct InterPodConstraints {
    /// Required affinity: a pod that matches all terms must be in each of their domains. The first pod of a set that
    /// requires affinity to itself may go anywhere.
    #[serde(rename = "seeks")]
    pub required_affinity: Vec<PodTerm>,
    /// Required anti-affinity: no matching pod may be in the domain of a term.
    #[serde(rename = "shuns")]
    pub required_anti_affinity: Vec<PodTerm>,
    /// Preferred affinity and anti-affinity.
    #[serde(rename = "prefers")]
    pub preferred: Vec<PreferredPodTerm>,
    /// Topology spread constraints.
    pub spread: Spread,
}

impl InterPodConstraints {
    /// Whether there are no constraints.
    pub fn is_empty(&self) -> bool {
        self.required_affinity.is_empty()
            && self.required_anti_affinity.is_empty()
            && self.preferred.is_empty()
            && self.spread.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_match_by_name_or_selector() {
        let team: Labels = [("team".to_owned(), "a".to_owned())].into();
        let none = Labels::new();
        let like = Requirement { key: "team".to_owned(), operator: LabelOperator::In(vec!["a".to_owned()]) };
        let named = PodSelector { namespaces: ["ml".to_owned()].into(), ..PodSelector::default() };
        assert!(named.matches("ml", &none, &none) && !named.matches("web", &team, &none));
        let selected = PodSelector { namespace_selector: Some(vec![like]), ..named.clone() };
        assert!(selected.matches("ml", &none, &none) && selected.matches("web", &team, &none));
        assert!(!selected.matches("web", &none, &none));
        let all = PodSelector { namespace_selector: Some(Vec::new()), ..PodSelector::default() };
        assert!(all.matches("web", &none, &none));
        let never = Requirement { key: "app".to_owned(), operator: LabelOperator::In(Vec::new()) };
        assert!(!PodSelector { labels: vec![never], ..all }.matches("web", &none, &none));
    }
}
