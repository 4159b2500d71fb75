//! Inter-pod affinity and anti-affinity in the engine's types.
//!
//! Everything is exact: a field that cannot be parsed is an error with its path.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::selector::{LabelSelector, Labels, WrittenLabelSelector};
use muster_api::wire::Pod;
use muster_api::wire::pod_affinity::{PodAffinity, PodAffinityTerm};
use muster_engine::model::inter_pod::{InterPodConstraints, PodSelector, PodTerm, PreferredPodTerm};
use muster_engine::model::labels::{LabelOperator, Requirement};

use super::class::requirement;
use super::spread::spread;

/// The inter-pod constraints of a pod; `None` if it has none.
pub(super) fn inter_pod_constraints(pod: &Pod) -> Result<Option<InterPodConstraints>, InvalidField> {
    let mut constraints = InterPodConstraints { spread: spread(pod)?, ..InterPodConstraints::default() };
    let path = FieldPath::Root("spec.affinity");
    if let Some(affinity) = pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref()) {
        let path = path.child("podAffinity");
        constraints.required_affinity = required(affinity, pod, &path)?;
        constraints.preferred.extend(preferred(affinity, pod, 1, &path)?);
    }
    if let Some(anti_affinity) = pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref()) {
        let path = path.child("podAntiAffinity");
        constraints.required_anti_affinity = required(anti_affinity, pod, &path)?;
        constraints.preferred.extend(preferred(anti_affinity, pod, -1, &path)?);
    }
    Ok(Some(constraints).filter(|constraints| !constraints.is_empty()))
}

fn required(rules: &PodAffinity, pod: &Pod, path: &FieldPath<'_>) -> Result<Vec<PodTerm>, InvalidField> {
    let path = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    rules.required.iter().enumerate().map(|(index, written)| term(written, pod, &path.index(index))).collect()
}

fn preferred(
    rules: &PodAffinity,
    pod: &Pod,
    sign: i32,
    path: &FieldPath<'_>,
) -> Result<Vec<PreferredPodTerm>, InvalidField> {
    let path = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    let one = |(index, written): (usize, &muster_api::wire::pod_affinity::WeightedPodAffinityTerm)| {
        let path = path.index(index);
        let weight = written.weight.as_i64().and_then(|weight| i32::try_from(weight).ok());
        let Some(weight) = weight.filter(|weight| (1..=100).contains(weight)) else {
            return Err(path.child("weight").invalid(&written.weight, "must be from 1 to 100"));
        };
        let term = term(&written.pod_affinity_term, pod, &path.child("podAffinityTerm"))?;
        Ok(PreferredPodTerm { weight: sign * weight, term })
    };
    rules.preferred.iter().enumerate().map(one).collect()
}

fn term(written: &PodAffinityTerm, pod: &Pod, path: &FieldPath<'_>) -> Result<PodTerm, InvalidField> {
    if written.topology_key.is_empty() {
        return Err(path.child("topologyKey").invalid("", "must be set"));
    }
    let selector = WrittenLabelSelector::validate(written.label_selector.as_ref(), &path.child("labelSelector"))?;
    let mut labels = pods(&selector);
    if !matches!(selector, LabelSelector::Nothing) {
        let own = pod.metadata.labels.as_ref();
        labels.extend(label_key_requirements(&written.match_label_keys, own, &labels, |value| {
            LabelOperator::In(vec![value])
        }));
        labels.extend(label_key_requirements(&written.mismatch_label_keys, own, &labels, |value| {
            LabelOperator::NotIn(vec![value])
        }));
    }
    let like = match &written.namespace_selector {
        None => None,
        Some(like) => match WrittenLabelSelector::validate(Some(like), &path.child("namespaceSelector"))? {
            LabelSelector::Nothing => None,
            LabelSelector::All(requirements) => Some(requirements.iter().map(requirement).collect()),
        },
    };
    let mut namespaces: std::collections::BTreeSet<String> = written.namespaces.iter().cloned().collect();
    if namespaces.is_empty() && like.is_none() {
        namespaces.insert(pod.metadata.namespace.clone().unwrap_or_default());
    }
    let pods = PodSelector { namespaces, namespace_selector: like, labels };
    Ok(PodTerm { pods, topology_key: written.topology_key.clone() })
}

/// The requirements of a selector. A missing selector matches no pod.
fn pods(selector: &LabelSelector) -> Vec<Requirement> {
    match selector {
        LabelSelector::Nothing => PodSelector::none().labels,
        LabelSelector::All(requirements) => requirements.iter().map(requirement).collect(),
    }
}

