//! The storage of the fake cluster: objects, a volume controller that binds what is reserved, and a provisioner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::model::labels::{LabelOperator, NodeTerm, Requirement};
use muster_engine::model::pod::PodSpec;
use muster_engine::model::storage::{
    AccessMode, BindingMode, ClaimName, ClaimSpec, ClaimUse, StorageClassSpec, StorageObservation, StorageWriteOutcome,
    VolumeKind, VolumeSpec, VolumeTopology,
};
use muster_engine::{Command, Observation, VolumeEvent};

use crate::fake_cluster::FakeCluster;

/// What the provisioner does with a claim whose node is selected.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Provisioner {
    /// It makes a volume that the nodes with the same value of this label can access, or all nodes.
    #[default]
    Makes,
    MakesFor(&'static str),
    /// It makes a volume that only this node can access.
    MakesElsewhere(&'static str),
    /// It refuses.
    Refuses,
    /// It never answers.
    Silent,
}

/// The objects of storage in the API.
#[derive(Default)]
pub(crate) struct FakeStorage {
    pub(crate) claims: BTreeMap<String, ClaimSpec>,
    pub(crate) volumes: BTreeMap<String, VolumeSpec>,
    pub(crate) classes: BTreeMap<String, StorageClassSpec>,
    pub(crate) others: Vec<StorageObservation>,
    pub(crate) provisioner: Provisioner,
    /// The claims that the provisioner does not handle until it is told to.
    pub(crate) held: BTreeSet<String>,
    /// What the engine said for metrics.
    pub(crate) events: Vec<VolumeEvent>,
    versions: u64,
}

pub(crate) fn on_label(key: &str, value: &str) -> VolumeTopology {
    let is = Requirement { key: key.to_owned(), operator: LabelOperator::In(vec![value.to_owned()]) };
    let terms = vec![NodeTerm { labels: vec![is], names: Vec::new() }];
    VolumeTopology { required_terms: Some(terms), zones: Vec::new() }
}

pub(crate) fn kind(class: &str, mode: AccessMode) -> VolumeKind {
    VolumeKind { storage_class: class.to_owned(), access_modes: [mode].into(), ..VolumeKind::default() }
}

impl FakeStorage {
    fn version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }
}

impl FakeCluster {
    pub(crate) fn storage_seen(&mut self, observation: StorageObservation) {
        self.observe(Observation::Storage(Box::new(observation)));
    }

    /// Observes an object of which nothing else is simulated.
    pub(crate) fn put_storage(&mut self, observation: StorageObservation) {
        self.storage.others.push(observation.clone());
        self.storage_seen(observation);
    }

    /// Everything, as after a restart.
    pub(crate) fn show_storage(&mut self) {
        let (claims, volumes) = (self.storage.claims.clone(), self.storage.volumes.clone());
        let (classes, others) = (self.storage.classes.clone(), self.storage.others.clone());
        let claims = claims.into_values().map(StorageObservation::ClaimSeen);
        let volumes = volumes.into_values().map(StorageObservation::VolumeSeen);
        let classes = classes.into_values().map(StorageObservation::ClassSeen);
        for observation in classes.chain(volumes).chain(claims).chain(others).collect::<Vec<_>>() {
            self.storage_seen(observation);
        }
    }

    /// A storage class whose claims wait for their first consumer.
    pub(crate) fn storage_class(&mut self, name: &str, provisioner: &str) {
        let binding_mode = Some(BindingMode::WaitForFirstConsumer);
        let (name, provisioner) = (name.to_owned(), provisioner.to_owned());
        let spec = StorageClassSpec { name: name.clone(), provisioner, binding_mode, allowed_topologies: None };
        self.storage.classes.insert(name, spec.clone());
        self.storage_seen(StorageObservation::ClassSeen(spec));
    }

    /// A claim that is not bound.
    pub(crate) fn claim(&mut self, name: &str, class: &str, bytes: i64) {
        self.claim_with(name, class, bytes, |_| {});
    }

    pub(crate) fn claim_with(&mut self, name: &str, class: &str, bytes: i64, change: impl FnOnce(&mut ClaimSpec)) {
        let id = ClaimName { namespace: "ns".into(), name: name.into(), uid: format!("claim-{name}") };
        let mut spec = ClaimSpec {
            id: Arc::new(id),
            kind: kind(class, AccessMode::ReadWriteOnce),
            request_bytes: Some(bytes),
            ..ClaimSpec::default()
        };
        change(&mut spec);
        self.put_claim(spec);
    }

    pub(crate) fn put_claim(&mut self, mut spec: ClaimSpec) {
        spec.version = self.storage.version();
        self.storage.claims.insert(spec.id.name.clone(), spec.clone());
        self.storage_seen(StorageObservation::ClaimSeen(spec));
    }

    pub(crate) fn remove_claim(&mut self, name: &str) {
        self.storage.claims.remove(name);
        self.storage_seen(StorageObservation::ClaimGone("ns".into(), name.into()));
    }

    pub(crate) fn remove_volume(&mut self, name: &str) {
        self.storage.volumes.remove(name);
        self.storage_seen(StorageObservation::VolumeGone(name.into()));
    }

    /// A volume that claims can be bound to.
    pub(crate) fn volume(&mut self, name: &str, class: &str, bytes: i64, topology: VolumeTopology) {
        self.put_volume(VolumeSpec {
            name: name.to_owned(),
            kind: kind(class, AccessMode::ReadWriteOnce),
            capacity_bytes: bytes,
            topology,
            available: true,
            ..VolumeSpec::default()
        });
    }

