//! The world around an engine: an API that holds the truth, binds and deletes what it is told to, and shows every
//! change. Time is virtual. Invariants are checked after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::cluster::pod::PodState;
use muster_engine::model::Millis;
use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupKey, GroupSpec, History, Policy, Subset};
use muster_engine::model::labels::Labels;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Membership, Phase, PodName, PodSpec};
use muster_engine::record::Recorder;
use muster_engine::{
    BindOutcome, Command, Config, Diagnosis, Observation, Report, Subject, TakeBackOutcome, invariants,
};

use crate::judge;
use crate::story::{Orders, Stories, minimums};
use crate::units::BegunUnit;

pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) engine: Recorder,
    pub(crate) now: Millis,
    pub(crate) nodes: BTreeMap<String, NodeSpec>,
    /// By UID.
    pub(crate) pods: BTreeMap<String, PodSpec>,
    pub(crate) groups: BTreeMap<GroupKey, GroupSpec>,
    /// The labels of namespaces.
    pub(crate) namespaces: BTreeMap<String, Labels>,
    /// By name; all are in one namespace.
    pub(crate) budgets: BTreeMap<String, BudgetSpec>,
    /// The pods as the engine was last shown them.
    pub(crate) shown: BTreeMap<String, PodSpec>,
    /// Commands that are sent and not answered yet.
    pub(crate) in_flight: Vec<Command>,
    /// Everything that was ever said.
    pub(crate) reports: Vec<Report>,
    /// Every command that was ever given, but reports.
    pub(crate) acts: Vec<Command>,
    /// The answers of each decision, for comparison with a replay.
    pub(crate) answers: Vec<String>,
    pub(crate) keep_answers: bool,
    /// How long a pod takes to leave when it is evicted; if it takes any time, somebody has to remove it.
    pub(crate) grace_ms: Millis,
    pub(crate) stories: Stories,
    /// The groups that go whole of which somebody was deleted.
    pub(crate) units: Vec<BegunUnit>,
    /// Everything that happened, to be printed if the test fails.
    log: Vec<String>,
    uids: u64,
}

/// A class that asks for so many CPUs.
pub(crate) fn cpus(count: i64) -> ClassSpec {
    ClassSpec {
        requests: [("cpu".to_owned(), count * 1000)].into(),
        scoring_cpu_milli: count * 1000,
        scoring_memory_bytes: 200 << 20,
        ..ClassSpec::default()
    }
}

