//! The pod classes in use, each held once and counted, so that a class whose pods are gone goes too.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::class::{ClassSpec, PodClass};
use crate::model::ids::{ClassId, Slab};
use crate::model::resources::{Requests, ResourceNames};

/// The classes in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classes {
    slab: Slab<(PodClass, u32)>,
    ids: BTreeMap<Arc<ClassSpec>, ClassId>,
}

impl Classes {
    /// The class of this form; the caller owes one `release`.
    /// The caller has made sure that the resource names fit.
    pub(crate) fn acquire(&mut self, spec: &Arc<ClassSpec>, names: &mut ResourceNames) -> ClassId {
        if let Some(id) = self.ids.get(spec) {
            self.slab.get_mut(id.0).expect("a listed class exists").1 += 1;
            return *id;
        }
        let requests =
            Requests::new(spec.requests.iter().filter_map(|(name, amount)| Some((names.intern(name)?, *amount))));
        let id = ClassId(self.slab.insert((PodClass { spec: spec.clone(), requests }, 1)));
        self.ids.insert(spec.clone(), id);
        id
    }

    /// One user less.
    pub(crate) fn release(&mut self, id: ClassId) {
        let (class, users) = self.slab.get_mut(id.0).expect("a released class exists");
        *users -= 1;
        if *users == 0 {
            let spec = class.spec.clone();
            self.slab.remove(id.0);
            self.ids.remove(&spec);
        }
    }

    pub(crate) fn get(&self, id: ClassId) -> &PodClass {
        &self.slab.get(id.0).expect("a class in use exists").0
    }

    pub(crate) fn contains(&self, id: ClassId) -> bool {
        self.slab.get(id.0).is_some()
    }
}
