//! The claims of the pod: volumes that the node can access, that can be bound, or that can be provisioned for it.
//!
//! Where the volumes of bound claims are depends on the node alone. Volumes that are still to be bound, and the capacity
//! that new ones are provisioned from, are shared with other nodes.

use super::kinds::{Filter, LoadFilter, Reason, StaticFilter};
use super::view::View;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::cluster::storage::Mismatch;

pub(super) const MISSING: Filter = Filter::Static(StaticFilter { passes: all_exist, reason: Reason::VolumeMissing });
pub(super) const ACCESS: Filter =
    Filter::Static(StaticFilter { passes: is_accessible, reason: Reason::VolumeAffinity });
pub(super) const UNBOUND: Filter = Filter::Load(LoadFilter { passes, copies_max, reasons });

/// A missing volume is not reported where one that comes before it is not accessible.
fn all_exist(class: &PodClass, node: &Node) -> bool {
    class.storage.as_deref().is_none_or(|demand| !demand.volume_missing) || !is_accessible(class, node)
}

fn is_accessible(class: &PodClass, node: &Node) -> bool {
    let mut volumes = class.storage.as_deref().into_iter().flat_map(|demand| &demand.affinities);
    volumes.all(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
}

fn mismatch(class: &PodClass, node: &Node, view: &View<'_>) -> Option<Mismatch> {
    let demand = class.storage.as_deref()?;
    if demand.unbound.is_empty() || view.without_pods() {
        return None;
    }
    view.cluster.steps.add(demand.unbound.len());
    view.cluster.storage.choose(demand, node).err()
}

fn passes(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    mismatch(class, node, view).is_none()
}

fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    if mismatch(class, node, view).is_some() {
        return 0;
    }
    let Some(demand) = class.storage.as_deref().filter(|_| !view.without_pods()) else { return i64::MAX };
    let on_one_node = crate::model::resources::PODS_PER_NODE_MAX;
    match view.cluster.storage.copies_on_node_max(demand, node, on_one_node) {
        copies if copies < on_one_node => copies as i64,
        _ => i64::MAX,
    }
}

fn reasons(class: &PodClass, node: &Node, view: &View<'_>, reasons: &mut Vec<Reason>) {
    reasons.extend(mismatch(class, node, view).map(|mismatch| match mismatch {
        Mismatch::NoVolume => Reason::NoVolume,
        Mismatch::NoStorage => Reason::NoStorage,
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::storage::StorageDemand;
    use crate::model::class::ClassSpec;
    use crate::model::labels::{LabelOperator, NodeTerm, Requirement};
    use crate::model::resources::Requests;

    #[test]
    fn every_volume_must_be_accessible() {
        let on = |host: &str| {
            let is = Requirement { key: "host".to_owned(), operator: LabelOperator::In(vec![host.to_owned()]) };
            vec![NodeTerm { labels: vec![is], names: Vec::new() }]
        };
        let class = |affinities, volume_missing| {
            let class = PodClass::independent(Arc::new(ClassSpec::default()), Requests::default());
            let demand = StorageDemand { affinities, volume_missing, ..StorageDemand::default() };
            PodClass { storage: Some(Arc::new(demand)), ..class }
        };
        let labels = [("host".to_owned(), "a".to_owned())].into();
        let here = Node { labels, ..Node::default() };
        assert!(is_accessible(&class(vec![on("a")], false), &here));
        assert!(!is_accessible(&class(vec![on("a"), on("b")], false), &here));
        assert!(!all_exist(&class(vec![on("a")], true), &here));
        assert!(all_exist(&class(vec![on("b")], true), &here), "the other reason is enough");
    }
}
