//! The pod classes in use, interned and reference-counted.
//!
//! Pods with the same spec are of different classes if different selectors of other pods match them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::PodClass;
use super::topology::rules::{OwnTerms, SelectorSet};
use crate::model::class::ClassSpec;
use crate::model::ids::{ClassId, Slab};
use crate::model::plugin::DisabledFilters;
use crate::model::resources::{Requests, ResourceNames};

/// The classes in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classes {
    slab: Slab<(PodClass, u32)>,
    ids: BTreeMap<(Arc<ClassSpec>, SelectorSet), ClassId>,
}

impl Classes {
    /// The class with this spec and these selectors, if there is one; the caller must `release` it.
    pub(crate) fn acquire(&mut self, spec: &Arc<ClassSpec>, selectors: &SelectorSet) -> Option<ClassId> {
        let id = *self.ids.get(&(spec.clone(), selectors.clone()))?;
        self.slab.get_mut(id.0).expect("a listed class exists").1 += 1;
        Some(id)
    }

    /// Adds a class; the caller must `release` it, and has checked the resource names.
    pub(crate) fn add(
        &mut self,
        spec: &Arc<ClassSpec>,
        selectors: SelectorSet,
        own: Option<OwnTerms>,
        disabled_filters: DisabledFilters,
        names: &mut ResourceNames,
    ) -> ClassId {
        let requests =
            Requests::new(spec.requests.iter().filter_map(|(name, amount)| Some((names.intern(name)?, *amount))));
        let class = PodClass {
            selectors: selectors.clone(),
            own,
            disabled_filters,
            ..PodClass::independent(spec.clone(), requests)
        };
        let id = ClassId(self.slab.insert((class, 1)));
        self.ids.insert((spec.clone(), selectors), id);
        id
    }

    /// Drops one reference. Returns the class if it was the last.
    pub(crate) fn release(&mut self, id: ClassId) -> Option<PodClass> {
        let (class, users) = self.slab.get_mut(id.0).expect("a released class exists");
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.ids.remove(&(class.spec.clone(), class.selectors.clone()));
        self.slab.remove(id.0).map(|(class, _)| class)
    }

    pub(crate) fn get(&self, id: ClassId) -> &PodClass {
        &self.slab.get(id.0).expect("a class in use exists").0
    }

    pub(crate) fn get_mut(&mut self, id: ClassId) -> &mut PodClass {
        &mut self.slab.get_mut(id.0).expect("a class in use exists").0
    }

    pub(crate) fn contains(&self, id: ClassId) -> bool {
        self.slab.get(id.0).is_some()
    }
}
