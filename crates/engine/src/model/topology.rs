//! The topology constraint of a group: node labels that divide the cluster into nested domains, and how closely its
//! members are to be placed together.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The most levels of one constraint.
pub const LEVELS_MAX: usize = 8;
/// Labels of clouds and of network tools that name nested domains, widest first. Where a group names some of them, the
/// others are levels of its tree, too.
const WELL_KNOWN_LEVELS: [&[&str]; 8] = [
    &[
        "cloud.google.com/gce-topology-block",
        "cloud.google.com/gce-topology-subblock",
        "cloud.google.com/gce-topology-host",
    ],
    &[
        "topology.k8s.aws/network-node-layer-1",
        "topology.k8s.aws/network-node-layer-2",
        "topology.k8s.aws/network-node-layer-3",
    ],
    &["oci.oraclecloud.com/host.network_block_id", "oci.oraclecloud.com/host.rack_id"],
    &["backend.coreweave.cloud/fabric", "backend.coreweave.cloud/superpod", "backend.coreweave.cloud/leafgroup"],
    &["fabric.topograph.run/tier-2", "fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0"],
    &["network.topology.nvidia.com/core", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"],
    &[
        "network.topology.nvidia.com/datacenter",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/block",
    ],
    &["accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain"],
];

/// Which domains the members of a group are to share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTopology {
    /// Keys of node labels, widest first. A node's domain at a level is the path of its values down to that level; a
    /// node without one of these labels is in no domain of that level.
    pub levels: Vec<String>,
    /// The level of which all members must be in one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<usize>,
    /// The level of which all members should be in one domain, narrower than the required one. If that is impossible,
    /// they should share a domain of the next wider level, and be in few domains of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<usize>,
    /// Which of several domains is chosen.
    #[serde(default)]
    pub choice: DomainChoice,
    /// The members are divided into slices, each of which must be in one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
    /// Over how many domains the members must be spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<DomainSpread>,
    /// The level of whose domains no other group may use one that this group uses, if it excludes others from the same
    /// label. At the level of the slices, each slice has a domain of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<usize>,
    /// What happens when there is no room for a member in the domains that others decide.
    #[serde(default, skip_serializing_if = "is_default")]
    pub when_full: WhenFull,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Slices of a group: so many members are in one domain. Members with a rank are divided by it; the last slice may be
/// smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slices {
    /// The level.
    pub level: usize,
    /// The number of members of a slice.
    pub size: u32,
}

impl Slices {
    /// The slice of a member by its rank. Members of different owners, such as the Jobs of a set, are never in one.
    pub(crate) fn of_rank(&self, rank: u64) -> (u64, u64) {
        (rank >> 32, (rank & u64::from(u32::MAX)) / u64::from(self.size.max(1)))
    }
}

/// How many domains of a level the members use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainSpread {
    /// The level.
    pub level: usize,
    /// At least so many, as far as there are members.
    pub min: u32,
    /// At most so many.
    pub max: u32,
}

/// What happens when there is no room for a member in the domains that the other members decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenFull {
    /// It waits.
    #[default]
    Wait,
    /// The whole group is evicted, if it can start elsewhere.
    Move,
}

/// What is said about one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelRule {
    /// All members share a domain, of which other groups may be excluded.
    Required {
        /// Whether they are.
        exclusive: bool,
    },
    /// All members should share a domain.
    Preferred,
    /// Every so many members share a domain.
    Slices {
        /// How many.
        size: u32,
        /// Whether each slice has a domain of its own.
        exclusive: bool,
    },
    /// The members use at least and at most so many domains.
    Spread {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
}

/// Which domain is chosen if several can hold the group. Of equal ones, the first by the values of the labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DomainChoice {
    /// The one that has the least room left.
    #[default]
    TightestFit,
    /// The one that takes the most pods and is allocated the most then: kube-scheduler's placement scores.
    MostAllocated,
}

/// How far apart the pods of a group are that follow each other in rank, in the tree of its levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankDistance {
    /// How many pairs of pods that is.
    pub pairs: u32,
    /// The levels up to their narrowest common domain, over all pairs: 0 on one node, 1 on two nodes of the narrowest
    /// level, one more for each wider level.
    pub levels: u64,
}

impl GroupTopology {
    /// The constraint of label keys in the order of levels, widest first, each with whether it is required.
    pub fn of(constraints: impl IntoIterator<Item = (String, bool)>) -> Option<Self> {
        let rule = |required| if required { LevelRule::Required { exclusive: false } } else { LevelRule::Preferred };
        Self::of_rules(constraints.into_iter().map(|(key, required)| (key, rule(required))))
    }

    /// The constraint of label keys in the order of levels, widest first. Of two rules of one kind the narrower one
    /// counts, as what is required of a level holds for wider ones.
    pub fn of_rules(rules: impl IntoIterator<Item = (String, LevelRule)>) -> Option<Self> {
        let (levels, rules): (Vec<String>, Vec<LevelRule>) = rules.into_iter().unzip();
        let mut topology = Self::without_constraint(&levels)?;
        for (level, rule) in rules.into_iter().enumerate() {
            match rule {
                LevelRule::Required { exclusive } => {
                    topology.required = Some(level);
                    topology.exclusive = topology.exclusive.or(exclusive.then_some(level));
                }
                LevelRule::Preferred => topology.preferred = Some(level),
                LevelRule::Slices { size, exclusive } => {
                    topology.slices = Some(Slices { level, size });
                    topology.exclusive = topology.exclusive.or(exclusive.then_some(level));
                }
                LevelRule::Spread { min, max } => topology.spread = Some(DomainSpread { level, min, max }),
            }
        }
        topology.preferred = topology.preferred.filter(|preferred| Some(*preferred) > topology.required);
        Some(topology)
    }

