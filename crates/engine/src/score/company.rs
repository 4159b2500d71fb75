//! Who is near and is welcome, or is not: by the terms of the pod, and by the terms of those who are near.
//!
//! The raw score is a sum of weights, below zero if there is more unwelcome company than welcome. It is stretched so that
//! the worst of the nodes that will do has nothing and the best has everything.

use super::SCORE_MAX;

/// The least and the most raw score among the nodes that will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) least: i64,
    pub(crate) most: i64,
}

/// From raw to a score. The division comes first, as kube-scheduler does it: the last digit depends on that.
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
    fn the_worst_has_nothing_and_the_best_everything() {
        let span = Span { least: -30, most: 10 };
        assert_eq!([-30, -10, 0, 10].map(|raw| normalized(raw, span)), [0, 50, 75, 100]);
        assert_eq!(normalized(7, Span { least: 7, most: 7 }), 0, "all alike is no reason to prefer any");
    }
}
