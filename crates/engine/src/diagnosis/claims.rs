//! Which claims of a pod tie it to certain nodes.
//!
//! kube-scheduler's reasons count nodes and name no claim. A pod whose volumes can be used only where it has no room can
//! be helped by its user alone, who has to know which they are.

use super::{Rejection, TiedClaim};
use crate::cluster::Cluster;
use crate::cluster::node::Node;
use crate::filter;
use crate::model::ids::{ClaimId, NodeId, PodId};

/// The maximum number of claims, and of nodes of a claim, that are named.
const NAMED_MAX: usize = 3;

/// Whether a node is rejected for this because of where a volume is.
pub(crate) fn is_about_place(rejection: &Rejection) -> bool {
    matches!(
        rejection,
        Rejection::VolumeAffinity | Rejection::VolumeMissing | Rejection::VolumeZone | Rejection::NoVolume
    )
}

/// The first claims of a pod that not all nodes can use.
pub(crate) fn tied_claims(cluster: &Cluster, pod: PodId) -> Vec<TiedClaim> {
    let claims = cluster.pod(pod).claim_ids.iter();
    claims.filter_map(|claim| tied_claim(cluster, *claim)).take(NAMED_MAX).collect()
}

fn tied_claim(cluster: &Cluster, id: ClaimId) -> Option<TiedClaim> {
    let claim = cluster.storage.claim(id);
    let spec = claim.spec.as_deref()?;
    let volume = spec.bind_completed.then(|| cluster.storage.volume_by_name(&spec.volume)).flatten();
    let is_usable = |node: &Node| match volume {
        Some(volume) => {
            let terms = volume.topology.required_terms.as_ref();
            filter::is_in_zones(&volume.topology.zones, node)
                && terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
        }
        None if spec.bind_completed => false,
        None => spec.selected_node.is_empty() || *spec.selected_node == *node.name,
    };
    let present = || cluster.nodes().filter(|(_, node)| node.present);
    let usable = || present().filter(|(_, node): &(NodeId, &Node)| is_usable(node));
    let count = usable().count();
    (count < present().count()).then(|| TiedClaim {
        claim: format!("{}/{}", claim.namespace, claim.name),
        volume: spec.bind_completed.then(|| spec.volume.clone()),
        selected_node: if spec.bind_completed { String::new() } else { spec.selected_node.clone() },
        nodes: count as u32,
        examples: usable().take(NAMED_MAX).map(|(_, node)| node.name.to_string()).collect(),
    })
}
