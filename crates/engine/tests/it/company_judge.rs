//! A plain reading of the rules about company, pod by pod, without the engine's counts.

use std::collections::BTreeMap;

use muster_engine::cluster::Cluster;
use muster_engine::cluster::pod::Pod;
use muster_engine::model::company::{Company, PodTerm, SpreadTerm};
use muster_engine::model::ids::{NodeId, PodId};
use muster_engine::model::labels::Labels;
use muster_engine::model::pod::PodSpec;
use muster_engine::model::taint::{Effect, tolerated};

use crate::world::World;

/// Whether a pod minds others, or others mind it.
pub(crate) fn is_picky(world: &World, pod: &PodSpec) -> bool {
    let others = world.pods.values().filter_map(|other| other.class.company.as_ref());
    let about_it = |company: &&std::sync::Arc<Company>| company.shuns.iter().any(|term| is_meant(world, term, pod));
    pod.class.company.is_some() || others.into_iter().any(|company| about_it(&company))
}

fn is_meant(world: &World, term: &PodTerm, pod: &PodSpec) -> bool {
    term.pods.matches(&pod.id.namespace, namespace(world, &pod.id.namespace), &pod.labels)
}

fn namespace<'w>(world: &'w World, name: &str) -> &'w Labels {
    static NONE: Labels = Labels::new();
    world.namespaces.get(name).unwrap_or(&NONE)
}

fn meets(world: &World, term: &PodTerm, pod: &Pod) -> bool {
    term.pods.matches(&pod.id.namespace, namespace(world, &pod.id.namespace), &pod.labels)
}

fn company<'c>(cluster: &'c Cluster, pod: &Pod) -> Option<&'c Company> {
    cluster.class(pod.class).spec.company.as_deref()
}

/// Whether those who are on nodes, as far as they count, let a pod be on a node.
pub(crate) fn allows(world: &World, id: PodId, node: NodeId, counts: impl Fn(PodId) -> bool) -> Result<(), String> {
    let cluster = world.engine.engine().cluster();
    let others = cluster.pods().filter(|(other, _)| *other != id && counts(*other));
    let others: Vec<(&Pod, NodeId)> = others.filter_map(|(_, pod)| Some((pod, pod.state.node()?))).collect();
    judge(world, cluster.pod(id), node, &others)
}

/// Whether a pod may be where a place is kept for it, if those are gone who are leaving and its fellows have come.
pub(crate) fn stands(world: &World, id: PodId, node: NodeId, fellows: &[&PodSpec]) -> Result<(), String> {
    let cluster = world.engine.engine().cluster();
    let staying = cluster.pods().filter(|(other, pod)| *other != id && !pod.is_leaving());
    let mut others: Vec<(&Pod, NodeId)> = staying.filter_map(|(_, pod)| Some((pod, pod.state.node()?))).collect();
    for fellow in fellows.iter().filter_map(|fellow| cluster.pod_id(&fellow.id.uid)).filter(|fellow| *fellow != id) {
        let pod = cluster.pod(fellow);
        others.extend(pod.nominated.filter(|_| pod.state.node().is_none()).map(|node| (pod, node)));
    }
    judge(world, cluster.pod(id), node, &others)
}

fn judge(world: &World, pod: &Pod, node: NodeId, others: &[(&Pod, NodeId)]) -> Result<(), String> {
    let cluster = world.engine.engine().cluster();
    let domain = |node: NodeId, term: &PodTerm| cluster.node(node).labels.get(&term.topology_key);
    let near =
        |other: NodeId, term: &PodTerm| domain(node, term).is_some() && domain(node, term) == domain(other, term);
    for (other, there) in others {
        for term in company(cluster, pod).iter().flat_map(|company| &company.shuns) {
            if near(*there, term) && meets(world, term, other) {
                return Err(format!("it shuns {}", other.id));
            }
        }
        for term in company(cluster, other).iter().flat_map(|company| &company.shuns) {
            if near(*there, term) && meets(world, term, pod) {
                return Err(format!("{} shuns it", other.id));
            }
        }
    }
    for term in company(cluster, pod).iter().flat_map(|company| &company.spread.must) {
        is_even(world, pod, node, others, term)?;
    }
    let Some(seeks) = company(cluster, pod).map(|company| &company.seeks).filter(|seeks| !seeks.is_empty()) else {
        return Ok(());
    };
    if seeks.iter().any(|term| domain(node, term).is_none()) {
        return Err("the node has not the label by which it seeks others".to_owned());
    }
    let sought: Vec<&(&Pod, NodeId)> =
        others.iter().filter(|(other, _)| seeks.iter().all(|term| meets(world, term, other))).collect();
    if seeks.iter().all(|term| sought.iter().any(|(_, there)| near(*there, term))) {
        return Ok(());
    }
    // Of those who are placed together, it may have been the first.
    let before = sought.iter().filter(|(other, _)| pod.group.is_none() || other.group != pod.group);
    let somewhere = before.into_iter().any(|(_, there)| seeks.iter().any(|term| domain(*there, term).is_some()));
    let is_first = !somewhere && seeks.iter().all(|term| meets(world, term, pod));
    if is_first { Ok(()) } else { Err("nobody is near whom it seeks".to_owned()) }
}

/// Whether a pod may be on a node as far as it is to be spread.
fn is_even(world: &World, pod: &Pod, node: NodeId, others: &[(&Pod, NodeId)], term: &SpreadTerm) -> Result<(), String> {
    let cluster = world.engine.engine().cluster();
    let class = &cluster.class(pod.class).spec;
    let must = &class.company.as_ref().expect("the term is from there").spread.must;
    let domain = |node: NodeId| cluster.node(node).labels.get(&term.topology_key);
    let Some(own) = domain(node) else { return Err(format!("the node has no {}", term.topology_key)) };
    let meant = |pod: &Pod| term.pods.matches(&pod.id.namespace, namespace(world, &pod.id.namespace), &pod.labels);
    let counted: Vec<&(&Pod, NodeId)> = others.iter().filter(|(other, _)| meant(other) && !other.terminating).collect();
    let fellow = |other: &Pod| pod.group.is_some() && other.group == pod.group;
    if counted.iter().any(|(other, _)| fellow(other) && cluster.class(other.class).spec.company != class.company) {
        // It came before one of its fellows who is spread by no rule, or by another.
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
            && (!term.minds_affinity || suits())
            && (!term.minds_taints || lets_in())
        {
            let there = counted.iter().filter(|(_, there)| *there == id).count() as u32;
            *domains.entry(domain(id).expect("just seen")).or_default() += there;
        }
    }
    let least = domains.values().min().copied().filter(|_| domains.len() >= term.domains_min as usize).unwrap_or(0);
    let there = domains.get(own).copied().unwrap_or(0) + u32::from(meant(pod));
    if there > least + term.skew_max {
        return Err(format!("{there} are in {own} and {least} in the emptiest of {domains:?}"));
    }
    Ok(())
}
