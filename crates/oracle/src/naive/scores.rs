//! The scores that depend on the load of a node: utilization and balance.
//!
//! Written from kube-scheduler 1.37's `noderesources` plugins: `resource_allocation.go`, `least_allocated.go`,
//! `most_allocated.go`, `requested_to_capacity_ratio.go` and `balanced_allocation.go`. Must not depend on filters.

use muster_engine::{ShapePoint, Strategy};

/// The maximum of a single score.
pub(super) const SCORE_MAX: i64 = 100;

/// One resource of one node, with and without the pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) weight: i64,
    /// With the pod.
    pub(super) requested: i64,
    /// Without the pod.
    pub(super) allocated: i64,
    /// Never zero: resources that the node does not have are left out.
    pub(super) allocatable: i64,
}

/// NodeResourcesFit.
pub(super) fn fit(strategy: &Strategy, columns: impl Iterator<Item = Column>) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for column in columns {
        let Column { weight, requested, allocatable, .. } = column;
        let score = match strategy {
            Strategy::LeastAllocated if requested > allocatable => 0,
            Strategy::LeastAllocated => (allocatable - requested) * SCORE_MAX / allocatable,
            Strategy::MostAllocated => requested.min(allocatable) * SCORE_MAX / allocatable,
            Strategy::RequestedToCapacityRatio { shape } if requested > allocatable => piecewise_linear(shape, 100),
            Strategy::RequestedToCapacityRatio { shape } => piecewise_linear(shape, requested * 100 / allocatable),
        };
        // Only this strategy leaves resources that score 0 out of the average.
        if score == 0 && matches!(strategy, Strategy::RequestedToCapacityRatio { .. }) {
            continue;
        }
        sum += score * weight;
        weights += weight;
    }
    match strategy {
        _ if weights == 0 => 0,
        Strategy::LeastAllocated | Strategy::MostAllocated => sum / weights,
        Strategy::RequestedToCapacityRatio { .. } => (sum as f64 / weights as f64).round() as i64,
    }
}

/// The piecewise linear function through the points, whose scores of 0 to 10 are scaled to 0 to 100.
fn piecewise_linear(shape: &[ShapePoint], utilization: i64) -> i64 {
    let score = |point: &ShapePoint| point.score * (SCORE_MAX / 10);
    for (index, point) in shape.iter().enumerate() {
        if utilization > point.utilization {
            continue;
        }
        if index == 0 {
            return score(point);
        }
        let before = &shape[index - 1];
        let (rise, run) = (score(point) - score(before), point.utilization - before.utilization);
        return score(before) + rise * (utilization - before.utilization) / run;
    }
    shape.last().map_or(0, score)
}

/// NodeResourcesBalancedAllocation: how the pod changes the balance of the node.
pub(super) fn balance(columns: impl Iterator<Item = Column> + Clone) -> i64 {
    let with = evenness(columns.clone().map(|column| (column.requested, column.allocatable)));
    let without = evenness(columns.map(|column| (column.allocated, column.allocatable)));
    SCORE_MAX / 2 + (SCORE_MAX / 2 + with - without) / 2
}

/// Iterates over the columns several times instead of storing them: this runs for every pod and node.
fn evenness(columns: impl Iterator<Item = (i64, i64)> + Clone) -> i64 {
    let fractions = columns.map(|(used, all)| (used as f64 / all as f64).min(1.0));
    let (mut count, mut total) = (0.0, 0.0);
    for fraction in fractions.clone() {
        count += 1.0;
        total += fraction;
    }
    let mut first_two = fractions.clone();
    let deviation = match (first_two.next(), first_two.next(), first_two.next()) {
        (Some(one), Some(two), None) => f64::abs((one - two) / 2.0),
        (Some(_), Some(_), Some(_)) => {
            let mean = total / count;
            let mut squares = 0.0;
            for fraction in fractions {
                // Kubernetes rounds after the multiplication: no fused multiply-add here.
                squares += (fraction - mean) * (fraction - mean);
            }
            f64::sqrt(squares / count)
        }
        _ => 0.0,
    };
    ((1.0 - deviation) * SCORE_MAX as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(allocated: i64, pod: i64, allocatable: i64) -> Column {
        Column { weight: 1, requested: allocated + pod, allocated, allocatable }
    }

    #[test]
    fn fit_of_an_example_by_hand() {
        let columns = || [column(3000, 0, 10_000), column(5000, 0, 20_000)].into_iter();
        assert_eq!(fit(&Strategy::LeastAllocated, columns()), 72);
        assert_eq!(fit(&Strategy::MostAllocated, columns()), 27);
        let point = |utilization, score| ShapePoint { utilization, score };
        let rising = Strategy::RequestedToCapacityRatio { shape: vec![point(0, 0), point(100, 10)] };
        assert_eq!(fit(&rising, columns()), 28, "27.5 is rounded, not cut");
        assert_eq!(fit(&rising, [column(0, 0, 10), column(5, 0, 10)].into_iter()), 50, "zero is left out");
        assert_eq!(fit(&Strategy::LeastAllocated, std::iter::empty()), 0);
    }

    #[test]
    fn balance_is_better_where_the_pod_evens_utilization() {
        assert_eq!(balance([column(0, 5, 10), column(5, 0, 10)].into_iter()), 50 + (50 + 100 - 75) / 2);
        assert_eq!(balance([column(5, 5, 10), column(5, 0, 10)].into_iter()), 50 + (50 + 75 - 100) / 2);
        assert_eq!(balance([column(0, 5, 10)].into_iter()), 75);
    }
}
