//! Pods that are alike in what they demand, whatever they would like.
//!
//! Images, preferred terms and even spread that is only wished for decide where a pod would rather be. Where it can be is
//! the same without them, so what is proven for pods of one class holds for pods that differ in such things alone.

use super::Want;
use crate::cluster::Cluster;
use crate::model::class::{ClassSpec, PodClass};
use crate::model::company::Company;

/// Whether all pods of a group demand the same.
pub(super) fn all_demand_the_same(cluster: &Cluster, want: &Want) -> bool {
    let mut classes = want.lots.iter().map(|lot| lot.class);
    let Some(first) = classes.next() else { return true };
    classes.all(|class| class == first || demand_the_same(cluster.class(first), cluster.class(class)))
}

fn demand_the_same(one: &PodClass, other: &PodClass) -> bool {
    one.skipped == other.skipped && same_words(&one.spec, &other.spec) && same_company(one, other)
}

fn same_words(one: &ClassSpec, other: &ClassSpec) -> bool {
    let nobody = Company::default();
    let company = |spec: &ClassSpec| spec.company.as_deref().unwrap_or(&nobody).clone();
    let (mine, yours) = (company(one), company(other));
    one.requests == other.requests
        && one.node_name == other.node_name
        && one.node_selector == other.node_selector
        && one.required_terms == other.required_terms
        && one.enforced_terms == other.enforced_terms
        && one.tolerations == other.tolerations
        && one.host_ports == other.host_ports
        && one.volumes == other.volumes
        && one.features == other.features
        && mine.seeks == yours.seeks
        && mine.shuns == yours.shuns
        && mine.spread.must == yours.spread.must
}

/// Whether others keep them from the same places, and they count alike where that matters to them.
fn same_company(one: &PodClass, other: &PodClass) -> bool {
    let (Some(mine), Some(yours)) = (&one.rules, &other.rules) else {
        return !one.has_demands() && !other.has_demands();
    };
    let spread = mine.spread.iter().map(|even| &even.tally);
    let mut demands = mine.seeks.iter().chain(&mine.shuns).chain(&mine.shunned_by).chain(spread);
    mine.seeks == yours.seeks
        && mine.shuns == yours.shuns
        && mine.shunned_by == yours.shunned_by
        && mine.spread == yours.spread
        && demands.all(|tally| mine.counts_in(*tally) == yours.counts_in(*tally))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::company::{PodSelector, Spread, SpreadTerm};
    use crate::model::resources::Requests;

    fn class(change: impl FnOnce(&mut ClassSpec)) -> PodClass {
        let mut spec = ClassSpec::default();
        change(&mut spec);
        PodClass::alone(Arc::new(spec), Requests::default())
    }

    fn spread(must: bool) -> Arc<Company> {
        let term = SpreadTerm {
            pods: PodSelector::nobody(),
            topology_key: "zone".to_owned(),
            skew_max: 1,
            domains_min: 1,
            minds_affinity: true,
            minds_taints: false,
        };
        let terms = vec![term];
        let spread = if must {
            Spread { must: terms, ..Spread::default() }
        } else {
            Spread { should: terms, ..Spread::default() }
        };
        Arc::new(Company { spread, ..Company::default() })
    }

    #[test]
    fn tastes_do_not_tell_pods_apart_and_demands_do() {
        let plain = class(|_| {});
        for like in [
            class(|spec| spec.images = vec!["a".into()]),
            class(|spec| spec.scoring_cpu_milli = 7),
            class(|spec| spec.company = Some(spread(false))),
        ] {
            assert!(demand_the_same(&plain, &like), "{like:?}");
        }
        for unlike in [
            class(|spec| _ = spec.requests.insert("cpu".to_owned(), 1)),
            class(|spec| _ = spec.features.insert("f".to_owned())),
            class(|spec| spec.enforced_terms = Some(Vec::new())),
            class(|spec| spec.company = Some(spread(true))),
        ] {
            assert!(!demand_the_same(&plain, &unlike), "{unlike:?}");
        }
    }
}
