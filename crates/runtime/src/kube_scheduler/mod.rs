//! A differential test against kube-scheduler: both must reject the same nodes for the same reasons, and give the
//! others the same scores.
//!
//! A case is a small cluster of plain manifests from a seed. The reference is the program `scores` of
//! `tools/controlplane`, which runs kube-scheduler's default plugins; the other side is Muster, from the JSON through
//! intake to the engine's choice.
//! To cover another plugin, add a line to `muster` and something relevant to `cases` or `pods`.

mod answer;
mod cases;
mod configuration;
mod inter_pod_affinity;
mod muster;
mod pods;
mod reference;
mod shrink;
mod spread;
mod storage_objects;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};
use serde_json::{Map, Value, json};

use answer::{Answer, NodeAnswer, Refused};
use muster::{CLAIMS, COMPARED, FILTERS, MISSING_SCORES, MusterAnswer};
use reference::Reference;

const CASES: u64 = 700;

#[test]
fn every_node_is_evaluated_as_by_kube_scheduler() {
    let Some(mut reference) = Reference::find() else { return };
    let mut statistics = Statistics::default();
    for_each_seed(CASES, |seed| {
        let case = with_plugins(cases::case(&mut Random::new(seed)));
        match compare(&mut reference, &case) {
            Outcome::Same(theirs) => statistics.count(&theirs),
            Outcome::Excepted => statistics.excepted += 1,
            Outcome::InvalidCase(why) => statistics.count_invalid(&why),
            Outcome::Different(_) | Outcome::Unanswered(_) => fail(&mut reference, case),
        }
    });
    println!("{statistics:#?}");
    if !one_seed_only() {
        statistics.check();
    }
}

/// Only plugins that Muster has too count in the totals.
fn with_plugins(mut case: Value) -> Value {
    case["plugins"] = json!(COMPARED);
    case
}

enum Outcome {
    Same(Answer),
    /// One of two known differences, both about nominated pods; without such pods there is none. Muster rejects a node
    /// if a pod with inter-pod constraints is nominated to a node in the same domain: kube-scheduler only considers the
    /// node itself. And kube-scheduler counts such a pod, and no other, for a spread constraint with an empty selector.
    Excepted,
    Different(String),
    /// Muster rejects objects that Kubernetes accepts.
    Unanswered(String),
    /// An API server would not have accepted such objects, or kube-scheduler has failed.
    InvalidCase(String),
}

impl Outcome {
    /// The description without numbers, which change while a case shrinks.
    fn kind(&self) -> String {
        match self {
            Self::Different(what) | Self::Unanswered(what) => {
                what.lines().next().unwrap_or_default().replace(|character: char| character.is_ascii_digit(), "")
            }
            Self::Same(_) | Self::Excepted | Self::InvalidCase(_) => String::new(),
        }
    }
}

fn compare(reference: &mut Reference, case: &Value) -> Outcome {
    match compare_all(reference, case) {
        Outcome::Different(what) if what.contains(NEAR_NOMINATED) || has_empty_selector(case, &what) => {
            let mut bare = case.clone();
            bare["pods"]
                .as_array_mut()
                .into_iter()
                .for_each(|pods| pods.retain(|pod| !pod["spec"]["nodeName"].is_null()));
            match compare_all(reference, &bare) {
                Outcome::Same(_) => Outcome::Excepted,
                _ => Outcome::Different(what),
            }
        }
        outcome => outcome,
    }
}

/// Whether the pod has a spread constraint with an empty selector and is rejected for that.
fn has_empty_selector(case: &Value, what: &str) -> bool {
    let is_empty = |constraint: &Value| {
        let selector = &constraint["labelSelector"];
        selector
            .as_object()
            .is_some_and(|fields| fields.values().all(|part| part.as_object().is_some_and(Map::is_empty)))
    };
    let constraints = &case["pod"]["spec"]["topologySpreadConstraints"];
    constraints.as_array().into_iter().flatten().any(is_empty)
        && what.contains("kube-scheduler refuses it (PodTopologySpread)")
}

/// Marks a difference that may be the known one.
const NEAR_NOMINATED: &str = "we refuse a node for pods in its domain, kube-scheduler does not";

fn is_rejected_by_inter_pod(theirs: &Answer, ours: &[NodeAnswer]) -> bool {
    let by_inter_pod = |our: &Refused| ["InterPodAffinity", "PodTopologySpread"].contains(&our.plugin.as_str());
    let otherwise = |their: &NodeAnswer, our: &Refused| {
        their.refused.as_ref().is_none_or(|their| rejection_difference(their, our).is_some())
    };
    let pairs = theirs.nodes.iter().zip(ours);
    pairs
        .filter_map(|(their, our)| Some((their, our.refused.as_ref()?)))
        .any(|(their, our)| by_inter_pod(our) && otherwise(their, our))
}

