//! Resource fit: scores the utilization of the node with the pod, by `LeastAllocated`, `MostAllocated` or
//! `RequestedToCapacityRatio`.
//!
//! CPU and memory use default requests for containers without one, so that pods without requests do not all go to one
//! node.

use smallvec::SmallVec;

use super::shape;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::config::{Strategy, Weighted};
use crate::model::ids::ResourceId;
use crate::model::plugin::SCORE_MAX;
use crate::model::resources::{CPU, MEMORY, ResourceNames, is_scalar};

#[derive(Clone, Debug)]
pub(super) struct Fit {
    strategy: Strategy,
    resources: Vec<(ResourceId, i64)>,
}

impl Fit {
    pub(super) fn new(strategy: &Strategy, resources: &[Weighted], names: &mut ResourceNames) -> Self {
        let known = resources.iter().filter_map(|resource| Some((names.intern(&resource.name)?, resource.weight)));
        Self { strategy: strategy.clone(), resources: known.collect() }
    }

    pub(super) fn score(&self, class: &PodClass, node: &Node) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (resource, weight) in &self.resources {
            let Some((requested, capacity)) = requested(class, node, *resource) else { continue };
            let score = match &self.strategy {
                Strategy::LeastAllocated => least(requested, capacity),
                Strategy::MostAllocated => requested.min(capacity) * SCORE_MAX / capacity,
                Strategy::RequestedToCapacityRatio { shape } => {
                    // A resource whose score is zero does not contribute its weight.
                    match shape::score(shape, shape::utilization(requested, capacity)) {
                        0 => continue,
                        score => score,
                    }
                }
            };
            sum += score * weight;
            weights += weight;
        }
        match self.strategy {
            _ if weights == 0 => 0,
            // This strategy rounds to nearest, the others round down.
            Strategy::RequestedToCapacityRatio { .. } => (2 * sum + weights) / (2 * weights),
            _ => sum / weights,
        }
    }
}

impl Fit {
    /// What is allocated on a node of each scored resource, and its capacity.
    pub(super) fn allocated(&self, node: &Node) -> SmallVec<[(i64, i64); 2]> {
        let of = |resource: ResourceId| (allocated(node, resource), node.allocatable.get(resource));
        self.resources.iter().map(|(resource, _)| of(*resource)).collect()
    }

    /// The allocated share of several nodes together with these pods, in percent. A resource other than CPU and memory
    /// counts only if a pod requests it. As in kube-scheduler, this does not depend on the strategy for nodes.
    pub(super) fn allocated_share(&self, usage: &[(i64, i64)], pods: &[(&PodClass, i64)]) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for ((resource, weight), (allocated, capacity)) in self.resources.iter().zip(usage) {
            let requested = pods.iter().map(|(class, pods)| requested_by(class, *resource).saturating_mul(*pods));
            let requested: i64 = requested.fold(0, i64::saturating_add);
            if *capacity == 0 || (requested == 0 && is_scalar(*resource)) {
                continue;
            }
            let share = i128::from(allocated.saturating_add(requested).min(*capacity)) * i128::from(SCORE_MAX);
            sum += weight * (share / i128::from(*capacity)) as i64;
            weights += weight;
        }
        if weights == 0 { 0 } else { sum / weights }
    }
}

fn allocated(node: &Node, resource: ResourceId) -> i64 {
    match resource {
        CPU => node.load.scoring_cpu_milli,
        MEMORY => node.load.scoring_memory_bytes,
        _ => node.load.used.get(resource),
    }
}

fn requested_by(class: &PodClass, resource: ResourceId) -> i64 {
    match resource {
        CPU => class.spec.scoring_cpu_milli,
        MEMORY => class.spec.scoring_memory_bytes,
        _ => class.requests.get(resource),
    }
}

/// The requested amount including this pod, and the capacity; `None` if the resource does not count.
fn requested(class: &PodClass, node: &Node, resource: ResourceId) -> Option<(i64, i64)> {
    let capacity = node.allocatable.get(resource);
    let (allocated, request) = (allocated(node, resource), requested_by(class, resource));
    if capacity == 0 || (request == 0 && is_scalar(resource)) {
        return None;
    }
    Some((allocated.saturating_add(request), capacity))
}

