//! Sets the fields that a pod of a LeaderWorkerSet gets on creation: its position in the group, as labels and
//! environment.
//!
//! On a real cluster a webhook does this. The playground has none, so the StatefulSet controller calls this for every
//! pod that has the set's label. Must not depend on the set itself: everything needed is on the pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;

use super::keys::{
    EXCLUSIVE_TOPOLOGY, GROUP_INDEX, GROUP_KEY, LEADER_NAME, NAME, SIZE, SUBDOMAIN_POLICY, SUBGROUP_EXCLUSIVE_TOPOLOGY,
    SUBGROUP_INDEX, SUBGROUP_KEY, SUBGROUP_POLICY_TYPE, SUBGROUP_SIZE, WORKER_INDEX,
};
use crate::digest::sha1;
use crate::stateful::split_name;

/// Completes a pod of a LeaderWorkerSet; other pods are unchanged. A missing or invalid field rejects the pod.
pub(crate) fn apply(pod: &mut Pod) -> Result<(), String> {
    if !pod.labels().contains_key(NAME) {
        return Ok(());
    }
    let size = number(pod, SIZE)?.ok_or_else(|| format!("Pod {}: annotation {SIZE} is missing", pod.name_any()))?;
    if label(pod, WORKER_INDEX) == "0" {
        complete_leader(pod)?;
    } else {
        complete_worker(pod, size)?;
    }
    add_environment(pod, size)
}

fn label(pod: &Pod, key: &str) -> String {
    pod.labels().get(key).cloned().unwrap_or_default()
}

fn annotation(pod: &Pod, key: &str) -> Option<String> {
    pod.annotations().get(key).filter(|value| !value.is_empty()).cloned()
}

fn number(pod: &Pod, key: &str) -> Result<Option<i32>, String> {
    let Some(text) = annotation(pod, key) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| format!("Pod {}: annotation {key}: {text:?} is no size", pod.name_any()))?;
    Ok(Some(number))
}

fn index_of(pod: &Pod) -> Result<i32, String> {
    let name = pod.name_any();
    split_name(&name).map(|(_, index)| index).ok_or_else(|| format!("Pod {name}: the name does not end in a number"))
}

fn set_label(pod: &mut Pod, key: &str, value: String) {
    pod.labels_mut().insert(key.to_owned(), value);
}

fn complete_leader(pod: &mut Pod) -> Result<(), String> {
    let name = pod.name_any();
    if !pod.labels().contains_key(GROUP_INDEX) {
        let index = index_of(pod)?;
        set_label(pod, GROUP_INDEX, index.to_string());
    }
    if annotation(pod, SUBDOMAIN_POLICY).as_deref() == Some("UniquePerReplica") {
        pod.spec.get_or_insert_default().subdomain = Some(name.clone());
    }
    if !pod.labels().contains_key(GROUP_KEY) {
        let key = sha1(&format!("{}/{name}", pod.namespace().unwrap_or_default()));
        set_label(pod, GROUP_KEY, key);
    }
    if let Some(topology) = annotation(pod, EXCLUSIVE_TOPOLOGY) {
        add_exclusive_affinity(pod, GROUP_KEY, &topology);
    }
    let is_in_subgroup = annotation(pod, SUBGROUP_POLICY_TYPE).as_deref() != Some("LeaderExcluded");
    if annotation(pod, SUBGROUP_SIZE).is_some() && is_in_subgroup {
        join_subgroup(pod, &name, 0);
    }
    Ok(())
}

fn complete_worker(pod: &mut Pod, size: i32) -> Result<(), String> {
    let index = index_of(pod)?;
    set_label(pod, WORKER_INDEX, index.to_string());
    if let Some(subgroup_size) = number(pod, SUBGROUP_SIZE)? {
        let leader = annotation(pod, LEADER_NAME).unwrap_or_default();
        join_subgroup(pod, &leader, subgroup_of(size, subgroup_size, index));
    }
    Ok(())
}

/// The subgroup of a worker. If the group has one pod more than whole subgroups, the leader joins the first.
fn subgroup_of(size: i32, subgroup_size: i32, index: i32) -> i32 {
    let leader_is_extra = (size - 1) % subgroup_size == 0 && size % subgroup_size != 0;
    (index - i32::from(leader_is_extra)) / subgroup_size
}

fn join_subgroup(pod: &mut Pod, leader: &str, index: i32) {
    if !label(pod, SUBGROUP_INDEX).is_empty() {
        return;
    }
    set_label(pod, SUBGROUP_INDEX, index.to_string());
    set_label(pod, SUBGROUP_KEY, sha1(&format!("{leader}/{index}")));
    if let Some(topology) = annotation(pod, SUBGROUP_EXCLUSIVE_TOPOLOGY) {
        add_exclusive_affinity(pod, SUBGROUP_KEY, &topology);
    }
}

/// Requires all pods with the same label value in one domain, and no pods with another value there.
fn add_exclusive_affinity(pod: &mut Pod, key: &str, topology: &str) {
    let value = label(pod, key);
    let requirement = |operator: &str, values: Option<Vec<String>>| LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
    };
    let term = |requirements: Vec<LabelSelectorRequirement>| PodAffinityTerm {
        label_selector: Some(LabelSelector { match_expressions: Some(requirements), match_labels: None }),
        topology_key: topology.to_owned(),
        ..PodAffinityTerm::default()
    };
    let affinity: &mut Affinity = pod.spec.get_or_insert_default().affinity.get_or_insert_default();
    let affinity_terms: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
    let affinity_terms = affinity_terms.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    let anti_affinity_terms: &mut PodAntiAffinity = affinity.pod_anti_affinity.get_or_insert_default();
    let anti_affinity_terms =
        anti_affinity_terms.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    let is_there = |terms: &[PodAffinityTerm]| terms.iter().any(|term| term.topology_key == topology);
    if is_there(affinity_terms) && is_there(anti_affinity_terms) {
        return;
    }
    affinity_terms.push(term(vec![requirement("In", Some(vec![value.clone()]))]));
    anti_affinity_terms.push(term(vec![requirement("Exists", None), requirement("NotIn", Some(vec![value]))]));
}

