//! A fake cluster around an engine: an API that holds the state, executes binds and deletes, and sends every change
//! back as an observation. Time is virtual. Invariants are checked after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::model::Millis;
use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupKey, GroupSpec, Policy, RecordedStart, Subset};
use muster_engine::model::labels::Labels;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Lifetime, Membership, Phase, PodName, PodSpec, StartStamp};
use muster_engine::record::Recorder;
use muster_engine::{
    BindOutcome, Command, Config, DeleteOutcome, Diagnosis, Observation, PodView, Report, Subject, invariants,
};

use crate::checker;
use crate::fake_storage::FakeStorage;
use crate::gang_history::{GangHistories, Outstanding, minimums};
use crate::victim_units::BegunUnit;

pub(crate) struct FakeCluster {
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
    pub(crate) storage: FakeStorage,
    /// The pods as last shown to the engine.
    pub(crate) shown: BTreeMap<String, PodSpec>,
    /// Commands whose outcome is not observed yet.
    pub(crate) in_flight: Vec<Command>,
    /// The stamp of the last bind of each pod that was sent, by UID.
    stamps: BTreeMap<String, Option<Arc<StartStamp>>>,
    /// The longest timeout that each group has had: a start keeps the one of its decision.
    timeouts_ms: BTreeMap<GroupKey, Millis>,
    /// All reports so far.
    pub(crate) reports: Vec<Report>,
    /// All commands so far, except reports.
    pub(crate) issued: Vec<Command>,
    /// The output of each decision, for comparison with a replay.
    pub(crate) answers: Vec<String>,
    pub(crate) keep_answers: bool,
    /// The grace period of evictions; if it is not zero, the test must remove the pod.
    pub(crate) grace_ms: Millis,
    pub(crate) histories: GangHistories,
    /// The groups evicted whole of which a pod was deleted.
    pub(crate) units: Vec<BegunUnit>,
    /// All events, printed if the test fails.
    log: Vec<String>,
    uids: u64,
    /// The number of group objects so far.
    objects: u64,
}

/// A class that requests this many CPUs.
pub(crate) fn cpus(count: i64) -> ClassSpec {
    ClassSpec {
        requests: [("cpu".to_owned(), count * 1000)].into(),
        scoring_cpu_milli: count * 1000,
        scoring_memory_bytes: 200 << 20,
        ..ClassSpec::default()
    }
}

/// A start that was confirmed with this minimum.
pub(crate) fn started(minimum: u32, decided_ms: Option<u64>) -> RecordedStart {
    let minimum = Some(vec![Subset { name: String::new(), min_member: minimum }]);
    RecordedStart::Confirmed { minimum, decided_ms }
}

pub(crate) fn key(name: &str) -> GroupKey {
    GroupKey { origin: "test".into(), namespace: "ns".into(), name: name.into(), replica: String::new() }
}

