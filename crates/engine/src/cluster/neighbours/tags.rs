//! Selectors over pods, each held once: which pods they are about is found out when a pod or a selector is new, never
//! while a place is looked for.
//!
//! A tag lives as long as somebody's terms or the class of somebody whom it is about name it. So of two like pods either
//! both or none carry it, whenever they came.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::model::company::PodSelector;
use crate::model::ids::{ClassId, Slab, StanceId, TagId, TallyId};
use crate::model::labels::{Demand, Labels};

/// The tags of a pod, ordered.
pub(crate) type TagSet = SmallVec<[TagId; 2]>;

/// A pod that matches all of these.
pub(crate) type Form = Vec<PodSelector>;

/// A label and the values of which it must have one.
type Anchor = (String, Vec<String>);

/// Pods that some selectors are about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tag {
    form: Form,
    users: u32,
    /// The label that it asks for and under whose values it is looked for; `None` if it asks for nothing of the sort.
    anchor: Option<Anchor>,
    /// The classes of pods that carry it.
    pub(super) bearers: Vec<ClassId>,
    /// The stances about these pods.
    pub(super) stances: Vec<StanceId>,
    /// The counts of these pods.
    pub(super) tallies: Vec<TallyId>,
}

/// All tags.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tags {
    slab: Slab<Tag>,
    by_form: BTreeMap<Form, TagId>,
    /// Tags that ask for one of these values of a label, by key and value.
    anchored: BTreeMap<String, BTreeMap<String, Vec<TagId>>>,
    /// Tags that ask for nothing of the sort.
    loose: Vec<TagId>,
}

impl Tags {
    pub(super) fn get(&self, id: TagId) -> &Tag {
        self.slab.get(id.0).expect("a tag in use exists")
    }

    pub(super) fn get_mut(&mut self, id: TagId) -> &mut Tag {
        self.slab.get_mut(id.0).expect("a tag in use exists")
    }

    /// The tag of this form, and whether it is new; the caller owes one `release`.
    pub(super) fn acquire(&mut self, form: Form) -> (TagId, bool) {
        if let Some(id) = self.by_form.get(&form).copied() {
            self.get_mut(id).users += 1;
            return (id, false);
        }
        let anchor = self.anchor(&form);
        let (bearers, stances, tallies) = (Vec::new(), Vec::new(), Vec::new());
        let tag = Tag { form: form.clone(), users: 1, anchor: anchor.clone(), bearers, stances, tallies };
        let id = TagId(self.slab.insert(tag));
        self.for_each_list(anchor, |tags| tags.push(id));
        self.by_form.insert(form, id);
        (id, true)
    }

    /// One user more.
    pub(super) fn hold(&mut self, id: TagId) {
        self.get_mut(id).users += 1;
    }

    pub(super) fn exists(&self, id: TagId) -> bool {
        self.slab.get(id.0).is_some()
    }

    /// One user less.
    pub(super) fn release(&mut self, id: TagId) {
        let tag = self.get_mut(id);
        tag.users -= 1;
        if tag.users > 0 {
            return;
        }
        let tag = self.slab.remove(id.0).expect("a tag in use exists");
        self.for_each_list(tag.anchor, |tags| tags.retain(|other| *other != id));
        self.by_form.remove(&tag.form);
    }

    /// The tags of a pod; the caller owes nothing for them.
    pub(super) fn of_pod(&self, namespace: &str, of_namespace: &Labels, labels: &Labels) -> TagSet {
        let by_value = labels.iter().filter_map(|(key, value)| self.anchored.get(key)?.get(value)).flatten();
        let mut tags: TagSet = by_value.chain(&self.loose).copied().collect();
        tags.sort_unstable();
        tags.dedup();
        tags.retain(|tag| self.is_about(*tag, namespace, of_namespace, labels));
        tags
    }

    /// The only namespaces whose pods a tag can be about; `None` if that is not said by name.
    pub(super) fn namespaces(&self, id: TagId) -> Option<&BTreeSet<String>> {
        let mut named = self.get(id).form.iter().filter(|selector| selector.namespaces_like.is_none());
        named.next().map(|selector| &selector.namespaces)
    }

    /// Whether a tag is about a pod.
    pub(super) fn is_about(&self, id: TagId, namespace: &str, of_namespace: &Labels, labels: &Labels) -> bool {
        self.get(id).form.iter().all(|selector| selector.matches(namespace, of_namespace, labels))
    }

    /// The label under which a tag of this form is looked for: the one that fewest others are looked for under.
    fn anchor(&self, form: &Form) -> Option<Anchor> {
        let asked = form.iter().flat_map(|selector| &selector.labels);
        let asked =
            asked.filter_map(|one| if let Demand::In(values) = &one.demand { Some((&one.key, values)) } else { None });
        let crowd = |key: &String, values: &[String]| -> usize {
            let by_value = self.anchored.get(key);
            values.iter().filter_map(|value| Some(by_value?.get(value)?.len())).sum()
        };
        let best = asked.min_by_key(|(key, values)| (values.len(), crowd(key, values)));
        best.map(|(key, values)| (key.clone(), values.clone()))
    }

    /// The lists in which a tag with this anchor is looked for: one for each value.
    fn for_each_list(&mut self, anchor: Option<Anchor>, mut change: impl FnMut(&mut Vec<TagId>)) {
        let Some((key, values)) = anchor else {
            change(&mut self.loose);
            return;
        };
        let by_value = self.anchored.entry(key.clone()).or_default();
        for value in values {
            let tags = by_value.entry(value.clone()).or_default();
            change(tags);
            if tags.is_empty() {
                by_value.remove(&value);
            }
        }
        if by_value.is_empty() {
            self.anchored.remove(&key);
        }
    }
}
