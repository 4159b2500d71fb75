//! Splitting pods over the fewest domains: level by level, the largest first, and the tightest that holds the rest last.

use std::collections::BTreeSet;

use super::rooms::Rooms;
use super::tree::{DomainId, Tree};
use crate::model::ids::NodeId;

/// How many pods go to which domain of this depth, or of a wider one for nodes without the label. Members that are
/// placed already attract pods to their domains.
pub(super) fn split(
    tree: &Tree,
    rooms: &Rooms,
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
        let key = |domain: DomainId| (!held.contains(&domain), rooms.room(domain), domain);
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

/// The fewest domains that hold these pods, and how many pods are left over.
fn fewest(mut domains: Vec<(bool, i64, DomainId)>, mut pods: i64) -> (Vec<(DomainId, i64)>, i64) {
    domains.retain(|(_, room, _)| *room > 0);
    // Those of placed members come first, then the largest.
    domains.sort_by_key(|(is_new, room, domain)| (*is_new, -*room, *domain));
    let mut chosen = Vec::new();
    let mut next = 0;
    while pods > 0 && next < domains.len() {
        let rest = &domains[next..];
        let tightest = rest.iter().filter(|(_, room, _)| *room >= pods).min();
        if let Some((_, _, domain)) = tightest {
            chosen.push((*domain, pods));
            return (chosen, 0);
        }
        let (_, room, domain) = domains[next];
        chosen.push((domain, room));
        pods -= room;
        next += 1;
    }
    (chosen, pods)
}
