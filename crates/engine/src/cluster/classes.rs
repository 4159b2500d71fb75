//! The pod classes in use, interned and reference-counted.
//!
//! Pods with the same spec are of different classes if different selectors of other pods match them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::PodClass;
use super::storage::StorageDemand;
use super::topology::rules::{InterPodRules, OwnTerms};
use crate::model::class::ClassSpec;
use crate::model::ids::{ClassId, MatchSetId, Slab};
use crate::model::plugin::DisabledFilters;
use crate::model::resources::{Requests, ResourceNames};

/// What makes a class: what matches its pods, their form, and what their claims require.
pub(super) type ClassKey = (MatchSetId, Arc<ClassSpec>, Option<Arc<StorageDemand>>);

/// The classes in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classes {
    slab: Slab<(PodClass, u32)>,
    ids: BTreeMap<ClassKey, ClassId>,
}

impl Classes {
    /// The class of this key, if there is one; the caller must `release` it.
    pub(crate) fn acquire(&mut self, key: &ClassKey) -> Option<ClassId> {
        let id = *self.ids.get(key)?;
        self.slab.get_mut(id.0).expect("a listed class exists").1 += 1;
        Some(id)
    }

    /// Adds a class; the caller must `release` it, and has checked the resource names.
    pub(crate) fn add(
        &mut self,
        key: ClassKey,
        (own, rules): (Option<OwnTerms>, InterPodRules),
        disabled_filters: DisabledFilters,
        names: &mut ResourceNames,
    ) -> ClassId {
        let (matches, spec, storage) = key.clone();
        let has_volumes = storage.is_some() || !spec.disks.is_empty();
        let disabled_filters = if has_volumes { disabled_filters } else { disabled_filters.without_volumes() };
        let requested = spec.requests.iter().filter(|(_, amount)| **amount != 0);
        let requests = Requests::new(requested.filter_map(|(name, amount)| Some((names.acquire(name)?, *amount))));
        let class = PodClass {
            matches,
            own,
            rules,
            storage,
            disabled_filters,
            ..PodClass::independent(spec.clone(), requests)
        };
        let id = ClassId(self.slab.insert((class, 1)));
        self.ids.insert(key, id);
        id
    }

    /// Drops one reference. Returns the class if it was the last.
    pub(crate) fn release(&mut self, id: ClassId) -> Option<PodClass> {
        let (class, users) = self.slab.get_mut(id.0).expect("a released class exists");
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.ids.remove(&(class.matches, class.spec.clone(), class.storage.clone()));
        self.slab.remove(id.0).map(|(class, _)| class)
    }

    pub(crate) fn get(&self, id: ClassId) -> &PodClass {
        &self.slab.get(id.0).expect("a class in use exists").0
    }

    pub(crate) fn contains(&self, id: ClassId) -> bool {
        self.slab.get(id.0).is_some()
    }
}
