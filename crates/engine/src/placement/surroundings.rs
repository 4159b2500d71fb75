//! Who is near each node, as far as one class minds, and which nodes are concerned when that changes.
//!
//! What was last seen of every domain is kept, so that of a change only the difference has to be carried out: nodes of a
//! domain are looked at again if somebody came to where nobody was, or the last one left; and if it only matters how many
//! there are, the difference is added.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::neighbours::Rules;
use crate::model::ids::{NodeId, TallyId};

/// How a node is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concerned {
    /// Somebody is near who was not, or the other way round.
    Welcome,
    /// Its company is worth so much more.
    Company(i64),
}

/// What is minded of a tally.
#[derive(Clone, Copy, Debug)]
enum Minded {
    /// Whether there is anybody.
    Anybody,
    /// How many there are, each worth so much.
    Each(i64),
}

#[derive(Clone, Debug)]
struct Watched {
    tally: TallyId,
    minded: Minded,
    /// By domain: how many there were when it was last looked at; nothing is not listed.
    seen: BTreeMap<u32, u32>,
    /// The same of those for whom nodes are kept free.
    expected: BTreeMap<u32, u32>,
}

/// What a class minds of who is near.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub(super) rules: Arc<Rules>,
    watched: Vec<Watched>,
    /// Nobody is anywhere whom the class insists on.
    nobody_sought: bool,
}

impl Surroundings {
    pub(super) fn new(cluster: &Cluster, rules: &Arc<Rules>) -> Self {
        let demands = rules.seeks.iter().chain(&rules.shuns).chain(&rules.shunned_by);
        let demands = demands.map(|tally| (*tally, Minded::Anybody));
        let likes = rules.prefers.iter().map(|(tally, weight)| (*tally, Minded::Each(*weight)));
        let watched = demands.chain(likes).map(|(tally, minded)| Watched {
            tally,
            minded,
            seen: cluster.neighbours.tally(tally).counts().collect(),
            expected: cluster.neighbours.tally(tally).all_expected().collect(),
        });
        let watched = watched.collect();
        Self { rules: rules.clone(), watched, nobody_sought: nobody_sought(cluster, rules) }
    }

    /// What the company near a node is worth.
    pub(super) fn company(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let near = |tally| cluster.neighbours.count_near(tally, node).map_or(0, i64::from);
        self.rules.prefers.iter().map(|(tally, weight)| near(*tally) * weight).sum()
    }

    /// Takes in that these nodes changed, and says which nodes are concerned.
    pub(super) fn look_again(
        &mut self,
        cluster: &Cluster,
        touched: &(impl Iterator<Item = NodeId> + Clone),
    ) -> Vec<(usize, Concerned)> {
        let mut concerned = Vec::new();
        for watched in &mut self.watched {
            let tally = cluster.neighbours.tally(watched.tally);
            let axis = cluster.neighbours.axis(tally.axis);
            for domain in touched.clone().filter_map(|node| axis.domain(node)) {
                let (old, new) = (note(&mut watched.seen, domain, tally.count(domain)), tally.count(domain));
                let hoped = note(&mut watched.expected, domain, tally.expected(domain));
                let news = match watched.minded {
                    // Of those for whom nodes are kept free it also matters how important they are.
                    Minded::Anybody if (old == 0) == (new == 0) && hoped == tally.expected(domain) => continue,
                    Minded::Anybody => Concerned::Welcome,
                    Minded::Each(_) if old == new => continue,
                    Minded::Each(weight) => Concerned::Company((i64::from(new) - i64::from(old)) * weight),
                };
                concerned.extend(axis.nodes(domain).iter().map(|node| (node.slot(), news)));
            }
        }
        let nobody_sought = nobody_sought(cluster, &self.rules);
        if nobody_sought != self.nobody_sought && self.rules.seeks_itself {
            self.nobody_sought = nobody_sought;
            concerned.extend((0..cluster.node_slots()).map(|slot| (slot, Concerned::Welcome)));
        }
        concerned
    }
}

/// Takes a number of a domain, and answers the one that stood there.
fn note(numbers: &mut BTreeMap<u32, u32>, domain: u32, number: u32) -> u32 {
    let old = if number == 0 { numbers.remove(&domain) } else { numbers.insert(domain, number) };
    old.unwrap_or(0)
}

fn nobody_sought(cluster: &Cluster, rules: &Rules) -> bool {
    rules.seeks.iter().all(|tally| cluster.neighbours.tally(*tally).is_empty())
}
