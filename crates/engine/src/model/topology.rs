//! The topology constraint of a group: node labels that divide the cluster into nested domains, and how closely its
//! members are to be placed together.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The most levels of one constraint.
pub const LEVELS_MAX: usize = 8;

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

impl GroupTopology {
    /// The constraint of label keys in the order of levels, widest first, each with whether it is required.
    pub fn of(constraints: impl IntoIterator<Item = (String, bool)>) -> Option<Self> {
        let (levels, required): (Vec<String>, Vec<bool>) = constraints.into_iter().unzip();
        if levels.is_empty() {
            return None;
        }
        let narrowest = |kind| required.iter().rposition(|is_required| *is_required == kind);
        let required = narrowest(true);
        // What is required of a narrower level holds for the wider ones.
        let preferred = narrowest(false).filter(|preferred| Some(*preferred) > required);
        Some(Self { levels, required, preferred, choice: DomainChoice::default() })
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
}
