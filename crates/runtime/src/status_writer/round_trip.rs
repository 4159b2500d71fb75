//! The status of a group, written by one process and read by the next, gives the engine the state that it had: random
//! lives of groups in every group API, with a restart after every step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_api::keys::annotations::START;
use muster_api::keys::conditions::{POD_GROUP_SCHEDULED, STARTED};
use muster_api::native::NativeVersion;
use muster_api::owners::GangedOwners;
use muster_api::wire::condition::Condition;
use muster_clock::{Clock, seconds};
use muster_engine::model::group::{DisruptionMode, GroupKey};
use muster_engine::status::StartStatus;
use muster_engine::{BindOutcome, Command, DeleteOutcome, Engine, GroupState, Observation};
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;
use muster_reflector::Delta;
use serde_json::{Value, json};

use super::{StatusWriter, group_conditions};
use crate::actuator::{ApiRequest, Outcome, WriteOutcome};
use crate::dialect::{
    Dialect, MusterPodGroup, MusterWorkload, NativePodGroup, Reference, SchedulerPlugins, StatusPatch, Volcano,
};
use crate::gates::FeatureGates;
use crate::intake::group_index::ObjectKey;
use crate::intake::{Intake, WatchEvent};
use crate::settings::Profile;
use crate::start_stamp;

const LIVES: u64 = 120;
const STEPS: usize = 25;
const NODES: usize = 3;
/// The status is written by then.
const SETTLED: Duration = Duration::from_millis(2_500);

/// How groups are written in an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    PodGroup,
    Workload,
    Native,
    SchedulerPlugins,
    Volcano,
}

impl Api {
    const ALL: [Self; 5] = [Self::PodGroup, Self::Workload, Self::Native, Self::SchedulerPlugins, Self::Volcano];

    fn dialect(self) -> Box<dyn Dialect> {
        match self {
            Self::PodGroup => Box::new(MusterPodGroup),
            Self::Workload => Box::new(MusterWorkload),
            Self::Native => Box::new(NativePodGroup(NativeVersion::V1beta1)),
            Self::SchedulerPlugins => Box::new(SchedulerPlugins),
            Self::Volcano => Box::new(Volcano),
        }
    }

    fn key(self) -> GroupKey {
        let group = if self == Self::Workload { "a" } else { "" };
        let reference = Reference { group: group.to_owned(), ..Reference::to_object("g") };
        reference.key(self.dialect().origin(), "ml")
    }

    /// A group as this API can express it.
    fn spec(self, random: &mut Random) -> Value {
        // A few objects cannot be used.
        let minimum = if random.chance(5) { 0 } else { 1 + random.below(5) };
        let whole = random.chance(50);
        let mode = if whole { "PodGroup" } else { "Pod" };
        let gang = json!({"gang": {"minCount": minimum}});
        let policy = if random.chance(15) { json!({"basic": {}}) } else { gang.clone() };
        let mut group = json!({"policy": policy});
        if policy == gang {
            group["disruptionMode"] = json!(mode);
            group["degradedPolicy"] = json!(random.pick(&["Replace", "Requorum", "Evict"]));
        }
        match self {
            Self::PodGroup if random.chance(25) => {
                let subsets = ["ps", "worker"].map(|name| json!({"name": name, "minMember": 1 + random.below(3)}));
                json!({"subsets": subsets, "disruptionMode": mode})
            }
            Self::PodGroup => group,
            Self::Workload => {
                group["name"] = json!("a");
                json!({"podGroups": [group]})
            }
            Self::Native => {
                let mode = if whole { json!({"all": {}}) } else { json!({"single": {}}) };
                json!({"schedulingPolicy": policy, "disruptionMode": mode, "priority": 0})
            }
            Self::SchedulerPlugins | Self::Volcano => json!({"minMember": minimum}),
        }
    }

