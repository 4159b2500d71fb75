//! Scores: rank the feasible nodes. One file per score.
//!
//! The numbers are kube-scheduler's: each score is 0 to 100, the total is their weighted sum. Some raw scores are
//! normalized over the feasible nodes. Nominated pods are not counted, only pods on the node.

mod balanced;
mod fit;
mod images;
pub(crate) mod inter_pod_affinity;
mod node_affinity;
mod shape;
mod taints;
pub(crate) mod topology_spread;
mod volume_binding;

use inter_pod_affinity::Span;
use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::config::{Scoring, ShapePoint};
use crate::model::plugin::ScoreName;
use crate::model::resources::ResourceNames;

/// The raw scores that depend on the node object alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaticScore {
    /// The number of `PreferNoSchedule` taints that are not tolerated.
    pub(crate) taints: i64,
    /// The sum of the weights of matching preferred terms.
    pub(crate) node_affinity: i64,
}

/// The raw inter-pod scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterPodScore {
    /// The sum of the weights of matching preferred terms.
    pub(crate) affinity: i64,
    /// The weighted number of matching pods in the node's domains; `None` if the node is not scored.
    pub(crate) spread: Option<i64>,
}

/// The ranges of raw scores over the feasible nodes, for normalization.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Normalization {
    pub(crate) taints: i64,
    pub(crate) node_affinity: i64,
    pub(crate) inter_pod_affinity: Span,
    /// Only if the pod has spread constraints to score.
    pub(crate) spread: Option<topology_spread::Scale>,
}

/// Scoring with resource names resolved.
#[derive(Clone, Debug)]
pub(crate) struct Scorer {
    fit: fit::Fit,
    balanced: balanced::Balanced,
    weight_taints: i64,
    weight_node_affinity: i64,
    weight_fit: i64,
    weight_balanced: i64,
    weight_inter_pod_affinity: i64,
    weight_spread: i64,
    weight_images: i64,
    weight_volume_binding: i64,
    storage_shape: Vec<ShapePoint>,
}

impl Scorer {
    pub(crate) fn new(config: &Scoring, names: &mut ResourceNames) -> Self {
        Self {
            fit: fit::Fit::new(&config.strategy, &config.fit_resources, names),
            balanced: balanced::Balanced::new(&config.balanced_resources, names),
            weight_taints: config.weight_taints,
            weight_node_affinity: config.weight_node_affinity,
            weight_fit: config.weight_fit,
            weight_balanced: config.weight_balanced,
            weight_inter_pod_affinity: config.weight_pod_affinity,
            weight_spread: config.weight_topology_spread,
            weight_images: config.weight_image_locality,
            weight_volume_binding: config.weight_volume_binding,
            storage_shape: config.storage_shape.clone(),
        }
    }

    /// The raw scores of the node object.
    pub(crate) fn static_score(class: &PodClass, node: &Node) -> StaticScore {
        StaticScore { taints: taints::raw(class, node), node_affinity: node_affinity::raw(class, node) }
    }

    /// The weighted scores of the load and images of the node, and of the storage that it can access.
    pub(crate) fn load_score(&self, class: &PodClass, node: &Node, cluster: &Cluster) -> i64 {
        self.weight_fit * self.fit.score(class, node)
            + self.weight_balanced * self.balanced.score(class, node)
            + self.weight_images * images::score(class, node, &cluster.images, cluster.nodes_present())
            + self.volume_binding_score(class, node, cluster)
    }

    fn volume_binding_score(&self, class: &PodClass, node: &Node, cluster: &Cluster) -> i64 {
        match self.weight_volume_binding {
            0 => 0,
            weight => weight * volume_binding::score(&self.storage_shape, class, node, cluster),
        }
    }

    /// The weighted sum of the scores that are normalized over the feasible nodes.
    pub(crate) fn normalized_score(&self, raw: StaticScore, inter_pod: InterPodScore, range: &Normalization) -> i64 {
        self.weight_taints * taints::normalized(raw.taints, range.taints)
            + self.weight_node_affinity * node_affinity::normalized(raw.node_affinity, range.node_affinity)
            + self.weight_inter_pod_affinity
                * inter_pod_affinity::normalized(inter_pod.affinity, range.inter_pod_affinity)
            + self.weight_spread
                * range.spread.as_ref().map_or(0, |scale| topology_spread::normalized(inter_pod.spread, scale))
    }

    /// What is allocated on a node of each resource of the fit score, and its capacity.
    pub(crate) fn allocated(&self, node: &Node) -> SmallVec<[(i64, i64); 2]> {
        self.fit.allocated(node)
    }

    /// The allocated share of several nodes together with these pods, in percent.
    pub(crate) fn allocated_share(&self, usage: &[(i64, i64)], pods: &[(&PodClass, i64)]) -> i64 {
        self.fit.allocated_share(usage, pods)
    }

    /// Each weighted score; the sum decides.
    pub(crate) fn breakdown(
        &self,
        class: &PodClass,
        node: &Node,
        cluster: &Cluster,
        inter_pod: InterPodScore,
        range: &Normalization,
    ) -> Vec<(ScoreName, i64)> {
        let images = images::score(class, node, &cluster.images, cluster.nodes_present());
        let raw = Self::static_score(class, node);
        let spread = range.spread.as_ref().map_or(0, |scale| topology_spread::normalized(inter_pod.spread, scale));
        vec![
            (ScoreName::Taints, self.weight_taints * taints::normalized(raw.taints, range.taints)),
            (
                ScoreName::NodeAffinity,
                self.weight_node_affinity * node_affinity::normalized(raw.node_affinity, range.node_affinity),
            ),
            (ScoreName::Fit, self.weight_fit * self.fit.score(class, node)),
            (ScoreName::Balanced, self.weight_balanced * self.balanced.score(class, node)),
            (
                ScoreName::PodAffinity,
                self.weight_inter_pod_affinity
                    * inter_pod_affinity::normalized(inter_pod.affinity, range.inter_pod_affinity),
            ),
            (ScoreName::Spread, self.weight_spread * spread),
            (ScoreName::Images, self.weight_images * images),
            (ScoreName::VolumeBinding, self.volume_binding_score(class, node, cluster)),
        ]
    }
}
