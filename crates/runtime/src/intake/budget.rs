//! A disruption budget in the engine's words.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::selector::{LabelSelector, WrittenLabelSelector};
use muster_api::wire::PodDisruptionBudget;
use muster_engine::model::budget::BudgetSpec;

use super::class::requirement;

/// The budget that the engine is told of. What its controller has not looked at yet allows nothing.
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
    fn what_its_controller_granted_counts() {
        let spec = read(&json!({
            "disruptionsAllowed": 3, "observedGeneration": 2, "disruptedPods": {"a": "2026-01-01T00:00:00Z"},
        }));
        let spec = spec.unwrap();
        assert_eq!((spec.allowed, spec.disrupted.len()), (3, 1));
        assert!(spec.counts("b", &[("app".to_owned(), "web".to_owned())].into()));
        assert!(!spec.counts("b", &[("app".to_owned(), "db".to_owned())].into()));
    }

    #[test]
    fn what_its_controller_has_not_looked_at_allows_nothing() {
        assert_eq!(read(&json!({"disruptionsAllowed": 3, "observedGeneration": 1})).unwrap().allowed, 0);
    }

    #[test]
    fn a_bad_selector_is_told_by_its_field() {
        let object = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Maybe"}]}}});
        let error = budget(&serde_json::from_value(object).unwrap()).unwrap_err().to_string();
        assert!(error.contains("spec.selector.matchExpressions[0].operator"), "{error}");
    }
}