    /// Has the pod name the group.
    fn join(self, pod: &mut Value, random: &mut Random) {
        match self {
            Self::PodGroup => {
                pod["metadata"]["annotations"]["muster.dev/pod-group"] = json!("g");
                if random.chance(50) {
                    pod["metadata"]["annotations"]["muster.dev/subset"] = json!(random.pick(&["ps", "worker"]));
                }
            }
            Self::Workload => {
                pod["metadata"]["annotations"] = json!({"muster.dev/workload": "g", "muster.dev/pod-group": "a"});
            }
            Self::Native => pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"}),
            Self::SchedulerPlugins => pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = json!("g"),
            Self::Volcano => pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!("g"),
        }
    }
}

/// What the API server stores.
#[derive(Clone, Debug)]
struct Stored {
    object: Option<Value>,
    /// By UID.
    pods: BTreeMap<String, Value>,
    version: u64,
    created: usize,
}

/// One process of Muster.
struct Process {
    intake: Intake,
    engine: Engine,
    writer: StatusWriter,
    clock: Clock,
}

impl Process {
    /// A process that has listed everything, in any order.
    fn start(api: Api, clock: Clock, stored: &Stored, pods_first: bool) -> Self {
        let gates = FeatureGates::default();
        let intake =
            Intake::new(vec![Profile::default()], Vec::new(), gates, GangedOwners::default(), vec![api.dialect()]);
        let engine = Engine::new(muster_engine::Config::default()).expect("the defaults are valid");
        let writer = StatusWriter::new(clock, "muster", "test", vec![Arc::new(api.dialect().resource())]);
        let mut process = Self { intake, engine, writer, clock };
        process.observe(WatchEvent::Class(Delta::ListStarted));
        process.observe(WatchEvent::Class(Delta::ListDone));
        for number in 0..NODES {
            let resources = json!({"cpu": "2", "memory": "8Gi", "pods": "110"});
            let node = json!({"metadata": {"name": format!("n{number}")}, "status": {"allocatable": resources}});
            process.observe(WatchEvent::Node(Delta::Applied(read(&node))));
        }
        let see_object = |process: &mut Self| {
            if let Some(object) = &stored.object {
                process.observe(WatchEvent::Group(0, Delta::Applied(read(object))));
            }
        };
        if !pods_first {
            see_object(&mut process);
        }
        for pod in stored.pods.values() {
            process.observe(WatchEvent::Pod(Delta::Applied(read(pod))));
        }
        if pods_first {
            see_object(&mut process);
        }
        process
    }

    fn observe(&mut self, event: WatchEvent) {
        let now_ms = self.clock.now_ms();
        let output = self.intake.handle(event, now_ms);
        assert_eq!(output.errors, Vec::<String>::new());
        for observation in output.observations {
            self.tell(observation);
        }
        for pod in output.newly_pending {
            self.writer.on_pending(&pod, &mut self.intake);
        }
    }

    fn tell(&mut self, observation: Observation) {
        self.engine.observe(self.clock.now_ms(), observation).expect("intake emits valid observations");
    }
}

impl Process {
    /// The conditions of the group: type, status and reason.
    fn shown(&mut self) -> Vec<(String, String, String)> {
        let key = ObjectKey { dialect: 0, namespace: "ml".to_owned(), name: "g".to_owned() };
        let (now_ms, now) = (self.clock.now_ms(), self.clock.now());
        let status = group_conditions::status(&mut self.intake, &self.engine, &key, now_ms, now).unwrap_or_default();
        let conditions = status.instances.into_iter().flat_map(|instance| instance.conditions);
        // A condition that is false is like one that never was, but for what is read from it.
        let says = |one: &Condition| one.is_true() || [STARTED, POD_GROUP_SCHEDULED].contains(&&*one.kind);
        let mut list: Vec<_> = conditions.filter(says).map(|one| (one.kind, one.status, one.reason)).collect();
        list.sort();
        list
    }
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_str(&object.to_string()).expect("an object")
}

/// What must survive a restart.
#[derive(Debug, PartialEq)]
struct Remembered {
    minimum: u64,
    mode: DisruptionMode,
    priority: i32,
    /// Without an object nothing is placed, and nothing is rolled back, whether it has started or not.
    with_object: Option<Lived>,
}

