//! The pod classes in use, each held once and counted, so that a class whose pods are gone goes too.
//!
//! Pods of one form are of different classes if selectors of others tell them apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::neighbours::{Own, TagSet};
use crate::filter::Skipped;
use crate::model::class::{ClassSpec, PodClass};
use crate::model::ids::{ClassId, Slab};
use crate::model::resources::{Requests, ResourceNames};

/// The classes in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classes {
    slab: Slab<(PodClass, u32)>,
    ids: BTreeMap<(Arc<ClassSpec>, TagSet), ClassId>,
}

impl Classes {
    /// The class of this form, if there is one; the caller owes one `release`.
    pub(crate) fn acquire(&mut self, spec: &Arc<ClassSpec>, tags: &TagSet) -> Option<ClassId> {
        let id = *self.ids.get(&(spec.clone(), tags.clone()))?;
        self.slab.get_mut(id.0).expect("a listed class exists").1 += 1;
        Some(id)
    }

    /// A new class; the caller owes one `release`, and has made sure that the resource names fit.
    pub(crate) fn add(
        &mut self,
        spec: &Arc<ClassSpec>,
        tags: TagSet,
        own: Option<Own>,
        skipped: Skipped,
        names: &mut ResourceNames,
    ) -> ClassId {
        let requests =
            Requests::new(spec.requests.iter().filter_map(|(name, amount)| Some((names.intern(name)?, *amount))));
        let class = PodClass { tags: tags.clone(), own, skipped, ..PodClass::alone(spec.clone(), requests) };
        let id = ClassId(self.slab.insert((class, 1)));
        self.ids.insert((spec.clone(), tags), id);
        id
    }

    /// One user less. Answers the class if that was the last.
    pub(crate) fn release(&mut self, id: ClassId) -> Option<PodClass> {
        let (class, users) = self.slab.get_mut(id.0).expect("a released class exists");
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.ids.remove(&(class.spec.clone(), class.tags.clone()));
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
