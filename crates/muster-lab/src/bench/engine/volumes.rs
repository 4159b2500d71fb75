//! The volumes of shapes: a claim for each pod, bound before or provisioned for the node of the pod.

use std::sync::Arc;

use muster_engine::model::labels::{LabelOperator, NodeTerm, Requirement};
use muster_engine::model::pod::PodSpec;
use muster_engine::model::storage::{
    AccessMode, BindingMode, ClaimName, ClaimSpec, ClaimUse, NodeDriversSpec, StorageClassSpec, StorageObservation,
    StorageWriteOutcome, VolumeKind, VolumeSpec, VolumeTopology,
};
use muster_engine::{Command, Observation};

use super::measure::{ZONE, node_name};

const CLASS: &str = "fast";
const DRIVER: &str = "csi.example.com";
/// How many volumes a node can attach.
const LIMIT: u32 = 64;
const BYTES: i64 = 1 << 30;

/// The claim of each pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volumes {
    /// None.
    None,
    /// It is bound to a volume in one of the zones.
    Bound,
    /// Its volume is provisioned when the pod has a node.
    FirstConsumer,
}

/// Shows the storage class, what the nodes can attach, and the claim of each pod.
pub(super) fn show(volumes: Volumes, nodes: usize, pods: usize, observe: &mut dyn FnMut(Observation)) {
    if volumes == Volumes::None {
        return;
    }
    let mut see = |observation| observe(Observation::Storage(Box::new(observation)));
    see(StorageObservation::ClassSeen(StorageClassSpec {
        name: CLASS.to_owned(),
        provisioner: DRIVER.to_owned(),
        binding_mode: Some(BindingMode::WaitForFirstConsumer),
        allowed_topologies: None,
    }));
    for number in 0..nodes {
        let drivers = [(DRIVER.to_owned(), Some(LIMIT))].into();
        see(StorageObservation::NodeDriversSeen(NodeDriversSpec { node: node_name(number), drivers }));
    }
    for number in 0..pods {
        let claim = claim(number);
        if volumes == Volumes::Bound {
            see(StorageObservation::VolumeSeen(volume_of(&claim, number % 3)));
            see(StorageObservation::ClaimSeen(bound(claim)));
        } else {
            see(StorageObservation::ClaimSeen(claim));
        }
    }
}

/// Gives a pod its claim.
pub(super) fn give_claim(volumes: Volumes, number: usize, pod: &mut PodSpec) {
    if volumes != Volumes::None {
        let field = "spec.volumes[0].persistentVolumeClaim.claimName".to_owned();
        pod.claims = Arc::new(vec![ClaimUse { field, claim: format!("claim-{number}"), ephemeral: false }]);
    }
}

/// What a provisioner and the volume controller answer to a command.
pub(super) fn answers(command: &Command) -> Vec<Observation> {
    let Command::SelectNode { claim, node, .. } = command else { return Vec::new() };
    let number = claim.name.trim_start_matches("claim-").parse().unwrap_or(0);
    let zone = node.trim_start_matches("node-").parse().unwrap_or(0) % 3;
    let selected = ClaimSpec { selected_node: node.to_string(), ..self::claim(number) };
    let storage = |observation| Observation::Storage(Box::new(observation));
    vec![
        Observation::StorageWriteDone { claim: claim.clone(), outcome: StorageWriteOutcome::Written },
        storage(StorageObservation::ClaimSeen(selected.clone())),
        storage(StorageObservation::VolumeSeen(volume_of(&selected, zone))),
        storage(StorageObservation::ClaimSeen(bound(selected))),
    ]
}

fn claim(number: usize) -> ClaimSpec {
    let (name, uid) = (format!("claim-{number}"), format!("claim-uid-{number}"));
    ClaimSpec {
        id: Arc::new(ClaimName { namespace: "default".into(), name, uid }),
        kind: kind(),
        request_bytes: Some(BYTES),
        ..ClaimSpec::default()
    }
}

fn bound(claim: ClaimSpec) -> ClaimSpec {
    ClaimSpec { volume: format!("volume-of-{}", claim.id.name), bind_completed: true, ..claim }
}

fn volume_of(claim: &ClaimSpec, zone: usize) -> VolumeSpec {
    let zone = LabelOperator::In(vec![format!("zone-{zone}")]);
    let term = NodeTerm { labels: vec![Requirement { key: ZONE.to_owned(), operator: zone }], names: Vec::new() };
    VolumeSpec {
        name: format!("volume-of-{}", claim.id.name),
        kind: kind(),
        capacity_bytes: BYTES,
        topology: VolumeTopology { required_terms: Some(vec![term]), zones: Vec::new() },
        claim: Some((*claim.id).clone()),
        attached_by: Some((DRIVER.to_owned(), claim.id.uid.clone())),
        ..VolumeSpec::default()
    }
}

fn kind() -> VolumeKind {
    let access_modes = [AccessMode::ReadWriteOnce].into();
    VolumeKind { storage_class: CLASS.to_owned(), access_modes, ..VolumeKind::default() }
}
