//! A PodDisruptionBudget in the engine's types.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::selector::{LabelSelector, WrittenLabelSelector};
use muster_api::wire::PodDisruptionBudget;
use muster_engine::model::budget::BudgetSpec;

use super::class::requirement;

/// The budget as the engine observes it. A generation that its controller has not processed yet allows no disruption.
pub(crate) fn budget(budget: &PodDisruptionBudget) -> Result<BudgetSpec, InvalidField> {
    let path = FieldPath::Root("spec.selector");
    let selector = WrittenLabelSelector::validate(budget.spec.selector.as_ref(), &path)?;
    let status = &budget.status;
    let is_current = status.observed_generation >= budget.metadata.generation.unwrap_or(0);
    Ok(BudgetSpec {
        namespace: budget.metadata.namespace.clone().unwrap_or_default(),
        name: budget.metadata.name.clone().unwrap_or_default(),
        selector: match selector {
            LabelSelector::Nothing => None,
            LabelSelector::All(requirements) => Some(requirements.iter().map(requirement).collect()),
        },
        allowed: if is_current { status.disruptions_allowed } else { 0 },
        disrupted: status.disrupted_pods.keys().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: &serde_json::Value) -> Result<BudgetSpec, InvalidField> {
        let object = json!({
            "metadata": {"namespace": "ml", "name": "keep", "generation": 2},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": status,
        });
        budget(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_status_of_a_current_budget_counts() {
        let spec = read(&json!({
            "disruptionsAllowed": 3, "observedGeneration": 2, "disruptedPods": {"a": "2026-01-01T00:00:00Z"},
        }));
        let spec = spec.unwrap();
        assert_eq!((spec.allowed, spec.disrupted.len()), (3, 1));
        assert!(spec.counts("b", &[("app".to_owned(), "web".to_owned())].into()));
        assert!(!spec.counts("b", &[("app".to_owned(), "db".to_owned())].into()));
    }

    #[test]
    fn a_budget_that_is_not_processed_yet_allows_nothing() {
        assert_eq!(read(&json!({"disruptionsAllowed": 3, "observedGeneration": 1})).unwrap().allowed, 0);
    }

    #[test]
    fn a_bad_selector_is_reported_with_its_field() {
        let object = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Maybe"}]}}});
        let error = budget(&serde_json::from_value(object).unwrap()).unwrap_err().to_string();
        assert!(error.contains("spec.selector.matchExpressions[0].operator"), "{error}");
    }
}
