//! Intake: news of the API becomes observations for the engine.
//!
//! No object is kept: a pod leaves a card, a group object what it defines and shows. A list that starts anew is marked
//! and swept, so that what went away unseen is found. Nothing here waits or sends.

mod beside;
mod budget;
pub(crate) mod card;
pub(crate) mod class;
mod company;
mod features;
pub(crate) mod groups;
pub(crate) mod instance;
mod node;
pub(crate) mod owners;
mod pod;
mod priorities;
pub(crate) mod raw;
mod replicas;
pub(crate) mod selectors;
pub(crate) mod spread;
pub(crate) mod storage;
mod sweep;
#[cfg(test)]
mod tests;
mod unsupported;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::conditions::DISRUPTION_TARGET;
use muster_api::keys::events::{GROUP_REFERENCE_CHANGED, GROUP_REFERENCE_CONFLICT};
use muster_api::keys::group_reasons::PREEMPTION_BY_SCHEDULER;
use muster_api::makers::GangedOwners;
use muster_api::wire::condition::Condition;
use muster_api::wire::{Node, Pod, PodDisruptionBudget};
use muster_engine::Observation;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{Membership, PodName, PodSpec, RefusalKind};

use crate::clock::millis;
use crate::dialect::{Dialect, GroupObject, Reference};
use crate::gates::FeatureGates;
use crate::settings::{Profile, TaintKey};
use beside::Beside;
use card::{Card, said};
use groups::{GroupBook, ObjectKey};
use owners::Owning;
use pod::{pod_name, refusal, stage};
use priorities::Priorities;
use raw::{Guarded, RawObject};
use selectors::Selecting;
use storage::Storage;
use sweep::{Sweep, Turn};

pub(crate) use sweep::Turn as WatchTurn;

/// Stands between the scheduler's name and the word for whom, in the condition of a pod that is evicted for others.
pub(crate) const MARK: &str = ": preempting to accommodate a higher priority ";
/// The reason of the condition of a pod that goes by the eviction API.
const EVICTION_BY_API: &str = "EvictionByEvictionAPI";
/// The reason of an event about a pod that cannot be read.
const UNREADABLE: &str = "Unreadable";

/// News from a watch. Most are of pods, which are the largest, so there is nothing to gain by boxing them.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum News {
    /// Of pods.
    Pod(Turn<Guarded<Pod>>),
    /// Of nodes.
    Node(Turn<Guarded<Node>>),
    /// Of priority classes.
    Class(Turn<Guarded<PriorityClass>>),
    /// Of namespaces.
    Namespace(Turn<Guarded<Namespace>>),
    /// Of disruption budgets.
    Budget(Turn<Guarded<PodDisruptionBudget>>),
    /// Of objects that select pods.
    Selector(Selecting, Turn<RawObject>),
    /// Of claims and volumes.
    Storage(Storage, Turn<RawObject>),
    /// Of objects that own pods and may want them in gangs.
    Owner(Owning, Turn<RawObject>),
    /// Of the objects of a dialect.
    Group(usize, Turn<RawObject>),
}