fn least(requested: i64, capacity: i64) -> i64 {
    if requested > capacity { 0 } else { (capacity - requested) * SCORE_MAX / capacity }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::ShapePoint;
    use crate::model::class::ClassSpec;
    use crate::model::resources::Requests;

    fn node(cpu: i64, memory: i64, used_cpu: i64, used_memory: i64) -> Node {
        let mut node = Node::default();
        node.allocatable.set(CPU, cpu);
        node.allocatable.set(MEMORY, memory);
        node.load.scoring_cpu_milli = used_cpu;
        node.load.scoring_memory_bytes = used_memory;
        node
    }

    fn class(cpu: i64, memory: i64) -> PodClass {
        let spec = ClassSpec { scoring_cpu_milli: cpu, scoring_memory_bytes: memory, ..ClassSpec::default() };
        PodClass::independent(Arc::new(spec), Requests::new([(CPU, cpu), (MEMORY, memory)]))
    }

    fn fit(strategy: &Strategy, weights: &[(&str, i64)]) -> Fit {
        let resources: Vec<Weighted> =
            weights.iter().map(|(name, weight)| Weighted { name: (*name).to_owned(), weight: *weight }).collect();
        Fit::new(strategy, &resources, &mut ResourceNames::default())
    }

    #[test]
    fn least_allocated_is_the_mean_free_share() {
        let fit = fit(&Strategy::LeastAllocated, &[("cpu", 1), ("memory", 1)]);
        // (4000-3000)/4000 = 25, (10000-5000)/10000 = 50.
        assert_eq!(fit.score(&class(3000, 5000), &node(4000, 10000, 0, 0)), 37);
        assert_eq!(fit.score(&class(3000, 5000), &node(6000, 10000, 0, 0)), 50);
        // A request beyond the capacity scores 0 for that resource.
        assert_eq!(fit.score(&class(3000, 5000), &node(2000, 10000, 0, 0)), 25);
        assert_eq!(fit.score(&class(1, 1), &node(0, 0, 0, 0)), 0);
    }

    #[test]
    fn weights_count() {
        let fit = fit(&Strategy::LeastAllocated, &[("cpu", 3), ("memory", 1)]);
        assert_eq!(fit.score(&class(3000, 5000), &node(4000, 10000, 0, 0)), (3 * 25 + 50) / 4);
    }

    #[test]
    fn most_allocated_is_the_mean_used_share() {
        let fit = fit(&Strategy::MostAllocated, &[("cpu", 1), ("memory", 1)]);
        assert_eq!(fit.score(&class(3000, 5000), &node(4000, 10000, 0, 0)), 62);
        assert_eq!(fit.score(&class(3000, 5000), &node(2000, 10000, 0, 0)), 75);
    }

    #[test]
    fn shape_is_linear_between_points_and_rounds_to_nearest() {
        let point = |utilization, score| ShapePoint { utilization, score };
        let shape = Strategy::RequestedToCapacityRatio { shape: vec![point(0, 10), point(100, 0)] };
        let fit = fit(&shape, &[("cpu", 1), ("memory", 1)]);
        assert_eq!(fit.score(&class(0, 0), &node(4000, 10000, 0, 0)), 100);
        // cpu 75 % -> 25, memory 50 % -> 50: the mean 37.5 rounds up.
        assert_eq!(fit.score(&class(3000, 5000), &node(4000, 10000, 0, 0)), 38);
        // A resource that scores 0 does not contribute its weight.
        assert_eq!(fit.score(&class(4000, 5000), &node(4000, 10000, 0, 0)), 50);
    }

    #[test]
    fn unrequested_scalar_resource_does_not_count() {
        let fit = fit(&Strategy::LeastAllocated, &[("cpu", 1), ("example.com/gpu", 1)]);
        let mut node = node(4000, 10000, 0, 0);
        node.allocatable.set(ResourceId(3), 8);
        assert_eq!(fit.score(&class(1000, 0), &node), 75);
        let requesting = PodClass { requests: Requests::new([(ResourceId(3), 4)]), ..class(1000, 0) };
        assert_eq!(fit.score(&requesting, &node), 62);
    }
}
