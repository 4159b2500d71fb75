//! What a class has to mind, and what its pods count in: derived from its own terms and from the stances of others about
//! it.

use super::{Neighbours, TagSet, Wish};
use crate::cluster::ProfileRules;
use crate::model::class::ClassSpec;
use crate::model::ids::{StanceId, TagId, TallyId};

/// A class's own terms, taken in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Own {
    pub(super) seeks_tag: Option<TagId>,
    /// One count for each term, of pods that match all of them.
    pub(super) seeks: Vec<TallyId>,
    pub(super) shuns: Vec<TallyId>,
    pub(super) prefers: Vec<(TallyId, i32)>,
    pub(super) spread_must: Vec<(TallyId, TagId)>,
    pub(super) spread_should: Vec<TallyId>,
    /// What is held, to be given up: with repetitions.
    pub(super) tags: Vec<TagId>,
    pub(super) tallies: Vec<TallyId>,
    pub(super) stances: Vec<StanceId>,
}

/// What a class has to mind, and what its pods count in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rules {
    /// Somebody of each of these must be near.
    pub(crate) seeks: Vec<TallyId>,
    /// If nobody is sought anywhere, it may be the first: it is one of those whom it seeks.
    pub(crate) seeks_itself: bool,
    /// Nobody of these may be near: it shuns them.
    pub(crate) shuns: Vec<TallyId>,
    /// Nobody of these may be near: they shun it.
    pub(crate) shunned_by: Vec<TallyId>,
    /// Of these somebody may be near who is of its own class.
    pub(crate) shuns_itself: Vec<TallyId>,
    /// How much each of these who is near is worth.
    pub(crate) prefers: Vec<(TallyId, i64)>,
    /// How evenly it must be spread.
    pub(crate) spread: Vec<Evenness>,
    /// How evenly it should be spread: the counts of its own terms, in their order.
    pub(crate) should_spread: Vec<TallyId>,
    /// Its pods count here.
    pub(crate) counts_in: Vec<TallyId>,
    /// Its pods count here as long as they are not on their way out.
    pub(crate) counts_in_spread: Vec<TallyId>,
}

/// A limit to how far a domain may be ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evenness {
    pub(crate) tally: TallyId,
    pub(crate) skew_max: u32,
    pub(crate) domains_min: u32,
    /// The class is one of those who are counted.
    pub(crate) counts_itself: bool,
}

impl Rules {
    /// Whether it can go anywhere, as far as others are concerned.
    pub(crate) fn has_no_demands(&self) -> bool {
        self.seeks.is_empty() && self.shuns.is_empty() && self.shunned_by.is_empty() && self.spread.is_empty()
    }

    /// Whether it has to mind nothing at all.
    pub(crate) fn minds_nothing(&self) -> bool {
        self.has_no_demands() && self.prefers.is_empty() && self.should_spread.is_empty()
    }

    /// Where its pods count, if they are there to stay or not.
    pub(crate) fn counted_in(&self, leaves: bool) -> impl Iterator<Item = TallyId> + '_ {
        let spread: &[TallyId] = if leaves { &[] } else { &self.counts_in_spread };
        self.counts_in.iter().chain(spread).copied()
    }

    /// Whether its pods count in a tally.
    pub(crate) fn counts_in(&self, tally: TallyId) -> bool {
        self.counts_in.binary_search(&tally).is_ok() || self.counts_in_spread.binary_search(&tally).is_ok()
    }
}

impl Neighbours {
    /// The rules of a class.
    pub(crate) fn rules(&self, spec: &ClassSpec, own: Option<&Own>, tags: &TagSet, profile: ProfileRules) -> Rules {
        let mut rules = Rules::default();
        if let Some(own) = own {
            rules.seeks.clone_from(&own.seeks);
            rules.shuns.clone_from(&own.shuns);
            rules.prefers = own.prefers.iter().map(|(tally, weight)| (*tally, i64::from(*weight))).collect();
            rules.seeks_itself = own.seeks_tag.is_some_and(|tag| tags.contains(&tag));
            rules.counts_in = own.stances.iter().map(|id| self.stances.get(id.0).expect("in use").tally).collect();
            rules.should_spread.clone_from(&own.spread_should);
        }
        if let (Some(own), Some(company)) = (own, &spec.company) {
            let terms = own.spread_must.iter().zip(&company.spread.must);
            rules.spread = terms
                .map(|((tally, tag), term)| Evenness {
                    tally: *tally,
                    skew_max: term.skew_max,
                    domains_min: term.domains_min,
                    counts_itself: tags.contains(tag),
                })
                .collect();
        }
        // Whoever likes nobody may go without hearing who likes it.
        let is_deaf = profile.ignores_likes_of_others && rules.prefers.is_empty();
        for tag in tags.iter().map(|tag| self.tags.get(*tag)) {
            let is_spread = |tally: &TallyId| self.counts_who_stays(*tally);
            let (spread, there): (Vec<TallyId>, Vec<TallyId>) = tag.tallies.iter().copied().partition(is_spread);
            rules.counts_in.extend(there);
            rules.counts_in_spread.extend(spread);
            for stance in tag.stances.iter().map(|id| self.stances.get(id.0).expect("a listed stance exists")) {
                match stance.wish {
                    Wish::Shuns => rules.shunned_by.push(stance.tally),
                    Wish::Seeks | Wish::Prefers(_) if is_deaf => {}
                    Wish::Seeks if profile.weight_sought == 0 => {}
                    Wish::Seeks => rules.prefers.push((stance.tally, profile.weight_sought)),
                    Wish::Prefers(weight) => rules.prefers.push((stance.tally, i64::from(weight))),
                }
            }
        }
        rules.counts_in.sort_unstable();
        rules.counts_in_spread.sort_unstable();
        let barred = rules.shuns.iter().chain(&rules.shunned_by);
        rules.shuns_itself = barred.filter(|tally| rules.counts_in.contains(tally)).copied().collect();
        rules
    }
}
