//! A volume of the pod is in another zone, by its labels.
//!
//! In older clusters volumes restrict nodes by zone and region labels. A node without any such label is assumed to be in
//! a cluster of a single zone.

use super::kinds::{Filter, Reason, StaticFilter};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::storage::ZoneRequirement;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes: is_in_zone, reason: Reason::VolumeZone });

/// Zone and region labels, current and deprecated.
const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

fn is_in_zone(class: &PodClass, node: &Node) -> bool {
    meets_all(class.storage.as_deref().into_iter().flat_map(|demand| &demand.zones), node)
}

/// Whether a node is in the zones and regions of a volume.
pub(crate) fn is_in_zones(zones: &[ZoneRequirement], node: &Node) -> bool {
    meets_all(zones.iter(), node)
}

fn meets_all<'a>(zones: impl Iterator<Item = &'a ZoneRequirement>, node: &Node) -> bool {
    let mut demands = zones.peekable();
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
    use crate::cluster::storage::StorageDemand;
    use crate::model::class::ClassSpec;
    use crate::model::resources::Requests;

    fn class(zones: Vec<ZoneRequirement>) -> PodClass {
        let class = PodClass::independent(Arc::new(ClassSpec::default()), Requests::default());
        let demand = StorageDemand { zones, ..StorageDemand::default() };
        PodClass { storage: Some(Arc::new(demand)), ..class }
    }

    fn node(labels: &[(&str, &str)]) -> Node {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Node { labels, ..Node::default() }
    }

    #[test]
    fn zone_matches_by_either_label_and_node_without_zones_passes() {
        let keys = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
        let zones = vec![ZoneRequirement {
            keys: keys.map(str::to_owned).to_vec(),
            values: ["a".to_owned(), "b".to_owned()].into(),
        }];
        let class = class(zones);
        assert!(is_in_zone(&class, &node(&[(keys[1], "b")])) && is_in_zone(&class, &node(&[(keys[0], "a")])));
        assert!(!is_in_zone(&class, &node(&[(keys[1], "c")])));
        assert!(!is_in_zone(&class, &node(&[("topology.kubernetes.io/region", "a")])), "it has regions, but no zone");
        assert!(is_in_zone(&class, &node(&[])));
    }
}