fn compare_all(reference: &mut Reference, case: &Value) -> Outcome {
    let theirs = match reference.evaluate(case) {
        Ok(theirs) => theirs,
        Err(why) => return Outcome::InvalidCase(why),
    };
    match muster::answer(case) {
        Err(why) => Outcome::Unanswered(format!("we have no answer: {why}")),
        Ok(ours) => match difference(&theirs, &ours).or_else(|| write_difference(case, &theirs, &ours)) {
            None => Outcome::Same(theirs),
            Some(what) => {
                let near = if is_rejected_by_inter_pod(&theirs, &ours.nodes) { NEAR_NOMINATED } else { "" };
                Outcome::Different(format!("{what}\nkube-scheduler: {theirs:#?}\nours: {ours:#?}\n{near}"))
            }
        },
    }
}

/// Fails with the smallest case that shows the difference.
fn fail(reference: &mut Reference, case: Value) -> ! {
    let kind = compare(reference, &case).kind();
    let small = shrink::shrink(case, |case| compare(reference, case).kind() == kind);
    let (Outcome::Different(what) | Outcome::Unanswered(what)) = compare(reference, &small) else {
        panic!("the same case gave two answers: {small}");
    };
    panic!("{small:#}\n{what}\nas one line, for `controlplane scores`:\n{small}")
}

fn difference(theirs: &Answer, ours: &MusterAnswer) -> Option<String> {
    let (ours, chosen) = (&ours.nodes, ours.choice.as_ref().map(|(node, _)| node));
    let names = |nodes: &[NodeAnswer]| nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    if names(&theirs.nodes) != names(ours) {
        return Some("the nodes are not the same".to_owned());
    }
    for (their, our) in theirs.nodes.iter().zip(ours) {
        let what = match (&their.refused, &our.refused) {
            (Some(their), Some(our)) => rejection_difference(their, our),
            (None, None) => score_difference(their, our),
            (Some(their), None) => Some(format!("kube-scheduler refuses it ({}), we do not", their.plugin)),
            (None, Some(our)) => Some(format!("we refuse it ({}), kube-scheduler does not", our.plugin)),
        };
        if let Some(what) = what {
            return Some(format!("node {}: {what}", their.name));
        }
    }
    let among_best = chosen.map_or(theirs.best.is_empty(), |chosen| theirs.best.iter().any(|best| best == chosen));
    (!among_best).then(|| format!("the chosen node is {chosen:?}, the best are {:?}", theirs.best))
}

/// What is written for the claims of the pod must be the same. A claim that is shared with another pod is provisioned
/// first, and nothing else before that is done.
fn write_difference(case: &Value, theirs: &Answer, ours: &MusterAnswer) -> Option<String> {
    let (node, our) = ours.choice.as_ref()?;
    let mut their = theirs.volumes.get(node).cloned().unwrap_or_default();
    let claims = |pod: &Value| {
        let volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        let name = |volume: &Value| volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
        volumes.iter().filter_map(name).collect::<BTreeSet<String>>()
    };
    let others: BTreeSet<String> = case["pods"].as_array().into_iter().flatten().flat_map(claims).collect();
    let shared = their.provisioned.iter().find(|claim| others.contains(*claim)).cloned();
    for claim in case["persistentVolumeClaims"].as_array().into_iter().flatten() {
        // The node is selected already.
        if claim["metadata"]["annotations"][volumes::SELECTED_NODE] == json!(node) {
            their.provisioned.remove(claim["metadata"]["name"].as_str().unwrap_or_default());
        }
    }
    for volume in case["persistentVolumes"].as_array().into_iter().flatten() {
        // It is reserved for the claim already.
        let claim = &volume["spec"]["claimRef"];
        let of_claim = claim["name"].as_str().unwrap_or_default();
        let is_it = their.reserved.get(of_claim).is_some_and(|reserved| volume["metadata"]["name"] == **reserved);
        if claim["uid"].is_string() && is_it {
            their.reserved.remove(of_claim);
        }
    }
    let is_same = match shared {
        Some(_) => our.provisioned.is_subset(&their.provisioned),
        None => *our == their,
    };
    (!is_same).then(|| format!("other writes for volumes: {their:?}, ours are {our:?}"))
}

/// A rejection of PreFilter counts as equal if an earlier filter of Muster rejects the node.
fn rejection_difference(their: &Refused, our: &Refused) -> Option<String> {
    let place = |plugin: &str| FILTERS.iter().position(|filter| *filter == plugin);
    let same = if our.plugin == CLAIMS {
        let volumes = place("VolumeRestrictions");
        let is_earlier = place(&their.plugin).is_some_and(|their| Some(their) < volumes);
        their.before && (their.reasons == our.reasons || is_earlier)
    } else if their.before {
        place(&our.plugin).zip(place(&their.plugin)).is_some_and(|(our, their)| our <= their)
    } else {
        our.plugin == their.plugin && our.reasons == their.reasons
    };
    (!same).then(|| "it is refused for other reasons".to_owned())
}

