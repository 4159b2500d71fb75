//! Equality of requirements: whether pods are equal in what they require, regardless of preferences.
//!
//! Images, preferred terms and `ScheduleAnyway` spread constraints influence scores only. The feasible nodes are the
//! same without them, so a proof for pods of one class also holds for pods that differ only in these.

use super::request::PlacementRequest;
use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::topology::Topology;
use crate::model::class::ClassSpec;
use crate::model::inter_pod::InterPodConstraints;

/// Whether all pods of a request have equal requirements.
pub(super) fn have_equal_requirements(cluster: &Cluster, request: &PlacementRequest) -> bool {
    let mut classes = request.lots.iter().map(|lot| lot.class);
    let Some(first) = classes.next() else { return true };
    classes.all(|class| {
        class == first || equal_requirements(&cluster.topology, cluster.class(first), cluster.class(class))
    })
}

fn equal_requirements(topology: &Topology, one: &PodClass, other: &PodClass) -> bool {
    one.disabled_filters == other.disabled_filters
        && one.storage == other.storage
        && equal_spec(&one.spec, &other.spec)
        && equal_inter_pod_rules(topology, one, other)
}

fn equal_spec(one: &ClassSpec, other: &ClassSpec) -> bool {
    let none = InterPodConstraints::default();
    let inter_pod = |spec: &ClassSpec| spec.inter_pod.as_deref().unwrap_or(&none).clone();
    let (left, right) = (inter_pod(one), inter_pod(other));
    one.requests == other.requests
        && one.node_name == other.node_name
        && one.node_selector == other.node_selector
        && one.required_terms == other.required_terms
        && one.enforced_terms == other.enforced_terms
        && one.tolerations == other.tolerations
        && one.host_ports == other.host_ports
        && one.disks == other.disks
        && one.features == other.features
        && left.required_affinity == right.required_affinity
        && left.required_anti_affinity == right.required_anti_affinity
        && left.spread.do_not_schedule == right.spread.do_not_schedule
}

/// Whether the same inter-pod rules apply to both, and their pods count equally for those rules.
fn equal_inter_pod_rules(topology: &Topology, one: &PodClass, other: &PodClass) -> bool {
    let (left, right) = (&one.rules, &other.rules);
    let spread = left.spread.iter().map(|constraint| &constraint.counts);
    let mut required = left.required_affinity.iter().chain(&left.anti_affinity).chain(spread);
    left.required_affinity == right.required_affinity
        && left.anti_affinity == right.anti_affinity
        && left.spread == right.spread
        && topology.have_equal_existing_anti_affinity(one.matches, other.matches)
        && required.all(|counts| topology.is_counted_in(one, *counts) == topology.is_counted_in(other, *counts))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::inter_pod::{PodSelector, Spread, SpreadTerm};
    use crate::model::resources::Requests;

    fn class(change: impl FnOnce(&mut ClassSpec)) -> PodClass {
        let mut spec = ClassSpec::default();
        change(&mut spec);
        PodClass::independent(Arc::new(spec), Requests::default())
    }

    fn spread(must: bool) -> Arc<InterPodConstraints> {
        let term = SpreadTerm {
            pods: PodSelector::none(),
            topology_key: "zone".to_owned(),
            max_skew: 1,
            min_domains: 1,
            honors_node_affinity: true,
            honors_node_taints: false,
        };
        let terms = vec![term];
        let spread = if must {
            Spread { do_not_schedule: terms, ..Spread::default() }
        } else {
            Spread { schedule_anyway: terms, ..Spread::default() }
        };
        Arc::new(InterPodConstraints { spread, ..InterPodConstraints::default() })
    }

    #[test]
    fn preferences_do_not_matter_and_requirements_do() {
        let plain = class(|_| {});
        for like in [
            class(|spec| spec.images = vec!["a".into()]),
            class(|spec| spec.scoring_cpu_milli = 7),
            class(|spec| spec.inter_pod = Some(spread(false))),
        ] {
            assert!(equal_requirements(&Topology::default(), &plain, &like), "{like:?}");
        }
        for unlike in [
            class(|spec| _ = spec.requests.insert("cpu".to_owned(), 1)),
            class(|spec| _ = spec.features.insert("f".to_owned())),
            class(|spec| spec.enforced_terms = Some(Vec::new())),
            class(|spec| spec.inter_pod = Some(spread(true))),
        ] {
            assert!(!equal_requirements(&Topology::default(), &plain, &unlike), "{unlike:?}");
        }
    }
}
