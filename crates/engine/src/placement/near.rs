//! Pods that mind who is near: what can still be proven about them, and those who insist on each other.
//!
//! Shunning only ever takes places away, so what holds for room holds for it. Insisting is another matter: each of those
//! who insist on each other's company may go only where the first went, and the first may have gone to the wrong domain.
//! So if they do not all fit where scores would put them, every domain that might hold them is tried. Those who are to be
//! spread take from their own domain and give to all others.

use super::cache::Cache;
use super::{Lot, Want, greedy};
use crate::cluster::Cluster;
use crate::cluster::trial::Trial;
use crate::filter;
use crate::model::ids::{ClassId, NodeId};

/// Whether places may come up for a class because of somebody who is placed: one on whose company it insists, or one who
/// makes up for how far others are ahead.
pub(crate) fn may_gain_places(cluster: &Cluster, class: ClassId) -> bool {
    let rules = cluster.class(class).rules.as_ref();
    rules.is_some_and(|rules| !rules.seeks.is_empty() || !rules.spread.is_empty())
}

/// Whether whoever is placed only ever takes places away.
pub(super) fn only_takes_places(cluster: &Cluster, want: &Want) -> bool {
    !want.lots.iter().any(|lot| may_gain_places(cluster, lot.class))
}

/// Whether filling the nodes best first places as many like pods as anybody could, domain by domain where they insist on
/// each other.
pub(super) fn greedy_is_exact(cluster: &Cluster, want: &Want) -> bool {
    let Some(rules) = want.lots.first().and_then(|lot| cluster.class(lot.class).rules.as_ref()) else { return true };
    let axis = |tally| cluster.neighbours.tally(tally).axis;
    // Where a domain is one node, shunning limits the room there and nowhere else.
    let mut wide: Vec<_> = rules.shuns_itself.iter().map(|tally| axis(*tally)).collect();
    wide.retain(|axis| !cluster.neighbours.axis(*axis).is_of_single_nodes());
    if rules.seeks_itself {
        wide.extend(rules.seeks.iter().map(|tally| axis(*tally)));
    }
    // Who is placed only ever takes from its own domain and gives to the others. So if some order places one more in a
    // domain than filling did, filling could have done that, too.
    wide.extend(rules.spread.iter().filter(|even| even.counts_itself).map(|even| axis(even.tally)));
    wide.sort_unstable();
    wide.dedup();
    // Any node of a domain will do as well as another. With domains across each other it would matter which.
    wide.len() <= 1
}

/// Places a group that insists on its own company domain by domain, the tightest that may hold it first. Everything is
/// undone if no domain holds it.
pub(super) fn place_together(trial: &mut Trial<'_>, cache: &mut Cache, want: &Want, order: &[usize]) -> bool {
    let Some(lot) = order.iter().map(|lot| &want.lots[*lot]).find(|lot| is_to_be_first(trial.cluster(), lot.class))
    else {
        return false;
    };
    let mark = trial.mark();
    for node in domains(trial.cluster(), want, lot) {
        trial.lure(lot.class, node);
        if greedy::place(trial, cache, want, order) {
            return true;
        }
        trial.undo_to(mark);
    }
    false
}

/// Whether the next of a class would be the first of those who insist on each other.
fn is_to_be_first(cluster: &Cluster, class: ClassId) -> bool {
    cluster.class(class).rules.as_ref().is_some_and(|rules| {
        rules.seeks_itself && rules.seeks.iter().all(|tally| cluster.neighbours.tally(*tally).is_empty())
    })
}

/// A node of each domain that might hold as many as are needed of a lot, the tightest first.
fn domains(cluster: &Cluster, want: &Want, lot: &Lot) -> Vec<NodeId> {
    let class = cluster.class(lot.class);
    let Some(tally) = class.rules.as_ref().and_then(|rules| rules.seeks.first()) else { return Vec::new() };
    let axis = cluster.neighbours.axis(cluster.neighbours.tally(*tally).axis);
    let others: usize = want.lots.iter().filter(|other| other.subset == lot.subset).map(Lot::len).sum();
    let needed = (want.needs[lot.subset] as usize).saturating_sub(others - lot.len()).max(1) as i64;
    // Who is spread may gain places, so only room counts.
    let spreads = class.rules.as_ref().is_some_and(|rules| !rules.spread.is_empty());
    let copies = if spreads { filter::copies_max_alone } else { filter::copies_max };
    let room = |domain: u32| {
        let nodes = axis.nodes(domain).iter().filter(|node| filter::node_would_do(class, cluster.node(**node)));
        nodes.fold(0_i64, |sum, node| {
            let view = filter::view(cluster, *node, want.priority);
            sum.saturating_add(copies(class, cluster.node(*node), &view))
        })
    };
    let mut domains: Vec<(i64, NodeId)> = axis
        .domains()
        .filter_map(|domain| Some((room(domain), *axis.nodes(domain).iter().min()?)))
        .filter(|(room, _)| *room >= needed)
        .collect();
    domains.sort_unstable();
    domains.into_iter().map(|(_, node)| node).collect()
}
