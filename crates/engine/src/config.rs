//! The engine's configuration. The defaults are those of kube-scheduler where it has one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::Millis;
use crate::model::plugin::FilterName;
use crate::model::topology::LEVELS_MAX;
use crate::validation_error::ValidationError;

/// The engine's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The profiles, which pod classes refer to by index; at least one.
    pub profiles: Vec<Profile>,
    /// The backoff after the first failed attempt; it doubles with every further one.
    pub backoff_ms_initial: Millis,
    /// The longest backoff of a single pod; that of a group is longer by the square root of its size.
    pub backoff_ms_max: Millis,
    /// The initial limit of steps in the search for a placement of a mixed group. It doubles with every retry after a
    /// result that was not a proof.
    pub search_steps_initial: u64,
    /// The maximum limit of steps in one search.
    pub search_steps_max: u64,
    /// The first pause before a group without a placement is retried, if the result was not a proof.
    pub search_again_ms_initial: Millis,
    /// The longest such pause.
    pub search_again_ms_max: Millis,
    /// How long a gang that would fit if pods left is unschedulable before it reserves nodes.
    pub starving_after_ms: Millis,
    /// How long a reservation lasts at most.
    #[serde(rename = "claim_ms_max")]
    pub reservation_ms_max: Millis,
    /// The largest share of the nodes that may be reserved, in percent.
    pub reservation_nodes_percent_max: u32,
    /// How long after its start a group keeps capacity for the rest of its `minResources` from others.
    pub min_resources_held_ms_max: Millis,
    /// How long a basic group waits for the rest of its desired members.
    pub desired_wait_ms: Millis,
    /// Whether a group's own priority counts only up to the lowest of its members.
    pub group_priority_capped: bool,
    /// The rules of preemption.
    pub preemption: PreemptionRules,
    /// Node labels that divide the cluster into nested topology domains, widest first; may be empty.
    pub topology_levels: Vec<String>,
    /// Labels whose values an autoscaler knows before it adds a node. Where a group has to share a domain of another label,
    /// a further node may come up in any domain, so its pods are no demand for one.
    pub labels_known_before_scale_up: BTreeSet<String>,
    /// How long an entity waits before that is reported.
    pub report_waiting_after_ms: Millis,
    /// How long the start of a group may take, unless the group sets it.
    pub schedule_timeout_ms: Millis,
    /// The first pause before a bind that failed transiently is retried; it doubles.
    pub bind_retry_ms_initial: Millis,
    /// The longest such pause.
    pub bind_retry_ms_max: Millis,
    /// How long the bind of a single pod is retried before another node is chosen.
    pub bind_timeout_ms: Millis,
    /// How long the volumes of a placed pod or group may take before its placement is given up.
    pub volume_bind_timeout_ms: Millis,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default()],
            backoff_ms_initial: 1_000,
            backoff_ms_max: 10_000,
            search_steps_initial: 50_000,
            search_steps_max: 1_000_000,
            search_again_ms_initial: 10_000,
            search_again_ms_max: 300_000,
            starving_after_ms: 600_000,
            reservation_ms_max: 3_600_000,
            reservation_nodes_percent_max: 50,
            min_resources_held_ms_max: 1_800_000,
            desired_wait_ms: 1_000,
            group_priority_capped: false,
            preemption: PreemptionRules::default(),
            topology_levels: Vec::new(),
            labels_known_before_scale_up: LABELS_OF_NODE_POOLS.map(str::to_owned).into(),
            report_waiting_after_ms: 5_000,
            schedule_timeout_ms: 300_000,
            bind_retry_ms_initial: 200,
            bind_retry_ms_max: 5_000,
            bind_timeout_ms: 60_000,
            volume_bind_timeout_ms: 600_000,
        }
    }
}

/// Labels of places and node pools, which clouds and autoscalers set on the nodes that they add.
const LABELS_OF_NODE_POOLS: [&str; 9] = [
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The rules of preemption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreemptionRules {
    /// Whether preemption is enabled.
    pub on: bool,
    /// Preempts only if the whole group fits after that; otherwise its pods preempt for themselves.
    pub delayed: bool,
    /// How long an entity is unschedulable before it preempts, so that an autoscaler can act first.
    pub delay_ms: Millis,
    /// How long after its creation a node that is starting up is waited for.
    #[serde(rename = "arrival_ms")]
    pub upcoming_node_wait_ms: Millis,
    /// How long a pod whose eviction was refused is spared.
    pub spare_ms: Millis,
    /// Never violates disruption budgets; otherwise only avoids it where possible.
    #[serde(rename = "keeps_budgets")]
    pub respects_budgets: bool,
    /// Evicts groups as a whole if their disruption mode requires it; otherwise evicts single pods.
    pub whole_groups: bool,
    /// Searches for cheaper plans for groups than the algorithm of KEP-5710.
    pub cheaper: bool,
    /// The maximum number of victim sets in the search for the cheapest.
    pub steps_max: u64,
    /// Preempts also for members of a gang beyond its minimum.
    pub beyond_minimum: bool,
}

impl Default for PreemptionRules {
    fn default() -> Self {
        Self {
            on: true,
            delayed: true,
            delay_ms: 0,
            upcoming_node_wait_ms: 600_000,
            spare_ms: 60_000,
            respects_budgets: false,
            whole_groups: true,
            cheaper: true,
            steps_max: 20_000,
            beyond_minimum: true,
        }
    }
}

/// A scheduling profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// How nodes are scored.
    pub scoring: Scoring,
    /// Disabled filters.
    pub without: BTreeSet<FilterName>,
}

