//! How much of the storage that it would get on a node a pod requests, for the score.

use std::collections::BTreeMap;

use super::matching::Choice;
use super::{Class, Storage, StorageDemand};
use crate::cluster::node::Node;

impl Storage {
    /// What the claims of a demand request on a node and the capacity of what they would get there, by storage class: of
    /// existing volumes if there are any, else of published capacity. Where nothing is published, nothing is known.
    pub(crate) fn storage_shares(&self, demand: &StorageDemand, node: &Node) -> Vec<(i128, i128)> {
        let is_known = |class: &Class| !class.pools.is_empty() || !class.capacities.is_empty();
        let mut classes = demand.asked.keys().filter_map(|class| self.classes.get(&**class));
        if !classes.any(is_known) && demand.unbound.iter().all(|claim| claim.claim.is_none()) {
            return Vec::new();
        }
        let Ok(choices) = self.choose(demand, node) else { return Vec::new() };
        let (mut existing, mut provisioned) = (BTreeMap::new(), BTreeMap::new());
        for (claim, choice) in demand.unbound.iter().zip(&choices) {
            let (class, requested) = (claim.kind.storage_class.as_str(), i128::from(claim.request_bytes.unwrap_or(0)));
            match choice {
                Choice::Volume(volume) => {
                    let spec = self.volume(*volume).spec.as_deref();
                    let share: &mut (i128, i128) = existing.entry(class).or_default();
                    share.0 += requested;
                    share.1 += i128::from(spec.map_or(0, |spec| spec.capacity_bytes));
                }
                Choice::Provision { from: Some(from), .. } => {
                    let published = self.classes.get(&from.class).map(|of| of.capacities.published_bytes(&from.key));
                    let share: &mut (i128, i128) = provisioned.entry(class).or_default();
                    // As in kube-scheduler the capacity is that of one claim, and what others plan is not deducted.
                    *share = (share.0 + requested, i128::from(published.unwrap_or(0)));
                }
                Choice::Provision { from: None, .. } => {}
            }
        }
        if existing.is_empty() { provisioned.into_values().collect() } else { existing.into_values().collect() }
    }
}
