//! Long random runs of a whole world around the engine: nodes and pods come and go, binds fail in every way, groups
//! change, watches repeat themselves, the engine restarts. Invariants hold after every step, and when the trouble is
//! over the world comes to a rest in which no gang is half started and nobody waits for nothing.

use std::sync::Arc;

use muster_engine::diagnosis::Waiting;
use muster_engine::model::Millis;
use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::company::{Company, PodTerm, PreferredPodTerm, SpreadTerm};
use muster_engine::model::group::{
    DegradedPolicy, DisruptionMode, GroupPriority, GroupSpec, History, Policy, PreemptionPolicy, Subset, Turn,
};
use muster_engine::model::labels::Labels;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Phase, PodName, PodRefusal, PodSpec, RefusalKind};
use muster_engine::model::port::{HostPort, Protocol};
use muster_engine::model::taint::{Effect, Taint, Toleration};
use muster_engine::record::replay;
use muster_engine::{BindOutcome, Command, Config, Diagnosis, Observation, PreemptionRules, TakeBackOutcome};
use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};

use crate::company;
use crate::judge;
use crate::world::{World, cpus, key};

const GROUPS: usize = 4;
const HOUR_MS: Millis = 3_600_000;

pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) random: Random,
    names: u64,
    /// Evictions meet all kinds of trouble.
    rough: bool,
    /// Nobody makes victims again: pods that preempt one by one for a gang that never fits would evict them for ever.
    winds_down: bool,
    /// An earlier state of some pod, to be shown again late.
    stale: Option<PodSpec>,
    pub(crate) seen: Seen,
}

/// What happened at least once, so that a run that tests nothing is noticed.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    whole_gangs: usize,
    refused_groups: usize,
    refused_pods: usize,
    repairs: usize,
    taken_back: usize,
    restarts: usize,
    degraded: usize,
    claims: usize,
    evicted: usize,
    pub(crate) failed_evictions: usize,
    pub(crate) late_deaths: usize,
    pub(crate) preemptors_gone: usize,
    pub(crate) kept_nodes_gone: usize,
    pub(crate) restarts_in_plans: usize,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.whole_gangs += other.whole_gangs;
        self.refused_groups += other.refused_groups;
        self.refused_pods += other.refused_pods;
        self.repairs += other.repairs;
        self.taken_back += other.taken_back;
        self.restarts += other.restarts;
        self.degraded += other.degraded;
        self.claims += other.claims;
        self.evicted += other.evicted;
        self.failed_evictions += other.failed_evictions;
        self.late_deaths += other.late_deaths;
        self.preemptors_gone += other.preemptors_gone;
        self.kept_nodes_gone += other.kept_nodes_gone;
        self.restarts_in_plans += other.restarts_in_plans;
    }

    /// What must not be rare.
    fn troubles(&self) -> [usize; 8] {
        [
            self.whole_gangs,
            self.refused_groups,
            self.refused_pods,
            self.repairs,
            self.taken_back,
            self.restarts,
            self.claims,
            self.evicted,
        ]
    }
}

/// Some runs are quick to let a starving gang claim nodes, and in most of them others may be evicted.
fn config(seed: u64, rough: bool) -> Config {
    let rules = PreemptionRules::default();
    let delay_ms = if seed.is_multiple_of(5) { 10_000 } else { 0 };
    let (whole_groups, delayed) = (!rough || seed % 8 != 2, !rough || seed % 4 != 1);
    let on = rough || !seed.is_multiple_of(3);
    let preemption = PreemptionRules { on, delay_ms, whole_groups, delayed, ..rules };
    if seed.is_multiple_of(2) {
        return Config { preemption, ..Config::default() };
    }
    Config { starving_after_ms: 15_000, claim_ms_max: 60_000, preemption, ..Config::default() }
}

impl Run {
    fn new(seed: u64, rough: bool) -> Self {
        let mut world = World::with(config(seed, rough));
        world.grace_ms = if seed.is_multiple_of(4) { 30_000 } else { 0 };
        Self {
            world,
            random: Random::new(seed),
            names: 0,
            rough,
            winds_down: false,
            stale: None,
            seen: Seen::default(),
        }
    }

