//! What a pod asks for that other objects say: among whom it is spread if it does not say, where its volumes are, and
//! whether it belongs to a gang.
//!
//! Such objects come and change whenever they like, so pods of ours that wait are kept as they are by their own word, and
//! are told anew when something changes that concerns them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::makers::GangedOwners;
use muster_api::wire::Pod;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::company::Spread;
use muster_engine::model::pod::{PodRefusal, PodSpec, RefusalKind};

use super::owners::{self, Owner as GangOwner, Owners, Owning};
use super::pod::refusal;
use super::raw::{RawObject, names};
use super::selectors::{self, Owner, Selecting, Selectors};
use super::spread;
use super::storage::{self, Storage, Used, Volumes};
use super::sweep::{Sweep, Turn};
use crate::settings::{Profile, spreads_by_default};

/// A pod as it is by its own word, and what other objects have a say in.
struct Own {
    spec: PodSpec,
    owner: Option<Owner>,
    says_how_to_spread: bool,
    claims: Vec<Used>,
    /// The owner that may want it in a gang, if it names no group itself.
    gang_owner: Option<GangOwner>,
    /// Why its group does not take it yet, as far as only its leader and its controller can tell.
    held: Option<Arc<PodRefusal>>,
    /// What other objects made of it when they were last asked.
    told: Option<(Arc<ClassSpec>, Option<Arc<PodRefusal>>)>,
}

/// Other objects, and the pods that wait.
pub(super) struct Beside {
    /// How pods are spread that do not say, by profile.
    spread_defaults: Vec<Spread>,
    selectors: Selectors,
    selector_sweeps: BTreeMap<Selecting, Sweep<selectors::Key>>,
    volumes: Volumes,
    storage_sweeps: BTreeMap<Storage, Sweep<(String, String)>>,
    owners: Owners,
    owner_sweeps: BTreeMap<Owning, Sweep<owners::Key>>,
    /// The pods of ours that wait, by namespace and UID.
    waiting: BTreeMap<String, BTreeMap<Arc<str>, Own>>,
}

/// The pods that are something else now, and what could not be read.
pub(super) type News = (Vec<PodSpec>, Option<String>);

impl Beside {
    pub(super) fn new(profiles: &[Profile], ganged: GangedOwners) -> Self {
        let spread_defaults: Vec<Spread> = profiles.iter().map(|profile| profile.spread_defaults.clone()).collect();
        // Who spreads nobody by default need not know who selects pods.
        let spreads = spreads_by_default(profiles);
        Self {
            spread_defaults,
            selectors: Selectors::default(),
            selector_sweeps: Selecting::ALL
                .into_iter()
                .filter(|_| spreads)
                .map(|kind| (kind, Sweep::default()))
                .collect(),
            volumes: Volumes::default(),
            storage_sweeps: Storage::ALL.into_iter().map(|kind| (kind, Sweep::default())).collect(),
            owners: Owners::new(ganged, profiles.iter().flat_map(|one| one.scheduler_names.clone()).collect()),
            owner_sweeps: owners::watched(ganged).map(|kind| (kind, Sweep::default())).collect(),
            waiting: BTreeMap::new(),
        }
    }

    /// Whether every watch has delivered a whole list.
    pub(super) fn is_synced(&self) -> bool {
        self.selector_sweeps.values().all(Sweep::is_done)
            && self.storage_sweeps.values().all(Sweep::is_done)
            && self.owner_sweeps.values().all(Sweep::is_done)
    }

    pub(super) fn selector_turn(&mut self, kind: Selecting, turn: Turn<RawObject>) -> News {
        let Some(sweep) = self.selector_sweeps.get_mut(&kind) else { return News::default() };
        let key = |object: &RawObject| {
            let (namespace, name) = names(object);
            (kind, namespace, name)
        };
        let (object, gone) = sweep.turn(turn, key, || self.selectors.known(kind));
        let mut concerned = Vec::new();
        for key in gone {
            concerned.extend(self.concerned_by(&key));
            self.selectors.gone(&key);
        }
        let mut complaint = None;
        if let Some(object) = object {
            // Those whom it selected before, and those whom it selects now.
            let key = key(&object);
            let before = self.concerned_by(&key);
            match self.selectors.seen(kind, &object) {
                Ok(true) => concerned.extend(before.into_iter().chain(self.concerned_by(&key))),
                Ok(false) => {}
                Err(told) => complaint = Some(told),
            }
        }
        (self.tell_anew(concerned), complaint)
    }

