//! Counters against a recount: whatever happens to pods, in whatever order it is told, an object shows how many of each
//! subset stand where, as anybody would count who looks at the pods that there are.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_engine::Engine;
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;
use serde_json::{Value, json};

use super::groups;
use crate::dialect::{Counts, Dialect, MusterPodGroup, MusterWorkload};
use crate::gates::FeatureGates;
use crate::intake::groups::ObjectKey;
use crate::intake::raw::{Guarded, RawObject};
use crate::intake::{Intake, News, WatchTurn};
use crate::settings::Profile;
use muster_api::makers::GangedOwners;

const STEPS: usize = 60;
const POD_GROUPS: usize = 1;
const SUBSETS: [&str; 2] = ["ps", "worker"];

/// The pods that there are, by UID.
struct World {
    random: Random,
    intake: Intake,
    engine: Engine,
    pods: BTreeMap<String, Value>,
    made: usize,
}

impl World {
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
        let mut world = Self { random: Random::new(seed), intake, engine, pods: BTreeMap::new(), made: 0 };
        for group in ["a", "b"] {
            let subsets = SUBSETS.map(|name| json!({"name": name, "minMember": 1}));
            let object = json!({
                "metadata": {"name": group, "namespace": "ml", "uid": group, "resourceVersion": "1"},
                "spec": {"subsets": subsets},
            });
            let object: RawObject = serde_json::from_str(&object.to_string()).expect("an object");
            world.tell(News::Group(POD_GROUPS, WatchTurn::Seen(object)));
        }
        world
    }

    fn tell(&mut self, news: News) {
        for observation in self.intake.take(news, 0).observations {
            self.engine.observe(0, observation).expect("what intake says makes sense");
        }
    }

    fn pod(&self, uid: &str) -> Guarded<muster_api::wire::Pod> {
        serde_json::from_str(&self.pods[uid].to_string()).expect("a pod")
    }

    fn step(&mut self) {
        let uids: Vec<String> = self.pods.keys().cloned().collect();
        match self.random.below(10) {
            0..=3 => self.make(),
            // A list that starts anew: what it does not name is gone, seen or not.
            4 => self.relist(&uids),
            5 if !uids.is_empty() => {
                let uid = self.random.pick(&uids).clone();
                let gone = self.pod(&uid);
                self.pods.remove(&uid);
                self.tell(News::Pod(WatchTurn::Gone(gone)));
            }
            _ if !uids.is_empty() => {
                let uid = self.random.pick(&uids).clone();
                self.move_on(&uid);
                let pod = self.pod(&uid);
                self.tell(News::Pod(WatchTurn::Seen(pod)));
            }
            _ => {}
        }
    }

    fn make(&mut self) {
        self.made += 1;
        let uid = format!("u{}", self.made);
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
        self.tell(News::Pod(WatchTurn::Seen(pod)));
    }

    /// Pods are bound, run, end well or badly, and go.
    fn move_on(&mut self, uid: &str) {
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
        self.tell(News::Pod(WatchTurn::Begin));
        for uid in uids {
            if self.random.chance(90) {
                let pod = self.pod(uid);
                self.tell(News::Pod(WatchTurn::Listed(pod)));
            } else {
                self.pods.remove(uid);
            }
        }
        self.tell(News::Pod(WatchTurn::Complete));
    }

    /// Counts the pods themselves.
    fn recount(&self, group: &str, subset: Option<&str>) -> Counts {
        let mut counts = Counts::default();
        for pod in self.pods.values() {
            let says = |key: &str| pod["metadata"]["annotations"][key].as_str();
            if says("muster.dev/pod-group") != Some(group)
                || subset.is_some_and(|subset| says("muster.dev/subset") != Some(subset))
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
            let status = groups::status(&mut self.intake, &self.engine, &key, 0, Timestamp::UNIX_EPOCH);
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
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
            world.check();
        }
    });
}