    fn group_name(&mut self) -> String {
        format!("g{}", self.random.below(GROUPS))
    }

    fn class(&mut self) -> ClassSpec {
        let mut class = cpus(1 + self.random.below(3) as i64);
        if self.random.chance(25) {
            class.requests.insert("gpu".into(), 1 + self.random.below(2) as i64);
        }
        if self.random.chance(10) {
            class.host_ports = vec![HostPort { address: None, protocol: Protocol::Tcp, port: 80 }];
        }
        if self.random.chance(20) {
            class.tolerations = vec![Toleration { key: Some("t".into()), value: None, effect: None }];
        }
        if self.random.chance(10) {
            class.node_selector = [("zone".to_owned(), "a".to_owned())].into();
        }
        if self.random.chance(30) {
            class.images = vec!["image".into()];
        }
        if self.random.chance(15) {
            class.company = Some(Arc::new(self.company()));
        }
        class
    }

    fn company(&mut self) -> Company {
        let mut company = Company::default();
        let key = if self.random.chance(60) { "host" } else { "zone" };
        let term = company::app(["x", "y"][self.random.below(2)], key);
        match self.random.below(14) {
            0..=5 => company.shuns.push(term),
            6..=7 => company.seeks.push(term),
            8..=10 => company.spread.must.push(self.evenly(term)),
            11 => company.spread.should.push(self.evenly(term)),
            _ => {
                let weight = [-30, 30][self.random.below(2)];
                company.prefers.push(PreferredPodTerm { weight, term });
            }
        }
        company
    }

    fn evenly(&mut self, PodTerm { pods, topology_key }: PodTerm) -> SpreadTerm {
        SpreadTerm {
            pods,
            topology_key,
            skew_max: 1 + self.random.below(2) as u32,
            domains_min: 1 + self.random.below(2) as u32,
            minds_affinity: self.random.chance(80),
            minds_taints: self.random.chance(30),
        }
    }

    fn labels(&mut self) -> Arc<Labels> {
        let app = ["x", "y", "z"][self.random.below(3)];
        Arc::new(if self.random.chance(60) { company::labels(&[("app", app)]) } else { Labels::new() })
    }

