//! Disruption budgets: how many pods of a kind may be taken away at once.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::labels::{Labels, Requirement};

/// A budget as it is observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetSpec {
    /// The namespace; a budget counts for no other.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// What a pod's labels must be; an empty list is met by every pod, `None` by none.
    pub selector: Option<Vec<Requirement>>,
    /// How many more pods may be taken away now.
    pub allowed: i32,
    /// Pods by name whose disruption is counted in `allowed` already.
    pub disrupted: BTreeSet<String>,
}

impl BudgetSpec {
    /// Whether a pod of the budget's namespace is under it, and taking it away would count.
    pub fn counts(&self, pod: &str, labels: &Labels) -> bool {
        let selected = |demands: &Vec<Requirement>| demands.iter().all(|demand| demand.matches(labels));
        self.selector.as_ref().is_some_and(selected) && !self.disrupted.contains(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::labels::Demand;

    #[test]
    fn an_empty_selector_is_met_by_all_and_none_by_nobody() {
        let labels: Labels = [("app".to_owned(), "web".to_owned())].into();
        let with = |selector| BudgetSpec { selector, ..BudgetSpec::default() };
        assert!(with(Some(Vec::new())).counts("p", &labels));
        assert!(!with(None).counts("p", &labels));
        let app = |value: &str| Requirement { key: "app".into(), demand: Demand::In(vec![value.into()]) };
        assert!(with(Some(vec![app("web")])).counts("p", &labels));
        assert!(!with(Some(vec![app("db")])).counts("p", &labels));
    }

    #[test]
    fn what_is_counted_already_does_not_count_again() {
        let disrupted = ["p".to_owned()].into();
        let budget = BudgetSpec { selector: Some(Vec::new()), disrupted, ..BudgetSpec::default() };
        assert!(!budget.counts("p", &Labels::new()));
        assert!(budget.counts("q", &Labels::new()));
    }
}