/// How nodes are scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scoring {
    /// The strategy for node utilization.
    pub strategy: Strategy,
    /// The resources of the `NodeResourcesFit` score, with their weights.
    pub fit_resources: Vec<Weighted>,
    /// The resources of the `NodeResourcesBalancedAllocation` score.
    pub balanced_resources: Vec<String>,
    /// The weight of the `TaintToleration` score.
    pub weight_taints: i64,
    /// The weight of the `NodeAffinity` score.
    pub weight_node_affinity: i64,
    /// The weight of the `NodeResourcesFit` score.
    pub weight_fit: i64,
    /// The weight of the `NodeResourcesBalancedAllocation` score.
    pub weight_balanced: i64,
    /// The weight of the `InterPodAffinity` score.
    pub weight_pod_affinity: i64,
    /// The weight of the `PodTopologySpread` score.
    pub weight_topology_spread: i64,
    /// The weight of the `ImageLocality` score.
    pub weight_image_locality: i64,
    /// The weight of the `VolumeBinding` score; with zero, how much storage is free does not matter.
    pub weight_volume_binding: i64,
    /// The `VolumeBinding` score by the utilization of storage: at least one point, by increasing utilization.
    pub storage_shape: Vec<ShapePoint>,
    /// `hardPodAffinityWeight`: the score for existing pods with required affinity to the pod.
    pub hard_pod_affinity_weight: i64,
    /// `ignorePreferredTermsOfExistingPods`: applies to pods without preferred terms.
    #[serde(rename = "ignores_likes_of_others")]
    pub ignores_preferred_terms_of_others: bool,
}

impl Default for Scoring {
    fn default() -> Self {
        let weighted = |name: &str| Weighted { name: name.to_owned(), weight: 1 };
        Self {
            strategy: Strategy::LeastAllocated,
            fit_resources: vec![weighted("cpu"), weighted("memory")],
            balanced_resources: vec!["cpu".to_owned(), "memory".to_owned()],
            weight_taints: 3,
            weight_node_affinity: 2,
            weight_fit: 1,
            weight_balanced: 1,
            weight_pod_affinity: 2,
            weight_topology_spread: 2,
            weight_image_locality: 1,
            weight_volume_binding: 1,
            storage_shape: vec![ShapePoint { utilization: 0, score: 10 }, ShapePoint { utilization: 100, score: 0 }],
            hard_pod_affinity_weight: 1,
            ignores_preferred_terms_of_others: false,
        }
    }
}

/// The strategy for node utilization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Strategy {
    /// Prefers empty nodes.
    LeastAllocated,
    /// Prefers full nodes.
    MostAllocated,
    /// Interpolates between these points.
    RequestedToCapacityRatio {
        /// At least one point, by increasing utilization.
        shape: Vec<ShapePoint>,
    },
}

/// A point of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapePoint {
    /// 0 to 100 percent.
    pub utilization: i64,
    /// 0 to 10.
    pub score: i64,
}

/// A resource and its weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighted {
    /// The resource's name.
    pub name: String,
    /// 1 to 100.
    pub weight: i64,
}

impl Config {
    /// Validates all settings.
    pub fn validate(&self) -> Result<(), ValidationError> {
        let refuse = |field: &str, value: &dyn std::fmt::Display, reason: &str| {
            Err(ValidationError::new("configuration", field, value, reason))
        };
        if self.profiles.is_empty() {
            return refuse("profiles", &"[]", "at least one is needed");
        }
        for profile in &self.profiles {
            profile.scoring.validate()?;
        }
        let levels = &self.topology_levels;
        if levels.len() > LEVELS_MAX {
            return refuse("topology_levels", &levels.len(), "at most 8 levels");
        }
        if let Some(index) =
            (0..levels.len()).find(|index| levels[*index].is_empty() || levels[..*index].contains(&levels[*index]))
        {
            return refuse("topology_levels", &levels[index], "each level needs a label of its own");
        }
        let percent = self.reservation_nodes_percent_max;
        if percent == 0 || percent > 100 {
            return refuse("reservation_nodes_percent_max", &percent, "must be between 1 and 100");
        }
        for (field, pause_ms) in [
            ("backoff_ms_initial", self.backoff_ms_initial),
            ("search_again_ms_initial", self.search_again_ms_initial),
            ("bind_retry_ms_initial", self.bind_retry_ms_initial),
            ("schedule_timeout_ms", self.schedule_timeout_ms),
            ("bind_timeout_ms", self.bind_timeout_ms),
            ("volume_bind_timeout_ms", self.volume_bind_timeout_ms),
            ("reservation_ms_max", self.reservation_ms_max),
            ("preemption.spare_ms", self.preemption.spare_ms),
        ] {
            if pause_ms == 0 {
                return refuse(
                    field,
                    &pause_ms,
                    "must be greater than zero: without a pause a failure repeats at once",
                );
            }
        }
        for (field, first, last) in [
            ("backoff_ms_max", self.backoff_ms_initial, self.backoff_ms_max),
            ("search_again_ms_max", self.search_again_ms_initial, self.search_again_ms_max),
            ("bind_retry_ms_max", self.bind_retry_ms_initial, self.bind_retry_ms_max),
            ("search_steps_max", self.search_steps_initial, self.search_steps_max),
        ] {
            if last < first {
                return refuse(field, &last, "must not be less than the initial value");
            }
        }
        Ok(())
    }
}

