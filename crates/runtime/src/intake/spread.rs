//! Topology spread constraints in the engine's types.
//!
//! A pod without constraints is spread by the defaults, among the pods that its service or controller selects.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::selector::{LabelSelector, Labels, WrittenLabelSelector};
use muster_api::wire::Pod;
use muster_api::wire::topology_spread::TopologySpreadConstraint;
use muster_engine::model::inter_pod::{PodSelector, Spread, SpreadTerm};
use muster_engine::model::labels::{LabelOperator, Requirement};

use super::class::requirement;

/// The spread constraints of a pod.
pub(super) fn spread(pod: &Pod) -> Result<Spread, InvalidField> {
    let mut spread = Spread::default();
    let path = FieldPath::Root("spec.topologySpreadConstraints");
    let (namespace, labels) = (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.labels.as_ref());
    for (index, written) in pod.spec.topology_spread_constraints.iter().enumerate() {
        let path = path.index(index);
        let mut term = term(written, &path)?;
        let selector = WrittenLabelSelector::validate(written.label_selector.as_ref(), &path.child("labelSelector"))?;
        term.pods = pods(&selector, &written.match_label_keys, namespace, labels);
        if is_hard(written, &path)? {
            spread.do_not_schedule.push(term);
        } else {
            spread.schedule_anyway.push(term);
        }
    }
    Ok(spread)
}

/// The system defaults of kube-scheduler: a preference to spread over hosts and zones.
pub(crate) fn system_defaults() -> Spread {
    let over = |topology_key: &str, max_skew| SpreadTerm {
        pods: PodSelector::none(),
        topology_key: topology_key.to_owned(),
        max_skew,
        min_domains: 1,
        honors_node_affinity: true,
        honors_node_taints: false,
    };
    let schedule_anyway = vec![over("kubernetes.io/hostname", 3), over("topology.kubernetes.io/zone", 5)];
    Spread { schedule_anyway, scores_nodes_without_keys: true, ..Spread::default() }
}

/// The default constraints of a configuration. The selector depends on the pod.
pub(crate) fn defaults(constraints: &[TopologySpreadConstraint], path: &FieldPath<'_>) -> Result<Spread, InvalidField> {
    let mut spread = Spread::default();
    for (index, written) in constraints.iter().enumerate() {
        let path = path.index(index);
        if written.label_selector.is_some() || !written.match_label_keys.is_empty() {
            let reason = "must not be set: pods are spread among those that their service or set selects";
            return Err(path.child("labelSelector").invalid("", reason));
        }
        let term = term(written, &path)?;
        let terms = if is_hard(written, &path)? { &mut spread.do_not_schedule } else { &mut spread.schedule_anyway };
        if terms.iter().any(|other| other.topology_key == term.topology_key) {
            return Err(path.child("topologyKey").invalid(&term.topology_key, "is duplicated"));
        }
        terms.push(term);
    }
    Ok(spread)
}

/// The default constraints with the selector of a pod.
pub(super) fn for_selector(defaults: &Spread, namespace: &str, selector: &[Requirement]) -> Spread {
    let pods =
        PodSelector { namespaces: [namespace.to_owned()].into(), namespace_selector: None, labels: selector.to_vec() };
    let mut spread = defaults.clone();
    for term in spread.do_not_schedule.iter_mut().chain(&mut spread.schedule_anyway) {
        term.pods = pods.clone();
    }
    spread
}

/// A constraint without its selector.
fn term(written: &TopologySpreadConstraint, path: &FieldPath<'_>) -> Result<SpreadTerm, InvalidField> {
    if written.topology_key.is_empty() {
        return Err(path.child("topologyKey").invalid("", "must be set"));
    }
    let above_zero = |field: &'static str, number: i32| {
        u32::try_from(number)
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| path.child(field).invalid(&number, "must be at least 1"))
    };
    let honours = |field: &'static str, policy: Option<&String>, default: bool| match policy.map(String::as_str) {
        None => Ok(default),
        Some("Honor") => Ok(true),
        Some("Ignore") => Ok(false),
        Some(other) => Err(path.child(field).invalid(other, "must be \"Honor\" or \"Ignore\"")),
    };
    Ok(SpreadTerm {
        pods: PodSelector::none(),
        topology_key: written.topology_key.clone(),
        max_skew: above_zero("maxSkew", written.max_skew)?,
        min_domains: above_zero("minDomains", written.min_domains.unwrap_or(1))?,
        honors_node_affinity: honours("nodeAffinityPolicy", written.node_affinity_policy.as_ref(), true)?,
        honors_node_taints: honours("nodeTaintsPolicy", written.node_taints_policy.as_ref(), false)?,
    })
}