    /// Whether it says where members are to be; otherwise only the order of their ranks matters.
    pub(crate) fn is_constraint(&self) -> bool {
        self.preferred.is_some() || self.must_be_met()
    }

    /// Whether members may have to wait for it.
    pub(crate) fn must_be_met(&self) -> bool {
        self.required.is_some() || self.slices.is_some() || self.spread.is_some() || self.exclusive.is_some()
    }

    /// Whether what fits into a domain is more than the sum over its nodes.
    pub(crate) fn is_structured(&self) -> bool {
        self.slices.is_some() || self.spread.is_some() || self.exclusive.is_some()
    }

    /// The label of whose domains it excludes other groups.
    pub(crate) fn exclusive_key(&self) -> Option<&str> {
        self.exclusive.and_then(|level| self.levels.get(level)).map(String::as_str)
    }

    /// The same constraint on the tree of these levels, or of well-known ones, if all of its keys are levels there in this
    /// order. Then a domain is a path also where the constraint names a narrow key alone, and a preference knows the wider
    /// levels.
    pub(crate) fn in_levels(&self, declared: &[String]) -> Self {
        let declared: Vec<&str> = declared.iter().map(String::as_str).collect();
        let known = std::iter::once(&declared[..]).chain(WELL_KNOWN_LEVELS);
        known.into_iter().find_map(|levels| self.placed_in(levels)).unwrap_or_else(|| self.clone())
    }

    /// No constraint on the tree of these levels: only the order of ranks matters.
    pub(crate) fn without_constraint(levels: &[String]) -> Option<Self> {
        let levels = levels.to_vec();
        (!levels.is_empty()).then(|| Self {
            levels,
            required: None,
            preferred: None,
            choice: DomainChoice::default(),
            slices: None,
            spread: None,
            exclusive: None,
            when_full: WhenFull::default(),
        })
    }

    fn placed_in(&self, levels: &[&str]) -> Option<Self> {
        let positions: Option<Vec<usize>> =
            self.levels.iter().map(|key| levels.iter().position(|level| level == key)).collect();
        let positions = positions.filter(|positions| positions.is_sorted())?;
        let narrowest = *positions.last()?;
        Some(Self {
            levels: levels[..=narrowest].iter().map(|level| (*level).to_owned()).collect(),
            required: self.required.map(|level| positions[level]),
            preferred: self.preferred.map(|level| positions[level]),
            choice: self.choice,
            slices: self.slices.map(|slices| Slices { level: positions[slices.level], ..slices }),
            spread: self.spread.map(|spread| DomainSpread { level: positions[spread.level], ..spread }),
            exclusive: self.exclusive.map(|level| positions[level]),
            when_full: self.when_full,
        })
    }
}

/// Recordings have a list, which was empty before constraints were honoured.
pub(super) mod as_list {
    use serde::{Deserializer, Serializer};

    use super::{Arc, Deserialize, GroupTopology, Serialize};

    #[expect(clippy::ref_option, reason = "serde passes the field")]
    pub(in crate::model) fn serialize<S: Serializer>(
        topology: &Option<Arc<GroupTopology>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        topology.as_deref().map_or_else(Vec::new, |topology| vec![topology]).serialize(serializer)
    }

    pub(in crate::model) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<GroupTopology>>, D::Error> {
        Ok(Vec::<GroupTopology>::deserialize(deserializer)?.into_iter().next().map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(constraints: &[(&str, bool)]) -> Option<(Option<usize>, Option<usize>)> {
        let constraints = constraints.iter().map(|(key, required)| ((*key).to_owned(), *required));
        GroupTopology::of(constraints).map(|topology| (topology.required, topology.preferred))
    }

    #[test]
    fn narrowest_level_of_each_kind_counts() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("block", true), ("rack", true)]), Some((Some(1), None)));
        assert_eq!(of(&[("block", true), ("rack", false)]), Some((Some(0), Some(1))));
        assert_eq!(of(&[("zone", false), ("block", false)]), Some((None, Some(1))));
        assert_eq!(of(&[("block", false), ("rack", true)]), Some((Some(1), None)));
    }

    #[test]
    fn declared_levels_complete_the_path() {
        let declared = ["zone", "block", "rack"].map(str::to_owned);
        let with = |key: &str, required| GroupTopology::of([(key.to_owned(), required)]).unwrap().in_levels(&declared);
        let required = with("rack", true);
        assert_eq!((&required.levels[..], required.required), (&declared[..], Some(2)));
        let preferred = with("block", false);
        assert_eq!((&preferred.levels[..], preferred.preferred), (&declared[..2], Some(1)));
        // Unknown labels, and levels in another order, are taken as they are written.
        assert_eq!(with("row", true).levels, ["row"]);
        let reversed = GroupTopology::of([("rack".to_owned(), true), ("block".to_owned(), false)]).unwrap();
        assert_eq!(reversed.in_levels(&declared), reversed);
        let subblock = with("cloud.google.com/gce-topology-subblock", true);
        assert_eq!((subblock.levels.len(), subblock.required), (2, Some(1)));
    }
}