    /// The pods that wait and in whose spread an object has a say.
    fn concerned_by(&self, key: &selectors::Key) -> Vec<(String, Arc<str>)> {
        let pods = self.waiting.get(&key.1).into_iter().flatten().filter(|(_, own)| !own.says_how_to_spread);
        let theirs = pods.filter(|(_, own)| self.selectors.concerns(key, &own.spec.labels, own.owner.as_ref()));
        theirs.map(|(uid, _)| (key.1.clone(), uid.clone())).collect()
    }

    pub(super) fn storage_turn(&mut self, kind: Storage, turn: Turn<RawObject>) -> News {
        let Some(sweep) = self.storage_sweeps.get_mut(&kind) else { return News::default() };
        let (object, gone) = sweep.turn(turn, names, || self.volumes.known(kind));
        let mut changed: BTreeSet<(String, String)> =
            gone.into_iter().filter(|key| self.volumes.gone(kind, key)).collect();
        let mut complaint = None;
        if let Some(object) = object {
            match self.volumes.seen(kind, &object) {
                Ok(news) => changed.extend(news.then(|| names(&object))),
                Err(told) => complaint = Some(told),
            }
        }
        if changed.is_empty() {
            return (Vec::new(), complaint);
        }
        let uses = |namespace: &String, (_, claim): &Used| {
            let claim = (namespace.clone(), claim.clone());
            match kind {
                Storage::Claim => changed.contains(&claim),
                Storage::Volume => self
                    .volumes
                    .volume_of(&claim)
                    .is_some_and(|name| changed.contains(&(String::new(), name.to_owned()))),
            }
        };
        let mut concerned = Vec::new();
        for (namespace, pods) in &self.waiting {
            let pods = pods.iter().filter(|(_, own)| own.claims.iter().any(|used| uses(namespace, used)));
            concerned.extend(pods.map(|(uid, _)| (namespace.clone(), uid.clone())));
        }
        (self.tell_anew(concerned), complaint)
    }

    pub(super) fn owner_turn(&mut self, kind: Owning, turn: Turn<RawObject>) -> News {
        let Some(sweep) = self.owner_sweeps.get_mut(&kind) else { return News::default() };
        match turn {
            Turn::Absent => self.owners.set_served(kind, false),
            Turn::Begin | Turn::Gone(_) => {}
            Turn::Listed(_) | Turn::Complete | Turn::Seen(_) => self.owners.set_served(kind, true),
        }
        let (object, gone) = sweep.turn(turn, names, || self.owners.known(kind));
        let mut changed: Vec<owners::Key> = gone.into_iter().filter(|key| self.owners.gone(kind, key)).collect();
        changed.extend(object.filter(|object| self.owners.seen(kind, object)).map(|object| names(&object)));
        let mut concerned = Vec::new();
        for (namespace, name) in changed {
            let pods = self.waiting.get(&namespace).into_iter().flatten();
            let theirs = pods.filter(|(_, own)| own.gang_owner.as_ref().is_some_and(|owner| owner.is(kind, &name)));
            concerned.extend(theirs.map(|(uid, _)| (namespace.clone(), uid.clone())));
        }
        (self.tell_anew(concerned), None)
    }

    /// Whether a pod that names no group is held back, since it belongs to a gang.
    pub(super) fn is_held(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        pod.spec.node_name.is_empty()
            && GangOwner::of(pod).is_some_and(|owner| self.owners.hold(namespace, &owner).is_some())
    }

    /// Whether a pod may get its reference late: its owner is of a kind whose pods get them from us.
    pub(super) fn may_join_late(&self, pod: &Pod) -> bool {
        GangOwner::of(pod).is_some_and(|owner| self.owners.are_ours(&owner))
    }

    /// The pods that other objects say something else about than when they were last told of.
    fn tell_anew(&mut self, concerned: Vec<(String, Arc<str>)>) -> Vec<PodSpec> {
        let mut told = Vec::new();
        for (namespace, uid) in concerned {
            let Some(own) = self.waiting.get(&namespace).and_then(|pods| pods.get(&uid)) else { continue };
            let spec = self.complete(own);
            if own.told.as_ref().is_none_or(|old| *old != (spec.class.clone(), spec.refused.clone())) {
                let own = self.waiting.get_mut(&namespace).and_then(|pods| pods.get_mut(&uid));
                own.expect("just seen").told = Some((spec.class.clone(), spec.refused.clone()));
                told.push(spec);
            }
        }
        told
    }