/// What news came to.
#[derive(Debug, Default)]
pub(crate) struct Catch {
    /// What the engine is to be told.
    pub(crate) observations: Vec<Observation>,
    /// What users are to be told of a pod at once, by reason and sentence.
    pub(crate) notes: Vec<(Arc<PodName>, &'static str, String)>,
    /// Pods that no longer wait.
    pub(crate) settled: Vec<Arc<PodName>>,
    /// Members of groups that begin to wait.
    pub(crate) newcomers: Vec<Arc<PodName>>,
    /// What could not be read, for the log.
    pub(crate) complaints: Vec<String>,
}

/// The books that news is entered in.
pub(crate) struct Intake {
    profiles: Vec<Profile>,
    startup_taints: Vec<TaintKey>,
    /// By the name that pods go by.
    profiles_by_name: BTreeMap<String, u16>,
    gates: FeatureGates,
    pods: BTreeMap<Arc<str>, Card>,
    nodes: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    /// By namespace and name.
    budgets: BTreeSet<(String, String)>,
    priorities: Priorities,
    beside: Beside,
    pub(crate) groups: GroupBook,
    pod_sweep: Sweep<Arc<str>>,
    node_sweep: Sweep<String>,
    namespace_sweep: Sweep<String>,
    class_sweep: Sweep<String>,
    budget_sweep: Sweep<(String, String)>,
    group_sweeps: Vec<Sweep<ObjectKey>>,
}

impl Intake {
    pub(crate) fn new(
        profiles: Vec<Profile>,
        startup_taints: Vec<TaintKey>,
        gates: FeatureGates,
        ganged: GangedOwners,
        dialects: Vec<Box<dyn Dialect>>,
    ) -> Self {
        let names = profiles
            .iter()
            .zip(0_u16..)
            .flat_map(|(profile, number)| profile.scheduler_names.iter().map(move |name| (name.clone(), number)));
        let profiles_by_name = names.collect();
        Self {
            beside: Beside::new(&profiles, ganged),
            profiles,
            startup_taints,
            profiles_by_name,
            gates,
            pods: BTreeMap::new(),
            nodes: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            budgets: BTreeSet::new(),
            priorities: Priorities::default(),
            group_sweeps: dialects.iter().map(|_| Sweep::default()).collect(),
            groups: GroupBook::new(dialects, gates),
            pod_sweep: Sweep::default(),
            node_sweep: Sweep::default(),
            namespace_sweep: Sweep::default(),
            class_sweep: Sweep::default(),
            budget_sweep: Sweep::default(),
        }
    }

    /// Whether every watch has delivered a whole list.
    pub(crate) fn is_synced(&self) -> bool {
        self.pod_sweep.is_done()
            && self.node_sweep.is_done()
            && self.namespace_sweep.is_done()
            && self.class_sweep.is_done()
            && self.budget_sweep.is_done()
            && self.beside.is_synced()
            && self.group_sweeps.iter().all(Sweep::is_done)
    }

    /// The card of a pod.
    pub(crate) fn card(&self, uid: &str) -> Option<&Card> {
        self.pods.get(uid)
    }

    /// Enters news in the books.
    pub(crate) fn take(&mut self, news: News, now_ms: u64) -> Catch {
        let mut catch = Catch::default();
        match news {
            News::Pod(turn) => self.pod_turn(turn, now_ms, &mut catch),
            News::Node(turn) => self.node_turn(turn, &mut catch),
            News::Class(turn) => self.class_turn(turn, &mut catch),
            News::Namespace(turn) => self.namespace_turn(turn, &mut catch),
            News::Budget(turn) => self.budget_turn(turn, &mut catch),
            News::Selector(kind, turn) => {
                let news = self.beside.selector_turn(kind, turn);
                self.renewed(news, &mut catch);
            }
            News::Storage(kind, turn) => {
                let news = self.beside.storage_turn(kind, turn);
                self.renewed(news, &mut catch);
            }
            News::Owner(kind, turn) => {
                let news = self.beside.owner_turn(kind, turn);
                self.renewed(news, &mut catch);
            }
            News::Group(dialect, turn) => self.group_turn(dialect, turn, &mut catch),
        }
        catch
    }

    fn pod_turn(&mut self, turn: Turn<Guarded<Pod>>, now_ms: u64, catch: &mut Catch) {
        let uid =
            |object: &Guarded<Pod>| Arc::<str>::from(kube::Resource::meta(object).uid.as_deref().unwrap_or_default());
        let known = || self.pods.keys().cloned().collect();
        let (object, gone) = self.pod_sweep.turn(turn, uid, known);
        for uid in gone {
            self.pod_gone(&uid, catch);
        }
        match object.map(|object| object.0) {
            Some(Ok(pod)) => self.pod_seen(&pod, now_ms, catch),
            Some(Err(unreadable)) => {
                let text = raw::complaint("Pod", &unreadable);
                if let Some(id) = raw::known_name(&unreadable) {
                    catch.notes.push((Arc::new(id), UNREADABLE, text.clone()));
                }
                catch.complaints.push(text);
            }
            None => {}
        }
    }