fn score_difference(their: &NodeAnswer, our: &NodeAnswer) -> Option<String> {
    let known = |plugin: &&String| COMPARED.contains(&plugin.as_str()) || MISSING_SCORES.contains(&plugin.as_str());
    if let Some(plugin) = their.scores.keys().find(|plugin| !known(plugin)) {
        return Some(format!("a score of {plugin}, which is unknown"));
    }
    for plugin in COMPARED.iter().copied() {
        // A plugin that does not apply to a pod is omitted; it adds nothing.
        let score = |node: &NodeAnswer| node.scores.get(plugin).copied().unwrap_or(0);
        if score(their) != score(our) {
            return Some(format!("{plugin} gives {}, we give {}", score(their), score(our)));
        }
    }
    (their.total != our.total).then(|| format!("the total is {}, ours is {}", their.total, our.total))
}

/// Parts of the reasons about volumes, each of which has to occur.
const VOLUME_REASONS: [&str; 12] = [
    "had no available disk",
    "ReadWriteOncePod access mode already in-use",
    "exceed max volume count",
    "CSI driver is not installed",
    "didn't match PersistentVolume's node affinity",
    "didn't find available persistent volumes",
    "did not have enough free storage",
    "not found",
    "is being deleted",
    "unbound immediate",
    "waiting for ephemeral volume controller",
    "pod is not owner",
];

/// Statistics of the cases, so that a test that compares nothing is noticed.
#[derive(Debug, Default)]
struct Statistics {
    cases: u64,
    /// Cases with a known difference.
    excepted: u64,
    unschedulable: u64,
    ties: u64,
    /// Rejected nodes, by plugin.
    refused: BTreeMap<String, u64>,
    refused_before_filters: u64,
    /// Nodes that were rejected because of volumes, by reason.
    volume_reasons: BTreeMap<String, u64>,
    volumes_reserved: usize,
    volumes_provisioned: usize,
    /// Cases in which a plugin gave different scores.
    distinguished: BTreeMap<String, u64>,
    invalid_cases: u64,
    invalid_example: String,
}

impl Statistics {
    fn count(&mut self, theirs: &Answer) {
        self.cases += 1;
        self.unschedulable += u64::from(theirs.best.is_empty());
        self.ties += u64::from(theirs.best.len() > 1);
        let mut scores: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for node in &theirs.nodes {
            if let Some(refused) = &node.refused {
                *self.refused.entry(refused.plugin.clone()).or_default() += 1;
                self.refused_before_filters += u64::from(refused.before);
                if refused.plugin.contains("Volume") {
                    for reason in &refused.reasons {
                        *self.volume_reasons.entry(reason.clone()).or_default() += 1;
                    }
                }
            }
            for (plugin, score) in &node.scores {
                scores.entry(plugin).or_default().insert(*score);
            }
        }
        self.volumes_reserved += theirs.volumes.values().map(|writes| writes.reserved.len()).sum::<usize>();
        self.volumes_provisioned += theirs.volumes.values().map(|writes| writes.provisioned.len()).sum::<usize>();
        for (plugin, _) in scores.into_iter().filter(|(_, scores)| scores.len() > 1) {
            *self.distinguished.entry(plugin.to_owned()).or_default() += 1;
        }
    }

    fn count_invalid(&mut self, why: &str) {
        assert!(why.contains("is not valid"), "kube-scheduler has no answer: {why}");
        self.invalid_cases += 1;
        why.clone_into(&mut self.invalid_example);
    }

    fn check(&self) {
        assert!(self.invalid_cases * 20 < self.cases, "too many cases are invalid: {}", self.invalid_example);
        assert!(self.excepted * 50 < self.cases, "too many of the cases are exceptions");
        assert!(self.unschedulable * 2 < self.cases, "too many pods fit nowhere");
        assert!(self.unschedulable > 0 && self.ties > 0 && self.refused_before_filters > 0, "something never happened");
        assert!(self.volumes_reserved > 0 && self.volumes_provisioned > 0, "no claim was bound");
        for reason in VOLUME_REASONS {
            assert!(self.volume_reasons.keys().any(|found| found.contains(reason)), "no node was refused: {reason}");
        }
        for filter in FILTERS.iter().copied() {
            assert!(self.refused.contains_key(filter), "{filter} never refused a node");
        }
        for plugin in COMPARED.iter().copied() {
            assert!(self.distinguished.contains_key(plugin), "{plugin} never mattered");
        }
    }
}
