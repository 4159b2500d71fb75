//! Disruption budgets (PodDisruptionBudget): how many of the selected pods may be evicted at once.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::labels::{Labels, Requirement};

/// A budget as it is observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetSpec {
    /// The namespace; pods of other namespaces are not covered.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The pod selector; an empty list selects every pod, `None` selects none.
    pub selector: Option<Vec<Requirement>>,
    /// How many more pods may be evicted now.
    pub allowed: i32,
    /// Names of pods whose disruption is already counted in `allowed`.
    pub disrupted: BTreeSet<String>,
}

impl BudgetSpec {
    /// Whether the budget covers a pod of its namespace and evicting that pod would use up some of `allowed`.
    pub fn counts(&self, pod: &str, labels: &Labels) -> bool {
        let selected = |selector: &Vec<Requirement>| selector.iter().all(|requirement| requirement.matches(labels));
        self.selector.as_ref().is_some_and(selected) && !self.disrupted.contains(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::labels::LabelOperator;

    #[test]
    fn empty_selector_covers_all_pods_and_missing_selector_none() {
        let labels: Labels = [("app".to_owned(), "web".to_owned())].into();
        let with = |selector| BudgetSpec { selector, ..BudgetSpec::default() };
        assert!(with(Some(Vec::new())).counts("p", &labels));
        assert!(!with(None).counts("p", &labels));
        let app = |value: &str| Requirement { key: "app".into(), operator: LabelOperator::In(vec![value.into()]) };
        assert!(with(Some(vec![app("web")])).counts("p", &labels));
        assert!(!with(Some(vec![app("db")])).counts("p", &labels));
    }

    #[test]
    fn disrupted_pod_does_not_count_again() {
        let disrupted = ["p".to_owned()].into();
        let budget = BudgetSpec { selector: Some(Vec::new()), disrupted, ..BudgetSpec::default() };
        assert!(!budget.counts("p", &Labels::new()));
        assert!(budget.counts("q", &Labels::new()));
    }
}
