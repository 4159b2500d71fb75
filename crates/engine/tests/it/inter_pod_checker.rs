//! Reference implementation of inter-pod affinity and topology spread, pod by pod, without the engine's counts.

use std::collections::BTreeMap;

use muster_engine::cluster::Cluster;
use muster_engine::cluster::pod::Pod;
use muster_engine::model::ids::{NodeId, PodId};
use muster_engine::model::inter_pod::{InterPodConstraints, PodTerm, SpreadTerm};
use muster_engine::model::labels::Labels;
use muster_engine::model::pod::PodSpec;
use muster_engine::model::taint::{Effect, tolerated};

use crate::fake_cluster::FakeCluster;

/// Whether a pod has inter-pod terms, or terms of others apply to it.
pub(crate) fn has_inter_pod_terms(fake: &FakeCluster, pod: &PodSpec) -> bool {
    let others = fake.pods.values().filter_map(|other| other.class.inter_pod.as_ref());
    let matches_it = |inter_pod: &&std::sync::Arc<InterPodConstraints>| {
        inter_pod.required_anti_affinity.iter().any(|term| matches_spec(fake, term, pod))
    };
    pod.class.inter_pod.is_some() || others.into_iter().any(|inter_pod| matches_it(&inter_pod))
}

fn matches_spec(fake: &FakeCluster, term: &PodTerm, pod: &PodSpec) -> bool {
    term.pods.matches(&pod.id.namespace, namespace(fake, &pod.id.namespace), &pod.labels)
}

fn namespace<'w>(fake: &'w FakeCluster, name: &str) -> &'w Labels {
    static NONE: Labels = Labels::new();
    fake.namespaces.get(name).unwrap_or(&NONE)
}

fn meets(fake: &FakeCluster, term: &PodTerm, pod: &Pod) -> bool {
    term.pods.matches(&pod.id.namespace, namespace(fake, &pod.id.namespace), &pod.labels)
}

fn inter_pod<'c>(cluster: &'c Cluster, pod: &Pod) -> Option<&'c InterPodConstraints> {
    cluster.class(pod.class).spec.inter_pod.as_deref()
}

/// Whether the inter-pod terms allow a pod on a node, given the pods on nodes that count.
pub(crate) fn allows(
    fake: &FakeCluster,
    id: PodId,
    node: NodeId,
    counts: impl Fn(PodId) -> bool,
) -> Result<(), String> {
    let cluster = fake.engine.engine().cluster();
    let others = cluster.pods().filter(|(other, _)| *other != id && counts(*other));
    let others: Vec<(&Pod, NodeId)> = others.filter_map(|(_, pod)| Some((pod, pod.state.node()?))).collect();
    check(fake, cluster.pod(id), node, &others)
}

/// Whether a pod may be on its nominated node once terminating pods are gone and the nominated members of its group are
/// placed.
pub(crate) fn allows_after_preemption(
    fake: &FakeCluster,
    id: PodId,
    node: NodeId,
    members: &[&PodSpec],
) -> Result<(), String> {
    let cluster = fake.engine.engine().cluster();
    let staying = cluster.pods().filter(|(other, pod)| *other != id && !pod.is_leaving());
    let mut others: Vec<(&Pod, NodeId)> = staying.filter_map(|(_, pod)| Some((pod, pod.state.node()?))).collect();
    for member in members.iter().filter_map(|member| cluster.pod_id(&member.id.uid)).filter(|member| *member != id) {
        let pod = cluster.pod(member);
        others.extend(pod.nominated.filter(|_| pod.state.node().is_none()).map(|node| (pod, node)));
    }
    check(fake, cluster.pod(id), node, &others)
}

