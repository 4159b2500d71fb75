//! Splitting pods over the fewest domains: level by level, the largest first, and the tightest that holds the rest last.

use std::collections::BTreeSet;

use super::tree::{DomainId, Tree};
use crate::model::ids::NodeId;

/// How many pods, or slices of them, go to which domain of this depth, or of a wider one for nodes without the label.
/// Members that are placed already attract pods to their domains. `room` is how many fit, and what else there is room for,
/// of which little is taken first.
pub(super) fn split(
    tree: &Tree,
    room: &dyn Fn(DomainId) -> (i64, i64),
    start: DomainId,
    pods: i64,
    depth: usize,
    held: &[NodeId],
) -> Vec<(DomainId, i64)> {
    let mut parts = vec![(start, pods)];
    for level in tree.depth(start)..depth {
        let parents = parts.iter().map(|(domain, _)| *domain).filter(|domain| tree.depth(*domain) == level);
        let children: Vec<DomainId> = parents.flat_map(|domain| tree.children(domain).iter().copied()).collect();
        let held: BTreeSet<DomainId> = held.iter().filter_map(|node| tree.domain_at(*node, level + 1)).collect();
        let key = |domain: DomainId| {
            let (room, rest) = room(domain);
            Candidate { is_new: !held.contains(&domain), room, rest, domain }
        };
        let children = children.into_iter().map(key).collect();
        let (chosen, rest) = fewest(children, pods);
        parts = chosen;
        if rest > 0 {
            // The rest fits on nodes without the label only.
            parts.push((start, rest));
        }
    }
    parts
}

/// A domain that may be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// No members are there.
    is_new: bool,
    room: i64,
    rest: i64,
    domain: DomainId,
}

/// The fewest domains that hold these pods, and how many pods are left over.
fn fewest(mut domains: Vec<Candidate>, mut pods: i64) -> (Vec<(DomainId, i64)>, i64) {
    domains.retain(|candidate| candidate.room > 0);
    // Those of placed members come first, then the largest.
    domains.sort_by_key(|one| (one.is_new, -one.room, one.rest, one.domain));
    let mut chosen = Vec::new();
    let mut next = 0;
    while pods > 0 && next < domains.len() {
        let tightest = domains[next..].iter().filter(|one| one.room >= pods).min();
        if let Some(tightest) = tightest {
            chosen.push((tightest.domain, pods));
            return (chosen, 0);
        }
        let Candidate { room, domain, .. } = domains[next];
        chosen.push((domain, room));
        pods -= room;
        next += 1;
    }
    (chosen, pods)
}
