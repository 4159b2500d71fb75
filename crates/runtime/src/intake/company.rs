//! The company that a pod keeps, in the engine's words.
//!
//! Everything is exact: a field that cannot be read is an error with its path.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::selector::{LabelSelector, Labels, WrittenLabelSelector};
use muster_api::wire::Pod;
use muster_api::wire::pod_affinity::{PodAffinity, PodAffinityTerm};
use muster_engine::model::company::{Company, PodSelector, PodTerm, PreferredPodTerm};
use muster_engine::model::labels::{Demand, Requirement};

use super::class::requirement;
use super::spread::spread;

/// The company that a pod keeps; `None` if it does not care.
pub(super) fn company(pod: &Pod) -> Result<Option<Company>, InvalidField> {
    let mut company = Company { spread: spread(pod)?, ..Company::default() };
    let path = FieldPath::Root("spec.affinity");
    if let Some(near) = pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref()) {
        let path = path.child("podAffinity");
        company.seeks = required(near, pod, &path)?;
        company.prefers.extend(preferred(near, pod, 1, &path)?);
    }
    if let Some(apart) = pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref()) {
        let path = path.child("podAntiAffinity");
        company.shuns = required(apart, pod, &path)?;
        company.prefers.extend(preferred(apart, pod, -1, &path)?);
    }
    Ok(Some(company).filter(|company| !company.is_empty()))
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
        labels.extend(as_labelled(&written.match_label_keys, own, &labels, |value| Demand::In(vec![value])));
        labels.extend(as_labelled(&written.mismatch_label_keys, own, &labels, |value| Demand::NotIn(vec![value])));
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
    let pods = PodSelector { namespaces, namespaces_like: like, labels };
    Ok(PodTerm { pods, topology_key: written.topology_key.clone() })
}

/// What pods must meet. A selector that was left out matches nobody.
fn pods(selector: &LabelSelector) -> Vec<Requirement> {
    match selector {
        LabelSelector::Nothing => PodSelector::nobody().labels,
        LabelSelector::All(requirements) => requirements.iter().map(requirement).collect(),
    }
}

/// The labels in which others must be like, or unlike, the pod itself. The API server writes that into the selector when a
/// pod is created; what stands there is not said again, since the pod's labels may have changed since.
fn as_labelled(
    keys: &[String],
    own: Option<&Labels>,
    said: &[Requirement],
    demand: impl Fn(String) -> Demand,
) -> Vec<Requirement> {
    let kind = std::mem::discriminant(&demand(String::new()));
    let is_said = |key: &str| said.iter().any(|one| one.key == key && std::mem::discriminant(&one.demand) == kind);
    let values = keys.iter().filter(|key| !is_said(key)).filter_map(|key| Some((key, own?.get(key)?)));
    values.map(|(key, value)| Requirement { key: key.clone(), demand: demand(value.clone()) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(affinity: &Value) -> Result<Option<Company>, InvalidField> {
        let pod = json!({
            "metadata": {"namespace": "ml", "name": "a", "labels": {"app": "web", "hash": "7"}},
            "spec": {"containers": [], "affinity": affinity},
        });
        company(&serde_json::from_value(pod).unwrap())
    }

    fn required(term: &Value) -> Value {
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    }

    fn the_term(term: &Value) -> PodTerm {
        read(&required(term)).unwrap().unwrap().shuns[0].clone()
    }

    fn is(key: &str, value: &str) -> Requirement {
        Requirement { key: key.to_owned(), demand: Demand::In(vec![value.to_owned()]) }
    }

    #[test]
    fn namespaces_are_the_pods_own_unless_others_are_said() {
        let of = |term: &Value| {
            let pods = the_term(term).pods;
            (pods.namespaces.into_iter().collect::<Vec<_>>(), pods.namespaces_like)
        };
        assert_eq!(of(&json!({"topologyKey": "zone"})), (vec!["ml".to_owned()], None));
        assert_eq!(of(&json!({"topologyKey": "zone", "namespaces": ["x"]})), (vec!["x".to_owned()], None));
        assert_eq!(of(&json!({"topologyKey": "zone", "namespaceSelector": {}})), (vec![], Some(vec![])));
        let both =
            json!({"topologyKey": "zone", "namespaces": ["x"], "namespaceSelector": {"matchLabels": {"t": "a"}}});
        assert_eq!(of(&both), (vec!["x".to_owned()], Some(vec![is("t", "a")])));
    }

    #[test]
    fn no_selector_is_nobody_and_an_empty_one_is_everybody() {
        let nobody = the_term(&json!({"topologyKey": "zone", "matchLabelKeys": ["hash"]})).pods.labels;
        assert_eq!(nobody, [Requirement { key: String::new(), demand: Demand::In(Vec::new()) }]);
        assert_eq!(the_term(&json!({"topologyKey": "zone", "labelSelector": {}})).pods.labels, []);
    }

    #[test]
    fn labels_of_the_pod_itself_are_said_once() {
        let mut term = json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["hash", "none"]});
        assert_eq!(the_term(&term).pods.labels, [is("hash", "7")]);
        term["labelSelector"] = json!({"matchExpressions": [{"key": "hash", "operator": "In", "values": ["6"]}]});
        assert_eq!(the_term(&term).pods.labels, [is("hash", "6")], "the API server has said it");
        let unlike = json!({"topologyKey": "zone", "labelSelector": {}, "mismatchLabelKeys": ["app"]});
        let expected = Requirement { key: "app".to_owned(), demand: Demand::NotIn(vec!["web".to_owned()]) };
        assert_eq!(the_term(&unlike).pods.labels, [expected]);
    }

    #[test]
    fn weights_of_unwelcome_company_are_below_zero_and_nonsense_is_told_by_its_field() {
        let preferred = |weight: Value| {
            let term = json!({"weight": weight, "podAffinityTerm": {"topologyKey": "zone"}});
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
        };
        assert_eq!(read(&preferred(json!(7))).unwrap().unwrap().prefers[0].weight, -7);
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
