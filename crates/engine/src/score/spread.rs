//! How evenly the pod and its like would be spread: fewer of them near are better.
//!
//! A label with many domains weighs more, so that its small counts are not drowned by those of a label with few. How many
//! domains there are is counted among the nodes that will do.

use smallvec::SmallVec;

use super::SCORE_MAX;

/// What raw scores depend on, and are set in proportion to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scale {
    /// By term: how much one pod weighs.
    pub(crate) weights: SmallVec<[f64; 2]>,
    /// The least raw score among the nodes that are judged.
    pub(crate) least: i64,
    /// The most.
    pub(crate) most: i64,
}

/// How much one pod weighs, if a label has so many domains.
pub(crate) fn weight(domains: usize) -> f64 {
    (domains as f64 + 2.0).ln()
}

/// The raw score: of each term how many are near, how much one weighs, and how far ahead a domain may be. A wide limit
/// waters the differences down.
#[expect(clippy::cast_possible_truncation, reason = "a few pods times a small weight")]
pub(crate) fn raw(terms: impl Iterator<Item = (u32, f64, u32)>) -> i64 {
    let sum: f64 = terms.map(|(near, weight, skew_max)| f64::from(near) * weight + (f64::from(skew_max) - 1.0)).sum();
    sum.round() as i64
}

/// From raw to a score; a node that is not judged has nothing.
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
    fn the_emptiest_has_most() {
        let scale = Scale { weights: SmallVec::new(), least: 2, most: 8 };
        assert_eq!([Some(2), Some(5), Some(8), None].map(|raw| normalized(raw, &scale)), [100, 62, 25, 0]);
        assert_eq!(normalized(Some(0), &Scale::default()), 100, "nobody anywhere");
    }

    #[test]
    fn a_pod_weighs_more_where_there_are_many_domains() {
        let of = |domains| raw([(3, weight(domains), 1)].into_iter());
        assert_eq!([of(1), of(3), of(1000)], [3, 5, 21]);
        assert_eq!(raw([(0, weight(3), 5), (1, weight(3), 1)].into_iter()), 6, "a wide limit is added");
    }
}
