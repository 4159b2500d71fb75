//! Reference implementation of inter-pod affinity and topology spread, pod by pod, without the engine's counts.

use std::collections::BTreeMap;

use muster_engine::model::inter_pod::{InterPodConstraints, PodSelector, PodTerm, SpreadTerm};
use muster_engine::model::labels::Labels;
use muster_engine::model::pod::PodSpec;
use muster_engine::model::taint::{Effect, tolerated};
use muster_engine::{NodeView, PodView};

use crate::fake_cluster::FakeCluster;

/// A pod, and the node that it is on or would be on.
type PodOnNode<'f> = (PodView<'f>, NodeView<'f>);

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

fn meets(fake: &FakeCluster, pods: &PodSelector, pod: PodView<'_>) -> bool {
    let name = &pod.name().namespace;
    pods.matches(name, namespace(fake, name), pod.labels())
}

fn inter_pod(pod: PodView<'_>) -> Option<&InterPodConstraints> {
    pod.class().inter_pod.as_deref()
}

/// The value of the topology key on a node.
fn domain<'f>(node: NodeView<'f>, key: &str) -> Option<&'f String> {
    node.labels().get(key)
}

fn is_same_pod(pod: PodView<'_>, other: PodView<'_>) -> bool {
    pod.name().uid == other.name().uid
}

/// Whether both are members of one group.
fn share_group(pod: PodView<'_>, other: PodView<'_>) -> bool {
    pod.group().zip(other.group()).is_some_and(|(own, other)| own.key() == other.key())
}

/// The pod and the node, which are known.
fn pair<'f>(fake: &'f FakeCluster, uid: &str, node: &str) -> PodOnNode<'f> {
    let engine = fake.engine.engine();
    let node = engine.node_view(node).expect("a node that is there is known");
    (engine.pod_view(uid).expect("a pod that is checked is known"), node)
}

/// Whether the inter-pod terms allow a pod on a node, given all pods on nodes.
pub(crate) fn allows(fake: &FakeCluster, uid: &str, node: &str) -> Result<(), String> {
    let (pod, node) = pair(fake, uid, node);
    let others = fake.engine.engine().pod_views().filter(|other| !is_same_pod(*other, pod));
    let others: Vec<PodOnNode<'_>> = others.filter_map(|other| Some((other, other.node()?))).collect();
    check(fake, pod, node, &others)
}

/// Whether a pod may be on its nominated node once terminating pods are gone and the nominated members of its group are
/// placed.
pub(crate) fn allows_after_preemption(
    fake: &FakeCluster,
    uid: &str,
    node: &str,
    members: &[&PodSpec],
) -> Result<(), String> {
    let engine = fake.engine.engine();
    let (pod, node) = pair(fake, uid, node);
    let staying = engine.pod_views().filter(|other| !is_same_pod(*other, pod) && !other.is_leaving());
    let mut others: Vec<PodOnNode<'_>> = staying.filter_map(|other| Some((other, other.node()?))).collect();
    let members = members.iter().filter_map(|member| engine.pod_view(&member.id.uid));
    for member in members.filter(|member| !is_same_pod(*member, pod)) {
        others.extend(member.nominated_node().filter(|_| member.node().is_none()).map(|node| (member, node)));
    }
    check(fake, pod, node, &others)
}