pub(crate) fn key(name: &str) -> GroupKey {
    GroupKey { origin: "test".into(), namespace: "ns".into(), name: name.into(), replica: String::new() }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self {
            engine: Recorder::new(config.clone()).expect("a valid configuration"),
            config,
            now: 0,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            groups: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            budgets: BTreeMap::new(),
            shown: BTreeMap::new(),
            in_flight: Vec::new(),
            reports: Vec::new(),
            acts: Vec::new(),
            answers: Vec::new(),
            keep_answers: false,
            grace_ms: 0,
            stories: Stories::default(),
            units: Vec::new(),
            log: Vec::new(),
            uids: 0,
        }
    }

    // Showing things to the engine.

    pub(crate) fn show(&mut self, observation: Observation) {
        let text = format!("{observation:?}");
        self.log.push(format!("{:>9} see {text}", self.now));
        self.remember(&observation);
        self.engine.observe(self.now, observation).unwrap_or_else(|refusal| panic!("{refusal} for {text}"));
        let orders = self.orders();
        self.stories.look(&self.shown, self.now, &orders);
        self.check(&text);
    }

    /// Keeps what the engine was shown of pods; like the engine, it does not believe that a pod is unbound or unfinished again.
    fn remember(&mut self, observation: &Observation) {
        match observation {
            Observation::PodSeen(spec) => {
                let mut spec = spec.clone();
                if let Some(known) = self.shown.get(&spec.id.uid) {
                    spec.node = spec.node.or_else(|| known.node.clone());
                    spec.terminating |= known.terminating;
                    if !matches!(known.phase, Phase::Pending | Phase::Running) {
                        spec.phase = known.phase;
                    }
                }
                self.shown.insert(spec.id.uid.clone(), spec);
            }
            Observation::PodGone { uid } => drop(self.shown.remove(uid)),
            Observation::BindDone { pod, node, outcome: BindOutcome::Bound } => {
                if let Some(known) = self.shown.get_mut(&pod.uid) {
                    known.node = Some(node.to_string());
                }
            }
            _ => {}
        }
        let orders = self.orders();
        self.stories.look(&self.shown, self.now, &orders);
    }

    fn orders(&self) -> Orders {
        let cluster = self.engine.engine().cluster();
        let assumed = cluster.pods().filter(|(_, pod)| matches!(pod.state, PodState::Assumed(_)));
        let evicted = cluster.pods().filter(|(_, pod)| pod.eviction.is_some());
        Orders {
            binds: assumed.filter_map(|(_, pod)| Some(cluster.group(pod.group?).key.clone())).collect(),
            evictions: evicted.map(|(_, pod)| pod.id.uid.clone()).collect(),
            scheduled: BTreeSet::new(),
        }
    }

    pub(crate) fn check(&self, after: &str) {
        if let Err(broken) = invariants::check(self.engine.engine()) {
            panic!("{broken}, after {after}");
        }
    }

    pub(crate) fn node(&mut self, name: &str, cpus: i64) {
        let allocatable = [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)];
        self.put_node(NodeSpec { name: name.into(), allocatable: allocatable.into(), ..NodeSpec::default() });
    }

    pub(crate) fn put_node(&mut self, spec: NodeSpec) {
        self.nodes.insert(spec.name.clone(), spec.clone());
        self.show(Observation::NodeSeen(spec));
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
        self.show(Observation::NodeGone { name: name.into() });
    }

    pub(crate) fn put_group(&mut self, spec: GroupSpec) {
        self.groups.insert(spec.key.clone(), spec.clone());
        self.stories.asked(&spec.key, &minimums(&spec));
        self.show(Observation::GroupSeen(spec));
    }

    pub(crate) fn put_namespace(&mut self, name: &str, labels: Labels) {
        self.namespaces.insert(name.to_owned(), labels.clone());
        self.show(Observation::NamespaceSeen { name: name.to_owned(), labels });
    }

    pub(crate) fn put_budget(&mut self, spec: BudgetSpec) {
        self.budgets.insert(spec.name.clone(), spec.clone());
        self.show(Observation::BudgetSeen(spec));
    }

    pub(crate) fn remove_budget(&mut self, name: &str) {
        self.budgets.remove(name);
        self.show(Observation::BudgetGone { namespace: "ns".into(), name: name.into() });
    }

    pub(crate) fn gang(&mut self, name: &str, min_count: u32) {
        self.put_group(GroupSpec::gang(key(name), min_count));
    }

    pub(crate) fn basic(&mut self, name: &str, desired_count: Option<u32>) {
        self.put_group(GroupSpec::with_policy(key(name), Policy::Basic { desired_count }));
    }

    pub(crate) fn subsets(&mut self, name: &str, subsets: &[(&str, u32)]) {
        let subset = |(name, min_member): &(&str, u32)| Subset { name: (*name).to_owned(), min_member: *min_member };
        self.put_group(GroupSpec::with_policy(key(name), Policy::Subsets(subsets.iter().map(subset).collect())));
    }

    pub(crate) fn remove_group(&mut self, name: &str) {
        self.groups.remove(&key(name));
        self.show(Observation::GroupGone { key: key(name) });
    }

    /// A pod that asks for CPUs, in a group if one is named; answers its UID.
    pub(crate) fn pod(&mut self, name: &str, group: &str, cpu: i64) -> String {
        self.pod_with(name, group, cpu, |_| {})
    }

    pub(crate) fn pod_with(&mut self, name: &str, group: &str, cpu: i64, change: impl FnOnce(&mut PodSpec)) -> String {
        self.uids += 1;
        let uid = format!("uid-{:04}", self.uids);
        let membership = (!group.is_empty()).then(|| Membership { group: key(group), subset: String::new() });
        let mut spec = PodSpec {
            id: Arc::new(PodName { namespace: "ns".into(), name: name.into(), uid: uid.clone() }),
            class: Arc::new(cpus(cpu)),
            membership,
            ours: true,
            controlled: true,
            created_ms: self.now,
            ..PodSpec::default()
        };
        change(&mut spec);
        self.pods.insert(uid.clone(), spec.clone());
        self.show(Observation::PodSeen(spec));
        uid
    }

    /// Several pods `name-0`, `name-1`, ...
    pub(crate) fn pods_of(&mut self, name: &str, group: &str, count: usize, cpu: i64) {
        for number in 0..count {
            self.pod(&format!("{name}-{number}"), group, cpu);
        }
    }

    /// Changes a pod's truth and shows it.
    pub(crate) fn change(&mut self, uid: &str, change: impl FnOnce(&mut PodSpec)) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        change(pod);
        let spec = pod.clone();
        self.show(Observation::PodSeen(spec));
    }

    pub(crate) fn phase(&mut self, name: &str, phase: Phase) {
        let uid = self.uid(name);
        if phase == Phase::Refused {
            self.tell_refusal(&uid);
        }
        self.change(&uid, |pod| pod.phase = phase);
    }

    /// A kubelet is about to refuse a pod.
    pub(crate) fn tell_refusal(&mut self, uid: &str) {
        let (pod, cluster) = (&self.pods[uid], self.engine.engine().cluster());
        let group = cluster.pod_id(uid).and_then(|id| cluster.pod(id).group);
        let somebody_ran = group.is_some() && cluster.pods().any(|(_, other)| other.group == group && other.ran);
        self.stories.refused(pod, somebody_ran);
    }

    pub(crate) fn remove_pod(&mut self, uid: &str) {
        if self.pods.remove(uid).is_some() {
            self.show(Observation::PodGone { uid: uid.to_owned() });
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let uid = self.uid(name);
        self.remove_pod(&uid);
    }

    pub(crate) fn uid(&self, name: &str) -> String {
        let pod = self.pods.iter().find(|(_, pod)| pod.id.name == name);
        pod.unwrap_or_else(|| panic!("no pod {name}")).0.clone()
    }

    // Deciding and carrying out.

    /// One decision; its commands are checked and sent.
    pub(crate) fn decide(&mut self) -> usize {
        let commands = self.engine.decide(self.now);
        if self.keep_answers {
            self.answers.push(muster_engine::record::commands_json(&commands));
        }
        self.check("a decision");
        self.tell_stories(&commands);
        let scheduled = |command: &Command| match command {
            Command::Report(report) => match (&report.subject, &report.diagnosis) {
                (Subject::Group(key), Diagnosis::Scheduled { .. }) => Some(key.clone()),
                _ => None,
            },
            _ => None,
        };
        let orders = Orders { scheduled: commands.iter().filter_map(scheduled).collect(), ..self.orders() };
        self.stories.look(&self.shown, self.now, &orders);
        let count = commands.len();
        for command in &commands {
            self.log.push(format!("{:>9} do  {command:?}", self.now));
        }
        // They are judged by what was known when they were given, before the first of them changes anything.
        for command in &commands {
            judge::command(self, command);
        }
        // What is ordered in one decision is ordered before anything new is seen.
        for command in &commands {
            if let Command::TakeBack { pod } = command {
                self.stories.ordered_back(&pod.uid);
            }
        }
        for command in commands {
            match command {
                Command::Report(report) => self.hear(*report),
                Command::ClearNomination { pod } => {
                    self.acts.push(Command::ClearNomination { pod: pod.clone() });
                    self.change(&pod.uid.clone(), |pod| pod.nominated = None);
                }
                Command::Spare { pod } => {
                    self.acts.push(Command::Spare { pod: pod.clone() });
                    self.change(&pod.uid.clone(), |pod| pod.marked = false);
                }
                Command::Nominate { pod, node } => {
                    self.acts.push(Command::Nominate { pod: pod.clone(), node: node.clone() });
                    self.change(&pod.uid.clone(), |pod| pod.nominated = Some(node.to_string()));
                }
                Command::Bind { .. } | Command::TakeBack { .. } | Command::Evict { .. } => {
                    self.acts.push(command.clone());
                    self.in_flight.push(command);
                }
            }
        }
        count
    }

    /// Remembers for which minimum members are bound.
    fn tell_stories(&mut self, commands: &[Command]) {
        for command in commands {
            let Command::Bind { pod, .. } = command else { continue };
            if judge::is_sent_again(self, &pod.uid) {
                continue;
            }
            let Some(membership) = self.pods.get(&pod.uid).and_then(|truth| truth.membership.clone()) else { continue };
            if let Some(group) = self.groups.get(&membership.group) {
                let timeout = group.schedule_timeout_ms.unwrap_or(self.config.schedule_timeout_ms);
                self.stories.decided(&membership.group, &pod.uid, minimums(group), self.now + timeout);
            }
        }
    }

    fn hear(&mut self, report: Report) {
        assert!(!report.diagnosis.to_string().is_empty());
        if let (Subject::Group(key), Diagnosis::Scheduled { minimum, .. }) = (&report.subject, &report.diagnosis)
            && let Some(group) = self.groups.get_mut(key)
        {
            // The condition in the API, which a later engine will read.
            // It is about the minimum that was reached; the object may ask for another by now.
            let present = minimums(group).values().sum::<usize>() == *minimum as usize;
            group.history = if present { History::Started } else { History::StartedOtherwise };
        }
        if let (Subject::Group(key), Diagnosis::GroupUnschedulable(shortfall)) = (&report.subject, &report.diagnosis)
            && !shortfall.started
            && let Some(group) = self.groups.get_mut(key)
        {
            group.history = History::New;
        }
        if let (Subject::Group(key), Diagnosis::TimedOut { .. }) = (&report.subject, &report.diagnosis)
            && let Some(group) = self.groups.get_mut(key)
        {
            let cluster = self.engine.engine().cluster();
            if cluster.group_id(key).is_none_or(|id| cluster.group(id).reached.is_empty()) {
                // Nothing is left of an earlier start: the condition says so.
                group.history = History::New;
            }
            self.stories.given_up(key, minimums(group), &self.shown);
        }
        self.reports.push(report);
    }

    /// Decides as long as there is something to decide now; sends nothing on.
    pub(crate) fn decide_all(&mut self) {
        let mut decisions = 0;
        while self.engine.engine().next_wakeup().is_some_and(|due| due <= self.now) {
            self.decide();
            decisions += 1;
            assert!(decisions < 100_000, "the engine does not come to rest");
        }
    }

    /// Answers one command as a healthy API would.
    pub(crate) fn carry_out(&mut self, command: Command) {
        match command {
            Command::Bind { pod, node } => {
                let known = self.pods.get(&pod.uid).filter(|truth| !truth.terminating).cloned();
                let outcome = match known {
                    None => BindOutcome::Refused { message: "not found".into() },
                    Some(truth) if truth.node.as_deref().is_some_and(|other| *other != *node) => {
                        BindOutcome::Refused { message: "already bound".into() }
                    }
                    Some(_) => {
                        self.bind_in_truth(&pod.uid, &node);
                        BindOutcome::Bound
                    }
                };
                self.show(Observation::BindDone { pod: pod.clone(), node, outcome });
                self.change(&pod.uid.clone(), |_| {});
            }
            Command::TakeBack { pod } => {
                self.show(Observation::TakeBackDone { pod: pod.clone(), outcome: TakeBackOutcome::Deleted });
                self.change(&pod.uid.clone(), |pod| pod.terminating = true);
                self.remove_pod(&pod.uid.clone());
            }
            Command::Evict { pods, group, .. } => {
                self.unit_begins(&pods, group.as_ref());
                for pod in pods {
                    self.carry_out_eviction(&pod);
                }
            }
            Command::Nominate { .. } | Command::Spare { .. } | Command::ClearNomination { .. } | Command::Report(_) => {
            }
        }
    }

    pub(crate) fn carry_out_eviction(&mut self, pod: &Arc<PodName>) {
        if let Some(truth) = self.pods.get(&pod.uid).cloned() {
            self.stories.lost(&truth);
        }
        self.show(Observation::EvictDone { pod: pod.clone(), outcome: TakeBackOutcome::Deleted });
        let gone_by_ms = Some(self.now + self.grace_ms);
        self.change(&pod.uid, |pod| (pod.marked, pod.terminating, pod.gone_by_ms) = (true, true, gone_by_ms));
        if self.grace_ms == 0 {
            self.remove_pod(&pod.uid);
        }
    }

    pub(crate) fn bind_in_truth(&mut self, uid: &str, node: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.node = Some(node.to_owned());
            pod.nominated = None;
        }
    }

    /// Decides and carries out until nothing is left to do now.
    pub(crate) fn settle(&mut self) {
        loop {
            self.decide_all();
            if self.in_flight.is_empty() {
                return;
            }
            for command in std::mem::take(&mut self.in_flight) {
                self.carry_out(command);
            }
        }
    }

    /// Lets time pass, settling whenever something is due.
    pub(crate) fn pass(&mut self, span_ms: Millis) {
        let end = self.now + span_ms;
        self.settle();
        while let Some(due) = self.engine.engine().next_wakeup().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.settle();
        }
        self.now = end;
    }

    /// A new engine that is shown everything there is, as after a restart.
    pub(crate) fn restart(&mut self) {
        self.engine = Recorder::new(self.config.clone()).expect("a valid configuration");
        self.in_flight.clear();
        self.stories.restarted(&self.groups, &self.pods);
        self.forget_units_that_cannot_be_seen();
        self.shown = self.pods.clone();
        for (name, labels) in self.namespaces.clone() {
            self.show(Observation::NamespaceSeen { name, labels });
        }
        for node in self.nodes.clone().into_values() {
            self.show(Observation::NodeSeen(node));
        }
        for group in self.groups.clone().into_values() {
            self.show(Observation::GroupSeen(group));
        }
        for budget in self.budgets.clone().into_values() {
            self.show(Observation::BudgetSeen(budget));
        }
        for pod in self.pods.clone().into_values() {
            self.show(Observation::PodSeen(pod));
        }
    }

    // Asking.

    pub(crate) fn node_of(&self, name: &str) -> Option<String> {
        self.pods[&self.uid(name)].node.clone()
    }

    /// The names of pods that were ever evicted, in order.
    pub(crate) fn evicted(&self) -> Vec<String> {
        let pods = self.acts.iter().filter_map(|act| match act {
            Command::Evict { pods, .. } => Some(pods),
            _ => None,
        });
        pods.flatten().map(|pod| pod.name.clone()).collect()
    }

    /// The names of bound pods, ordered.
    pub(crate) fn bound(&self) -> Vec<String> {
        let bound = self.pods.values().filter(|pod| pod.node.is_some());
        bound.map(|pod| pod.id.name.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// How many bound pods have a name that begins like this.
    pub(crate) fn bound_count(&self, prefix: &str) -> usize {
        self.bound().iter().filter(|name| name.starts_with(prefix)).count()
    }

    pub(crate) fn why_group(&self, name: &str) -> Diagnosis {
        let subject = Subject::Group(key(name));
        self.engine.engine().explain(&subject).cloned().unwrap_or_else(|| panic!("nothing is known of {name}"))
    }

    pub(crate) fn why_pod(&self, name: &str) -> Diagnosis {
        let subject = Subject::Pod(self.pods[&self.uid(name)].id.clone());
        self.engine.engine().explain(&subject).cloned().unwrap_or_else(|| panic!("nothing is known of {name}"))
    }

    /// The reports about a group, as reasons.
    pub(crate) fn reasons(&self, group: &str) -> Vec<&'static str> {
        let about = self.reports.iter().filter(|report| report.subject == Subject::Group(key(group)));
        about.map(|report| report.diagnosis.group_reason()).collect()
    }
}

/// A failing test shows how it came to that with `MUSTER_TRACE=1`.
impl Drop for World {
    fn drop(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "a test may be asked to tell more")]
        let asked = std::env::var("MUSTER_TRACE").is_ok();
        if std::thread::panicking() && asked {
            eprintln!("{}", self.log.join("\n"));
        }
    }
}
