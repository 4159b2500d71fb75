//! Preferred inter-pod affinity and anti-affinity: the terms of the pod, and those of existing pods.
//!
//! The raw score is a sum of weights, negative if anti-affinity outweighs affinity. It is normalized so that the worst
//! feasible node scores 0 and the best 100.

use crate::model::plugin::SCORE_MAX;

/// The range of raw scores over the feasible nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) least: i64,
    pub(crate) most: i64,
}

/// Normalizes a raw score. The division comes first, as in kube-scheduler: the last digit depends on it.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "sums of weights are small")]
pub(crate) fn normalized(raw: i64, span: Span) -> i64 {
    let width = span.most - span.least;
    if width <= 0 {
        return 0;
    }
    (SCORE_MAX as f64 * ((raw - span.least) as f64 / width as f64)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_node_scores_zero_and_best_node_scores_all() {
        let span = Span { least: -30, most: 10 };
        assert_eq!([-30, -10, 0, 10].map(|raw| normalized(raw, span)), [0, 50, 75, 100]);
        assert_eq!(normalized(7, Span { least: 7, most: 7 }), 0, "equal raw scores prefer no node");
    }
}