impl Scoring {
    /// Validates the scoring settings.
    pub fn validate(&self) -> Result<(), ValidationError> {
        let refuse = |field: &str, value: &dyn std::fmt::Display, reason: &str| {
            Err(ValidationError::new("configuration", field, value, reason))
        };
        for (field, weight) in [
            ("scoring.weight_taints", self.weight_taints),
            ("scoring.weight_node_affinity", self.weight_node_affinity),
            ("scoring.weight_fit", self.weight_fit),
            ("scoring.weight_balanced", self.weight_balanced),
            ("scoring.weight_pod_affinity", self.weight_pod_affinity),
            ("scoring.weight_topology_spread", self.weight_topology_spread),
            ("scoring.weight_image_locality", self.weight_image_locality),
            ("scoring.weight_volume_binding", self.weight_volume_binding),
        ] {
            if !(0..=100_000).contains(&weight) {
                return refuse(field, &weight, "a weight is from 0 to 100000");
            }
        }
        if !(0..=100).contains(&self.hard_pod_affinity_weight) {
            let (field, weight) = ("scoring.hard_pod_affinity_weight", self.hard_pod_affinity_weight);
            return refuse(field, &weight, "it is from 0 to 100");
        }
        for resource in &self.fit_resources {
            if !(1..=100).contains(&resource.weight) {
                let field = format!("scoring.fit_resources[{}].weight", resource.name);
                return refuse(&field, &resource.weight, "a resource's weight is from 1 to 100");
            }
        }
        if let Strategy::RequestedToCapacityRatio { shape } = &self.strategy {
            validate_shape("scoring.strategy.shape", shape)?;
        }
        validate_shape("scoring.storage_shape", &self.storage_shape)
    }
}

fn validate_shape(field: &str, shape: &[ShapePoint]) -> Result<(), ValidationError> {
    if shape.is_empty() {
        return Err(ValidationError::new("configuration", field, "[]", "a shape needs at least one point"));
    }
    for point in shape {
        if !(0..=100).contains(&point.utilization) {
            return Err(ValidationError::new(
                "configuration",
                field,
                point.utilization,
                "utilization is from 0 to 100",
            ));
        }
        if !(0..=10).contains(&point.score) {
            return Err(ValidationError::new("configuration", field, point.score, "a score is from 0 to 10"));
        }
    }
    if let Some(pair) = shape.windows(2).find(|pair| pair[0].utilization >= pair[1].utilization) {
        let reason = "utilization must increase from point to point";
        return Err(ValidationError::new("configuration", field, pair[1].utilization, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        Config::default().validate().unwrap();
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        let shape = |points: &[(i64, i64)]| Strategy::RequestedToCapacityRatio {
            shape: points
                .iter()
                .map(|(utilization, score)| ShapePoint { utilization: *utilization, score: *score })
                .collect(),
        };
        let with = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config
        };
        let mut cases = vec![
            (with(|config| config.profiles[0].scoring.weight_fit = -1), "scoring.weight_fit"),
            (
                with(|config| config.profiles[0].scoring.fit_resources[0].weight = 0),
                "scoring.fit_resources[cpu].weight",
            ),
            (with(|config| config.backoff_ms_initial = 0), "backoff_ms_initial"),
            (with(|config| config.backoff_ms_max = 10), "backoff_ms_max"),
            (with(|config| config.reservation_ms_max = 0), "reservation_ms_max"),
        ];
        for points in [&[][..], &[(50, 11)], &[(101, 1)], &[(50, 1), (50, 2)]] {
            let scoring = Scoring { strategy: shape(points), ..Scoring::default() };
            let profiles = vec![Profile { scoring, ..Profile::default() }];
            cases.push((Config { profiles, ..Config::default() }, "scoring.strategy.shape"));
        }
        for (config, field) in cases {
            let text = config.validate().unwrap_err().to_string();
            assert!(text.contains(field), "{text} should name {field}");
        }
    }
}
