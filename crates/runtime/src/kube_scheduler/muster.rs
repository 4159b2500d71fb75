//! Muster's answer to a case: the same manifests, through intake, to the engine's evaluation and choice.
//!
//! Maps Muster's filters and scores to kube-scheduler's names. Scores that Muster does not have yet are listed too.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::ScoreName;
use muster_engine::diagnosis::Rejection;
use muster_engine::{Command, Engine, NodeEvaluation, NodeVerdict, Observation};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::{NodeAnswer, Refused};
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
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
];

/// The scores that must be equal.
pub(super) const COMPARED: &[&str] = &[
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "InterPodAffinity",
    "PodTopologySpread",
    "ImageLocality",
];

/// Scores that Muster does not have yet.
pub(super) const MISSING_SCORES: &[&str] = &["VolumeBinding", "DynamicResources"];

fn plugin(score: ScoreName) -> &'static str {
    match score {
        ScoreName::Taints => "TaintToleration",
        ScoreName::NodeAffinity => "NodeAffinity",
        ScoreName::Fit => "NodeResourcesFit",
        ScoreName::Balanced => "NodeResourcesBalancedAllocation",
        ScoreName::PodAffinity => "InterPodAffinity",
        ScoreName::Spread => "PodTopologySpread",
        ScoreName::Images => "ImageLocality",
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
        Rejection::VolumeAffinity => ("VolumeBinding", "node(s) didn't match PersistentVolume's node affinity"),
        Rejection::VolumeZone => ("VolumeZone", "node(s) had no available volume zone"),
        Rejection::EnforcedAffinity => ("NodeAffinity", "node(s) didn't match scheduler-enforced node affinity"),
        Rejection::Features => ("NodeDeclaredFeatures", "node(s) didn't match Pod's required features"),
        Rejection::PodAffinity => ("InterPodAffinity", "node(s) didn't match pod affinity rules"),
        Rejection::PodAntiAffinity => ("InterPodAffinity", "node(s) didn't match pod anti-affinity rules"),
        Rejection::ExistingPodAntiAffinity => {
            ("InterPodAffinity", "node(s) didn't satisfy existing pods anti-affinity rules")
        }
        Rejection::Reserved | Rejection::RefusedBind => ("Muster", "a reason that kube-scheduler does not have"),
    };
    (plugin, reason.to_owned())
}

/// Muster's evaluation of every node, and the chosen node; or why there is no answer.
pub(super) fn answer(case: &Value) -> Result<(Vec<NodeAnswer>, Option<String>), String> {
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
    for (kind, list) in [(Storage::Claim, "persistentVolumeClaims"), (Storage::Volume, "persistentVolumes")] {
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
    Ok((evaluation.into_iter().map(node_answer).collect(), pipeline.choice(uid)))
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

    /// The node that the pod is bound to, if any.
    fn choice(&mut self, uid: &str) -> Option<String> {
        while self.engine.next_wakeup() == Some(0) {
            for command in self.engine.decide(0) {
                match command {
                    Command::Bind { pod, node, .. } if pod.uid == uid => return Some(node.to_string()),
                    Command::Bind { pod, .. } => panic!("{pod} is not ours and is bound"),
                    _ => {}
                }
            }
        }
        None
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