    fn node_turn(&mut self, turn: Turn<Guarded<Node>>, catch: &mut Catch) {
        let name = |object: &Guarded<Node>| kube::Resource::meta(object).name.clone().unwrap_or_default();
        let known = || self.nodes.iter().cloned().collect();
        let (object, gone) = self.node_sweep.turn(turn, name, known);
        for name in gone {
            if self.nodes.remove(&name) {
                catch.observations.push(Observation::NodeGone { name });
            }
        }
        match object.map(|object| object.0) {
            Some(Ok(object)) => match node::node(&object, &self.startup_taints) {
                Ok(spec) => {
                    self.nodes.insert(spec.name.clone());
                    catch.observations.push(Observation::NodeSeen(spec));
                }
                Err(error) => catch.complaints.push(error.on(object.object_name()).to_string()),
            },
            Some(Err(unreadable)) => catch.complaints.push(raw::complaint("Node", &unreadable)),
            None => {}
        }
    }

    fn class_turn(&mut self, turn: Turn<Guarded<PriorityClass>>, catch: &mut Catch) {
        let name = |object: &Guarded<PriorityClass>| kube::Resource::meta(object).name.clone().unwrap_or_default();
        let known = || self.priorities.names().cloned().collect();
        let (object, gone) = self.class_sweep.turn(turn, name, known);
        let mut changed = false;
        for name in gone {
            changed |= self.priorities.gone(&name);
        }
        match object.map(|object| object.0) {
            Some(Ok(class)) => changed |= self.priorities.seen(&class),
            Some(Err(unreadable)) => catch.complaints.push(raw::complaint("PriorityClass", &unreadable)),
            None => {}
        }
        if changed {
            catch.observations.extend(self.groups.refresh_all(&self.priorities));
        }
    }

    fn namespace_turn(&mut self, turn: Turn<Guarded<Namespace>>, catch: &mut Catch) {
        let name = |object: &Guarded<Namespace>| kube::Resource::meta(object).name.clone().unwrap_or_default();
        let known = || self.namespaces.iter().cloned().collect();
        let (object, gone) = self.namespace_sweep.turn(turn, name, known);
        for name in gone {
            if self.namespaces.remove(&name) {
                catch.observations.push(Observation::NamespaceGone { name });
            }
        }
        match object.map(|object| object.0) {
            Some(Ok(namespace)) => {
                let (name, labels) = (namespace.metadata.name.unwrap_or_default(), namespace.metadata.labels);
                self.namespaces.insert(name.clone());
                let labels = labels.unwrap_or_default();
                catch.observations.push(Observation::NamespaceSeen { name, labels });
            }
            Some(Err(unreadable)) => catch.complaints.push(raw::complaint("Namespace", &unreadable)),
            None => {}
        }
    }

