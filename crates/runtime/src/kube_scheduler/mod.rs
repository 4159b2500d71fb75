//! Every node as kube-scheduler's own code sees it and as we see it: the same nodes refused, for the same reasons, and
//! the same numbers on the others.
//!
//! A case is a small cluster of plain manifests from a seed. One road is the program `scores` of `tools/controlplane`,
//! which runs kube-scheduler's default plugins; the other is ours, from the JSON through intake to the engine's choice.
//! A plugin more is a line in `ours` and something in `cases` or `pods` that it has an opinion about.

mod answer;
mod cases;
mod company;
mod configuration;
mod ours;
mod pods;
mod shrink;
mod spread;
mod stick;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};
use serde_json::{Map, Value, json};

use answer::{Answer, NodeAnswer, Refused};
use ours::{COMPARED, FILTERS, NOT_YET};
use stick::Stick;

const CASES: u64 = 500;

#[test]
fn every_node_is_judged_as_kube_scheduler_judges_it() {
    let Some(mut stick) = Stick::find() else { return };
    let mut tally = Tally::default();
    for_each_seed(CASES, |seed| {
        let case = with_plugins(cases::case(&mut Random::new(seed)));
        match compare(&mut stick, &case) {
            Outcome::Same(theirs) => tally.count(&theirs),
            Outcome::Excepted => tally.excepted += 1,
            Outcome::NoCase(why) => tally.no_case(&why),
            Outcome::Different(_) | Outcome::Unanswered(_) => fail(&mut stick, case),
        }
    });
    println!("{tally:#?}");
    if !one_seed_only() {
        tally.check();
    }
}

/// Only what we score, too, counts in the totals.
fn with_plugins(mut case: Value) -> Value {
    case["plugins"] = json!(COMPARED);
    case
}

enum Outcome {
    Same(Answer),
    /// One of two known differences, both about pods for which a place is kept free; without such pods there is none.
    /// We refuse a node near which a place is kept free for a pod that minds the one that waits, or is minded by it:
    /// kube-scheduler only looks at the node itself. And kube-scheduler counts such a pod, and no other, where a pod is to
    /// be spread among those whom a selector that asks for nothing selects.
    Excepted,
    Different(String),
    /// We refuse what Kubernetes lets in.
    Unanswered(String),
    /// No API server would have let in such objects, or worse.
    NoCase(String),
}

impl Outcome {
    /// What it says without the numbers, which change while a case gets smaller.
    fn kind(&self) -> String {
        match self {
            Self::Different(what) | Self::Unanswered(what) => {
                what.lines().next().unwrap_or_default().replace(|letter: char| letter.is_ascii_digit(), "")
            }
            Self::Same(_) | Self::Excepted | Self::NoCase(_) => String::new(),
        }
    }
}

fn compare(stick: &mut Stick, case: &Value) -> Outcome {
    match compare_all(stick, case) {
        Outcome::Different(what) if what.contains(NEAR_A_KEPT_PLACE) || asks_for_nothing(case, &what) => {
            let mut bare = case.clone();
            bare["pods"]
                .as_array_mut()
                .into_iter()
                .for_each(|pods| pods.retain(|pod| !pod["spec"]["nodeName"].is_null()));
            match compare_all(stick, &bare) {
                Outcome::Same(_) => Outcome::Excepted,
                _ => Outcome::Different(what),
            }
        }
        outcome => outcome,
    }
}

/// Whether the pod is to be spread among those whom a selector that asks for nothing selects, and is refused for that.
fn asks_for_nothing(case: &Value, what: &str) -> bool {
    let nothing = |constraint: &Value| {
        let selector = &constraint["labelSelector"];
        selector.as_object().is_some_and(|said| said.values().all(|part| part.as_object().is_some_and(Map::is_empty)))
    };
    let constraints = &case["pod"]["spec"]["topologySpreadConstraints"];
    constraints.as_array().into_iter().flatten().any(nothing)
        && what.contains("kube-scheduler refuses it (PodTopologySpread)")
}

/// Stands behind a difference that may be the one that is meant.
const NEAR_A_KEPT_PLACE: &str = "we refuse a node for those who are near, kube-scheduler does not";

fn refuses_company(theirs: &Answer, ours: &[NodeAnswer]) -> bool {
    let by_company = |our: &Refused| ["InterPodAffinity", "PodTopologySpread"].contains(&our.plugin.as_str());
    let otherwise = |their: &NodeAnswer, our: &Refused| {
        their.refused.as_ref().is_none_or(|their| refused_otherwise(their, our).is_some())
    };
    let pairs = theirs.nodes.iter().zip(ours);
    pairs
        .filter_map(|(their, our)| Some((their, our.refused.as_ref()?)))
        .any(|(their, our)| by_company(our) && otherwise(their, our))
}