impl FakeCluster {
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
            storage: FakeStorage::default(),
            shown: BTreeMap::new(),
            in_flight: Vec::new(),
            stamps: BTreeMap::new(),
            timeouts_ms: BTreeMap::new(),
            reports: Vec::new(),
            issued: Vec::new(),
            answers: Vec::new(),
            keep_answers: false,
            grace_ms: 0,
            histories: GangHistories::default(),
            units: Vec::new(),
            log: Vec::new(),
            uids: 0,
            objects: 0,
        }
    }

    // Observations.

    pub(crate) fn observe(&mut self, observation: Observation) {
        let text = format!("{observation:?}");
        self.log.push(format!("{:>9} see {text}", self.now));
        self.record_shown(&observation);
        self.engine.observe(self.now, observation).unwrap_or_else(|refusal| panic!("{refusal} for {text}"));
        self.storage.events.extend_from_slice(self.engine.engine().volume_events());
        let outstanding = self.outstanding();
        self.histories.update(&self.shown, self.now, &outstanding);
        self.check(&text);
    }

    /// Records the pods as shown to the engine; like the engine, it ignores that a pod seems unbound or unfinished
    /// again.
    fn record_shown(&mut self, observation: &Observation) {
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
        let outstanding = self.outstanding();
        self.histories.update(&self.shown, self.now, &outstanding);
    }

    fn outstanding(&self) -> Outstanding {
        let pods = || self.engine.engine().pod_views();
        let assumed = pods().filter(PodView::is_assumed);
        Outstanding {
            binds: assumed.filter_map(|pod| Some(pod.group()?.key().clone())).collect(),
            evictions: pods().filter(PodView::is_evicted).map(|pod| pod.name().uid.clone()).collect(),
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
        self.observe(Observation::NodeSeen(spec));
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
        self.observe(Observation::NodeGone { name: name.into() });
    }

    /// Creates or updates a group. Without a UID it is the object that is there, or a new one.
    pub(crate) fn put_group(&mut self, mut spec: GroupSpec) {
        if spec.uid.is_empty() {
            spec.uid = self.groups.get(&spec.key).map_or_else(
                || {
                    self.objects += 1;
                    format!("object-{}", self.objects)
                },
                |known| known.uid.clone(),
            );
        }
        let timeout_ms = spec.schedule_timeout_ms.unwrap_or(self.config.schedule_timeout_ms);
        let longest_ms = self.timeouts_ms.entry(spec.key.clone()).or_default();
        *longest_ms = timeout_ms.max(*longest_ms);
        self.groups.insert(spec.key.clone(), spec.clone());
        self.histories.set_specified(&spec.key, &minimums(&spec));
        self.observe(Observation::GroupSeen(spec));
    }

    pub(crate) fn put_namespace(&mut self, name: &str, labels: Labels) {
        self.namespaces.insert(name.to_owned(), labels.clone());
        self.observe(Observation::NamespaceSeen { name: name.to_owned(), labels });
    }

    pub(crate) fn put_budget(&mut self, spec: BudgetSpec) {
        self.budgets.insert(spec.name.clone(), spec.clone());
        self.observe(Observation::BudgetSeen(spec));
    }

    pub(crate) fn remove_budget(&mut self, name: &str) {
        self.budgets.remove(name);
        self.observe(Observation::BudgetGone { namespace: "ns".into(), name: name.into() });
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
        self.observe(Observation::GroupGone { key: key(name) });
    }

    /// Creates a pod that requests CPUs, in a group if one is named; returns its UID.
    pub(crate) fn pod(&mut self, name: &str, group: &str, cpu: i64) -> String {
        self.pod_with(name, group, cpu, |_| {})
    }

    pub(crate) fn pod_with(&mut self, name: &str, group: &str, cpu: i64, change: impl FnOnce(&mut PodSpec)) -> String {
        self.uids += 1;
        let uid = format!("uid-{:04}", self.uids);
        let membership = (!group.is_empty()).then(|| Membership::of(key(group)));
        let mut spec = PodSpec {
            id: Arc::new(PodName { namespace: "ns".into(), name: name.into(), uid: uid.clone() }),
            class: Arc::new(cpus(cpu)),
            membership,
            ours: true,
            lifetime: Lifetime::ToCompletion,
            controlled: true,
            created_ms: self.now,
            ..PodSpec::default()
        };
        change(&mut spec);
        self.pods.insert(uid.clone(), spec.clone());
        self.observe(Observation::PodSeen(spec));
        uid
    }

    /// Creates the pods `name-0`, `name-1`, ...
    pub(crate) fn pods_of(&mut self, name: &str, group: &str, count: usize, cpu: i64) {
        for number in 0..count {
            self.pod(&format!("{name}-{number}"), group, cpu);
        }
    }

    /// Changes a pod in the API and observes it.
    pub(crate) fn change(&mut self, uid: &str, change: impl FnOnce(&mut PodSpec)) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        change(pod);
        if pod.phase == Phase::Running {
            pod.started_ms.get_or_insert(self.now);
        }
        let spec = pod.clone();
        self.observe(Observation::PodSeen(spec));
    }

    pub(crate) fn phase(&mut self, name: &str, phase: Phase) {
        let uid = self.uid(name);
        if phase == Phase::Rejected {
            self.record_kubelet_rejection(&uid);
        }
        self.change(&uid, |pod| pod.phase = phase);
    }

    /// What a bind of a start that was decided at this time stamps on a member of a group.
    pub(crate) fn stamp(&self, group: &str, decided_ms: Millis) -> StartStamp {
        let spec = &self.groups[&key(group)];
        StartStamp {
            group_uid: spec.uid.clone(),
            decided_ms,
            confirmed: false,
            minimum: minimums(spec).values().sum::<usize>() as u32,
            disruption_mode: spec.disruption_mode,
            priority: 0,
        }
    }

    /// Whether the start of a bound pod cannot be rolled back any more: its bind was not stamped by the object of its
    /// group, or the pod joined later, or has run for longer than a start may take.
    pub(crate) fn may_stay(&self, pod: &PodSpec) -> bool {
        let group = pod.membership.as_ref().and_then(|membership| self.groups.get(&membership.group));
        let own = |stamp: &&Arc<StartStamp>| group.is_some_and(|group| group.uid == stamp.group_uid);
        let timeout_ms = group.and_then(|group| self.timeouts_ms.get(&group.key)).copied().unwrap_or(0);
        let started_ms = pod.started_ms.filter(|_| pod.phase == Phase::Running);
        pod.start.as_ref().filter(own).is_none_or(|stamp| stamp.confirmed)
            || started_ms.is_some_and(|started_ms| {
                let decided_ms = pod.start.as_ref().map_or(0, |stamp| stamp.decided_ms);
                self.now - started_ms.max(decided_ms) > timeout_ms + 1_000
            })
    }

    /// A kubelet is about to reject a pod.
    pub(crate) fn record_kubelet_rejection(&mut self, uid: &str) {
        let group = self.engine.engine().pod_view(uid).and_then(|pod| pod.group());
        let any_member_ran = group.is_some_and(|group| group.members().any(|member| member.has_run()));
        self.histories.refused(&self.pods[uid], any_member_ran);
    }

    pub(crate) fn remove_pod(&mut self, uid: &str) {
        if self.pods.remove(uid).is_some() {
            self.observe(Observation::PodGone { uid: uid.to_owned() });
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

    // Decisions and their execution.

    /// Runs one decision; its commands are checked and sent.
    pub(crate) fn decide(&mut self) -> usize {
        let commands = self.engine.decide(self.now);
        self.storage.events.extend_from_slice(self.engine.engine().volume_events());
        if self.keep_answers {
            self.answers.push(muster_engine::record::commands_json(&commands));
        }
        self.check("a decision");
        self.record_binds(&commands);
        let scheduled = |command: &Command| match command {
            Command::Report(report) => match (&report.subject, &report.diagnosis) {
                (Subject::Group(key), Diagnosis::Scheduled { .. }) => Some(key.clone()),
                _ => None,
            },
            _ => None,
        };
        let outstanding =
            Outstanding { scheduled: commands.iter().filter_map(scheduled).collect(), ..self.outstanding() };
        self.histories.update(&self.shown, self.now, &outstanding);
        let count = commands.len();
        for command in &commands {
            self.log.push(format!("{:>9} do  {command:?}", self.now));
        }
        // Commands are checked against the state at the decision, before the first of them changes anything.
        for command in &commands {
            checker::check_command(self, command);
        }
        // All deletes of one decision are recorded before anything new is observed.
        for command in &commands {
            if let Command::RollBack { pod } = command {
                self.histories.delete_requested(&pod.uid);
            }
        }
        for command in commands {
            match command {
                Command::Report(report) => self.record_report(*report),
                Command::ClearNomination { pod } => {
                    self.issued.push(Command::ClearNomination { pod: pod.clone() });
                    self.change(&pod.uid.clone(), |pod| pod.nominated = None);
                }
                Command::ClearDisruptionMark { pod } => {
                    self.issued.push(Command::ClearDisruptionMark { pod: pod.clone() });
                    self.change(&pod.uid.clone(), |pod| pod.marked = false);
                }
                Command::Nominate { pod, node } => {
                    self.issued.push(Command::Nominate { pod: pod.clone(), node: node.clone() });
                    self.change(&pod.uid.clone(), |pod| pod.nominated = Some(node.to_string()));
                }
                Command::Bind { .. }
                | Command::RollBack { .. }
                | Command::Evict { .. }
                | Command::ReserveVolume { .. }
                | Command::SelectNode { .. } => {
                    self.issued.push(command.clone());
                    self.in_flight.push(command);
                }
            }
        }
        count
    }

    /// Records the minimums that members are bound for.
    fn record_binds(&mut self, commands: &[Command]) {
        for command in commands {
            let Command::Bind { pod, start, .. } = command else { continue };
            self.stamps.insert(pod.uid.clone(), start.clone());
            if checker::is_bind_retry(self, &pod.uid) {
                continue;
            }
            let Some(membership) = self.pods.get(&pod.uid).and_then(|actual| actual.membership.clone()) else {
                continue;
            };
            if let Some(group) = self.groups.get(&membership.group).filter(|group| group.policy.tree().is_none()) {
                let timeout = group.schedule_timeout_ms.unwrap_or(self.config.schedule_timeout_ms);
                self.histories.decided(&membership.group, &pod.uid, minimums(group), self.now + timeout);
            }
        }
    }

    fn record_report(&mut self, report: Report) {
        assert!(!report.diagnosis.to_string().is_empty());
        if let (Subject::Group(key), Diagnosis::Scheduled { .. }) = (&report.subject, &report.diagnosis)
            && let Some(group) = self.groups.get_mut(key)
        {
            // The condition in the API, which a restarted engine reads.
            group.recorded = self.engine.engine().group_status(key).start.recorded(&group.recorded);
        }
        if let (Subject::Group(key), Diagnosis::GroupUnschedulable(shortfall)) = (&report.subject, &report.diagnosis)
            && !shortfall.started
            && let Some(group) = self.groups.get_mut(key)
        {
            group.recorded = RecordedStart::None;
        }
        if let (Subject::Group(key), Diagnosis::TimedOut { victims: None, .. }) = (&report.subject, &report.diagnosis)
            && let Some(group) = self.groups.get_mut(key)
        {
            if self.engine.engine().group_view(key).is_none_or(|group| group.reached().is_empty()) {
                // Nothing is left of an earlier start, and the condition reflects that.
                group.recorded = RecordedStart::None;
            }
            if group.policy.tree().is_none() {
                self.histories.given_up(key, minimums(group), &self.shown);
            }
        }
        self.reports.push(report);
    }

    /// Decides until nothing is due now; executes nothing.
    pub(crate) fn decide_all(&mut self) {
        let mut decisions = 0;
        while self.engine.engine().next_wakeup().is_some_and(|due| due <= self.now) {
            self.decide();
            decisions += 1;
            assert!(decisions < 100_000, "the engine does not settle");
        }
    }

    /// Executes one command like a healthy API.
    pub(crate) fn execute(&mut self, command: Command) {
        match command {
            Command::Bind { pod, node, .. } => {
                let known = self.pods.get(&pod.uid).filter(|actual| !actual.terminating).cloned();
                let outcome = match known {
                    None => BindOutcome::Refused { message: "not found".into() },
                    Some(actual) if actual.node.as_deref().is_some_and(|other| *other != *node) => {
                        BindOutcome::Refused { message: "already bound".into() }
                    }
                    Some(_) => {
                        self.bind_in_api(&pod.uid, &node);
                        BindOutcome::Bound
                    }
                };
                self.observe(Observation::BindDone { pod: pod.clone(), node, outcome });
                self.change(&pod.uid.clone(), |_| {});
            }
            Command::RollBack { pod } => {
                self.observe(Observation::RollBackDone { pod: pod.clone(), outcome: DeleteOutcome::Deleted });
                self.change(&pod.uid.clone(), |pod| pod.terminating = true);
                self.remove_pod(&pod.uid.clone());
            }
            Command::Evict { pods, group, .. } => {
                self.begin_unit(&pods, group.as_ref());
                for pod in pods {
                    self.execute_eviction(&pod);
                }
            }
            Command::ReserveVolume { .. } | Command::SelectNode { .. } => self.execute_storage(&command),
            Command::Nominate { .. }
            | Command::ClearDisruptionMark { .. }
            | Command::ClearNomination { .. }
            | Command::Report(_) => {}
        }
    }

    pub(crate) fn execute_eviction(&mut self, pod: &Arc<PodName>) {
        if let Some(actual) = self.pods.get(&pod.uid).cloned() {
            self.histories.lost(&actual);
        }
        self.observe(Observation::EvictDone { pod: pod.clone(), outcome: DeleteOutcome::Deleted });
        let grace_period_ends_ms = Some(self.now + self.grace_ms);
        self.change(&pod.uid, |pod| {
            (pod.marked, pod.terminating, pod.grace_period_ends_ms) = (true, true, grace_period_ends_ms);
        });
        if self.grace_ms == 0 {
            self.remove_pod(&pod.uid);
        }
    }

    pub(crate) fn bind_in_api(&mut self, uid: &str, node: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.node = Some(node.to_owned());
            pod.nominated = None;
            // Like the API server, which copies the annotations of a Binding.
            pod.start = self.stamps.get(uid).cloned().flatten();
        }
    }

    /// Decides and executes until nothing is left to do now.
    pub(crate) fn settle(&mut self) {
        loop {
            self.decide_all();
            if self.in_flight.is_empty() {
                return;
            }
            for command in std::mem::take(&mut self.in_flight) {
                self.execute(command);
            }
        }
    }

    /// Advances the time, settling whenever something is due.
    pub(crate) fn advance(&mut self, span_ms: Millis) {
        let end = self.now + span_ms;
        self.settle();
        while let Some(due) = self.engine.engine().next_wakeup().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.settle();
        }
        self.now = end;
    }

    /// Replaces the engine and shows it the whole state, as after a restart.
    pub(crate) fn restart(&mut self) {
        self.engine = Recorder::new(self.config.clone()).expect("a valid configuration");
        self.in_flight.clear();
        self.histories.restarted(&self.groups, &self.pods);
        self.drop_units_unknown_after_restart();
        self.shown = self.pods.clone();
        for (name, labels) in self.namespaces.clone() {
            self.observe(Observation::NamespaceSeen { name, labels });
        }
        for node in self.nodes.clone().into_values() {
            self.observe(Observation::NodeSeen(node));
        }
        self.show_storage();
        for group in self.groups.clone().into_values() {
            self.observe(Observation::GroupSeen(group));
        }
        for budget in self.budgets.clone().into_values() {
            self.observe(Observation::BudgetSeen(budget));
        }
        for pod in self.pods.clone().into_values() {
            self.observe(Observation::PodSeen(pod));
        }
    }

    // Queries.

    pub(crate) fn node_of(&self, name: &str) -> Option<String> {
        self.pods[&self.uid(name)].node.clone()
    }

    /// The names of all evicted pods, in order.
    pub(crate) fn evicted(&self) -> Vec<String> {
        let pods = self.issued.iter().filter_map(|act| match act {
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

    /// The number of bound pods whose name has this prefix.
    pub(crate) fn bound_count(&self, prefix: &str) -> usize {
        self.bound().iter().filter(|name| name.starts_with(prefix)).count()
    }

    pub(crate) fn group_diagnosis(&self, name: &str) -> Diagnosis {
        let subject = Subject::Group(key(name));
        self.engine.engine().explain(&subject).cloned().unwrap_or_else(|| panic!("no diagnosis of {name}"))
    }

    pub(crate) fn pod_diagnosis(&self, name: &str) -> Diagnosis {
        let subject = Subject::Pod(self.pods[&self.uid(name)].id.clone());
        self.engine.engine().explain(&subject).cloned().unwrap_or_else(|| panic!("no diagnosis of {name}"))
    }

    /// The reasons of the reports about a group.
    pub(crate) fn reasons(&self, group: &str) -> Vec<&'static str> {
        let about = self.reports.iter().filter(|report| report.subject == Subject::Group(key(group)));
        about.map(|report| report.diagnosis.group_reason()).collect()
    }
}

/// With `MUSTER_TRACE=1`, a failing test prints its events.
impl Drop for FakeCluster {
    fn drop(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "tests may print a trace on request")]
        let trace = std::env::var("MUSTER_TRACE").is_ok();
        if std::thread::panicking() && trace {
            eprintln!("{}", self.log.join("\n"));
        }
    }
}