fn is_hard(written: &TopologySpreadConstraint, path: &FieldPath<'_>) -> Result<bool, InvalidField> {
    match written.when_unsatisfiable.as_str() {
        "DoNotSchedule" => Ok(true),
        "ScheduleAnyway" if written.min_domains.is_some() => {
            let reason = "can only be set with whenUnsatisfiable: DoNotSchedule";
            Err(path.child("minDomains").invalid(&written.min_domains, reason))
        }
        "ScheduleAnyway" => Ok(false),
        other => {
            let reason = "must be \"DoNotSchedule\" or \"ScheduleAnyway\"";
            Err(path.child("whenUnsatisfiable").invalid(other, reason))
        }
    }
}

/// The pods that count: in the same namespace and with the same values of these labels. A missing selector selects no
/// pod, as in kube-scheduler.
fn pods(selector: &LabelSelector, like: &[String], namespace: &str, own: Option<&Labels>) -> PodSelector {
    let LabelSelector::All(requirements) = selector else { return PodSelector::none() };
    let mut labels: Vec<Requirement> = requirements.iter().map(requirement).collect();
    let values = like.iter().filter_map(|key| Some((key, own?.get(key)?)));
    labels.extend(
        values.map(|(key, value)| Requirement { key: key.clone(), operator: LabelOperator::In(vec![value.clone()]) }),
    );
    if labels.is_empty() {
        return PodSelector::none();
    }
    PodSelector { namespaces: [namespace.to_owned()].into(), namespace_selector: None, labels }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(constraint: &Value) -> Result<Spread, InvalidField> {
        let pod = json!({
            "metadata": {"namespace": "ml", "name": "a", "labels": {"app": "web", "hash": "7"}},
            "spec": {"containers": [], "topologySpreadConstraints": [constraint]},
        });
        spread(&serde_json::from_value(pod).unwrap())
    }

    fn is(key: &str, value: &str) -> Requirement {
        Requirement { key: key.to_owned(), operator: LabelOperator::In(vec![value.to_owned()]) }
    }

    #[test]
    fn omitted_fields_have_the_defaults_of_kubernetes() {
        let written = json!({"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["hash", "none"]});
        let read = read(&written).unwrap();
        let pods = PodSelector {
            namespaces: ["ml".to_owned()].into(),
            namespace_selector: None,
            labels: vec![is("app", "web"), is("hash", "7")],
        };
        let term = SpreadTerm {
            pods,
            topology_key: "zone".to_owned(),
            max_skew: 2,
            min_domains: 1,
            honors_node_affinity: true,
            honors_node_taints: false,
        };
        assert_eq!(read, Spread { do_not_schedule: vec![term], ..Spread::default() });
    }

    #[test]
    fn a_selector_without_requirements_selects_no_pod() {
        let of = |more: Value| {
            let mut written = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"});
            written.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(&written).unwrap().schedule_anyway.remove(0).pods
        };
        assert_eq!(of(json!({})), PodSelector::none());
        assert_eq!(of(json!({"labelSelector": {}})), PodSelector::none());
        assert_eq!(of(json!({"matchLabelKeys": ["hash"]})), PodSelector::none());
        assert_eq!(of(json!({"labelSelector": {}, "matchLabelKeys": ["hash"]})).labels, [is("hash", "7")]);
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_field() {
        let good = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"});
        for (field, value) in [
            ("topologyKey", json!("")),
            ("maxSkew", json!(0)),
            ("whenUnsatisfiable", json!("Maybe")),
            ("minDomains", json!(2)),
            ("nodeAffinityPolicy", json!("Sometimes")),
            ("nodeTaintsPolicy", json!("")),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            assert_eq!(read(&bad).unwrap_err().field, format!("spec.topologySpreadConstraints[0].{field}"));
        }
    }
}
