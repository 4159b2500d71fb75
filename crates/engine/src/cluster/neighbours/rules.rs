//! What a class has to mind, and what its pods count in: derived from its own terms and from the stances of others about
//! it.

use super::{Neighbours, TagSet, Wish};
use crate::model::ids::{StanceId, TagId, TallyId};

/// A class's own terms, taken in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Own {
    pub(super) seeks_tag: Option<TagId>,
    /// One count for each term, of pods that match all of them.
    pub(super) seeks: Vec<TallyId>,
    pub(super) shuns: Vec<TallyId>,
    pub(super) prefers: Vec<(TallyId, i32)>,
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
    /// Its pods count here.
    pub(crate) counts_in: Vec<TallyId>,
}

impl Rules {
    /// Whether it can go anywhere, as far as others are concerned.
    pub(crate) fn has_no_demands(&self) -> bool {
        self.seeks.is_empty() && self.shuns.is_empty() && self.shunned_by.is_empty()
    }

    /// Whether it has to mind nothing at all.
    pub(crate) fn minds_nothing(&self) -> bool {
        self.has_no_demands() && self.prefers.is_empty()
    }
}

impl Neighbours {
    /// The rules of a class.
    pub(crate) fn rules(&self, own: Option<&Own>, tags: &TagSet, weight_sought: i64) -> Rules {
        let mut rules = Rules::default();
        if let Some(own) = own {
            rules.seeks.clone_from(&own.seeks);
            rules.shuns.clone_from(&own.shuns);
            rules.prefers = own.prefers.iter().map(|(tally, weight)| (*tally, i64::from(*weight))).collect();
            rules.seeks_itself = own.seeks_tag.is_some_and(|tag| tags.contains(&tag));
            rules.counts_in = own.stances.iter().map(|id| self.stances.get(id.0).expect("in use").tally).collect();
        }
        for tag in tags.iter().map(|tag| self.tags.get(*tag)) {
            rules.counts_in.extend(&tag.tallies);
            for stance in tag.stances.iter().map(|id| self.stances.get(id.0).expect("a listed stance exists")) {
                match stance.wish {
                    Wish::Shuns => rules.shunned_by.push(stance.tally),
                    Wish::Seeks if weight_sought == 0 => {}
                    Wish::Seeks => rules.prefers.push((stance.tally, weight_sought)),
                    Wish::Prefers(weight) => rules.prefers.push((stance.tally, i64::from(weight))),
                }
            }
        }
        rules.counts_in.sort_unstable();
        let barred = rules.shuns.iter().chain(&rules.shunned_by);
        rules.shuns_itself = barred.filter(|tally| rules.counts_in.contains(tally)).copied().collect();
        rules
    }
}