    /// A pod of ours with what other objects say.
    pub(super) fn add_to(&self, pod: &Pod, spec: PodSpec, names_group: bool) -> PodSpec {
        self.complete(&own(pod, spec, names_group))
    }

    /// Remembers a pod of ours while it waits.
    pub(super) fn remember(
        &mut self,
        uid: &Arc<str>,
        pod: &Pod,
        spec: PodSpec,
        told: &PodSpec,
        (names_group, held): (bool, Option<Arc<PodRefusal>>),
    ) {
        let namespace = spec.id.namespace.clone();
        if spec.node.is_some() {
            self.forget(&namespace, uid);
        } else {
            let told = Some((told.class.clone(), told.refused.clone()));
            let own = Own { held, told, ..own(pod, spec, names_group) };
            self.waiting.entry(namespace).or_default().insert(uid.clone(), own);
        }
    }

    /// Members that their group takes from now on, or does not take yet: those to whom that is news.
    pub(super) fn hold_members(&mut self, namespace: &str, held: Vec<(Arc<str>, Option<Arc<PodRefusal>>)>) -> News {
        let mut concerned = Vec::new();
        for (uid, held) in held {
            let Some(own) = self.waiting.get_mut(namespace).and_then(|pods| pods.get_mut(&uid)) else { continue };
            own.held = held;
            concerned.push((namespace.to_owned(), uid));
        }
        (self.tell_anew(concerned), None)
    }

    /// Whether our controllers raise the minimum of a replica's group once its workers may come.
    pub(super) fn minimums_are_raised(&self) -> bool {
        self.owners.minimums_are_raised()
    }

    pub(super) fn forget(&mut self, namespace: &str, uid: &str) {
        if let Some(pods) = self.waiting.get_mut(namespace) {
            pods.remove(uid);
            if pods.is_empty() {
                self.waiting.remove(namespace);
            }
        }
    }

    fn complete(&self, own: &Own) -> PodSpec {
        let mut spec = own.spec.clone();
        let namespace = &spec.id.namespace;
        let mut class = None;
        if !own.claims.is_empty() {
            match self.volumes.places(namespace, &own.claims) {
                Ok(places) => class.get_or_insert_with(|| (*own.spec.class).clone()).volumes = places,
                // A pod that is on a node has its volumes, whatever we know of them.
                Err(_) if spec.node.is_some() => {}
                Err((kind, error)) => _ = spec.refused.get_or_insert_with(|| refusal(kind, error)),
            }
        }
        if let Some(owner) = own.gang_owner.as_ref().filter(|_| spec.node.is_none())
            && let Some(error) = self.owners.hold(namespace, owner)
        {
            spec.refused.get_or_insert_with(|| refusal(RefusalKind::Reference, error));
        }
        spec.refused = spec.refused.or_else(|| own.held.clone());
        let defaults = &self.spread_defaults[usize::from(spec.class.profile)];
        if !own.says_how_to_spread && !defaults.is_empty() {
            let selector = self.selectors.of_pod(namespace, &spec.labels, own.owner.as_ref());
            if !selector.is_empty() {
                let class = class.get_or_insert_with(|| (*own.spec.class).clone());
                let mut company = class.company.as_deref().cloned().unwrap_or_default();
                company.spread = spread::among(defaults, namespace, &selector);
                class.company = Some(Arc::new(company));
            }
        }
        if let Some(class) = class {
            spec.class = Arc::new(class);
        }
        spec
    }
}

fn own(pod: &Pod, spec: PodSpec, names_group: bool) -> Own {
    let says_how_to_spread = !pod.spec.topology_spread_constraints.is_empty();
    let gang_owner = if names_group { None } else { GangOwner::of(pod) };
    let (owner, claims) = (selectors::owner(pod), storage::claims(pod));
    Own { spec, owner, says_how_to_spread, claims, gang_owner, held: None, told: None }
}

#[cfg(test)]
mod tests {
    use muster_engine::Observation;
    use muster_engine::model::labels::{Demand, NodeTerm, Requirement};
    use serde_json::{Value, json};

