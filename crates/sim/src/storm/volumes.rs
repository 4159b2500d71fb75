//! The volumes of simulated pods: which claims users create, and where bound claims keep their pods.
//!
//! Provisioners are late, and refuse some claims a few times. Must not depend on the scheduler's code.

use std::collections::BTreeMap;

use muster_playground::random::Random;
use serde_json::{Value, json};

use super::server_state::{Pod, ServerState, text};

pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A class of volumes.
#[derive(Clone, Copy, Debug)]
pub(super) enum VolumeClass {
    /// A volume can be used on the node for which it was made.
    Local,
    /// Everywhere, by many pods.
    Network,
}

impl VolumeClass {
    const ALL: [Self; 2] = [Self::Local, Self::Network];

    fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Network => "network",
        }
    }

    fn object(self) -> Value {
        let topology = match self {
            Self::Local => "hostname",
            Self::Network => "none",
        };
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": self.name()},
            "provisioner": "fake.muster.dev", "volumeBindingMode": "WaitForFirstConsumer",
            "parameters": {"playground.muster.dev/topology": topology},
        })
    }

    fn access_mode(self) -> &'static str {
        match self {
            Self::Local => "ReadWriteOnce",
            Self::Network => "ReadWriteMany",
        }
    }
}

/// The StorageClasses.
pub(super) fn classes() -> impl Iterator<Item = Value> {
    VolumeClass::ALL.into_iter().map(VolumeClass::object)
}

/// What users ask of a volume, and how its provisioner behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimPlan {
    class: VolumeClass,
    delay_seconds: u64,
    /// How often it is refused before it is made.
    refusals: u64,
}

impl ClaimPlan {
    pub(super) fn of(class: VolumeClass, random: &mut Random) -> Self {
        let refusals = if random.per_mille(200) { 1 + random.below(2) } else { 0 };
        Self { class, delay_seconds: random.below(40), refusals }
    }

    pub(super) fn random(random: &mut Random) -> Self {
        let class = if random.per_mille(500) { VolumeClass::Local } else { VolumeClass::Network };
        Self::of(class, random)
    }

    pub(super) fn claim(self, name: &str) -> Value {
        let mut claim = self.template();
        claim["metadata"]["name"] = name.into();
        claim["apiVersion"] = "v1".into();
        claim["kind"] = "PersistentVolumeClaim".into();
        claim
    }

    /// Metadata without a name, and the spec.
    pub(super) fn template(self) -> Value {
        json!({
            "metadata": {"annotations": {
                "playground.muster.dev/delay-seconds": self.delay_seconds.to_string(),
                "playground.muster.dev/refuse": self.refusals.to_string(),
            }},
            "spec": {
                "accessModes": [self.class.access_mode()], "storageClassName": self.class.name(),
                "resources": {"requests": {"storage": "1Gi"}},
            },
        })
    }
}

/// A volume of a pod.
#[derive(Clone, Debug)]
pub(super) enum PodVolume {
    /// The claim of this name.
    Claim(String),
    /// A claim that is made for the pod.
    Ephemeral(ClaimPlan),
}

impl PodVolume {
    pub(super) fn object(&self, number: usize) -> Value {
        let mut volume = match self {
            Self::Claim(name) => json!({"persistentVolumeClaim": {"claimName": name}}),
            Self::Ephemeral(plan) => json!({"ephemeral": {"volumeClaimTemplate": plan.template()}}),
        };
        volume["name"] = format!("v{number}").into();
        volume
    }
}

/// A claim on the server.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) uid: String,
    /// The volume that it is completely bound to; empty before.
    volume: String,
}

/// A volume on the server.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    claim_uid: String,
    /// The only node where it can be used.
    node: Option<String>,
}

pub(super) fn claim(object: &Value) -> Claim {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let is_bound = !metadata["annotations"]["pv.kubernetes.io/bind-completed"].is_null();
    let volume = if is_bound { text(&spec["volumeName"]) } else { String::new() };
    Claim { uid: text(&metadata["uid"]), volume }
}

pub(super) fn volume(object: &Value) -> Volume {
    let spec = &object["spec"];
    let expression = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    let node = (expression["key"] == HOSTNAME).then(|| text(&expression["values"][0]));
    Volume { claim_uid: text(&spec["claimRef"]["uid"]), node }
}

/// The names of the claims that a pod uses.
pub(super) fn claims_of(pod: &Value) -> Vec<String> {
    let used = pod["spec"]["volumes"].as_array().into_iter().flatten().filter_map(|volume| {
        let named = volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
        let ephemeral = || format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"]));
        named.or_else(|| volume["ephemeral"].is_object().then(ephemeral))
    });
    used.collect()
}

impl ServerState {
    /// Whether the volumes of a pod that exist already can be used on a node.
    pub(super) fn volumes_allow(&self, pod: &Pod, node: &str) -> bool {
        let mut volumes = pod.claims.iter().filter_map(|claim| self.volumes.get(&self.claims.get(claim)?.volume));
        volumes.all(|volume| volume.node.as_deref().is_none_or(|only| only == node))
    }

    /// Why a pod must not be bound to a node.
    pub(super) fn why_not_bound_with_volumes(&self, pod: &Pod, node: &str) -> Option<String> {
        let is_bound = |claim: &&String| self.claims.get(*claim).is_some_and(|one| !one.volume.is_empty());
        if let Some(claim) = pod.claims.iter().find(|claim| !is_bound(claim)) {
            return Some(format!("claim {claim} is not bound"));
        }
        (!self.volumes_allow(pod, node)).then(|| format!("a volume of {:?} cannot be used there", pod.claims))
    }

    /// Claims with more than one volume, and volumes of no claim.
    pub(super) fn stray_volumes(&self) -> Vec<String> {
        let claims: BTreeMap<&str, &str> =
            self.claims.iter().map(|(name, claim)| (claim.uid.as_str(), name.as_str())).collect();
        let mut made: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, volume) in self.volumes.iter().filter(|(_, volume)| !volume.claim_uid.is_empty()) {
            made.entry(&volume.claim_uid).or_default().push(name);
        }
        let wrong = made.into_iter().filter_map(|(uid, volumes)| match claims.get(uid) {
            None => Some(format!("volumes {volumes:?} are of no claim")),
            Some(claim) if volumes.len() > 1 => Some(format!("claim {claim} has the volumes {volumes:?}")),
            Some(_) => None,
        });
        wrong.collect()
    }
}
