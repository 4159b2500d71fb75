//! Shapes: scores by utilization, as points between which is interpolated.

use crate::config::ShapePoint;
use crate::model::plugin::SCORE_MAX;

/// The scores of shape points are 0 to 10.
const SHAPE_SCORE_MAX: i64 = 10;
const PERCENT: i128 = 100;

/// The utilization of a capacity by what is requested of it, in percent: at most 100.
pub(super) fn utilization(requested: impl Into<i128>, capacity: impl Into<i128>) -> i64 {
    let (requested, capacity) = (requested.into().max(0), capacity.into());
    if requested > capacity || capacity == 0 { 100 } else { (requested * PERCENT / capacity) as i64 }
}

/// The score at a utilization: 0 to 100.
pub(super) fn score(shape: &[ShapePoint], utilization: i64) -> i64 {
    let scaled = |point: &ShapePoint| point.score * (SCORE_MAX / SHAPE_SCORE_MAX);
    let Some(next) = shape.iter().position(|point| utilization <= point.utilization) else {
        return shape.last().map_or(0, scaled);
    };
    if next == 0 {
        return scaled(&shape[0]);
    }
    let (left, right) = (&shape[next - 1], &shape[next]);
    let rise = scaled(right) - scaled(left);
    scaled(left) + rise * (utilization - left.utilization) / (right.utilization - left.utilization)
}
