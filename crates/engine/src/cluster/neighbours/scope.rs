//! The nodes on which pods count that are to be spread: those that have every label that is asked for, and that the pod's
//! own affinity and tolerations do not rule out, where it says that this matters.
//!
//! Whoever asks in the same words has the same scope, and shares it.

use std::collections::BTreeMap;

use crate::cluster::node::Node;
use crate::model::class::ClassSpec;
use crate::model::company::SpreadTerm;
use crate::model::ids::{NodeId, ScopeId, Slab};
use crate::model::labels::{Labels, NodeTerm};
use crate::model::taint::Toleration;

/// What a node must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Form {
    /// The labels that it must have, ordered.
    keys: Vec<String>,
    affinity: Option<(Labels, Option<Vec<NodeTerm>>)>,
    tolerations: Option<Vec<Toleration>>,
}

impl Form {
    /// What nodes must be that count for this term of a class, which asks for all these labels.
    pub(super) fn new(spec: &ClassSpec, term: &SpreadTerm, keys: &[String]) -> Self {
        let affinity = term.minds_affinity.then(|| (spec.node_selector.clone(), spec.required_terms.clone()));
        // A demand for nothing is none: so those who share a scope find each other.
        let affinity = affinity.filter(|(selector, terms)| !selector.is_empty() || terms.is_some());
        Self { keys: keys.to_vec(), affinity, tolerations: term.minds_taints.then(|| spec.tolerations.clone()) }
    }

    fn includes(&self, node: &Node) -> bool {
        let suits = |(selector, terms): &(Labels, Option<Vec<NodeTerm>>)| node.suits(selector, terms.as_deref());
        node.present
            && self.keys.iter().all(|key| node.labels.contains_key(key))
            && self.affinity.as_ref().is_none_or(suits)
            && self.tolerations.as_ref().is_none_or(|tolerations| node.lets_in(tolerations))
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Scope {
    form: Form,
    users: u32,
    /// By node slot.
    includes: Vec<bool>,
}

/// All scopes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scopes {
    slab: Slab<Scope>,
    by_form: BTreeMap<Form, ScopeId>,
}

impl Scopes {
    /// Whether pods on a node count.
    pub(super) fn includes(&self, id: ScopeId, node: NodeId) -> bool {
        let scope = self.slab.get(id.0).expect("a scope in use exists");
        scope.includes.get(node.slot()).copied().unwrap_or(false)
    }

    /// The scope of this form; whoever makes a tally in it holds it.
    pub(super) fn of(&mut self, form: Form, nodes: &Slab<Node>) -> ScopeId {
        if let Some(id) = self.by_form.get(&form) {
            return *id;
        }
        let mut includes = vec![false; nodes.bound()];
        for (slot, node) in nodes.iter() {
            includes[slot as usize] = form.includes(node);
        }
        let id = ScopeId(self.slab.insert(Scope { form: form.clone(), users: 0, includes }));
        self.by_form.insert(form, id);
        id
    }

    pub(super) fn hold(&mut self, id: ScopeId) {
        self.slab.get_mut(id.0).expect("a scope in use exists").users += 1;
    }

    pub(super) fn release(&mut self, id: ScopeId) {
        let scope = self.slab.get_mut(id.0).expect("a scope in use exists");
        scope.users -= 1;
        if scope.users == 0 {
            let scope = self.slab.remove(id.0).expect("a scope in use exists");
            self.by_form.remove(&scope.form);
        }
    }

    /// A node is something else now.
    pub(super) fn settle(&mut self, id: NodeId, node: Option<&Node>) {
        for scope in self.by_form.values() {
            let scope = self.slab.get_mut(scope.0).expect("a listed scope exists");
            if scope.includes.len() <= id.slot() {
                scope.includes.resize(id.slot() + 1, false);
            }
            scope.includes[id.slot()] = node.is_some_and(|node| scope.form.includes(node));
        }
    }

    /// Whether every scope includes the nodes that it should, and no other.
    pub(super) fn are_true_of(&self, nodes: &Slab<Node>) -> bool {
        self.slab.iter().all(|(id, scope)| {
            nodes.iter().all(|(slot, node)| self.includes(ScopeId(id), NodeId(slot)) == scope.form.includes(node))
        })
    }
}