fn check(fake: &FakeCluster, pod: PodView<'_>, node: NodeView<'_>, others: &[PodOnNode<'_>]) -> Result<(), String> {
    let near = |other: NodeView<'_>, term: &PodTerm| {
        let own = domain(node, &term.topology_key);
        own.is_some() && own == domain(other, &term.topology_key)
    };
    for (other, there) in others {
        for term in inter_pod(pod).iter().flat_map(|inter_pod| &inter_pod.required_anti_affinity) {
            if near(*there, term) && meets(fake, &term.pods, *other) {
                return Err(format!("its anti-affinity matches {}", other.name()));
            }
        }
        for term in inter_pod(*other).iter().flat_map(|inter_pod| &inter_pod.required_anti_affinity) {
            if near(*there, term) && meets(fake, &term.pods, pod) {
                return Err(format!("the anti-affinity of {} matches it", other.name()));
            }
        }
    }
    for term in inter_pod(pod).iter().flat_map(|inter_pod| &inter_pod.spread.do_not_schedule) {
        check_spread(fake, pod, node, others, term)?;
    }
    let Some(required_affinity) = inter_pod(pod)
        .map(|inter_pod| &inter_pod.required_affinity)
        .filter(|required_affinity| !required_affinity.is_empty())
    else {
        return Ok(());
    };
    if required_affinity.iter().any(|term| domain(node, &term.topology_key).is_none()) {
        return Err("the node lacks the topology key of its affinity".to_owned());
    }
    let matching: Vec<&PodOnNode<'_>> = others
        .iter()
        .filter(|(other, _)| required_affinity.iter().all(|term| meets(fake, &term.pods, *other)))
        .collect();
    if required_affinity.iter().all(|term| matching.iter().any(|(_, there)| near(*there, term))) {
        return Ok(());
    }
    // Among pods that are placed together, it may have been the first.
    let before = matching.iter().filter(|(other, _)| !share_group(pod, *other));
    let has_domain =
        |there: NodeView<'_>| required_affinity.iter().any(|term| domain(there, &term.topology_key).is_some());
    let somewhere = before.into_iter().any(|(_, there)| has_domain(*there));
    let is_first = !somewhere && required_affinity.iter().all(|term| meets(fake, &term.pods, pod));
    if is_first { Ok(()) } else { Err("no pod in the domain matches its affinity".to_owned()) }
}

/// Checks a topology spread constraint for a pod on a node.
fn check_spread(
    fake: &FakeCluster,
    pod: PodView<'_>,
    node: NodeView<'_>,
    others: &[PodOnNode<'_>],
    term: &SpreadTerm,
) -> Result<(), String> {
    let class = pod.class();
    let must = &class.inter_pod.as_ref().expect("the term is from there").spread.do_not_schedule;
    let key = &term.topology_key;
    let Some(own) = domain(node, key) else { return Err(format!("the node has no {}", term.topology_key)) };
    let counted: Vec<&PodOnNode<'_>> =
        others.iter().filter(|(other, _)| meets(fake, &term.pods, *other) && !other.is_terminating()).collect();
    if counted.iter().any(|(other, _)| share_group(pod, *other) && other.class().inter_pod != class.inter_pod) {
        // It was placed before a member of its group with other constraints.
        return Ok(());
    }
    let mut domains: BTreeMap<&String, u32> = BTreeMap::new();
    for there in fake.engine.engine().node_views().filter(NodeView::exists) {
        let named = |key: &str| there.labels().contains_key(key);
        let suits = || class.node_selector.iter().all(|(key, value)| there.labels().get(key) == Some(value));
        let lets_in = || {
            let mut taints = there.taints().iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
            taints.all(|taint| tolerated(&class.tolerations, taint))
        };
        if must.iter().all(|term| named(&term.topology_key))
            && (!term.honors_node_affinity || suits())
            && (!term.honors_node_taints || lets_in())
        {
            let pods = counted.iter().filter(|(_, on)| on.name() == there.name()).count() as u32;
            *domains.entry(domain(there, key).expect("just seen")).or_default() += pods;
        }
    }
    let least = domains.values().min().copied().filter(|_| domains.len() >= term.min_domains as usize).unwrap_or(0);
    let there = domains.get(own).copied().unwrap_or(0) + u32::from(meets(fake, &term.pods, pod));
    if there > least + term.max_skew {
        return Err(format!("{there} are in {own} and {least} in the emptiest of {domains:?}"));
    }
    Ok(())
}
