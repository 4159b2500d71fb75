//! The pod classes in use, interned and reference-counted.
//!
//! Pods with the same spec are of different classes if different selectors of other pods match them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::PodClass;
use super::topology::rules::{InterPodRules, OwnTerms};
use crate::model::class::ClassSpec;
use crate::model::ids::{ClassId, MatchSetId, Slab};
use crate::model::plugin::DisabledFilters;
use crate::model::resources::{Requests, ResourceNames};

/// The classes in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classes {
    slab: Slab<(PodClass, u32)>,
    ids: BTreeMap<(MatchSetId, Arc<ClassSpec>), ClassId>,
}

impl Classes {
    /// The class with this spec in this match set, if there is one; the caller must `release` it.
    pub(crate) fn acquire(&mut self, spec: &Arc<ClassSpec>, matches: MatchSetId) -> Option<ClassId> {
        let id = *self.ids.get(&(matches, spec.clone()))?;
        self.slab.get_mut(id.0).expect("a listed class exists").1 += 1;
        Some(id)
    }

    /// Adds a class; the caller must `release` it, and has checked the resource names.
    pub(crate) fn add(
        &mut self,
        spec: &Arc<ClassSpec>,
        matches: MatchSetId,
        (own, rules): (Option<OwnTerms>, InterPodRules),
        disabled_filters: DisabledFilters,
        names: &mut ResourceNames,
    ) -> ClassId {
        let requested = spec.requests.iter().filter(|(_, amount)| **amount != 0);
        let requests = Requests::new(requested.filter_map(|(name, amount)| Some((names.acquire(name)?, *amount))));
        let class = PodClass { matches, own, rules, disabled_filters, ..PodClass::independent(spec.clone(), requests) };
        let id = ClassId(self.slab.insert((class, 1)));
        self.ids.insert((matches, spec.clone()), id);
        id
    }

    /// Drops one reference. Returns the class if it was the last.
    pub(crate) fn release(&mut self, id: ClassId) -> Option<PodClass> {
        let (class, users) = self.slab.get_mut(id.0).expect("a released class exists");
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.ids.remove(&(class.matches, class.spec.clone()));
        self.slab.remove(id.0).map(|(class, _)| class)
    }

    pub(crate) fn get(&self, id: ClassId) -> &PodClass {
        &self.slab.get(id.0).expect("a class in use exists").0
    }

    pub(crate) fn contains(&self, id: ClassId) -> bool {
        self.slab.get(id.0).is_some()
    }
}
