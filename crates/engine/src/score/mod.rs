//! Scores: which of the nodes that will do is best? One file per score.
//!
//! The numbers are kube-scheduler's: each score is 0 to 100, the total is their weighted sum. Some of them
//! are raw numbers that are set in proportion to the best node.
//! Nominations do not count here, only what is on a node.

mod balanced;
pub(crate) mod company;
mod fit;
mod images;
mod node_affinity;
pub(crate) mod spread;
mod taints;

use company::Span;

use crate::cluster::Cluster;
use crate::cluster::node::Node;
use crate::config::Scoring;
use crate::model::class::PodClass;
use crate::model::resources::ResourceNames;

/// The most that one score can give.
pub(crate) const SCORE_MAX: i64 = 100;

/// The raw scores that only depend on the node itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FixedScore {
    /// `PreferNoSchedule` taints that are not tolerated.
    pub(crate) taints: i64,
    /// The weights of the preferred terms that match.
    pub(crate) affinity: i64,
}

/// Which score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScoreName {
    /// Fewer soft taints that are not tolerated.
    Taints,
    /// More weight of preferred terms that match.
    NodeAffinity,
    /// How full the node would be.
    Fit,
    /// How evenly its resources would be used.
    Balanced,
    /// How welcome those are who are near.
    PodAffinity,
    /// How evenly the pod and its like would be spread.
    Spread,
    /// How much of the pod's images is there.
    Images,
}

/// The raw scores of who is near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NearScore {
    /// The weights of those who are near.
    pub(crate) company: i64,
    /// How many are near of those among whom the pod should be spread; `None` if the node is not judged.
    pub(crate) spread: Option<i64>,
}

/// What relative scores are set in proportion to: the largest raw scores among the nodes that will do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Best {
    pub(crate) taints: i64,
    pub(crate) affinity: i64,
    pub(crate) company: Span,
    /// Only if the pod should be spread.
    pub(crate) spread: Option<spread::Scale>,
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
    weight_company: i64,
    weight_spread: i64,
    weight_images: i64,
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
            weight_company: config.weight_pod_affinity,
            weight_spread: config.weight_topology_spread,
            weight_images: config.weight_image_locality,
        }
    }

    /// The raw scores of the node itself.
    pub(crate) fn fixed(class: &PodClass, node: &Node) -> FixedScore {
        FixedScore { taints: taints::raw(class, node), affinity: node_affinity::raw(class, node) }
    }

    /// The weighted scores of what is on the node.
    pub(crate) fn moving(&self, class: &PodClass, node: &Node, cluster: &Cluster) -> i64 {
        self.weight_fit * self.fit.score(class, node)
            + self.weight_balanced * self.balanced.score(class, node)
            + self.weight_images * images::score(class, node, &cluster.images, cluster.nodes_present())
    }

    /// The weighted scores of the node itself and of who is near, in proportion to the best node.
    pub(crate) fn proportional(&self, raw: FixedScore, near: NearScore, best: &Best) -> i64 {
        self.weight_taints * taints::normalized(raw.taints, best.taints)
            + self.weight_node_affinity * node_affinity::normalized(raw.affinity, best.affinity)
            + self.weight_company * company::normalized(near.company, best.company)
            + self.weight_spread * best.spread.as_ref().map_or(0, |scale| spread::normalized(near.spread, scale))
    }

    /// Each weighted score by itself; their sum is what decides.
    pub(crate) fn parts(
        &self,
        class: &PodClass,
        node: &Node,
        cluster: &Cluster,
        near: NearScore,
        best: &Best,
    ) -> Vec<(ScoreName, i64)> {
        let images = images::score(class, node, &cluster.images, cluster.nodes_present());
        let raw = Self::fixed(class, node);
        let spread = best.spread.as_ref().map_or(0, |scale| spread::normalized(near.spread, scale));
        vec![
            (ScoreName::Taints, self.weight_taints * taints::normalized(raw.taints, best.taints)),
            (
                ScoreName::NodeAffinity,
                self.weight_node_affinity * node_affinity::normalized(raw.affinity, best.affinity),
            ),
            (ScoreName::Fit, self.weight_fit * self.fit.score(class, node)),
            (ScoreName::Balanced, self.weight_balanced * self.balanced.score(class, node)),
            (ScoreName::PodAffinity, self.weight_company * company::normalized(near.company, best.company)),
            (ScoreName::Spread, self.weight_spread * spread),
            (ScoreName::Images, self.weight_images * images),
        ]
    }
}
