//! Static matching of nodes and pods: labels, taints and ports, as Kubernetes compares them.
//!
//! Written from `component-helpers/scheduling/corev1/nodeaffinity`, `Toleration.ToleratesTaint` and
//! `HostPortInfo.CheckConflict`. The model types have equivalent methods; they are not used here, so that mistakes in
//! them are detected.

use muster_engine::model::class::ClassSpec;
use muster_engine::model::labels::{LabelOperator, Labels, NameRequirement, NodeTerm, Requirement};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::port::HostPort;
use muster_engine::model::taint::{Effect, Taint, Toleration};

/// The taint that a pod must tolerate to go to a cordoned node.
const CORDON: &str = "node.kubernetes.io/unschedulable";

pub(super) fn names_another_node(class: &ClassSpec, node: &NodeSpec) -> bool {
    match class.node_name.as_deref() {
        None | Some("") => false,
        Some(name) => name != node.name,
    }
}

pub(super) fn rejects_by_cordon(class: &ClassSpec, node: &NodeSpec) -> bool {
    let cordon = Taint { key: CORDON.to_owned(), value: String::new(), effect: Effect::NoSchedule };
    node.unschedulable && !any_tolerates(&class.tolerations, &cordon)
}

pub(super) fn rejects_by_taints(class: &ClassSpec, node: &NodeSpec) -> bool {
    let hard = |taint: &&Taint| matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute);
    node.taints.iter().filter(hard).any(|taint| !any_tolerates(&class.tolerations, taint))
}

/// The number of `PreferNoSchedule` taints of the node that the pod does not tolerate.
pub(super) fn untolerated_soft_taints(class: &ClassSpec, node: &NodeSpec) -> i64 {
    let soft = node.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    soft.filter(|taint| !any_tolerates(&class.tolerations, taint)).count() as i64
}

fn any_tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    for toleration in tolerations {
        if toleration.effect.is_some() && toleration.effect != Some(taint.effect) {
            continue;
        }
        if toleration.key.is_some() && toleration.key.as_deref() != Some(taint.key.as_str()) {
            continue;
        }
        // No value is the operator Exists, a value is the operator Equal.
        if toleration.value.is_none() || toleration.value.as_deref() == Some(taint.value.as_str()) {
            return true;
        }
    }
    false
}

/// The node selector and the required terms, both.
pub(super) fn matches_required(class: &ClassSpec, node: &NodeSpec) -> bool {
    for (key, value) in &class.node_selector {
        if node.labels.get(key) != Some(value) {
            return false;
        }
    }
    match &class.required_terms {
        None => true,
        Some(terms) => terms.iter().any(|term| matches_term(term, node)),
    }
}

/// The sum of the weights of the preferred terms that the node matches.
pub(super) fn preference(class: &ClassSpec, node: &NodeSpec) -> i64 {
    let mut sum = 0;
    for preferred in &class.preferred_terms {
        if matches_term(&preferred.term, node) {
            sum += i64::from(preferred.weight);
        }
    }
    sum
}

fn matches_term(term: &NodeTerm, node: &NodeSpec) -> bool {
    let empty = term.labels.is_empty() && term.names.is_empty();
    let names = term.names.iter().all(|demand| match demand {
        NameRequirement::Is(name) => *name == node.name,
        NameRequirement::IsNot(name) => *name != node.name,
    });
    !empty && names && term.labels.iter().all(|requirement| matches_requirement(requirement, &node.labels))
}

fn matches_requirement(requirement: &Requirement, labels: &Labels) -> bool {
    let Some(value) = labels.get(&requirement.key) else {
        return matches!(requirement.operator, LabelOperator::NotIn(_) | LabelOperator::DoesNotExist);
    };
    match &requirement.operator {
        LabelOperator::In(values) => values.iter().any(|wanted| wanted == value),
        LabelOperator::NotIn(values) => values.iter().all(|unwanted| unwanted != value),
        LabelOperator::Exists => true,
        LabelOperator::DoesNotExist => false,
        LabelOperator::Gt(bound) => value.parse::<i64>().is_ok_and(|number| number > *bound),
        LabelOperator::Lt(bound) => value.parse::<i64>().is_ok_and(|number| number < *bound),
    }
}

/// Whether a pod with the first list of ports conflicts with pods that use the second.
pub(crate) fn ports_conflict(wanted: &[HostPort], taken: &[HostPort]) -> bool {
    wanted.iter().any(|want| {
        taken.iter().any(|have| {
            let same_socket = want.port == have.port && want.protocol == have.protocol;
            let addresses_meet = match (&want.address, &have.address) {
                (None, _) | (_, None) => true,
                (Some(want), Some(have)) => want == have,
            };
            same_socket && addresses_meet
        })
    })
}