/// The requirements of `matchLabelKeys` and `mismatchLabelKeys`. The API server merges them into the selector when a
/// pod is created; what is already there is not added again, since the pod's labels may have changed since.
fn label_key_requirements(
    keys: &[String],
    own: Option<&Labels>,
    existing: &[Requirement],
    demand: impl Fn(String) -> LabelOperator,
) -> Vec<Requirement> {
    let kind = std::mem::discriminant(&demand(String::new()));
    let exists = |key: &str| existing.iter().any(|one| one.key == key && std::mem::discriminant(&one.operator) == kind);
    let values = keys.iter().filter(|key| !exists(key)).filter_map(|key| Some((key, own?.get(key)?)));
    values.map(|(key, value)| Requirement { key: key.clone(), operator: demand(value.clone()) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(affinity: &Value) -> Result<Option<InterPodConstraints>, InvalidField> {
        let pod = json!({
            "metadata": {"namespace": "ml", "name": "a", "labels": {"app": "web", "hash": "7"}},
            "spec": {"containers": [], "affinity": affinity},
        });
        inter_pod_constraints(&serde_json::from_value(pod).unwrap())
    }

    fn required(term: &Value) -> Value {
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    }

    fn the_term(term: &Value) -> PodTerm {
        read(&required(term)).unwrap().unwrap().required_anti_affinity[0].clone()
    }

    fn is(key: &str, value: &str) -> Requirement {
        Requirement { key: key.to_owned(), operator: LabelOperator::In(vec![value.to_owned()]) }
    }

    #[test]
    fn the_default_namespace_is_that_of_the_pod() {
        let of = |term: &Value| {
            let pods = the_term(term).pods;
            (pods.namespaces.into_iter().collect::<Vec<_>>(), pods.namespace_selector)
        };
        assert_eq!(of(&json!({"topologyKey": "zone"})), (vec!["ml".to_owned()], None));
        assert_eq!(of(&json!({"topologyKey": "zone", "namespaces": ["x"]})), (vec!["x".to_owned()], None));
        assert_eq!(of(&json!({"topologyKey": "zone", "namespaceSelector": {}})), (vec![], Some(vec![])));
        let both =
            json!({"topologyKey": "zone", "namespaces": ["x"], "namespaceSelector": {"matchLabels": {"t": "a"}}});
        assert_eq!(of(&both), (vec!["x".to_owned()], Some(vec![is("t", "a")])));
    }

    #[test]
    fn a_missing_selector_matches_no_pod_and_an_empty_one_every_pod() {
        let no_pod = the_term(&json!({"topologyKey": "zone", "matchLabelKeys": ["hash"]})).pods.labels;
        assert_eq!(no_pod, [Requirement { key: String::new(), operator: LabelOperator::In(Vec::new()) }]);
        assert_eq!(the_term(&json!({"topologyKey": "zone", "labelSelector": {}})).pods.labels, []);
    }

    #[test]
    fn match_label_keys_are_merged_only_once() {
        let mut term = json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["hash", "none"]});
        assert_eq!(the_term(&term).pods.labels, [is("hash", "7")]);
        term["labelSelector"] = json!({"matchExpressions": [{"key": "hash", "operator": "In", "values": ["6"]}]});
        assert_eq!(the_term(&term).pods.labels, [is("hash", "6")], "merged by the API server");
        let unlike = json!({"topologyKey": "zone", "labelSelector": {}, "mismatchLabelKeys": ["app"]});
        let expected = Requirement { key: "app".to_owned(), operator: LabelOperator::NotIn(vec!["web".to_owned()]) };
        assert_eq!(the_term(&unlike).pods.labels, [expected]);
    }

    #[test]
    fn anti_affinity_has_negative_weights_and_invalid_values_name_their_field() {
        let preferred = |weight: Value| {
            let term = json!({"weight": weight, "podAffinityTerm": {"topologyKey": "zone"}});
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
        };
        assert_eq!(read(&preferred(json!(7))).unwrap().unwrap().preferred[0].weight, -7);
        let path = "spec.affinity.podAntiAffinity";
        for weight in [json!(0), json!(101), json!("x"), json!(1.5)] {
            let error = read(&preferred(weight)).unwrap_err().field;
            assert_eq!(error, format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[0].weight"));
        }
        let error = read(&required(&json!({"labelSelector": {}}))).unwrap_err().field;
        assert_eq!(error, format!("{path}.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey"));
        assert_eq!(read(&json!({"podAffinity": {}})).unwrap(), None);
    }
}
