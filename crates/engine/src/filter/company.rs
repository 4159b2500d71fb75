//! Others who are near, or are not, keep the pod from a node: pods that it insists on or shuns, and pods that shun it.
//!
//! "Near" is in the same domain of a label of nodes. Pods for which a node is kept free count as if they were there where
//! they would be in the way, and not where they would help: they may never come. kube-scheduler only counts those for
//! which the node itself is kept free; then one who was evicted comes back near whom it had to make way for, is evicted
//! again, and so on.

use super::{Company, Filter, Near, Reason, View};
use crate::cluster::neighbours::Rules;
use crate::cluster::node::Node;
use crate::model::class::PodClass;
use crate::model::ids::{PodId, TallyId};

pub(super) const FILTER: Filter = Filter::Near(Company { why_not, copies_max });

/// How many of them there could be side by side, as long as nobody else comes.
fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    if why_not(class, node, view).is_some() {
        return 0;
    }
    let (Some(rules), Some(near)) = (&class.rules, &view.near) else { return i64::MAX };
    // Where the node is in no domain they do not mind each other.
    if rules.shuns_itself.iter().any(|tally| near.count(*tally).is_some()) { 1 } else { i64::MAX }
}

fn why_not(class: &PodClass, node: &Node, view: &View<'_>) -> Option<Reason> {
    let company = class.spec.company.as_ref();
    let lacks_label = |key: &String| !node.labels.contains_key(key);
    if company.is_some_and(|company| company.seeks.iter().any(|term| lacks_label(&term.topology_key))) {
        return Some(Reason::PodAffinity);
    }
    let (rules, near) = (class.rules.as_ref()?, view.near.as_ref()?);
    if !near.has_sought(rules) {
        return Some(Reason::PodAffinity);
    }
    if rules.shuns.iter().any(|tally| near.has_or_expects(*tally)) {
        return Some(Reason::PodAntiAffinity);
    }
    if rules.shunned_by.iter().any(|tally| near.has_or_expects(*tally)) {
        return Some(Reason::ExistingPodAntiAffinity);
    }
    None
}

impl Near<'_> {
    /// How many of a tally are near; `None` if the node is in no domain.
    fn count(&self, tally: TallyId) -> Option<u32> {
        let count = self.cluster.neighbours.count_near(tally, self.node);
        if self.deserted { count.map(|_| 0) } else { count }
    }

    /// Whether somebody is near of each whom the pod insists on, or it is the first of those who insist on each other.
    fn has_sought(&self, rules: &Rules) -> bool {
        let is_near = |tally: &TallyId| self.count(*tally).is_some_and(|count| count > 0);
        // In a cluster without pods, those whom it insists on may still come.
        self.deserted || rules.seeks.iter().all(is_near) || (rules.seeks_itself && self.nobody_sought_anywhere(rules))
    }

    fn nobody_sought_anywhere(&self, rules: &Rules) -> bool {
        rules.seeks.iter().all(|tally| self.cluster.neighbours.tally(*tally).is_empty())
    }

    /// Whether somebody of a tally is near, or a node near is kept free for one who is not less important.
    pub(crate) fn has_or_expects(&self, id: TallyId) -> bool {
        let neighbours = &self.cluster.neighbours;
        let tally = neighbours.tally(id);
        let Some(domain) = neighbours.axis(tally.axis).domain(self.node).filter(|_| !self.deserted) else {
            return false;
        };
        tally.count(domain) > 0 || self.expected(id, domain) > 0
    }

    /// For how many of a tally who are not less important nodes of a domain are kept free.
    pub(crate) fn expected(&self, id: TallyId, domain: u32) -> u32 {
        let neighbours = &self.cluster.neighbours;
        let tally = neighbours.tally(id);
        if tally.expected(domain) == 0 {
            return 0;
        }
        let nodes = neighbours.axis(tally.axis).nodes(domain).iter();
        let nominated =
            nodes.filter(|node| neighbours.counts_on(id, **node)).flat_map(|node| &self.cluster.node(*node).nominated);
        nominated.filter(|pod| self.is_expected(**pod, id)).count() as u32
    }

    fn is_expected(&self, pod: PodId, tally: TallyId) -> bool {
        let class = self.cluster.class(self.cluster.pod(pod).class);
        let counts = class.rules.as_ref().is_some_and(|rules| rules.counts_in(tally));
        counts && self.cluster.effective_priority(pod) >= self.priority
    }
}
