//! Compares the counters in the status with a recount: after random pod changes, observed in any order, an object shows
//! how many pods of each subset are in which state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_engine::Engine;
use muster_engine::status::Counts;
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;
use serde_json::{Value, json};

use super::group_conditions;
use crate::dialect::{Dialect, MusterPodGroup, MusterWorkload};
use crate::gates::FeatureGates;
use crate::intake::group_index::ObjectKey;
use crate::intake::raw::RawObject;
use crate::intake::{Intake, WatchEvent};
use crate::settings::Profile;
use muster_api::owners::GangedOwners;
use muster_reflector::{Delta, Guarded};

const STEPS: usize = 60;
const POD_GROUPS: usize = 1;
const SUBSETS: [&str; 2] = ["ps", "worker"];

/// The existing pods, by UID.
struct Simulation {
    random: Random,
    intake: Intake,
    engine: Engine,
    pods: BTreeMap<String, Value>,
    created: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let dialects: Vec<Box<dyn Dialect>> = vec![Box::new(MusterWorkload), Box::new(MusterPodGroup)];
        let intake = Intake::new(
            vec![Profile::default()],
            Vec::new(),
            FeatureGates::default(),
            GangedOwners::default(),
            dialects,
        );
        let engine = Engine::new(muster_engine::Config::default()).expect("the defaults are valid");
        let mut simulation = Self { random: Random::new(seed), intake, engine, pods: BTreeMap::new(), created: 0 };
        for group in ["a", "b"] {
            let subsets = SUBSETS.map(|name| json!({"name": name, "minMember": 1}));
            let object = json!({
                "metadata": {"name": group, "namespace": "ml", "uid": group, "resourceVersion": "1"},
                "spec": {"subsets": subsets},
            });
            let object: RawObject = serde_json::from_str(&object.to_string()).expect("an object");
            simulation.observe(WatchEvent::Group(POD_GROUPS, Delta::Applied(object)));
        }
        simulation
    }

    fn observe(&mut self, event: WatchEvent) {
        for observation in self.intake.handle(event, 0).observations {
            self.engine.observe(0, observation).expect("intake emits valid observations");
        }
    }

    fn pod(&self, uid: &str) -> Guarded<muster_api::wire::Pod> {
        serde_json::from_str(&self.pods[uid].to_string()).expect("a pod")
    }

    fn step(&mut self) {
        let uids: Vec<String> = self.pods.keys().cloned().collect();
        match self.random.below(10) {
            0..=3 => self.create_pod(),
            // A new list: pods that it does not contain are gone, whether their deletion was observed or not.
            4 => self.relist(&uids),
            5 if !uids.is_empty() => {
                let uid = self.random.pick(&uids).clone();
                let gone = self.pod(&uid);
                self.pods.remove(&uid);
                self.observe(WatchEvent::Pod(Delta::Deleted(gone)));
            }
            _ if !uids.is_empty() => {
                let uid = self.random.pick(&uids).clone();
                self.advance_pod(&uid);
                let pod = self.pod(&uid);
                self.observe(WatchEvent::Pod(Delta::Applied(pod)));
            }
            _ => {}
        }
    }

    fn create_pod(&mut self) {
        self.created += 1;
        let uid = format!("u{}", self.created);
        let (group, subset) = (["a", "b", ""][self.random.below(3)], ["ps", "worker", "none"][self.random.below(3)]);
        let mut annotations = json!({});
        if !group.is_empty() {
            annotations = json!({"muster.dev/pod-group": group, "muster.dev/subset": subset});
        }
        let scheduler = if self.random.chance(80) { "muster" } else { "other" };
        self.pods.insert(
            uid.clone(),
            json!({
                "metadata": {"name": uid, "namespace": "ml", "uid": uid, "annotations": annotations},
                "spec": {"schedulerName": scheduler, "containers": []},
                "status": {"phase": "Pending"},
            }),
        );
        let pod = self.pod(&uid);
        self.observe(WatchEvent::Pod(Delta::Applied(pod)));
    }

    /// A pod is bound, runs, succeeds or fails, and is deleted.
    fn advance_pod(&mut self, uid: &str) {
        let chance = self.random.below(4);
        let pod = self.pods.get_mut(uid).expect("it is there");
        let phase = pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
        match (phase.as_str(), pod["spec"]["nodeName"].is_null()) {
            ("Pending", true) => pod["spec"]["nodeName"] = json!("n"),
            ("Pending", false) => pod["status"]["phase"] = json!(if chance == 0 { "Failed" } else { "Running" }),
            ("Running", _) if chance == 0 => pod["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z"),
            ("Running", _) => pod["status"]["phase"] = json!(if chance == 1 { "Failed" } else { "Succeeded" }),
            _ => {}
        }
    }

    fn relist(&mut self, uids: &[String]) {
        self.observe(WatchEvent::Pod(Delta::ListStarted));
        for uid in uids {
            if self.random.chance(90) {
                let pod = self.pod(uid);
                self.observe(WatchEvent::Pod(Delta::Listed(pod)));
            } else {
                self.pods.remove(uid);
            }
        }
        self.observe(WatchEvent::Pod(Delta::ListDone));
    }

    /// Counts the pods themselves.
    fn recount(&self, group: &str, subset: Option<&str>) -> Counts {
        let mut counts = Counts::default();
        for pod in self.pods.values() {
            let annotation = |key: &str| pod["metadata"]["annotations"][key].as_str();
            if annotation("muster.dev/pod-group") != Some(group)
                || subset.is_some_and(|subset| annotation("muster.dev/subset") != Some(subset))
            {
                continue;
            }
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            let bound = !pod["spec"]["nodeName"].is_null();
            counts.total += 1;
            counts.running += i64::from(phase == "Running");
            counts.succeeded += i64::from(phase == "Succeeded");
            counts.failed += i64::from(phase == "Failed");
            counts.scheduled += i64::from(bound && phase != "Failed");
        }
        counts
    }

    fn check(&mut self) {
        for group in ["a", "b"] {
            let key = ObjectKey { dialect: POD_GROUPS, namespace: "ml".to_owned(), name: group.to_owned() };
            let status = group_conditions::status(&mut self.intake, &self.engine, &key, 0, Timestamp::UNIX_EPOCH);
            let [instance] = &status.expect("the object is there").instances[..] else { panic!("one group") };
            assert_eq!(instance.counts, self.recount(group, None), "group {group}");
            for (name, counts) in &instance.subsets {
                assert_eq!(*counts, self.recount(group, Some(name)), "subset {name} of group {group}");
            }
        }
    }
}

#[test]
fn counters_are_right_after_every_step_of_random_runs() {
    for_each_seed(300, |seed| {
        let mut simulation = Simulation::new(seed);
        for _ in 0..STEPS {
            simulation.step();
            simulation.check();
        }
    });
}