    use super::*;
    use crate::gates::FeatureGates;
    use crate::intake::{Intake, News};

    fn raw(object: &Value) -> RawObject {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn pods(observations: Vec<Observation>) -> Vec<PodSpec> {
        let pod = |one| if let Observation::PodSeen(spec) = one { Some(spec) } else { None };
        observations.into_iter().filter_map(pod).collect()
    }

    fn see(intake: &mut Intake, spec: &Value) -> PodSpec {
        let mut pod = json!({
            "metadata": {"namespace": "ml", "name": "a", "uid": "1", "labels": {"app": "web"}},
            "spec": {"schedulerName": "muster", "containers": []},
        });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let turn = Turn::Seen(serde_json::from_str(&pod.to_string()).unwrap());
        pods(intake.take(News::Pod(turn), 0).observations).remove(0)
    }

    fn intake() -> Intake {
        let pool = Requirement { key: "pool".to_owned(), demand: Demand::In(vec!["batch".to_owned()]) };
        let batch = Profile {
            scheduler_names: vec!["batch".to_owned()],
            enforced_terms: Some(vec![NodeTerm { labels: vec![pool], names: Vec::new() }]),
            spread_defaults: Spread::default(),
            ..Profile::default()
        };
        Intake::new(
            vec![Profile::default(), batch],
            Vec::new(),
            FeatureGates::default(),
            GangedOwners::default(),
            Vec::new(),
        )
    }

    #[test]
    fn a_pod_is_told_anew_when_its_claim_is_bound_and_again_when_the_volume_goes() {
        let mut intake = intake();
        let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
        let refused = see(&mut intake, &spec).refused.unwrap();
        assert_eq!(refused.field, "spec.volumes[0].persistentVolumeClaim.claimName");
        assert!(intake.card("1").unwrap().refused);
        let labels = json!({"topology.kubernetes.io/zone": "a"});
        let volume = raw(&json!({"metadata": {"name": "pv", "labels": labels}}));
        intake.take(News::Storage(Storage::Volume, Turn::Seen(volume.clone())), 0);
        let claim = raw(&json!({
            "metadata": {"namespace": "ml", "name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "pv"},
        }));
        let told = pods(intake.take(News::Storage(Storage::Claim, Turn::Seen(claim.clone())), 0).observations);
        assert!(told[0].refused.is_none() && told[0].class.volumes[0].zones.len() == 1, "{told:?}");
        assert!(!intake.card("1").unwrap().refused);
        assert!(intake.take(News::Storage(Storage::Claim, Turn::Seen(claim)), 0).observations.is_empty(), "no news");
        let told = pods(intake.take(News::Storage(Storage::Volume, Turn::Gone(volume)), 0).observations);
        assert!(told[0].refused.is_some());
    }

    #[test]
    fn a_service_spreads_the_pods_that_wait_and_do_not_say() {
        let mut intake = intake();
        assert_eq!(see(&mut intake, &json!({})).class.company, None);
        let service = raw(&json!({"metadata": {"namespace": "ml", "name": "s"}, "spec": {"selector": {"app": "web"}}}));
        let turn = Turn::Seen(service.clone());
        let told = pods(intake.take(News::Selector(Selecting::Service, turn), 0).observations);
        let spread = &told[0].class.company.as_ref().unwrap().spread;
        assert_eq!((spread.should.len(), spread.bears_missing_labels), (2, true));
        let says = json!({"topologySpreadConstraints":
            [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]});
        assert!(see(&mut intake, &says).class.company.as_ref().unwrap().spread.should.is_empty(), "it says how");
        let told = intake.take(News::Selector(Selecting::Service, Turn::Gone(service)), 0).observations;
        assert!(told.is_empty(), "it does not care");
    }

    #[test]
    fn the_name_of_the_scheduler_decides_the_profile() {
        let mut intake = intake();
        let of = |intake: &mut Intake, name: &str| see(intake, &json!({"schedulerName": name}));
        let batch = of(&mut intake, "batch");
        assert_eq!((batch.ours, batch.class.profile), (true, 1));
        assert!(batch.class.enforced_terms.is_some());
        assert_eq!(of(&mut intake, "muster").class.enforced_terms, None);
        assert!(!of(&mut intake, "default-scheduler").ours);
    }
}