fn compare_all(stick: &mut Stick, case: &Value) -> Outcome {
    let theirs = match stick.ask(case) {
        Ok(theirs) => theirs,
        Err(why) => return Outcome::NoCase(why),
    };
    match ours::answer(case) {
        Err(why) => Outcome::Unanswered(format!("we have no answer: {why}")),
        Ok((ours, chosen)) => match difference(&theirs, &ours, chosen.as_deref()) {
            None => Outcome::Same(theirs),
            Some(what) => {
                let near = if refuses_company(&theirs, &ours) { NEAR_A_KEPT_PLACE } else { "" };
                Outcome::Different(format!("{what}\nkube-scheduler: {theirs:#?}\nours: {ours:#?}\n{near}"))
            }
        },
    }
}

/// Says what is different, in the smallest case that shows it.
fn fail(stick: &mut Stick, case: Value) -> ! {
    let kind = compare(stick, &case).kind();
    let small = shrink::shrink(case, |case| compare(stick, case).kind() == kind);
    let (Outcome::Different(what) | Outcome::Unanswered(what)) = compare(stick, &small) else {
        panic!("the same case gave two answers: {small}");
    };
    panic!("{small:#}\n{what}\nas one line, for `controlplane scores`:\n{small}")
}

fn difference(theirs: &Answer, ours: &[NodeAnswer], chosen: Option<&str>) -> Option<String> {
    let names = |nodes: &[NodeAnswer]| nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    if names(&theirs.nodes) != names(ours) {
        return Some("the nodes are not the same".to_owned());
    }
    for (their, our) in theirs.nodes.iter().zip(ours) {
        let what = match (&their.refused, &our.refused) {
            (Some(their), Some(our)) => refused_otherwise(their, our),
            (None, None) => scored_otherwise(their, our),
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

/// A plugin that speaks before the filters is heard where an earlier filter of ours says no first.
fn refused_otherwise(their: &Refused, our: &Refused) -> Option<String> {
    let place = |plugin: &str| FILTERS.iter().position(|filter| *filter == plugin);
    let same = if their.before {
        place(&our.plugin).zip(place(&their.plugin)).is_some_and(|(our, their)| our <= their)
    } else {
        our.plugin == their.plugin && our.reasons == their.reasons
    };
    (!same).then(|| "it is refused for other reasons".to_owned())
}

fn scored_otherwise(their: &NodeAnswer, our: &NodeAnswer) -> Option<String> {
    let known = |plugin: &&String| COMPARED.contains(&plugin.as_str()) || NOT_YET.contains(&plugin.as_str());
    if let Some(plugin) = their.scores.keys().find(|plugin| !known(plugin)) {
        return Some(format!("a score of {plugin}, which nobody has heard of"));
    }
    for plugin in COMPARED.iter().copied() {
        // A plugin that has nothing to say about a pod is left out; it adds nothing.
        let score = |node: &NodeAnswer| node.scores.get(plugin).copied().unwrap_or(0);
        if score(their) != score(our) {
            return Some(format!("{plugin} gives {}, we give {}", score(their), score(our)));
        }
    }
    (their.total != our.total).then(|| format!("the total is {}, ours is {}", their.total, our.total))
}

/// What was seen, so that a test that compares nothing is noticed.
#[derive(Debug, Default)]
struct Tally {
    cases: u64,
    /// Cases of the one known difference.
    excepted: u64,
    without_a_place: u64,
    ties: u64,
    /// Nodes refused, by plugin.
    refused: BTreeMap<String, u64>,
    refused_before_filters: u64,
    /// Cases in which a plugin told nodes apart.
    told_apart: BTreeMap<String, u64>,
    no_cases: u64,
    no_case_example: String,
}

impl Tally {
    fn count(&mut self, theirs: &Answer) {
        self.cases += 1;
        self.without_a_place += u64::from(theirs.best.is_empty());
        self.ties += u64::from(theirs.best.len() > 1);
        let mut scores: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for node in &theirs.nodes {
            if let Some(refused) = &node.refused {
                *self.refused.entry(refused.plugin.clone()).or_default() += 1;
                self.refused_before_filters += u64::from(refused.before);
            }
            for (plugin, score) in &node.scores {
                scores.entry(plugin).or_default().insert(*score);
            }
        }
        for (plugin, _) in scores.into_iter().filter(|(_, scores)| scores.len() > 1) {
            *self.told_apart.entry(plugin.to_owned()).or_default() += 1;
        }
    }

    fn no_case(&mut self, why: &str) {
        assert!(why.contains("is not valid"), "kube-scheduler has no answer: {why}");
        self.no_cases += 1;
        why.clone_into(&mut self.no_case_example);
    }

    fn check(&self) {
        assert!(self.no_cases * 20 < self.cases, "too many of the cases are none: {}", self.no_case_example);
        assert!(self.excepted * 50 < self.cases, "too many of the cases are exceptions");
        assert!(self.without_a_place * 2 < self.cases, "too many pods fit nowhere");
        assert!(
            self.without_a_place > 0 && self.ties > 0 && self.refused_before_filters > 0,
            "something never happened"
        );
        for filter in FILTERS.iter().copied() {
            assert!(self.refused.contains_key(filter), "{filter} never refused a node");
        }
        for plugin in COMPARED.iter().copied() {
            assert!(self.told_apart.contains_key(plugin), "{plugin} never mattered");
        }
    }
}
