//! Muster's answer to a case: the same manifests, through intake, to the engine's evaluation and choice.
//!
//! Maps Muster's filters and scores to kube-scheduler's names. Scores that Muster does not have yet are listed too.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::ScoreName;
use muster_engine::diagnosis::Rejection;
use muster_engine::{Command, Engine, NodeEvaluation, NodeVerdict, Observation};
use serde::de::DeserializeOwned;
use serde_json::Value;

use muster_engine::model::storage::StorageWriteOutcome;

use super::answer::{NodeAnswer, Refused, VolumeWrites};
use crate::config::{Configuration, File, Overrides};
use crate::intake::selectors::SelectorKind;
use crate::intake::storage::Storage;
use crate::intake::{Intake, WatchEvent};
use crate::settings::Settings;
use muster_reflector::{Delta, Guarded};

/// The filters that Muster has too, in their order. `NodeName` is for pods that name their node, and such pods are not
/// pending.
pub(super) const FILTERS: &[&str] = &[
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
];

/// In place of a plugin: a claim of the pod cannot be used.
pub(super) const CLAIMS: &str = "claims";

/// The scores that must be equal.
pub(super) const COMPARED: &[&str] = &[
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "InterPodAffinity",
    "PodTopologySpread",
    "ImageLocality",
    "VolumeBinding",
];

/// Scores that Muster does not have yet.
pub(super) const MISSING_SCORES: &[&str] = &["DynamicResources"];

fn plugin(score: ScoreName) -> &'static str {
    match score {
        ScoreName::Taints => "TaintToleration",
        ScoreName::NodeAffinity => "NodeAffinity",
        ScoreName::Fit => "NodeResourcesFit",
        ScoreName::Balanced => "NodeResourcesBalancedAllocation",
        ScoreName::PodAffinity => "InterPodAffinity",
        ScoreName::Spread => "PodTopologySpread",
        ScoreName::Images => "ImageLocality",
        ScoreName::VolumeBinding => "VolumeBinding",
    }
}