    fn budget_turn(&mut self, turn: Turn<Guarded<PodDisruptionBudget>>, catch: &mut Catch) {
        let key = |object: &Guarded<PodDisruptionBudget>| {
            let meta = kube::Resource::meta(object);
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        let known = || self.budgets.iter().cloned().collect();
        let (object, gone) = self.budget_sweep.turn(turn, key, known);
        for key in gone {
            if self.budgets.remove(&key) {
                let (namespace, name) = key;
                catch.observations.push(Observation::BudgetGone { namespace, name });
            }
        }
        match object.map(|object| object.0) {
            Some(Ok(object)) => match budget::budget(&object) {
                Ok(spec) => {
                    self.budgets.insert((spec.namespace.clone(), spec.name.clone()));
                    catch.observations.push(Observation::BudgetSeen(spec));
                }
                Err(error) => catch.complaints.push(error.on(object.object_name()).to_string()),
            },
            Some(Err(unreadable)) => catch.complaints.push(raw::complaint("PodDisruptionBudget", &unreadable)),
            None => {}
        }
    }

    /// Tells anew of pods of which other objects say something else now.
    fn renewed(&mut self, (pods, complaint): beside::News, catch: &mut Catch) {
        for spec in pods {
            if let Some(card) = self.pods.get_mut(spec.id.uid.as_str()) {
                card.refused = spec.refused.is_some();
                card.held &= card.refused;
            }
            catch.observations.push(Observation::PodSeen(spec));
        }
        catch.complaints.extend(complaint);
    }

    fn group_turn(&mut self, dialect: usize, turn: Turn<RawObject>, catch: &mut Catch) {
        let key = |object: &RawObject| ObjectKey {
            dialect,
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
        };
        match turn {
            Turn::Absent => self.groups.set_served(dialect, false),
            Turn::Begin | Turn::Gone(_) => {}
            Turn::Listed(_) | Turn::Complete | Turn::Seen(_) => self.groups.set_served(dialect, true),
        }
        let known = || self.groups.objects_of(dialect).cloned().collect();
        let (object, gone) = self.group_sweeps[dialect].turn(turn, key, known);
        for key in gone {
            catch.observations.extend(self.groups.object_gone(&key, &self.priorities));
        }
        if let Some(object) = object {
            let key = key(&object);
            let was_led = self.groups.is_led(&key);
            catch.observations.extend(self.group_text(dialect, object.text.get()));
            let group = self.groups.instances_of(&key).next().cloned();
            if let Some(group) = group.filter(|_| was_led || self.groups.is_led(&key)) {
                self.replica_changed(&group, catch);
            }
        }
    }

    /// Takes in a group object from the answer to a write. It may come after the news that the object is gone, or is
    /// another one by now: then it is old.
    pub(crate) fn group_answer(&mut self, dialect: usize, text: &str) -> Vec<Observation> {
        let metadata = raw::metadata_of(text);
        let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
        let known = self.groups.object(&ObjectKey { dialect, namespace, name });
        if known.is_none_or(|known| Some(&known.uid) != metadata.uid.as_ref()) {
            return Vec::new();
        }
        self.group_text(dialect, text)
    }

    /// Takes in the text of a group object.
    fn group_text(&mut self, dialect: usize, text: &str) -> Vec<Observation> {
        let mut object: GroupObject = self.groups.dialects[dialect].read(text);
        if object.name.is_empty() {
            return Vec::new();
        }
        object.members_since_ms = self.members_since(&object);
        self.groups.object_seen(dialect, object, &self.priorities)
    }

    fn pod_gone(&mut self, uid: &Arc<str>, catch: &mut Catch) {
        let Some(card) = self.pods.remove(uid) else { return };
        self.beside.forget(&card.id.namespace, uid);
        catch.observations.push(Observation::PodGone { uid: uid.to_string() });
        if let Some(group) = &card.group {
            catch.observations.extend(self.groups.leave(group, uid));
            self.leader_changed(group, uid, catch);
        }
        catch.settled.push(card.id);
    }

    fn pod_seen(&mut self, pod: &Pod, now_ms: u64, catch: &mut Catch) {
        let id = pod_name(pod);
        if id.uid.is_empty() {
            return catch.complaints.push(format!("{}: metadata.uid: \"\": must be set", pod.object_name()));
        }
        let uid: Arc<str> = id.uid.as_str().into();
        let named = self.named_group(pod);
        let has_group = |card: &Card| card.group.is_some() || card.broken.is_some();
        let is_single = self.pods.get(&uid).is_some_and(|card| card.ours && !has_group(card));
        let waits = pod.spec.node_name.is_empty();
        if is_single && waits && !matches!(named.of, Ok(None)) && self.beside.may_join_late(pod) {
            // The reference that it was held back for: it begins anew, as a member.
            self.pod_gone(&uid, catch);
        }
        let names_group = !matches!(named.of, Ok(None)) || self.pods.get(&uid).is_some_and(has_group);
        let known = self.pods.get(&uid).map(|card| card.id.clone());
        let id = known.clone().unwrap_or_else(|| Arc::new(id));
        let profile = self.profiles_by_name.get(&pod.spec.scheduler_name).copied();
        let ours = profile.is_some();
        let profile = profile.map(|number| (number, &self.profiles[usize::from(number)]));
        let (mut spec, flaw) = pod::pod(pod, id.clone(), profile);
        if let Some(flaw) = flaw.filter(|_| spec.node.is_some()) {
            catch.complaints.push(flaw.on(pod.object_name()).to_string());
        }
        let own = ours.then(|| spec.clone());
        if ours {
            spec = self.beside.add_to(pod, spec, names_group);
        }
        if known.is_none() {
            self.new_card(&uid, id.clone(), &named, pod, catch);
        }
        self.update_card(&uid, pod, &spec, &named, now_ms, catch);
        let held = self.held_by_replica(&uid).filter(|_| ours && spec.node.is_none());
        if let Some(card) = self.pods.get_mut(&uid).filter(|_| held.is_some()) {
            (card.held, card.refused) = (true, true);
        }
        spec.refused = spec.refused.or_else(|| held.clone());
        let Some(card) = self.pods.get(&uid) else { return };
        spec.membership =
            card.group.as_ref().map(|key| Membership { group: (**key).clone(), subset: card.subset.to_string() });
        spec.marked = self.is_marked(pod);
        if let Some(broken) = card.broken.as_ref().filter(|_| ours) {
            spec.refused = Some(broken.clone());
        }
        if !card.waits() {
            catch.settled.push(id);
        }
        if let Some(mut own) = own {
            (own.membership, own.marked) = (spec.membership.clone(), spec.marked);
            own.refused = card.broken.clone().or(own.refused);
            self.beside.remember(&uid, pod, own, &spec, (names_group, held));
        }
        let group = card.group.clone();
        catch.observations.push(Observation::PodSeen(spec));
        if let Some(group) = group {
            self.leader_changed(&group, &uid, catch);
        }
    }

    /// Whether the pod shows that a Muster of one of our names evicts it for others.
    fn is_marked(&self, pod: &Pod) -> bool {
        let target = Condition::find(&pod.status.conditions, DISRUPTION_TARGET).filter(|one| one.is_true());
        let by_us = |message: &str| {
            let name = message.split_once(MARK).map(|(name, _)| name);
            name.is_some_and(|name| self.profiles_by_name.contains_key(name))
        };
        // The eviction API writes its own word over ours when a pod goes.
        let goes_by_api = |one: &Condition| one.reason == EVICTION_BY_API && pod.metadata.deletion_timestamp.is_some();
        target.is_some_and(|one| goes_by_api(one) || (one.reason == PREEMPTION_BY_SCHEDULER && by_us(&one.message)))
    }

    /// The group that the pod names now.
    fn named_group(&self, pod: &Pod) -> Named {
        if !self.gates.generic_workload {
            return Named { of: Ok(None), conflict: false };
        }
        let mut found = Vec::new();
        for (number, dialect) in self.groups.dialects.iter().enumerate() {
            found.extend(dialect.reference(pod).map(|reference| (number, reference)));
        }
        if let [(first, _), (second, _), ..] = found.as_slice() {
            let names = [self.groups.dialects[*first].origin(), self.groups.dialects[*second].origin()];
            let reason = "the pod names groups in more than one way; which one counts is not guessed";
            let error = FieldPath::Root("metadata.annotations").invalid(&names, reason);
            return Named { of: Err(error), conflict: true };
        }
        let of = found.pop().map(|(number, reference)| reference.map(|reference| (number, reference))).transpose();
        Named { of, conflict: false }
    }

    fn new_card(&mut self, uid: &Arc<str>, id: Arc<PodName>, named: &Named, pod: &Pod, catch: &mut Catch) {
        let mut group: Option<Arc<GroupKey>> = None;
        let mut subset = "";
        let broken = named.of.as_ref().err().map(|error| refusal(RefusalKind::Reference, error.clone()));
        match &named.of {
            Ok(Some((dialect, reference))) => {
                let ours = self.profiles_by_name.contains_key(&pod.spec.scheduler_name);
                let member = (uid.clone(), ours);
                let joined = self.groups.join(*dialect, &id.namespace, reference, member, &self.priorities);
                catch.observations.extend(joined.1);
                group = Some(Arc::new(joined.0));
                subset = &reference.subset;
            }
            Err(error) if named.conflict => {
                catch.notes.push((id.clone(), GROUP_REFERENCE_CONFLICT, error.to_string()));
            }
            Ok(None) | Err(_) => {}
        }
        let card = Card {
            id,
            group,
            broken,
            subset: subset.into(),
            priority: pod.spec.priority.unwrap_or(0),
            ours: false,
            gated: false,
            refused: false,
            terminating: false,
            stage: card::Stage::Waiting,
            replica_size: replicas::size_for_worker(pod),
            created_ms: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| millis(time.0)),
            asked_ms: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| millis(time.0)),
            version: None,
            said: None,
            changed_reference: None,
            held: false,
        };
        self.pods.insert(uid.clone(), card);
    }