    pub(crate) fn a_pod(&mut self, fits: impl Fn(&PodSpec) -> bool) -> Option<String> {
        let all: Vec<String> =
            self.world.pods.iter().filter(|(_, pod)| fits(pod)).map(|(uid, _)| uid.clone()).collect();
        one_of(&mut self.random, &all)
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..=6 => self.put_node(),
            7 => {
                let names: Vec<String> = self.world.nodes.keys().cloned().collect();
                if let Some(name) = one_of(&mut self.random, &names) {
                    self.world.remove_node(&name);
                }
            }
            8..=13 => self.put_group(),
            14 => {
                let name = self.group_name();
                self.world.remove_group(&name);
            }
            15..=34 => self.add_pod(),
            35..=37 => self.add_gang(),
            38..=41 => self.lose_pod(),
            42..=46 => self.move_phase(),
            47..=49 => {
                if let Some(uid) = self.a_pod(|pod| pod.gated) {
                    self.world.change(&uid, |pod| pod.gated = false);
                }
                if let Some(uid) = self.a_pod(|pod| pod.refused.is_some()) {
                    self.world.change(&uid, |pod| pod.refused = None);
                }
            }
            50..=51 => self.nominate(),
            // An annotation is changed, and the pod can no longer be honoured, wherever it is.
            94 => {
                let refusal = self.refusal();
                if let Some(uid) = self.a_pod(|_| true) {
                    self.world.change(&uid, |pod| pod.refused = Some(refusal));
                }
            }
            // A budget comes, changes or goes.
            95 => self.put_budget(),
            // A running pod is resized.
            92..=93 => {
                let class = Arc::new(self.class());
                if let Some(uid) = self.a_pod(|_| true) {
                    self.world.change(&uid, |pod| pod.class = class);
                }
            }
            // A pod is labelled anew.
            96 => {
                let labels = self.labels();
                if let Some(uid) = self.a_pod(|_| true) {
                    self.world.change(&uid, |pod| pod.labels = labels);
                }
            }
            52..=53 => self.repeat_the_past(),
            54 if self.random.chance(30) => self.restart(),
            55..=74 => self.answer_one(),
            75..=84 => self.world.now += self.random.below(20_000) as u64,
            _ => self.world.decide_all(),
        }
        if self.rough && self.random.chance(20) {
            self.shake_a_plan();
        }
        let claimed = self.world.engine.engine().cluster().nodes().any(|(_, node)| node.claimed_at.is_some());
        self.seen.claims += usize::from(claimed);
    }

    pub(crate) fn evict_in_truth(&mut self, pod: &Arc<PodName>) {
        self.seen.evicted += 1;
        let gone = self.world.pods.get(&pod.uid).cloned();
        self.world.carry_out_eviction(pod);
        if let Some(gone) = gone.filter(|gone| gone.controlled && !self.winds_down) {
            self.recreate(&gone);
        }
    }

    fn put_node(&mut self) {
        let name = format!("n{}", self.random.below(5));
        let allocatable = [
            ("cpu".to_owned(), self.random.below(8) as i64 * 1000),
            ("memory".to_owned(), 64 << 30),
            ("gpu".to_owned(), self.random.below(4) as i64),
            ("pods".to_owned(), 3 + self.random.below(8) as i64),
        ];
        let taint = Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule };
        let zone = ["a", "b"][self.random.below(2)];
        let labels = match self.random.below(10) {
            0..=7 => company::labels(&[("zone", zone), ("host", &name)]),
            8 => company::labels(&[("host", &name)]),
            _ => Labels::new(),
        };
        let spec = NodeSpec {
            name,
            labels,
            startup_taints: if self.random.chance(30) { vec![taint.clone()] } else { vec![] },
            created_ms: self.world.now,
            taints: if self.random.chance(15) { vec![taint] } else { vec![] },
            unschedulable: self.random.chance(8),
            allocatable: allocatable.into(),
            images: if self.random.chance(30) { [("image".into(), 500 << 20)].into() } else { [].into() },
            ..NodeSpec::default()
        };
        self.world.put_node(spec);
    }

    fn put_budget(&mut self) {
        let name = format!("b{}", self.random.below(2));
        if self.random.chance(30) {
            self.world.remove_budget(&name);
            return;
        }
        let allowed = self.random.below(4) as i32;
        self.world.put_budget(BudgetSpec {
            namespace: "ns".into(),
            name,
            selector: Some(Vec::new()),
            allowed,
            disrupted: [].into(),
        });
    }

    fn put_group(&mut self) {
        let name = self.group_name();
        let count = 1 + self.random.below(4) as u32;
        let policy = match self.random.below(10) {
            0..=5 => Policy::Gang { min_count: count },
            6..=7 => Policy::Basic { desired_count: self.random.chance(40).then_some(count) },
            _ => {
                let subset = |name: &str, min_member| Subset { name: name.into(), min_member };
                let mut subsets = vec![subset("x", 1), subset("y", count.min(2))];
                if self.random.chance(50) {
                    subsets.reverse();
                }
                Policy::Subsets(subsets)
            }
        };
        let spec = GroupSpec {
            priority: match self.random.below(3) {
                0 => GroupPriority::Own(self.random.below(3) as i32),
                1 => GroupPriority::LowestMember,
                _ => GroupPriority::SharedByMembers,
            },
            disruption_mode: if self.random.chance(40) { DisruptionMode::Group } else { DisruptionMode::Pod },
            preemption_policy: if self.random.chance(10) {
                PreemptionPolicy::Never
            } else {
                PreemptionPolicy::LowerPriority
            },
            schedule_timeout_ms: self.random.chance(50).then(|| 1_000 + self.random.below(60_000) as u64),
            degraded_policy: match self.random.below(8) {
                0 => DegradedPolicy::Requorum,
                1 => DegradedPolicy::Evict,
                _ => DegradedPolicy::Replace,
            },
            min_resources: if self.random.chance(10) {
                [("cpu".to_owned(), 1_000 * (1 + self.random.below(12) as i64))].into()
            } else {
                [].into()
            },
            turn: self
                .random
                .chance(30)
                .then(|| Turn { created_ms: self.world.now, uid: ["u", "v", "w"][self.random.below(3)].into() }),
            ..GroupSpec::with_policy(key(&name), policy)
        };
        // The condition in the API goes with the object; it speaks of the minimum that was in force then.
        let old = self.world.groups.get(&spec.key);
        let history = old.map_or(History::New, |old| match old.history {
            History::Started if old.policy != spec.policy => History::StartedOtherwise,
            history => history,
        });
        self.world.put_group(GroupSpec { history, ..spec });
    }

    fn add_pod(&mut self) {
        let group = if self.random.chance(70) { self.group_name() } else { String::new() };
        let (class, subset) = (self.class(), if self.random.chance(50) { "x" } else { "y" });
        let has_subsets = self.has_subsets(&group);
        let foreign = self.random.chance(10);
        let node = one_of(&mut self.random, &self.world.nodes.keys().cloned().collect::<Vec<_>>());
        let (gated, controlled) = (self.random.chance(7), self.random.chance(85));
        let priority = self.random.below(2) as i32;
        let refused = self.random.chance(4).then(|| self.refusal());
        let labels = self.labels();
        self.names += 1;
        let name = format!("p{}", self.names);
        if foreign {
            // Somebody else's pod: it takes room, and may take more than there is.
            let Some(node) = node else { return };
            let group = if self.random.chance(30) { group } else { String::new() };
            self.world.pod_with(&name, &group, 1, |pod| {
                pod.ours = false;
                pod.node = Some(node);
                pod.labels = labels;
            });
            return;
        }
        self.world.pod_with(&name, &group, 1, |pod| {
            pod.class = Arc::new(class);
            pod.labels = labels;
            pod.gated = gated;
            pod.refused = refused;
            pod.controlled = controlled;
            pod.priority = priority;
            if let Some(membership) = pod.membership.as_mut().filter(|_| has_subsets) {
                subset.clone_into(&mut membership.subset);
            }
        });
    }

    fn refusal(&mut self) -> Arc<PodRefusal> {
        let kind = *self.random.pick(&[RefusalKind::Unsupported, RefusalKind::Reference]);
        Arc::new(PodRefusal { kind, field: "spec.affinity".into(), value: "{}".into(), reason: "not yet".into() })
    }

    fn has_subsets(&self, group: &str) -> bool {
        matches!(self.world.groups.get(&key(group)).map(|group| &group.policy), Some(Policy::Subsets(_)))
    }

    /// Several like members at once, so that gangs really start.
    fn add_gang(&mut self) {
        let group = self.group_name();
        let (class, labels) = (Arc::new(self.class()), self.labels());
        let has_subsets = self.has_subsets(&group);
        for number in 0..2 + self.random.below(4) {
            self.names += 1;
            let name = format!("p{}", self.names);
            self.world.pod_with(&name, &group, 1, |pod| {
                pod.class = class.clone();
                pod.labels.clone_from(&labels);
                if let Some(membership) = pod.membership.as_mut().filter(|_| has_subsets) {
                    if number.is_multiple_of(2) { "x" } else { "y" }.clone_into(&mut membership.subset);
                }
            });
        }
    }

    /// Somebody deletes a pod; a controller may make another.
    fn lose_pod(&mut self) {
        let Some(uid) = self.a_pod(|_| true) else { return };
        let pod = self.world.pods[&uid].clone();
        if pod.node.is_some() {
            self.world.stories.lost(&pod);
        }
        if self.random.chance(30) {
            self.world.change(&uid, |pod| pod.terminating = true);
            return;
        }
        self.world.remove_pod(&uid);
        if pod.controlled && self.random.chance(60) {
            self.recreate(&pod);
        }
    }

    fn recreate(&mut self, gone: &PodSpec) {
        self.names += 1;
        let name = format!("p{}", self.names);
        let gone = gone.clone();
        self.world.pod_with(&name, "", 1, |pod| {
            pod.class = gone.class;
            pod.membership = gone.membership;
            pod.priority = gone.priority;
            pod.ours = gone.ours;
        });
    }

    fn move_phase(&mut self) {
        let Some(uid) = self.a_pod(|pod| pod.node.is_some() && matches!(pod.phase, Phase::Pending | Phase::Running))
        else {
            return;
        };
        let pod = self.world.pods[&uid].clone();
        let phase = match (pod.phase, self.random.below(10)) {
            (Phase::Pending, 0..=1) => Phase::Refused,
            (Phase::Pending, _) => Phase::Running,
            (_, 0..=5) => Phase::Succeeded,
            _ => Phase::Failed,
        };
        match phase {
            Phase::Failed => self.world.stories.lost(&pod),
            Phase::Refused => self.world.tell_refusal(&uid),
            _ => {}
        }
        self.world.change(&uid, |pod| pod.phase = phase);
    }

    fn nominate(&mut self) {
        let node = one_of(&mut self.random, &self.world.nodes.keys().cloned().collect::<Vec<_>>());
        if let Some(uid) = self.a_pod(|pod| pod.node.is_none()) {
            self.world.change(&uid, |pod| pod.nominated = node);
        }
    }

    /// A watch shows an old state of a pod once more.
    fn repeat_the_past(&mut self) {
        if let Some(old) = self.stale.take() {
            if self.world.pods.contains_key(&old.id.uid) {
                self.world.show(Observation::PodSeen(old.clone()));
                // And then the truth, as it will in the end.
                self.world.change(&old.id.uid.clone(), |_| {});
            }
            return;
        }
        self.stale = self.a_pod(|_| true).map(|uid| self.world.pods[&uid].clone());
    }

    fn restart(&mut self) {
        self.seen.restarts += 1;
        // Some of what was in flight took effect, some did not, and nobody was told.
        for command in std::mem::take(&mut self.world.in_flight) {
            match command {
                Command::Bind { pod, node } if self.random.chance(50) && self.is_free(&pod.uid) => {
                    self.world.bind_in_truth(&pod.uid, &node);
                }
                Command::Evict { pods, group, .. } if self.rough => self.evict_unseen(&pods, group.as_ref()),
                _ => {}
            }
        }
        self.stale = None;
        self.world.restart();
    }

    /// Whether the API would bind this pod.
    fn is_free(&self, uid: &str) -> bool {
        self.world.pods.get(uid).is_some_and(|truth| truth.node.is_none() && !truth.terminating)
    }

    fn answer_one(&mut self) {
        if self.world.in_flight.is_empty() {
            return;
        }
        let place = self.random.below(self.world.in_flight.len());
        let command = self.world.in_flight.remove(place);
        let luck = self.random.below(100);
        match command {
            Command::Bind { pod, node } if luck < 12 => {
                self.seen.repairs += 1;
                let outcome = BindOutcome::Refused { message: "no".into() };
                self.world.show(Observation::BindDone { pod, node, outcome });
            }
            Command::Bind { pod, node } if luck < 30 => {
                // In some of these cases it happened all the same.
                if luck < 18 && self.is_free(&pod.uid) {
                    self.world.bind_in_truth(&pod.uid, &node);
                }
                let outcome = BindOutcome::Transient { message: "later".into() };
                self.world.show(Observation::BindDone { pod: pod.clone(), node, outcome });
                if self.random.chance(50) {
                    self.world.change(&pod.uid.clone(), |_| {});
                }
            }
            Command::TakeBack { pod } if luck < 10 => {
                if let Some(truth) = self.world.pods.get(&pod.uid).cloned() {
                    self.world.stories.kept(&truth);
                }
                let outcome = TakeBackOutcome::Refused { message: "forbidden".into() };
                self.world.show(Observation::TakeBackDone { pod, outcome });
            }
            Command::TakeBack { pod } if luck < 30 => {
                let outcome = TakeBackOutcome::Transient { message: "later".into() };
                self.world.show(Observation::TakeBackDone { pod, outcome });
            }
            Command::Evict { pods, group, .. } if self.rough => self.evict_one_by_one(&pods, group.as_ref()),
            Command::Evict { pods, .. } if luck < 30 => {
                for pod in pods {
                    let outcome = match luck {
                        0..10 => TakeBackOutcome::Refused { message: "forbidden".into() },
                        _ => TakeBackOutcome::Transient { message: "later".into() },
                    };
                    self.world.show(Observation::EvictDone { pod, outcome });
                }
            }
            other => self.carry_out(other),
        }
    }

    fn carry_out(&mut self, command: Command) {
        if let Command::TakeBack { pod } = &command {
            self.seen.taken_back += 1;
            let truth = self.world.pods.get(&pod.uid).cloned();
            if let Some(truth) = truth.as_ref().filter(|truth| truth.phase == Phase::Succeeded) {
                // It finished while the order was on its way, and counted; now it is gone.
                self.world.stories.lost(truth);
            }
            self.world.carry_out(command);
            if let Some(truth) = truth {
                self.recreate(&truth);
            }
            return;
        }
        if let Command::Evict { pods, group, .. } = &command {
            self.world.unit_begins(pods, group.as_ref());
            for pod in pods {
                self.evict_in_truth(pod);
            }
            return;
        }
        self.world.carry_out(command);
    }

    /// The trouble ends: everything is answered, nothing new happens, time passes.
    fn come_to_rest(&mut self) {
        self.world.grace_ms = 0;
        self.winds_down = !self.world.config.preemption.delayed;
        for uid in self.world.pods.keys().cloned().collect::<Vec<_>>() {
            if self.world.pods[&uid].terminating {
                let pod = self.world.pods[&uid].clone();
                self.world.stories.lost(&pod);
                self.world.remove_pod(&uid);
            } else {
                self.world.change(&uid, |_| {});
            }
        }
        self.let_pass(2 * HOUR_MS);
        judge::at_rest(&self.world);
        // What was not proven is looked at again for ever, and starving gangs claim again: without acts, that is rest.
        let acts = self.world.acts.len();
        self.let_pass(2 * HOUR_MS);
        assert_eq!(self.world.acts.len(), acts, "the engine comes to rest");
    }

    /// Lets time pass and answers everything as a healthy API would.
    fn let_pass(&mut self, span_ms: Millis) {
        let end = self.world.now + span_ms;
        loop {
            self.world.decide_all();
            if let Some(command) = self.world.in_flight.pop() {
                self.carry_out(command);
                continue;
            }
            match self.world.engine.engine().next_wakeup().filter(|due| *due <= end) {
                Some(due) => self.world.now = self.world.now.max(due),
                None => break,
            }
        }
        self.world.now = end;
    }

    fn count(&mut self) {
        for report in &self.world.reports {
            let refused_pod = matches!(report.diagnosis, Diagnosis::Waiting(Waiting::PodRefused { .. }));
            self.seen.refused_pods += usize::from(refused_pod);
            match report.diagnosis.group_reason() {
                "Scheduled" => self.seen.whole_gangs += 1,
                "Unschedulable" | "NeverFits" => self.seen.refused_groups += 1,
                "Degraded" => self.seen.degraded += 1,
                _ => {}
            }
        }
    }
}

