//! The node cannot access a provisioned volume of the pod.
//!
//! A volume restricts nodes by its node affinity and, in older clusters, by its zone and region labels. A node without
//! any zone or region label is assumed to be in a cluster of a single zone.

use super::kinds::{Filter, Reason, StaticFilter};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::class::ZoneRequirement;

pub(super) const REACH: Filter = Filter::Static(StaticFilter { passes: reaches, reason: Reason::VolumeAffinity });
pub(super) const ZONE: Filter = Filter::Static(StaticFilter { passes: is_in_zone, reason: Reason::VolumeZone });

/// Zone and region labels, current and deprecated.
const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

fn reaches(class: &PodClass, node: &Node) -> bool {
    let terms = class.spec.volumes.iter().filter_map(|volume| volume.required_terms.as_ref());
    terms.into_iter().all(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
}

fn is_in_zone(class: &PodClass, node: &Node) -> bool {
    let mut demands = class.spec.volumes.iter().flat_map(|volume| &volume.zones).peekable();
    if demands.peek().is_none() || !ZONE_LABELS.iter().any(|label| node.labels.contains_key(*label)) {
        return true;
    }
    let meets = |demand: &ZoneRequirement| {
        let value = demand.keys.iter().find_map(|key| node.labels.get(key));
        value.is_some_and(|value| demand.values.contains(value))
    };
    demands.all(meets)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::class::{ClassSpec, VolumeTopology};
    use crate::model::labels::{LabelOperator, NodeTerm, Requirement};
    use crate::model::resources::Requests;

    fn class(volumes: Vec<VolumeTopology>) -> PodClass {
        PodClass::independent(Arc::new(ClassSpec { volumes, ..ClassSpec::default() }), Requests::default())
    }

    fn node(labels: &[(&str, &str)]) -> Node {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Node { labels, ..Node::default() }
    }

    #[test]
    fn every_volume_must_be_accessible() {
        let on = |host: &str| {
            let is = Requirement { key: "host".to_owned(), operator: LabelOperator::In(vec![host.to_owned()]) };
            let terms = vec![NodeTerm { labels: vec![is], names: Vec::new() }];
            VolumeTopology { required_terms: Some(terms), zones: Vec::new() }
        };
        let here = node(&[("host", "a")]);
        assert!(reaches(&class(vec![on("a"), VolumeTopology::default()]), &here));
        assert!(!reaches(&class(vec![on("a"), on("b")]), &here));
    }

    #[test]
    fn zone_matches_by_either_label_and_node_without_zones_passes() {
        let keys = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
        let zones = vec![ZoneRequirement {
            keys: keys.map(str::to_owned).to_vec(),
            values: ["a".to_owned(), "b".to_owned()].into(),
        }];
        let class = class(vec![VolumeTopology { required_terms: None, zones }]);
        assert!(is_in_zone(&class, &node(&[(keys[1], "b")])) && is_in_zone(&class, &node(&[(keys[0], "a")])));
        assert!(!is_in_zone(&class, &node(&[(keys[1], "c")])));
        assert!(!is_in_zone(&class, &node(&[("topology.kubernetes.io/region", "a")])), "it has regions, but no zone");
        assert!(is_in_zone(&class, &node(&[])));
    }
}