fn check(fake: &FakeCluster, pod: &Pod, node: NodeId, others: &[(&Pod, NodeId)]) -> Result<(), String> {
    let cluster = fake.engine.engine().cluster();
    let domain = |node: NodeId, term: &PodTerm| cluster.node(node).labels.get(&term.topology_key);
    let near =
        |other: NodeId, term: &PodTerm| domain(node, term).is_some() && domain(node, term) == domain(other, term);
    for (other, there) in others {
        for term in inter_pod(cluster, pod).iter().flat_map(|inter_pod| &inter_pod.required_anti_affinity) {
            if near(*there, term) && meets(fake, term, other) {
                return Err(format!("its anti-affinity matches {}", other.id));
            }
        }
        for term in inter_pod(cluster, other).iter().flat_map(|inter_pod| &inter_pod.required_anti_affinity) {
            if near(*there, term) && meets(fake, term, pod) {
                return Err(format!("the anti-affinity of {} matches it", other.id));
            }
        }
    }
    for term in inter_pod(cluster, pod).iter().flat_map(|inter_pod| &inter_pod.spread.do_not_schedule) {
        check_spread(fake, pod, node, others, term)?;
    }
    let Some(required_affinity) = inter_pod(cluster, pod)
        .map(|inter_pod| &inter_pod.required_affinity)
        .filter(|required_affinity| !required_affinity.is_empty())
    else {
        return Ok(());
    };
    if required_affinity.iter().any(|term| domain(node, term).is_none()) {
        return Err("the node lacks the topology key of its affinity".to_owned());
    }
    let matching: Vec<&(&Pod, NodeId)> =
        others.iter().filter(|(other, _)| required_affinity.iter().all(|term| meets(fake, term, other))).collect();
    if required_affinity.iter().all(|term| matching.iter().any(|(_, there)| near(*there, term))) {
        return Ok(());
    }
    // Among pods that are placed together, it may have been the first.
    let before = matching.iter().filter(|(other, _)| pod.group.is_none() || other.group != pod.group);
    let somewhere =
        before.into_iter().any(|(_, there)| required_affinity.iter().any(|term| domain(*there, term).is_some()));
    let is_first = !somewhere && required_affinity.iter().all(|term| meets(fake, term, pod));
    if is_first { Ok(()) } else { Err("no pod in the domain matches its affinity".to_owned()) }
}

/// Checks a topology spread constraint for a pod on a node.
fn check_spread(
    fake: &FakeCluster,
    pod: &Pod,
    node: NodeId,
    others: &[(&Pod, NodeId)],
    term: &SpreadTerm,
) -> Result<(), String> {
    let cluster = fake.engine.engine().cluster();
    let class = &cluster.class(pod.class).spec;
    let must = &class.inter_pod.as_ref().expect("the term is from there").spread.do_not_schedule;
    let domain = |node: NodeId| cluster.node(node).labels.get(&term.topology_key);
    let Some(own) = domain(node) else { return Err(format!("the node has no {}", term.topology_key)) };
    let selected = |pod: &Pod| term.pods.matches(&pod.id.namespace, namespace(fake, &pod.id.namespace), &pod.labels);
    let counted: Vec<&(&Pod, NodeId)> =
        others.iter().filter(|(other, _)| selected(other) && !other.terminating).collect();
    let member = |other: &Pod| pod.group.is_some() && other.group == pod.group;
    if counted.iter().any(|(other, _)| member(other) && cluster.class(other.class).spec.inter_pod != class.inter_pod) {
        // It was placed before a member of its group with other constraints.
        return Ok(());
    }
    let mut domains: BTreeMap<&String, u32> = BTreeMap::new();
    for (id, there) in cluster.nodes().filter(|(_, node)| node.present) {
        let named = |key: &str| there.labels.contains_key(key);
        let suits = || class.node_selector.iter().all(|(key, value)| there.labels.get(key) == Some(value));
        let lets_in = || {
            let mut taints = there.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
            taints.all(|taint| tolerated(&class.tolerations, taint))
        };
        if must.iter().all(|term| named(&term.topology_key))
            && (!term.honors_node_affinity || suits())
            && (!term.honors_node_taints || lets_in())
        {
            let there = counted.iter().filter(|(_, there)| *there == id).count() as u32;
            *domains.entry(domain(id).expect("just seen")).or_default() += there;
        }
    }
    let least = domains.values().min().copied().filter(|_| domains.len() >= term.min_domains as usize).unwrap_or(0);
    let there = domains.get(own).copied().unwrap_or(0) + u32::from(selected(pod));
    if there > least + term.max_skew {
        return Err(format!("{there} are in {own} and {least} in the emptiest of {domains:?}"));
    }
    Ok(())
}