    fn update_card(
        &mut self,
        uid: &Arc<str>,
        pod: &Pod,
        spec: &PodSpec,
        named: &Named,
        now_ms: u64,
        catch: &mut Catch,
    ) {
        let Some(card) = self.pods.get_mut(uid) else { return };
        let waited = card.waits();
        card.ours = spec.ours;
        if card.gated && !spec.gated {
            card.asked_ms = now_ms;
        }
        card.gated = spec.gated;
        card.refused = spec.refused.is_some() || card.broken.is_some();
        let unnamed = card.group.is_none() && card.broken.is_none() && matches!(named.of, Ok(None));
        card.held = spec.ours && unnamed && self.beside.is_held(pod);
        card.terminating = spec.terminating;
        card.stage = stage(pod);
        card.said = said(pod).filter(|_| spec.ours);
        let version = pod.metadata.resource_version.as_deref().filter(|_| spec.ours && spec.node.is_none());
        card.version = version.map(Into::into);
        if card.waits() && !waited && (card.group.is_some() || card.refused) {
            catch.newcomers.push(card.id.clone());
        }
        if let Some(group) = &card.group {
            self.groups.member_changed(group);
        }
        let same = match (&named.of, &card.group) {
            (Ok(Some((dialect, reference))), Some(key)) => {
                let named = reference.key(self.groups.dialects[*dialect].origin(), &card.id.namespace);
                named == **key && *reference.subset == *card.subset
            }
            (Ok(None), None) => card.broken.is_none(),
            (Err(_), None) => card.broken.is_some(),
            _ => false,
        };
        if same {
            card.changed_reference = None;
            return;
        }
        let now = named.text();
        if card.changed_reference.as_deref() != Some(now.as_str()) {
            card.changed_reference = Some(now.as_str().into());
            let none = || if card.broken.is_some() { "a broken reference" } else { "no group" }.to_owned();
            let was = card.group.as_ref().map_or_else(none, |key| format!("the group {key}"));
            let sentence = format!("The pod was first seen with {was}; it now names {now}. That has no effect.");
            catch.notes.push((card.id.clone(), GROUP_REFERENCE_CHANGED, sentence));
        }
    }
}

/// What a pod says of its group.
struct Named {
    /// The dialect and the reference, nothing, or what is wrong.
    of: Result<Option<(usize, Reference)>, InvalidField>,
    /// More than one dialect is used.
    conflict: bool,
}

impl Named {
    fn text(&self) -> String {
        match &self.of {
            Ok(None) => "no group".to_owned(),
            Err(error) => error.to_string(),
            Ok(Some((_, reference))) => {
                let parts = [&reference.object, &reference.group, &reference.replica, &reference.subset];
                let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
                format!("the group {}", parts.join("/"))
            }
        }
    }
}
