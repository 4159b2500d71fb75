//! Balanced allocation: nodes score higher if the pod makes the utilization of their resources more even.
//!
//! This module uses floating point, because kube-scheduler's numbers are defined that way. Only the four basic
//! operations and the square root are used: IEEE 754 defines them exactly, so the result is the same on every machine.

use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::ids::ResourceId;
use crate::model::plugin::SCORE_MAX;
use crate::model::resources::{ResourceNames, is_scalar};

#[derive(Clone, Debug)]
pub(super) struct Balanced {
    resources: Vec<ResourceId>,
}

impl Balanced {
    pub(super) fn new(resources: &[String], names: &mut ResourceNames) -> Self {
        Self { resources: resources.iter().filter_map(|name| names.intern(name)).collect() }
    }

    /// 50 to 100: about 75 where the pod changes little. A pod that requests none of the resources scores 0 on every
    /// node.
    pub(super) fn score(&self, class: &PodClass, node: &Node) -> i64 {
        if self.resources.iter().all(|resource| class.requests.get(*resource) == 0) {
            return 0;
        }
        let with = self.evenness(class, node, true);
        let without = self.evenness(class, node, false);
        SCORE_MAX / 2 + (SCORE_MAX / 2 + with - without) / 2
    }

    /// 100 minus the standard deviation of the utilization in percent.
    fn evenness(&self, class: &PodClass, node: &Node, with_pod: bool) -> i64 {
        let mut shares = smallvec::SmallVec::<[f64; 4]>::new();
        for resource in &self.resources {
            let (capacity, request) = (node.allocatable.get(*resource), class.requests.get(*resource));
            if capacity == 0 || (request == 0 && is_scalar(*resource)) {
                continue;
            }
            let allocated = node.load.used.get(*resource);
            let requested = if with_pod { allocated.saturating_add(request) } else { allocated };
            shares.push((requested as f64 / capacity as f64).min(1.0));
        }
        ((1.0 - deviation(&shares)) * SCORE_MAX as f64) as i64
    }
}

fn deviation(shares: &[f64]) -> f64 {
    match shares {
        [] | [_] => 0.0,
        [one, two] => ((one - two) / 2.0).abs(),
        _ => {
            let count = shares.len() as f64;
            let mean = shares.iter().sum::<f64>() / count;
            let squares: f64 = shares.iter().map(|share| (share - mean) * (share - mean)).sum();
            (squares / count).sqrt()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::class::ClassSpec;
    use crate::model::resources::{CPU, MEMORY, Requests};

    fn score(capacity: (i64, i64), used: (i64, i64), request: (i64, i64)) -> i64 {
        let mut node = Node::default();
        node.allocatable.set(CPU, capacity.0);
        node.allocatable.set(MEMORY, capacity.1);
        node.load.used.set(CPU, used.0);
        node.load.used.set(MEMORY, used.1);
        let requests = Requests::new([(CPU, request.0), (MEMORY, request.1)]);
        let class = PodClass::independent(Arc::new(ClassSpec::default()), requests);
        let names = &mut ResourceNames::default();
        Balanced::new(&["cpu".to_owned(), "memory".to_owned()], names).score(&class, &node)
    }

    #[test]
    fn balanced_pod_on_balanced_node_changes_nothing() {
        assert_eq!(score((4000, 4000), (0, 0), (1000, 1000)), 75);
    }

    #[test]
    fn pod_that_evens_utilization_scores_higher() {
        // Without: |0.5-0|/2 = 0.25 -> 75; with: 0.5 against 0.5 -> 100. 50 + (50+25)/2 = 87.
        assert_eq!(score((4000, 4000), (2000, 0), (0, 2000)), 87);
        // Without: even -> 100; with: |1-0|/2 = 0.5 -> 50. 50 + (50-50)/2 = 50.
        assert_eq!(score((4000, 4000), (0, 0), (4000, 0)), 50);
    }

    #[test]
    fn pod_without_requests_scores_zero() {
        assert_eq!(score((4000, 4000), (2000, 0), (0, 0)), 0);
    }

    #[test]
    fn three_resources_use_the_standard_deviation() {
        let deviation = deviation(&[0.0, 0.5, 1.0]);
        assert!((deviation - (0.5_f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