fn one_of<T: Clone>(random: &mut Random, items: &[T]) -> Option<T> {
    if items.is_empty() { None } else { Some(random.pick(items).clone()) }
}

/// One run from its seed to its rest; what it saw is added.
pub(crate) fn one_run(seed: u64, rough: bool, total: &mut Seen) {
    let mut run = Run::new(seed, rough);
    run.world.keep_answers = seed.is_multiple_of(10);
    for _ in 0..3 {
        run.put_node();
        run.put_group();
    }
    for _ in 0..120 {
        run.step();
    }
    run.come_to_rest();
    if run.world.keep_answers && run.seen.restarts == 0 {
        let lines = run.world.engine.take_lines();
        let answers = replay(lines.iter().map(String::as_str)).unwrap();
        assert_eq!(answers, run.world.answers, "a replay gives the same bytes");
    }
    run.count();
    total.add(&run.seen);
}

#[test]
fn invariants_hold_through_thousands_of_random_runs() {
    const RUNS: u64 = 3_000;
    let mut total = Seen::default();
    for_each_seed(RUNS, |seed| one_run(seed, false, &mut total));
    println!("{total:?}");
    if !one_seed_only() {
        let counts = total.troubles();
        assert!(counts.iter().all(|count| *count > RUNS as usize / 20), "the runs must see trouble: {total:?}");
    }
}
