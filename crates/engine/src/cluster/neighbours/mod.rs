//! Who is near whom: for every selector that some pod has an opinion about, how many such pods are in each domain.
//!
//! A *tag* stands for the pods that a selector is about, an *axis* for a label of nodes and its domains, a *stance* for a
//! wish that pods hold about the pods of a tag on an axis, and a *tally* counts pods of a tag, or holders of a stance, by
//! domain. A *scope* is the nodes on which pods count that are to be spread. All are held once, and only as long as a pod is there whom they matter to: pods that do not care about others,
//! and whom nobody cares about, cost nothing. The tallies follow every change of a node's load, in a trial too.
//!
//! It must not know what follows from the numbers: that is for filters and scores.

mod axis;
mod kin;
pub(crate) mod rules;
mod scope;
mod tags;
mod tally;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use axis::Axis;
pub(crate) use kin::Kin;
pub(crate) use rules::{Evenness, Own, Rules};
use scope::Scopes;
pub(crate) use tags::TagSet;
use tags::{Form, Tags};
use tally::{Sort, Tally};

use super::node::Node;
use crate::model::class::ClassSpec;
use crate::model::company::{Company, PodTerm, SpreadTerm};
use crate::model::ids::{AxisId, ClassId, NodeId, PodId, Slab, StanceId, TagId, TallyId};
use crate::model::labels::Labels;

/// A wish for company, or against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// They must be near.
    Seeks,
    /// They must not be near.
    Shuns,
    /// They are welcome so much, or unwelcome below zero.
    Prefers(i32),
}

/// A wish that pods hold about the pods of a tag.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stance {
    wish: Wish,
    tag: TagId,
    axis: AxisId,
    users: u32,
    /// Where the holders are.
    tally: TallyId,
}

/// Everything that is known of who is near whom.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Neighbours {
    namespaces: BTreeMap<String, Labels>,
    pub(super) kin: Kin,
    tags: Tags,
    axes: Slab<Axis>,
    axes_by_key: BTreeMap<String, AxisId>,
    scopes: Scopes,
    stances: Slab<Stance>,
    stances_by_form: BTreeMap<(Wish, TagId, AxisId), StanceId>,
    tallies: Slab<Tally>,
    tallies_by_form: BTreeMap<(Sort, AxisId), TallyId>,
}

/// How somebody counts near a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// On the node.
    There,
    /// The node is kept free for it.
    Expected,
}

/// What a class's terms brought that was not there before.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// Pods that they are about have to be given these.
    pub(super) tags: Vec<TagId>,
    /// Pods that are there have to be counted in these.
    pub(super) tallies: Vec<TallyId>,
    /// The classes of pods that these tags are about have to mind something else.
    pub(super) stirred: Vec<TagId>,
}

impl Neighbours {
    // Reading.

    /// A label and its domains.
    pub(crate) fn axis(&self, id: AxisId) -> &Axis {
        self.axes.get(id.0).expect("an axis in use exists")
    }

    /// A count by domain.
    pub(crate) fn tally(&self, id: TallyId) -> &Tally {
        self.tallies.get(id.0).expect("a tally in use exists")
    }

    /// How many of a sort are in the domain of a node; `None` if the node is in none.
    pub(crate) fn count_near(&self, id: TallyId, node: NodeId) -> Option<u32> {
        let tally = self.tally(id);
        self.axis(tally.axis).domain(node).map(|domain| tally.count(domain))
    }

    /// The tags of a pod.
    pub(crate) fn tags_of(&self, namespace: &str, labels: &Labels) -> TagSet {
        self.tags.of_pod(namespace, self.labels_of(namespace), labels)
    }

    /// The classes of pods that a tag is about.
    pub(super) fn bearers(&self, tag: TagId) -> &[ClassId] {
        &self.tags.get(tag).bearers
    }

    /// The pods that a tag is about.
    pub(super) fn about(&self, tag: TagId) -> BTreeSet<PodId> {
        let is_about =
            |namespace: &str, labels: &Labels| self.tags.is_about(tag, namespace, self.labels_of(namespace), labels);
        match self.tags.namespaces(tag) {
            Some(names) => self.kin.matching_in(names, is_about),
            None => self.kin.matching(is_about),
        }
    }

    fn labels_of(&self, namespace: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(namespace).unwrap_or(&NONE)
    }

    /// Which pods a tally counts by their tag; none if it counts holders.
    pub(super) fn tag_counted(&self, tally: TallyId) -> Option<TagId> {
        match self.tally(tally).sort {
            Sort::Tagged(tag) | Sort::Spread { tag, .. } => Some(tag),
            Sort::Holding(_) => None,
        }
    }