/// What must survive a restart while there is an object.
#[derive(Debug, PartialEq)]
struct Lived {
    start: StartStatus,
    /// Whether it has lost members.
    degraded: bool,
    state: GroupState,
    /// The members that may be rolled back.
    tentative: Vec<String>,
}

fn remembered(engine: &Engine, life: &Life) -> Option<Remembered> {
    let api = life.api;
    let key = &api.key();
    let group = engine.group_view(key)?;
    let spec = group.last_spec()?;
    let state = match group.state() {
        // Members that could not be rolled back are tried again.
        GroupState::PartiallyBound => GroupState::Starting,
        state => state,
    };
    let tentative =
        group.members().filter(muster_engine::PodView::is_tentative).map(|pod| pod.name().uid.clone()).collect();
    let start = engine.group_status(key).start;
    let mut lived = Lived { start, degraded: group.is_degraded(), state, tentative };
    // A kubelet that rejects a founder opens a start that had grown out of one without a minimum. What is left of that
    // one stays, whatever the start is called.
    let without_minimum =
        matches!(&lived.start, StartStatus::Started { minimum, .. } if minimum.iter().all(|one| one.min_member == 0));
    if life.has_rejection && lived.tentative.is_empty() && (without_minimum || lived.start == StartStatus::Open) {
        (lived.start, lived.state) = (StartStatus::Open, GroupState::Starting);
    }
    // Its status has whole seconds, and no minimum: members are stamped with that of when they were bound.
    if let (Api::SchedulerPlugins, StartStatus::Started { minimum, decided_ms }) = (api, &mut lived.start) {
        *decided_ms = decided_ms.map(|decided_ms| decided_ms.div_ceil(1_000) * 1_000);
        if life.is_edited {
            minimum.clear();
            (lived.degraded, lived.state) = (false, GroupState::Started);
        }
    }
    Some(Remembered {
        minimum: spec.rules().iter().map(|rule| u64::from(rule.min_member)).sum(),
        mode: spec.disruption_mode,
        priority: group.priority(),
        with_object: group.spec().map(|_| lived),
    })
}

struct Life {
    api: Api,
    random: Random,
    stored: Stored,
    process: Process,
    /// How often an object was written.
    objects: usize,
    /// Whether the object was changed or made again. Then the stamps of members may differ from what it said last.
    is_edited: bool,
    /// Whether a kubelet has rejected a pod.
    has_rejection: bool,
    /// What happened, to be printed if the test fails.
    log: Vec<String>,
}

