//! Volume binding: nodes on which the claims of the pod would leave more of the storage free score higher.

use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::config::ShapePoint;
use crate::model::plugin::FilterName;

use super::shape;

/// The mean over the storage classes of the claims.
pub(super) fn score(shape: &[ShapePoint], class: &PodClass, node: &Node, cluster: &Cluster) -> i64 {
    let demand = class.storage.as_deref().filter(|demand| !demand.unbound.is_empty());
    let Some(demand) = demand.filter(|_| class.has_filter(FilterName::VolumeBinding)) else { return 0 };
    let parts = cluster.storage.storage_shares(demand, node);
    let score = |(requested, capacity): &(i128, i128)| shape::score(shape, shape::utilization(*requested, *capacity));
    let (sum, classes) = (parts.iter().map(score).sum::<i64>(), parts.len() as i64);
    // It rounds to nearest.
    if classes == 0 { 0 } else { (2 * sum + classes) / (2 * classes) }
}
