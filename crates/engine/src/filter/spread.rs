//! The pod and its like are to be spread evenly: a node whose domain is too far ahead of the last one will not do.
//!
//! Pods for which a node is kept free count where they would be in the way: in the domain that is asked about. Elsewhere
//! they do not, since they may never come.

use super::{Company, Filter, Near, Reason, View};
use crate::cluster::neighbours::Evenness;
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Near(Company { why_not, copies_max });

/// How many of them there could be, as long as nobody else comes.
fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    if why_not(class, node, view).is_some() {
        return 0;
    }
    let (Some(rules), Some(near)) = (&class.rules, &view.near) else { return i64::MAX };
    let limited = rules.spread.iter().filter(|even| even.counts_itself);
    limited.filter_map(|even| near.room_until_ahead(even)).min().unwrap_or(i64::MAX)
}

fn why_not(class: &PodClass, node: &Node, view: &View<'_>) -> Option<Reason> {
    let terms = &class.spec.company.as_ref()?.spread.must;
    let rules = class.rules.as_ref()?;
    terms.iter().zip(&rules.spread).find_map(|(term, even)| {
        if !node.labels.contains_key(&term.topology_key) {
            return Some(Reason::SpreadLabel);
        }
        let asked = i64::from(even.counts_itself);
        let room = view.near.as_ref().and_then(|near| near.room_until_ahead(even));
        room.is_some_and(|room| room < asked).then_some(Reason::Spread)
    })
}

impl Near<'_> {
    /// How many more may come to this node's domain until it is too far ahead; `None` is any number.
    fn room_until_ahead(&self, even: &Evenness) -> Option<i64> {
        let neighbours = &self.cluster.neighbours;
        let tally = neighbours.tally(even.tally);
        let domain = neighbours.axis(tally.axis).domain(self.node)?;
        let skew_max = i64::from(even.skew_max);
        let too_few_domains = tally.domains_in_scope() < even.domains_min as usize;
        if self.deserted {
            // The others may be filled, too, unless the last counts as empty whoever comes.
            return too_few_domains.then_some(skew_max);
        }
        let there = i64::from(tally.count(domain) + self.expected(even.tally, domain));
        if too_few_domains {
            return Some(skew_max - there);
        }
        Some(skew_max + i64::from(tally.least_elsewhere(domain)?) - there)
    }
}