impl Life {
    fn new(api: Api, seed: u64) -> Self {
        let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).expect("a time"));
        let stored = Stored { object: None, pods: BTreeMap::new(), version: 1, created: 0 };
        let process = Process::start(api, clock, &stored, false);
        Self {
            api,
            random: Random::new(seed),
            stored,
            process,
            objects: 0,
            is_edited: false,
            has_rejection: false,
            log: Vec::new(),
        }
    }

    fn now(&self) -> String {
        seconds(self.process.clock.now())
    }

    async fn step(&mut self) {
        let uids: Vec<String> = self.stored.pods.keys().cloned().collect();
        match self.random.below(12) {
            0..=3 if uids.len() < 9 => self.create_pod(),
            4 => self.put_object(),
            5 if self.random.chance(25) => self.delete_object(),
            6 if !uids.is_empty() => {
                let uid = self.random.pick(&uids).clone();
                self.remove_pod(&uid);
            }
            7 => {
                let pause = Duration::from_secs(1 + self.random.below(400) as u64);
                self.log.push(format!("wait {pause:?}"));
                tokio::time::advance(pause).await;
            }
            _ if !uids.is_empty() => {
                let uid = self.random.pick(&uids).clone();
                self.advance_pod(&uid);
            }
            _ => {}
        }
        self.settle().await;
    }

    fn create_pod(&mut self) {
        self.stored.created += 1;
        let uid = format!("u{}", self.stored.created);
        let mut pod = json!({
            "metadata": {"name": uid, "namespace": "ml", "uid": uid, "creationTimestamp": self.now()},
            "spec": {
                "schedulerName": "muster",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": "Pending"},
        });
        if self.random.chance(80) {
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }
        self.api.join(&mut pod, &mut self.random);
        self.put_pod(&uid, pod);
    }

    fn put_pod(&mut self, uid: &str, pod: Value) {
        self.log.push(format!("pod {uid}: {} {}", pod["spec"]["nodeName"], pod["status"]["phase"]));
        self.process.observe(WatchEvent::Pod(Delta::Applied(read(&pod))));
        self.stored.pods.insert(uid.to_owned(), pod);
    }

    fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.stored.pods.remove(uid) else { return };
        self.log.push(format!("pod {uid} is gone"));
        self.process.observe(WatchEvent::Pod(Delta::Deleted(read(&pod))));
    }

    /// A bound pod runs, succeeds or fails.
    fn advance_pod(&mut self, uid: &str) {
        let mut pod = self.stored.pods[uid].clone();
        if pod["spec"]["nodeName"].is_null() {
            return;
        }
        match pod["status"]["phase"].as_str() {
            // The kubelet may reject it.
            Some("Pending") if self.random.chance(15) => {
                pod["status"] = json!({"phase": "Failed", "reason": "OutOfcpu"});
                self.has_rejection = true;
            }
            Some("Pending") => {
                pod["status"] = json!({"phase": "Running", "startTime": self.now()});
            }
            Some("Running") if self.random.chance(15) => {
                pod["metadata"]["deletionTimestamp"] = json!(self.now());
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            }
            Some("Running") if self.random.chance(30) => {
                pod["status"]["phase"] = json!(if self.random.chance(70) { "Succeeded" } else { "Failed" });
            }
            _ => return,
        }
        self.put_pod(uid, pod);
    }

    /// Creates the object, or changes its minimum.
    fn put_object(&mut self) {
        self.stored.version += 1;
        let version = self.stored.version.to_string();
        let new = json!({"metadata": {"name": "g", "namespace": "ml", "uid": format!("g-{version}"),
            "creationTimestamp": self.now(), "generation": 1}});
        self.is_edited = self.objects > 0;
        self.objects += 1;
        let mut object = self.stored.object.take().unwrap_or(new);
        object["spec"] = self.api.spec(&mut self.random);
        self.log.push(format!("object {}: {}", object["metadata"]["uid"], object["spec"]));
        self.see_object(object);
    }

    fn see_object(&mut self, mut object: Value) {
        self.stored.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.stored.version.to_string());
        self.process.observe(WatchEvent::Group(0, Delta::Applied(read(&object))));
        self.stored.object = Some(object);
    }

    fn delete_object(&mut self) {
        let Some(object) = self.stored.object.take() else { return };
        self.log.push("the object is gone".to_owned());
        self.process.observe(WatchEvent::Group(0, Delta::Deleted(read(&object))));
    }

    /// Decides and writes until nothing is left to be written.
    async fn settle(&mut self) {
        let until = self.process.clock.now_ms() + SETTLED.as_millis() as u64;
        while self.process.clock.now_ms() < until {
            let now_ms = self.process.clock.now_ms();
            while self.process.engine.next_wakeup().is_some_and(|due| due <= now_ms) {
                for command in self.process.engine.decide(now_ms) {
                    self.execute(command);
                }
            }
            let Process { intake, engine, writer, .. } = &mut self.process;
            writer.groups_changed(intake, engine);
            for request in writer.take_due(100, intake, engine) {
                self.answer(request);
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Bind { pod, node, start } => {
                let outcome = match self.random.below(10) {
                    0 => BindOutcome::Transient { message: "later".to_owned() },
                    1 => BindOutcome::Refused { message: "no".to_owned() },
                    _ => BindOutcome::Bound,
                };
                if outcome == BindOutcome::Bound
                    && let Some(mut bound) = self.stored.pods.get(&pod.uid).cloned()
                {
                    bound["spec"]["nodeName"] = json!(&*node);
                    if let Some(start) = start {
                        bound["metadata"]["annotations"][START] = json!(start_stamp::write(&start, &pod.uid));
                    }
                    self.process.tell(Observation::BindDone { pod: pod.clone(), node, outcome });
                    self.put_pod(&pod.uid, bound);
                } else {
                    self.log.push(format!("bind of {}: {outcome:?}", pod.uid));
                    self.process.tell(Observation::BindDone { pod, node, outcome });
                }
            }
            Command::ReserveVolume { .. } | Command::SelectNode { .. } => unreachable!("no pod has a claim"),
            Command::RollBack { pod } => {
                self.log.push(format!("roll back {}", pod.uid));
                self.process.tell(Observation::RollBackDone { pod: pod.clone(), outcome: DeleteOutcome::Deleted });
                self.remove_pod(&pod.uid);
            }
            Command::Report(report) => {
                let Process { intake, engine, writer, .. } = &mut self.process;
                writer.report(*report, intake, engine);
            }
            Command::Nominate { .. }
            | Command::Evict { .. }
            | Command::ClearDisruptionMark { .. }
            | Command::ClearNomination { .. } => {}
        }
    }

    fn answer(&mut self, request: ApiRequest) {
        let written = || WriteOutcome::Written(None);
        let outcome = match request {
            ApiRequest::GroupStatus { object, patch, .. } => {
                if let Some(mut stored) = self.stored.object.clone() {
                    let lists_by_type = matches!(patch, StatusPatch::Strategic(_));
                    merge(&mut stored["status"], &patch.body()["status"], lists_by_type);
                    self.see_object(stored);
                }
                Outcome::GroupStatus { object, outcome: written() }
            }
            ApiRequest::PodStatus { pod, .. } => Outcome::PodStatus { pod, outcome: written() },
            ApiRequest::Event { key, .. } => Outcome::Event { key, outcome: written() },
            other => panic!("the status writer sends no {other:?}"),
        };
        self.process.writer.done(&outcome);
    }

    /// The state that a new process has must be that of the old one, and so must what it shows.
    fn check(&mut self) {
        let shown = self.process.shown();
        let before = remembered(&self.process.engine, self);
        if self.is_edited && before.as_ref().is_some_and(|before| before.with_object.is_none()) {
            return;
        }
        for pods_first in [false, true] {
            let mut next = Process::start(self.api, self.process.clock, &self.stored, pods_first);
            let after = remembered(&next.engine, self);
            let next_shown = next.shown();
            let has_conditions = matches!(self.api, Api::PodGroup | Api::Workload | Api::Native);
            assert!(
                !has_conditions || next_shown == shown,
                "{:?}, pods first: {pods_first}\n{}\nshows {next_shown:#?}\nand showed {shown:#?}\nas {:#?}",
                self.api,
                self.log.join("\n"),
                next.engine.group_status(&self.api.key()),
            );
            let status = self.stored.object.as_ref().map(|object| &object["status"]);
            assert!(
                after == before,
                "{:?}, pods first: {pods_first}\n{}\nthe status {status:#?}\nwas {before:#?}\nand is {after:#?}",
                self.api,
                self.log.join("\n"),
            );
        }
    }
}

/// A JSON merge patch; with `lists_by_type` conditions are merged by their type, as in a strategic one.
fn merge(target: &mut Value, patch: &Value, lists_by_type: bool) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        match (value, &mut target[name]) {
            (Value::Null, _) => _ = target.as_object_mut().expect("an object").remove(name),
            (Value::Array(new), Value::Array(old)) if lists_by_type => {
                for one in new {
                    old.retain(|known| known["type"] != one["type"]);
                    old.push(one.clone());
                }
            }
            (value, target) => merge(target, value, lists_by_type),
        }
    }
}

#[test]
fn a_new_process_knows_what_the_old_one_knew() {
    for_each_seed(LIVES, |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            for api in Api::ALL {
                let mut life = Life::new(api, seed);
                for _ in 0..STEPS {
                    life.step().await;
                    life.check();
                }
            }
        });
    });
}
