//! Names the bottleneck of a group of different pods that does not fit: a sentence that says more than where each of
//! its pods comes closest.

use super::Engine;
use super::scheduling_cycle::view_for_group;
use crate::cluster::Cluster;
use crate::diagnosis::{Bottleneck, KINDS_MAX, MemberKind};
use crate::model::ids::GroupId;
use crate::placement::{self, PlacementRequest, Scarcity, Verdict};

/// The limit of steps: about the evaluations of ten thousand nodes.
const STEPS_MAX: u64 = 80_000;

impl Engine {
    /// The bottleneck of a group that cannot be placed. With one class, what rejects its pods says it already; with
    /// topology domains it would be about one of them.
    pub(super) fn bottleneck(
        &mut self,
        id: GroupId,
        request: &PlacementRequest,
        verdict: Verdict,
    ) -> Option<Box<Bottleneck>> {
        let is_proven = verdict == Verdict::Impossible && !request.has_avoided_nodes();
        if !is_proven || request.has_one_class() || request.is_bound_to_domains() {
            return None;
        }
        let aside = self.set_aside_for(id);
        let transaction = view_for_group(&mut self.cluster, request, &aside);
        let cluster = transaction.cluster();
        let scarcity = placement::scarcity(cluster, &mut self.cache, request, STEPS_MAX)?;
        let kinds = |lots: &[usize]| lots.iter().take(KINDS_MAX).map(|lot| kind(cluster, id, request, *lot)).collect();
        Some(Box::new(match scarcity {
            Scarcity::Places { lots, fit, need } => Bottleneck::Places { kinds: kinds(&lots), fit, need },
            Scarcity::Mix { lots } => Bottleneck::Mix { kinds: kinds(&lots), count: lots.len() as u32 },
            Scarcity::Resource { resource, asked, usable } => {
                let resource = cluster.resource_names().name(resource).to_owned();
                Bottleneck::Resource { resource, asked, usable }
            }
        }))
    }
}

fn kind(cluster: &Cluster, group: GroupId, request: &PlacementRequest, lot: usize) -> MemberKind {
    let lot = &request.lots[lot];
    let names = cluster.resource_names();
    let requests = cluster.class(lot.class).requests.iter();
    MemberKind {
        subset: cluster.group(group).rules[lot.subset].name.clone(),
        requests: requests.map(|(resource, amount)| (names.name(resource).to_owned(), amount)).collect(),
    }
}