/// The plugin and message of a rejection.
fn reason(rejection: &Rejection) -> (&'static str, String) {
    let (plugin, reason) = match rejection {
        Rejection::NodeName => ("NodeName", "node(s) didn't match the requested node name"),
        Rejection::Unschedulable => ("NodeUnschedulable", "node(s) were unschedulable"),
        Rejection::Taints => ("TaintToleration", "node(s) had untolerated taint(s)"),
        Rejection::NodeAffinity => ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
        Rejection::Ports => ("NodePorts", "node(s) didn't have free ports for the requested pod ports"),
        Rejection::TooManyPods => ("NodeResourcesFit", "Too many pods"),
        Rejection::Insufficient { resource } => return ("NodeResourcesFit", format!("Insufficient {resource}")),
        Rejection::Spread => ("PodTopologySpread", "node(s) didn't match pod topology spread constraints"),
        Rejection::SpreadLabel => {
            ("PodTopologySpread", "node(s) didn't match pod topology spread constraints (missing required label)")
        }
        Rejection::Disk => ("VolumeRestrictions", "node(s) had no available disk"),
        Rejection::ReadWriteOncePod => (
            "VolumeRestrictions",
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
        ),
        Rejection::VolumeLimit => ("NodeVolumeLimits", "node(s) exceed max volume count"),
        Rejection::DriverMissing { driver } => {
            return ("NodeVolumeLimits", format!("{driver} CSI driver is not installed on the node"));
        }
        Rejection::NoVolume => ("VolumeBinding", "node(s) didn't find available persistent volumes to bind"),
        Rejection::NoStorage => ("VolumeBinding", "node(s) did not have enough free storage"),
        Rejection::VolumeMissing => {
            ("VolumeBinding", "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
        }
        Rejection::VolumeAffinity => ("VolumeBinding", "node(s) didn't match PersistentVolume's node affinity"),
        Rejection::VolumeZone => ("VolumeZone", "node(s) had no available volume zone"),
        Rejection::EnforcedAffinity => ("NodeAffinity", "node(s) didn't match scheduler-enforced node affinity"),
        Rejection::Features => ("NodeDeclaredFeatures", "node(s) didn't match Pod's required features"),
        Rejection::PodAffinity => ("InterPodAffinity", "node(s) didn't match pod affinity rules"),
        Rejection::PodAntiAffinity => ("InterPodAffinity", "node(s) didn't match pod anti-affinity rules"),
        Rejection::ExistingPodAntiAffinity => {
            ("InterPodAffinity", "node(s) didn't satisfy existing pods anti-affinity rules")
        }
        Rejection::Reserved | Rejection::OtherDomain | Rejection::PartOfGroup | Rejection::RefusedBind => {
            ("Muster", "a reason that kube-scheduler does not have")
        }
    };
    (plugin, reason.to_owned())
}

/// The lists of storage in a case.
const STORAGE: [(Storage, &str); Storage::ALL.len()] = [
    (Storage::Claim, "persistentVolumeClaims"),
    (Storage::Volume, "persistentVolumes"),
    (Storage::Class, "storageClasses"),
    (Storage::NodeDrivers, "csiNodes"),
    (Storage::Driver, "csiDrivers"),
    (Storage::Capacity, "csiStorageCapacities"),
    (Storage::Attachment, "volumeAttachments"),
];

/// Muster's answer.
#[derive(Debug)]
pub(super) struct MusterAnswer {
    pub(super) nodes: Vec<NodeAnswer>,
    /// The chosen node, if any, and what is written for the claims of the pod.
    pub(super) choice: Option<(String, VolumeWrites)>,
}

/// Muster's evaluation of every node, and its choice; or why there is no answer.
pub(super) fn answer(case: &Value) -> Result<MusterAnswer, String> {
    if case["pod"]["spec"]["schedulerName"] != "muster" {
        return Err("the pod is not ours".to_owned());
    }
    let nodes = || case["nodes"].as_array().into_iter().flatten();
    if nodes().any(|node| node["status"]["allocatable"].is_null() && !node["status"]["capacity"].is_null()) {
        return Err("the API server would have filled in what can be allocated".to_owned());
    }
    let mut pipeline = Pipeline::new(&case["configuration"])?;
    for namespace in case["namespaces"].as_array().into_iter().flatten() {
        pipeline.observe(WatchEvent::Namespace(Delta::Applied(guarded(namespace))))?;
    }
    for kind in SelectorKind::ALL {
        let mut list = kind.resource().kind + "s";
        list[..1].make_ascii_lowercase();
        for object in case[list.as_str()].as_array().into_iter().flatten() {
            let object = serde_json::from_str(&object.to_string()).expect("any JSON is an object");
            pipeline.observe(WatchEvent::Selector(kind, Delta::Applied(object)))?;
        }
    }
    for (kind, list) in STORAGE {
        for object in case[list].as_array().into_iter().flatten() {
            let object = serde_json::from_str(&object.to_string()).expect("any JSON is an object");
            pipeline.observe(WatchEvent::Storage(kind, Delta::Applied(object)))?;
        }
    }
    for node in nodes() {
        pipeline.observe(WatchEvent::Node(Delta::Applied(guarded(node))))?;
    }
    for pod in case["pods"].as_array().into_iter().flatten().chain([&case["pod"]]) {
        pipeline.observe(WatchEvent::Pod(Delta::Applied(guarded(pod))))?;
    }
    let uid = case["pod"]["metadata"]["uid"].as_str().unwrap_or_default();
    let evaluation = pipeline.engine.evaluate_nodes(uid).ok_or("the engine does not know the pod")?;
    let mut nodes: Vec<NodeAnswer> = evaluation.into_iter().map(node_answer).collect();
    if let Some(reason) = pipeline.engine.pod_view(uid).and_then(|pod| pod.refusal()).map(|why| why.reason.clone()) {
        // A claim cannot be used: kube-scheduler says so before it looks at nodes.
        let refused = Refused { plugin: CLAIMS.to_owned(), before: true, reasons: [reason].into() };
        for node in &mut nodes {
            (node.refused, node.scores, node.total) = (Some(refused.clone()), BTreeMap::new(), 0);
        }
    }
    Ok(MusterAnswer { nodes, choice: pipeline.choice(uid) })
}

/// From manifests to decisions, without an API server.
struct Pipeline {
    intake: Intake,
    engine: Engine,
}

impl Pipeline {
    fn new(configuration: &Value) -> Result<Self, String> {
        let settings = if configuration.is_null() {
            Settings::default()
        } else {
            // JSON is YAML.
            let (file, _) = File::read_any(&configuration.to_string()).map_err(|error| error.to_string())?;
            Configuration::new(file, Overrides::default()).map_err(|error| error.to_string())?.settings
        };
        let intake =
            Intake::new(settings.profiles, settings.startup_taints, settings.gates, settings.ganged, Vec::new());
        Ok(Self { intake, engine: Engine::new(settings.engine).expect("checked") })
    }

    /// Rejects nothing that Kubernetes accepts: otherwise there is no answer.
    fn observe(&mut self, event: WatchEvent) -> Result<(), String> {
        let output = self.intake.handle(event, 0);
        if let Some(error) = output.errors.first() {
            return Err(error.clone());
        }
        for observation in output.observations {
            if let Observation::PodSeen(pod) = &observation
                && let Some(refused) = &pod.refused
            {
                return Err(format!("{refused:?}"));
            }
            self.engine.observe(0, observation).map_err(|refusal| refusal.to_string())?;
        }
        Ok(())
    }

    /// The node on which the pod is placed, if any, and what is written for its claims.
    fn choice(&mut self, uid: &str) -> Option<(String, VolumeWrites)> {
        let mut writes = VolumeWrites::default();
        while self.engine.next_wakeup() == Some(0) {
            for command in self.engine.decide(0) {
                let claim = match command {
                    Command::Bind { pod, .. } if pod.uid != uid => panic!("{pod} is not ours and is bound"),
                    Command::ReserveVolume { claim, volume, .. } => {
                        writes.reserved.insert(claim.name.clone(), volume.to_string());
                        claim
                    }
                    Command::SelectNode { claim, .. } => {
                        writes.provisioned.insert(claim.name.clone());
                        claim
                    }
                    _ => continue,
                };
                // The next writes are sent when these are done.
                let outcome = StorageWriteOutcome::Written;
                self.engine.observe(0, Observation::StorageWriteDone { claim, outcome }).expect("an outcome");
            }
        }
        let pod = self.engine.pod_view(uid)?;
        let node = pod.node().filter(|_| pod.is_assumed())?.name().to_owned();
        Some((node, writes))
    }
}

fn guarded<K: DeserializeOwned>(object: &Value) -> Guarded<K> {
    serde_json::from_str(&object.to_string()).expect("any JSON can be guarded")
}

fn node_answer(evaluation: NodeEvaluation) -> NodeAnswer {
    let mut answer = NodeAnswer { name: evaluation.node, refused: None, scores: BTreeMap::new(), total: 0 };
    match evaluation.verdict {
        NodeVerdict::Scored { scores, total } => {
            answer.scores = scores.into_iter().map(|(name, score)| (plugin(name).to_owned(), score)).collect();
            answer.total = total;
        }
        NodeVerdict::Refused(rejections) => {
            let (plugins, reasons): (BTreeSet<&str>, _) = rejections.iter().map(reason).unzip();
            let plugin = plugins.into_iter().collect::<Vec<_>>().join(",");
            answer.refused = Some(Refused { plugin, before: false, reasons });
        }
    }
    answer
}
