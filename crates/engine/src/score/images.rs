//! Image locality: nodes that already have the pod's images score higher, by image size.
//!
//! An image is scaled by the share of nodes that have it, so that a rare image does not attract all pods to one node.

use crate::cluster::class::PodClass;
use crate::cluster::images::Images;
use crate::cluster::node::Node;
use crate::model::plugin::SCORE_MAX;

const MIB: i64 = 1 << 20;
/// The total size below which the score is 0.
const BYTES_MIN: i64 = 23 * MIB;
/// The size per image above which the score is 100.
const BYTES_MAX: i64 = 1000 * MIB;

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "sizes of images are far below 2^53")]
pub(super) fn score(class: &PodClass, node: &Node, images: &Images, nodes: usize) -> i64 {
    let used = &class.spec.images;
    if used.is_empty() {
        return 0;
    }
    let worth = |name: &str| {
        let size = node.images.get(name)?;
        let share = f64::from(images.nodes(name)) / nodes.max(1) as f64;
        Some((*size as f64 * share) as i64)
    };
    let sum = used.iter().filter_map(|name| worth(name)).fold(0_i64, i64::saturating_add);
    let most = BYTES_MAX.saturating_mul(used.len() as i64);
    SCORE_MAX * (sum.clamp(BYTES_MIN, most) - BYTES_MIN) / (most - BYTES_MIN)
}