    pub(crate) fn put_volume(&mut self, mut spec: VolumeSpec) {
        spec.version = self.storage.version();
        self.storage.volumes.insert(spec.name.clone(), spec.clone());
        self.storage_seen(StorageObservation::VolumeSeen(spec));
    }

    /// A pod that uses these claims.
    pub(crate) fn pod_with_claims(&mut self, name: &str, group: &str, claims: &[&str]) -> String {
        self.pod_with(name, group, 1, |pod| use_claims(pod, claims))
    }

    /// Executes a write to storage like a healthy API with its controllers.
    pub(crate) fn execute_storage(&mut self, command: &Command) {
        let (claim, outcome) = match command {
            Command::ReserveVolume { claim, volume, version, .. } => {
                (claim, self.reserve_volume(claim, volume, version))
            }
            Command::SelectNode { claim, version, node } => (claim, self.select_node(claim, version, node)),
            other => panic!("{other:?} does not write to storage"),
        };
        let claim = claim.clone();
        self.observe(Observation::StorageWriteDone { claim: claim.clone(), outcome: outcome.clone() });
        if outcome == StorageWriteOutcome::Written {
            self.run_storage_controllers(&claim.name);
        }
    }

    fn reserve_volume(&mut self, claim: &ClaimName, volume: &str, version: &str) -> StorageWriteOutcome {
        let known = self.storage.volumes.get(volume).filter(|known| known.version == *version);
        let Some(known) = known.cloned() else { return conflict(volume) };
        self.put_volume(VolumeSpec { claim: Some(claim.clone()), available: false, ..known });
        StorageWriteOutcome::Written
    }

    fn select_node(&mut self, claim: &ClaimName, version: &str, node: &str) -> StorageWriteOutcome {
        let known = self.storage.claims.get(&claim.name).filter(|known| known.version == *version);
        let Some(known) = known.cloned() else { return conflict(&claim.name) };
        self.put_claim(ClaimSpec { selected_node: node.to_owned(), ..known });
        StorageWriteOutcome::Written
    }

    /// What the volume controller and the provisioner do for a claim.
    pub(crate) fn run_storage_controllers(&mut self, name: &str) {
        if self.storage.held.contains(name) {
            return;
        }
        let Some(claim) = self.storage.claims.get(name).cloned().filter(|claim| !claim.bind_completed) else { return };
        let of_claim = |volume: &&VolumeSpec| volume.claim.as_ref().is_some_and(|of| of.uid == claim.id.uid);
        if let Some(volume) = self.storage.volumes.values().find(of_claim) {
            let volume = volume.name.clone();
            self.put_claim(ClaimSpec { volume, bind_completed: true, ..claim });
        } else if !claim.selected_node.is_empty() {
            self.provision(claim);
        }
    }

    fn provision(&mut self, claim: ClaimSpec) {
        let labels = self.nodes.get(&claim.selected_node).map(|node| node.labels.clone()).unwrap_or_default();
        let topology = match self.storage.provisioner {
            Provisioner::Silent => return,
            Provisioner::Refuses => return self.put_claim(ClaimSpec { selected_node: String::new(), ..claim }),
            Provisioner::Makes => VolumeTopology::default(),
            Provisioner::MakesFor(label) => on_label(label, labels.get(label).map_or("", String::as_str)),
            Provisioner::MakesElsewhere(node) => on_label("kubernetes.io/hostname", node),
        };
        let name = format!("volume-of-{}", claim.id.name);
        self.put_volume(VolumeSpec {
            name: name.clone(),
            kind: claim.kind.clone(),
            capacity_bytes: claim.request_bytes.unwrap_or(0),
            topology,
            claim: Some((*claim.id).clone()),
            ..VolumeSpec::default()
        });
        self.put_claim(ClaimSpec { volume: name, bind_completed: true, ..claim });
    }

    /// Panics unless all claims of a pod are bound to volumes that the node can access.
    pub(crate) fn check_volumes_are_bound(&self, pod: &PodSpec, node: &str) {
        let labels = self.nodes.get(node).map(|node| node.labels.clone()).unwrap_or_default();
        for used in pod.claims.iter() {
            let claim = self.storage.claims.get(&used.claim);
            let Some(claim) = claim else { panic!("{} is bound without its claim {}", pod.id, used.claim) };
            assert!(claim.bind_completed, "{} is bound and its claim {} is not", pod.id, used.claim);
            let volume = &self.storage.volumes[&claim.volume];
            let terms = volume.topology.required_terms.as_ref();
            let accessible = terms.is_none_or(|terms| terms.iter().any(|term| term.matches(node, &labels)));
            assert!(accessible, "{} is bound to {node}, which cannot access {}", pod.id, volume.name);
        }
    }
}

pub(crate) fn use_claims(pod: &mut PodSpec, claims: &[&str]) {
    let used = |(index, claim): (usize, &&str)| ClaimUse {
        field: format!("spec.volumes[{index}].persistentVolumeClaim.claimName"),
        claim: (*claim).to_owned(),
        ephemeral: false,
    };
    pod.claims = Arc::new(claims.iter().enumerate().map(used).collect());
}

fn conflict(name: &str) -> StorageWriteOutcome {
    StorageWriteOutcome::Refused { message: format!("another writer has changed {name}") }
}