/// The leader's address, the group size and the worker index, before the container's own variables.
fn add_environment(pod: &mut Pod, size: i32) -> Result<(), String> {
    let group = label(pod, GROUP_INDEX);
    if group.is_empty() {
        return Err(format!("Pod {}: label {GROUP_INDEX} is missing", pod.name_any()));
    }
    let (set, namespace) = (label(pod, NAME), pod.namespace().unwrap_or_default());
    let subdomain = pod.spec.as_ref().and_then(|spec| spec.subdomain.clone()).unwrap_or_default();
    let values = BTreeMap::from([
        (1, ("LWS_LEADER_ADDRESS", format!("{set}-{group}.{subdomain}.{namespace}"))),
        (2, ("LWS_GROUP_SIZE", size.to_string())),
        (3, ("LWS_WORKER_INDEX", label(pod, WORKER_INDEX))),
    ]);
    let add = |container: &mut Container| {
        let own = container.env.take().unwrap_or_default().into_iter();
        let is_ours = |one: &EnvVar| values.values().any(|(name, _)| *name == one.name);
        let ours = values.values().map(|(name, value)| EnvVar {
            name: (*name).to_owned(),
            value: Some(value.clone()),
            value_from: None,
        });
        let mut seen = Vec::new();
        let others: Vec<EnvVar> = own
            .filter(|one| {
                let is_first = !seen.contains(&one.name);
                seen.push(one.name.clone());
                is_first && !is_ours(one)
            })
            .collect();
        container.env = Some(ours.chain(others).collect());
    };
    let PodSpec { containers, init_containers, .. } = pod.spec.get_or_insert_default();
    containers.iter_mut().chain(init_containers.iter_mut().flatten()).for_each(add);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn completed(name: &str, labels: &Value, annotations: &Value) -> Result<Pod, String> {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "d", "labels": labels, "annotations": annotations},
            "spec": {"subdomain": "foo", "containers": [
                {"name": "c", "env": [{"name": "MINE", "value": "1"}, {"name": "LWS_GROUP_SIZE", "value": "9"}]},
            ]},
        }))
        .unwrap();
        apply(&mut pod).map(|()| pod)
    }

    fn environment(pod: &Pod) -> Vec<String> {
        let env = pod.spec.as_ref().unwrap().containers[0].env.as_ref().unwrap();
        env.iter().map(|one| format!("{}={}", one.name, one.value.clone().unwrap_or_default())).collect()
    }

    #[test]
    fn leader_gets_its_group() {
        let pod = completed("foo-3", &json!({NAME: "foo", WORKER_INDEX: "0"}), &json!({SIZE: "4"})).unwrap();
        assert_eq!(pod.labels()[GROUP_INDEX], "3");
        assert_eq!(pod.labels()[GROUP_KEY], sha1("d/foo-3"));
        let expected = ["LWS_LEADER_ADDRESS=foo-3.foo.d", "LWS_GROUP_SIZE=4", "LWS_WORKER_INDEX=0", "MINE=1"];
        assert_eq!(environment(&pod), expected);
    }

    #[test]
    fn worker_gets_its_index() {
        let labels = json!({NAME: "foo", GROUP_INDEX: "3", GROUP_KEY: "k"});
        let annotations =
            json!({SIZE: "5", SUBGROUP_SIZE: "2", LEADER_NAME: "foo-3", SUBGROUP_EXCLUSIVE_TOPOLOGY: "rack"});
        let pod = completed("foo-3-3", &labels, &annotations).unwrap();
        assert_eq!((&*pod.labels()[WORKER_INDEX], &*pod.labels()[SUBGROUP_INDEX]), ("3", "1"));
        assert_eq!(pod.labels()[SUBGROUP_KEY], sha1("foo-3/1"));
        let affinity = pod.spec.as_ref().unwrap().affinity.clone().unwrap();
        let affinity_terms =
            affinity.pod_affinity.unwrap().required_during_scheduling_ignored_during_execution.unwrap();
        assert_eq!((affinity_terms.len(), &*affinity_terms[0].topology_key), (1, "rack"));
        assert_eq!(environment(&pod)[2], "LWS_WORKER_INDEX=3");
    }

    #[test]
    fn subgroups_include_the_leader_if_it_fits() {
        let of =
            |size, subgroup_size| (1..size).map(|index| subgroup_of(size, subgroup_size, index)).collect::<Vec<_>>();
        assert_eq!(of(4, 2), [0, 1, 1]);
        assert_eq!(of(5, 2), [0, 0, 1, 1]);
    }

    #[test]
    fn incomplete_pod_is_rejected() {
        let rejection = completed("foo-3", &json!({NAME: "foo", WORKER_INDEX: "0"}), &json!({})).unwrap_err();
        assert_eq!(rejection, "Pod foo-3: annotation leaderworkerset.sigs.k8s.io/size is missing");
        let rejection =
            completed("foo-3", &json!({NAME: "foo", WORKER_INDEX: "0"}), &json!({SIZE: "many"})).unwrap_err();
        assert_eq!(rejection, "Pod foo-3: annotation leaderworkerset.sigs.k8s.io/size: \"many\" is no size");
        assert!(completed("foo", &json!({NAME: "foo", WORKER_INDEX: "0"}), &json!({SIZE: "2"})).is_err());
        assert!(completed("plain", &json!({}), &json!({})).is_ok());
    }
}