    /// Whether a tally leaves out those who are on their way out.
    pub(super) fn counts_who_stays(&self, tally: TallyId) -> bool {
        self.tally(tally).scope().is_some()
    }

    /// Whether pods on a node count in a tally.
    pub(crate) fn counts_on(&self, tally: TallyId, node: NodeId) -> bool {
        self.domain_counted(self.tally(tally), node).is_some()
    }

    /// The domain in which a pod on a node counts, if it does.
    fn domain_counted(&self, tally: &Tally, node: NodeId) -> Option<u32> {
        let counts = tally.scope().is_none_or(|scope| self.scopes.includes(scope, node));
        self.axis(tally.axis).domain(node).filter(|_| counts)
    }

    // Namespaces and nodes.

    /// Takes the labels of a namespace, none if it is gone. Says whether that is news.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) -> bool {
        let before = self.labels_of(name).clone();
        match labels {
            Some(labels) => _ = self.namespaces.insert(name.to_owned(), labels),
            None => _ = self.namespaces.remove(name),
        }
        *self.labels_of(name) != before
    }

    /// Puts a node into its domains. Nobody is counted on it meanwhile.
    pub(super) fn settle(&mut self, id: NodeId, node: Option<&Node>) {
        self.settle_levels(id, false);
        for axis in self.axes_by_key.values() {
            let axis = self.axes.get_mut(axis.0).expect("a listed axis exists");
            axis.settle(id, node.and_then(|node| node.labels.get(&axis.key)).map(String::as_str));
        }
        self.scopes.settle(id, node);
        self.settle_levels(id, true);
    }

    /// Has a node's domains taken note of it where somebody is to be spread, or no longer.
    fn settle_levels(&mut self, id: NodeId, add: bool) {
        let spread =
            self.tallies_by_form.iter().filter(|((sort, _), _)| matches!(sort, Sort::Spread { levels: true, .. }));
        for tally in spread.map(|(_, tally)| *tally).collect::<Vec<_>>() {
            if let Some(domain) = self.domain_counted(self.tally(tally), id) {
                self.tallies.get_mut(tally.0).expect("a listed tally exists").settle(domain, add);
            }
        }
    }

    /// Counts a pod near a node, or no longer, in these tallies.
    pub(super) fn count(
        &mut self,
        tallies: impl Iterator<Item = TallyId>,
        node: NodeId,
        presence: Presence,
        add: bool,
    ) {
        for id in tallies {
            let Some(domain) = self.domain_counted(self.tally(id), node) else { continue };
            let tally = self.tallies.get_mut(id.0).expect("a tally in use exists");
            match presence {
                Presence::There => tally.change(domain, add),
                Presence::Expected => tally.change_expected(domain, add),
            }
        }
    }

    // Classes.

    /// Takes in the terms of a class; the caller owes one `release_terms`.
    pub(super) fn acquire_terms(&mut self, spec: &ClassSpec, company: &Company, nodes: &Slab<Node>) -> (Own, Brought) {
        let mut brought = Brought::default();
        let mut own = Own::default();
        if !company.seeks.is_empty() {
            // The pod that is sought matches all terms at once.
            let tag = self.acquire_tag(company.seeks.iter().map(|term| term.pods.clone()).collect(), &mut brought);
            own.seeks_tag = Some(tag);
            own.tags.push(tag);
        }
        let shuns = company.shuns.iter().map(|term| (Wish::Shuns, term));
        let prefers = company.prefers.iter().map(|one| (Wish::Prefers(one.weight), &one.term));
        let seeks = company.seeks.iter().map(|term| (Wish::Seeks, term));
        for (wish, term) in seeks.chain(shuns).chain(prefers) {
            self.acquire_term(wish, term, &mut own, nodes, &mut brought);
        }
        let spread = &company.spread;
        own.spread_must = self.acquire_spread(spec, (&spread.must, true), true, &mut own, nodes, &mut brought);
        let should = self.acquire_spread(
            spec,
            (&spread.should, false),
            !spread.bears_missing_labels,
            &mut own,
            nodes,
            &mut brought,
        );
        own.spread_should = should.into_iter().map(|(tally, _)| tally).collect();
        (own, brought)
    }

    /// Takes in terms by which pods are spread, on nodes that have all their labels if that is asked for.
    fn acquire_spread(
        &mut self,
        spec: &ClassSpec,
        (terms, levels): (&[SpreadTerm], bool),
        all_labels: bool,
        own: &mut Own,
        nodes: &Slab<Node>,
        brought: &mut Brought,
    ) -> Vec<(TallyId, TagId)> {
        let keys: BTreeSet<String> = terms.iter().map(|term| term.topology_key.clone()).collect();
        let keys: Vec<String> = keys.into_iter().filter(|_| all_labels).collect();
        let mut taken = Vec::new();
        for term in terms {
            let tag = self.acquire_tag(vec![term.pods.clone()], brought);
            own.tags.push(tag);
            let axis = self.axis_of(&term.topology_key, nodes);
            let scope = self.scopes.of(scope::Form::new(spec, term, &keys), nodes);
            let tally = self.acquire_tally(Sort::Spread { tag, scope, levels }, axis, brought);
            own.tallies.push(tally);
            taken.push((tally, tag));
        }
        taken
    }

    fn acquire_term(&mut self, wish: Wish, term: &PodTerm, own: &mut Own, nodes: &Slab<Node>, brought: &mut Brought) {
        let tag = self.acquire_tag(vec![term.pods.clone()], brought);
        own.tags.push(tag);
        let axis = self.axis_of(&term.topology_key, nodes);
        let sought = own.seeks_tag.filter(|_| wish == Wish::Seeks).unwrap_or(tag);
        let tally = self.acquire_tally(Sort::Tagged(sought), axis, brought);
        own.tallies.push(tally);
        match wish {
            Wish::Seeks => own.seeks.push(tally),
            Wish::Shuns => own.shuns.push(tally),
            Wish::Prefers(weight) => own.prefers.push((tally, weight)),
        }
        let form = (wish, tag, axis);
        if let Some(id) = self.stances_by_form.get(&form) {
            self.stances.get_mut(id.0).expect("a listed stance exists").users += 1;
            own.stances.push(*id);
            return;
        }
        let id = StanceId(self.stances.insert(Stance { wish, tag, axis, users: 1, tally: TallyId(u32::MAX) }));
        // Nobody holds it yet, so there is nobody to be counted.
        let holders = self.acquire_tally(Sort::Holding(id), axis, &mut Brought::default());
        self.stances.get_mut(id.0).expect("just put there").tally = holders;
        self.stances_by_form.insert(form, id);
        self.tags.get_mut(tag).stances.push(id);
        brought.stirred.push(tag);
        own.stances.push(id);
    }

    fn acquire_tag(&mut self, form: Form, brought: &mut Brought) -> TagId {
        let (id, new) = self.tags.acquire(form);
        if new {
            brought.tags.push(id);
        }
        id
    }

    /// The axis of a label; whoever makes a tally on it holds it.
    fn axis_of(&mut self, key: &str, nodes: &Slab<Node>) -> AxisId {
        if let Some(id) = self.axes_by_key.get(key) {
            return *id;
        }
        let mut axis = Axis::new(key.to_owned());
        for (slot, node) in nodes.iter() {
            axis.settle(NodeId(slot), node.labels.get(key).map(String::as_str));
        }
        let id = AxisId(self.axes.insert(axis));
        self.axes_by_key.insert(key.to_owned(), id);
        id
    }

    fn acquire_tally(&mut self, sort: Sort, axis: AxisId, brought: &mut Brought) -> TallyId {
        let known = self.tallies_by_form.get(&(sort, axis)).copied();
        let id = known.unwrap_or_else(|| self.new_tally(sort, axis, brought));
        self.tallies.get_mut(id.0).expect("a listed tally exists").users += 1;
        id
    }

    fn new_tally(&mut self, sort: Sort, axis: AxisId, brought: &mut Brought) -> TallyId {
        let id = TallyId(self.tallies.insert(Tally::new(sort, axis)));
        self.tallies_by_form.insert((sort, axis), id);
        self.axes.get_mut(axis.0).expect("an axis in use exists").users += 1;
        if let Sort::Tagged(tag) | Sort::Spread { tag, .. } = sort {
            self.tags.get_mut(tag).tallies.push(id);
            brought.tallies.push(id);
            brought.stirred.push(tag);
        }
        if let Sort::Spread { scope, levels, .. } = sort {
            self.scopes.hold(scope);
            if levels {
                self.level(id);
            }
        }
        id
    }

    /// Has a tally of those who are to be spread take note of all nodes that count.
    fn level(&mut self, id: TallyId) {
        let tally = self.tally(id);
        let nodes = (0..self.axis(tally.axis).node_slots()).map(|slot| NodeId(slot as u32));
        let domains: Vec<u32> = nodes.filter_map(|node| self.domain_counted(tally, node)).collect();
        let tally = self.tallies.get_mut(id.0).expect("a tally in use exists");
        for domain in domains {
            tally.settle(domain, true);
        }
    }

    /// Gives up the terms of a class that is gone. Says which tags are about classes that have to mind something else.
    pub(super) fn release_terms(&mut self, own: Own) -> Vec<TagId> {
        let mut stirred = Vec::new();
        for id in own.stances {
            let stance = self.stances.get_mut(id.0).expect("a stance in use exists");
            stance.users -= 1;
            if stance.users == 0 {
                let stance = self.stances.remove(id.0).expect("a stance in use exists");
                self.stances_by_form.remove(&(stance.wish, stance.tag, stance.axis));
                self.tags.get_mut(stance.tag).stances.retain(|other| *other != id);
                self.release_tally(stance.tally);
                stirred.push(stance.tag);
            }
        }
        for id in own.tallies {
            if let Some(tag) = self.release_tally(id) {
                stirred.push(tag);
            }
        }
        for tag in &own.tags {
            // With it go all that is said about it.
            self.tags.release(*tag);
        }
        stirred.retain(|tag| self.tags.exists(*tag));
        stirred
    }

    fn release_tally(&mut self, id: TallyId) -> Option<TagId> {
        let tally = self.tallies.get_mut(id.0).expect("a tally in use exists");
        tally.users -= 1;
        if tally.users > 0 {
            return None;
        }
        let tally = self.tallies.remove(id.0).expect("a tally in use exists");
        self.tallies_by_form.remove(&(tally.sort, tally.axis));
        let axis = self.axes.get_mut(tally.axis.0).expect("an axis in use exists");
        axis.users -= 1;
        if axis.users == 0 {
            let axis = self.axes.remove(tally.axis.0).expect("an axis in use exists");
            self.axes_by_key.remove(&axis.key);
        }
        if let Some(scope) = tally.scope() {
            self.scopes.release(scope);
        }
        let (Sort::Tagged(tag) | Sort::Spread { tag, .. }) = tally.sort else { return None };
        self.tags.get_mut(tag).tallies.retain(|other| *other != id);
        Some(tag)
    }

    /// A class of pods with these tags is new.
    pub(super) fn bear(&mut self, tags: &TagSet, class: ClassId) {
        for tag in tags {
            self.tags.hold(*tag);
            self.tags.get_mut(*tag).bearers.push(class);
        }
    }

    /// A class of pods with these tags is gone.
    pub(super) fn bear_no_more(&mut self, tags: &TagSet, class: ClassId) {
        for tag in tags {
            self.tags.get_mut(*tag).bearers.retain(|other| *other != class);
            self.tags.release(*tag);
        }
    }

    // Checking.

    /// Counts everybody afresh, pods by their own labels, and compares.
    pub(crate) fn audit<'p>(&self, pods: impl Iterator<Item = Neighbour<'p>>, nodes: &Slab<Node>) -> bool {
        let mut fresh = self.clone();
        for tally in self.tallies_by_form.values() {
            fresh.tallies.get_mut(tally.0).expect("a listed tally exists").clear();
            if matches!(self.tally(*tally).sort, Sort::Spread { levels: true, .. }) {
                fresh.level(*tally);
            }
        }
        for pod in pods {
            let tags = self.tags_of(pod.namespace, pod.labels);
            let tagged = tags.iter().flat_map(|tag| &self.tags.get(*tag).tallies).copied();
            let tagged = tagged.filter(|tally| !(pod.leaves && self.counts_who_stays(*tally)));
            let held = pod.own.into_iter().flat_map(|own| &own.stances);
            let held = held.map(|id| self.stances.get(id.0).expect("a stance in use exists").tally);
            fresh.count(tagged.chain(held), pod.node, pod.presence, true);
        }
        fresh.tallies == self.tallies && self.scopes.are_true_of(nodes)
    }
}

/// Somebody on a node, or for whom one is kept free.
#[derive(Debug)]
pub(crate) struct Neighbour<'p> {
    pub(crate) node: NodeId,
    pub(crate) presence: Presence,
    pub(crate) namespace: &'p str,
    pub(crate) labels: &'p Labels,
    /// The terms of its class.
    pub(crate) own: Option<&'p Own>,
    pub(crate) leaves: bool,
}
