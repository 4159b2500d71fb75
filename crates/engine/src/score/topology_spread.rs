//! Topology spread constraints with `ScheduleAnyway`: fewer matching pods in the node's domains are better.
//!
//! A topology key with many domains weighs more, so that its small counts are not outweighed by those of a key with few
//! domains. The number of domains is counted over the feasible nodes.

use smallvec::SmallVec;

use crate::model::plugin::SCORE_MAX;

/// The weights of raw scores, and their range over the scored nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scale {
    /// The weight of one pod, by constraint.
    pub(crate) weights: SmallVec<[f64; 2]>,
    /// The lowest raw score.
    pub(crate) least: i64,
    /// The highest raw score.
    pub(crate) most: i64,
}

/// The weight of one pod for a topology key with this many domains.
pub(crate) fn weight(domains: usize) -> f64 {
    (domains as f64 + 2.0).ln()
}

/// The raw score, from the count of matching pods, the weight and `maxSkew` of each constraint. A larger `maxSkew`
/// reduces the relative differences.
#[expect(clippy::cast_possible_truncation, reason = "a few pods times a small weight")]
pub(crate) fn raw(terms: impl Iterator<Item = (u32, f64, u32)>) -> i64 {
    let sum: f64 = terms.map(|(near, weight, max_skew)| f64::from(near) * weight + (f64::from(max_skew) - 1.0)).sum();
    sum.round() as i64
}

/// Normalizes a raw score; a node that is not scored gets 0.
pub(crate) fn normalized(raw: Option<i64>, scale: &Scale) -> i64 {
    match raw {
        None => 0,
        Some(_) if scale.most == 0 => SCORE_MAX,
        Some(raw) => SCORE_MAX * (scale.most + scale.least - raw) / scale.most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_with_fewest_pods_scores_highest() {
        let scale = Scale { weights: SmallVec::new(), least: 2, most: 8 };
        assert_eq!([Some(2), Some(5), Some(8), None].map(|raw| normalized(raw, &scale)), [100, 62, 25, 0]);
        assert_eq!(normalized(Some(0), &Scale::default()), 100, "no matching pods anywhere");
    }

    #[test]
    fn pod_weighs_more_with_more_domains() {
        let of = |domains| raw([(3, weight(domains), 1)].into_iter());
        assert_eq!([of(1), of(3), of(1000)], [3, 5, 21]);
        assert_eq!(raw([(0, weight(3), 5), (1, weight(3), 1)].into_iter()), 6, "maxSkew - 1 is added");
    }
}
