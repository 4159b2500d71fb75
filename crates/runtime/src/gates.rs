//! Feature gates, with the names of upstream and the KEPs: on by default, each with a fallback.

use std::collections::BTreeMap;

/// The feature gates. They apply to all pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// Groups are read; without it every pod is scheduled on its own.
    pub generic_workload: bool,
    /// Gangs start as a whole; without it a gang is a basic group.
    pub gang_scheduling: bool,
    /// Groups preempt only as a whole; without it their pods preempt one by one, whether or not the group fits.
    pub delayed_preemption: bool,
    /// Groups have their own priority and disruption mode; without it a group has the lowest priority of its members,
    /// and its pods are evicted one by one.
    pub workload_aware_preemption: bool,
    /// A basic group waits a moment for its `desiredCount`; without it that number is ignored.
    pub basic_policy_desired_count: bool,
    /// Our own PodGroup kind is read; without it pods that name one are scheduled on their own.
    pub pod_group: bool,
    /// Each replica of a LeaderWorkerSet is a gang; without it its pods are scheduled on their own.
    pub pod_group_per_replica: bool,
    /// Nodes are scored by the storage that the claims of a pod would leave free; without it that does not matter.
    pub storage_capacity_scoring: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            generic_workload: true,
            gang_scheduling: true,
            delayed_preemption: true,
            workload_aware_preemption: true,
            basic_policy_desired_count: true,
            pod_group: true,
            pod_group_per_replica: true,
            storage_capacity_scoring: true,
        }
    }
}

/// An invalid setting of the gates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// An unknown gate.
    #[error("featureGates.{name}: unknown feature gate; known are {}", NAMES.join(", "))]
    Unknown {
        /// The unknown name.
        name: String,
    },
    /// A gate is on although it depends on one that is off.
    #[error("featureGates.{name}: true, but it needs {needs}, which is off")]
    Needs {
        /// The gate that is on.
        name: &'static str,
        /// The gate that it depends on.
        needs: &'static str,
    },
}

const NAMES: [&str; 8] = [
    "GenericWorkload",
    "GangScheduling",
    "WorkloadAwarePreemption",
    "WorkloadBasicPolicyDesiredCount",
    "PodGroup",
    "DelayedPreemption",
    "PodGroupPerReplica",
    "StorageCapacityScoring",
];
/// The dependencies between gates.
const NEEDS: [(usize, usize); 7] = [(1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (5, 0), (6, 4)];

impl FeatureGates {
    /// The default gates with these changes. A gate that depends on a disabled one is disabled too, unless it is
    /// explicitly enabled.
    pub fn with(changes: &BTreeMap<String, bool>) -> Result<Self, GateError> {
        let mut on = [true; NAMES.len()];
        for (name, value) in changes {
            match NAMES.iter().position(|known| known == name) {
                Some(index) => on[index] = *value,
                None => return Err(GateError::Unknown { name: name.clone() }),
            }
        }
        for (gate, needed) in NEEDS {
            if on[gate] && !on[needed] {
                if changes.contains_key(NAMES[gate]) {
                    return Err(GateError::Needs { name: NAMES[gate], needs: NAMES[needed] });
                }
                on[gate] = false;
            }
        }
        let [
            generic_workload,
            gang_scheduling,
            workload_aware_preemption,
            basic_policy_desired_count,
            pod_group,
            delayed_preemption,
            pod_group_per_replica,
            storage_capacity_scoring,
        ] = on;
        Ok(Self {
            generic_workload,
            gang_scheduling,
            delayed_preemption,
            workload_aware_preemption,
            basic_policy_desired_count,
            pod_group,
            pod_group_per_replica,
            storage_capacity_scoring,
        })
    }

    /// Each gate by its name.
    pub fn states(&self) -> [(&'static str, bool); NAMES.len()] {
        let on = [
            self.generic_workload,
            self.gang_scheduling,
            self.workload_aware_preemption,
            self.basic_policy_desired_count,
            self.pod_group,
            self.delayed_preemption,
            self.pod_group_per_replica,
            self.storage_capacity_scoring,
        ];
        std::array::from_fn(|index| (NAMES[index], on[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(changes: &[(&str, bool)]) -> Result<FeatureGates, GateError> {
        FeatureGates::with(&changes.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
    }

    #[test]
    fn all_gates_are_on_and_each_is_disabled_with_its_dependency() {
        assert_eq!(with(&[]), Ok(FeatureGates::default()));
        let off = with(&[("GangScheduling", false)]).unwrap();
        assert!(off.generic_workload && !off.gang_scheduling && !off.workload_aware_preemption && off.pod_group);
        let off = with(&[("GenericWorkload", false)]).unwrap();
        assert!(!off.gang_scheduling && !off.pod_group && !off.basic_policy_desired_count);
    }

    #[test]
    fn invalid_gates_are_rejected_by_name() {
        let text = |changes| with(changes).unwrap_err().to_string();
        assert!(text(&[("Gangs", true)]).starts_with("featureGates.Gangs: unknown feature gate"));
        let needs = text(&[("PodGroup", false), ("PodGroupPerReplica", true)]);
        assert_eq!(needs, "featureGates.PodGroupPerReplica: true, but it needs PodGroup, which is off");
        let needs = text(&[("GenericWorkload", false), ("PodGroup", true)]);
        assert_eq!(needs, "featureGates.PodGroup: true, but it needs GenericWorkload, which is off");
    }
}
