//! Long random runs of a fake cluster: nodes and pods are created and deleted, binds fail in every way, groups change,
//! watches repeat events, the engine restarts. Invariants hold after every step, and once the faults stop, the cluster
//! settles in a state without partly started gangs and without needlessly pending pods.

use std::sync::Arc;

use muster_engine::diagnosis::Waiting;
use muster_engine::model::Millis;
use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{
    DegradedPolicy, DisruptionMode, GroupKey, GroupPriority, GroupSpec, LaterPods, Policy, PreemptionPolicy,
    QueuePosition, Subset,
};
use muster_engine::model::labels::Labels;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Phase, PodName, PodRefusal, PodSpec, RefusalKind};
use muster_engine::model::port::{HostPort, Protocol};
use muster_engine::model::taint::{Effect, Taint, Toleration};
use muster_engine::record::replay;
use muster_engine::{BindOutcome, Command, Config, DeleteOutcome, Diagnosis, Observation, PreemptionRules};
use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};

use crate::checker;
use crate::fake_cluster::{FakeCluster, cpus, key};
use crate::inter_pod_affinity;
use crate::random_terms;

const GROUPS: usize = 4;
const HOUR_MS: Millis = 3_600_000;

pub(crate) struct Run {
    pub(crate) fake: FakeCluster,
    pub(crate) random: Random,
    names: u64,
    /// Evictions are disturbed.
    disturbed: bool,
    /// Victims are not recreated any more: pods that preempt individually for a gang that never fits would evict them
    /// forever.
    stop_recreating: bool,
    /// An earlier state of some pod, to be shown again late.
    stale: Option<PodSpec>,
    /// In some runs, groups have later pods.
    later: Option<Random>,
    /// In some runs, groups have topology constraints.
    topology: Option<Random>,
    pub(crate) coverage: Coverage,
}

/// Counts of what happened, to detect runs that test nothing.
#[derive(Default, Debug)]
pub(crate) struct Coverage {
    whole_gangs: usize,
    refused_groups: usize,
    refused_pods: usize,
    repairs: usize,
    rolled_back: usize,
    restarts: usize,
    degraded: usize,
    reservations: usize,
    evicted: usize,
    pub(crate) failed_evictions: usize,
    pub(crate) late_exits: usize,
    pub(crate) preemptors_gone: usize,
    pub(crate) nominated_nodes_gone: usize,
    pub(crate) restarts_in_plans: usize,
}

impl Coverage {
    fn add(&mut self, other: &Self) {
        self.whole_gangs += other.whole_gangs;
        self.refused_groups += other.refused_groups;
        self.refused_pods += other.refused_pods;
        self.repairs += other.repairs;
        self.rolled_back += other.rolled_back;
        self.restarts += other.restarts;
        self.degraded += other.degraded;
        self.reservations += other.reservations;
        self.evicted += other.evicted;
        self.failed_evictions += other.failed_evictions;
        self.late_exits += other.late_exits;
        self.preemptors_gone += other.preemptors_gone;
        self.nominated_nodes_gone += other.nominated_nodes_gone;
        self.restarts_in_plans += other.restarts_in_plans;
    }

    /// Counts that must not be low.
    fn required_counts(&self) -> [usize; 8] {
        [
            self.whole_gangs,
            self.refused_groups,
            self.refused_pods,
            self.repairs,
            self.rolled_back,
            self.restarts,
            self.reservations,
            self.evicted,
        ]
    }
}

/// In some runs starving gangs reserve nodes early, and most runs allow preemption.
fn config(seed: u64, disturbed: bool) -> Config {
    let rules = PreemptionRules::default();
    let delay_ms = if seed.is_multiple_of(5) { 10_000 } else { 0 };
    let (whole_groups, delayed) = (!disturbed || seed % 8 != 2, !disturbed || seed % 4 != 1);
    let on = disturbed || !seed.is_multiple_of(3);
    let group_priority_capped = seed % 7 == 3;
    let preemption = PreemptionRules { on, delay_ms, whole_groups, delayed, ..rules };
    if seed.is_multiple_of(2) {
        return Config { preemption, group_priority_capped, ..Config::default() };
    }
    Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: 15_000,
        reservation_ms_max: 60_000,
        preemption,
        group_priority_capped,
        ..Config::default()
    }
}

impl Run {
    fn new(seed: u64, disturbed: bool) -> Self {
        let mut fake = FakeCluster::with(config(seed, disturbed));
        fake.grace_ms = if seed.is_multiple_of(4) { 30_000 } else { 0 };
        Self {
            fake,
            random: Random::new(seed),
            names: 0,
            disturbed,
            stop_recreating: false,
            stale: None,
            later: (seed % 3 == 1).then(|| Random::new(seed)),
            topology: (seed % 4 == 2).then(|| Random::new(seed)),
            coverage: Coverage::default(),
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
            class.inter_pod = Some(Arc::new(random_terms::constraints(&mut self.random)));
        }
        class
    }

    fn labels(&mut self) -> Arc<Labels> {
        let app = ["x", "y", "z"][self.random.below(3)];
        Arc::new(if self.random.chance(60) { inter_pod_affinity::labels(&[("app", app)]) } else { Labels::new() })
    }

    pub(crate) fn pick_pod(&mut self, fits: impl Fn(&PodSpec) -> bool) -> Option<String> {
        let all: Vec<String> = self.fake.pods.iter().filter(|(_, pod)| fits(pod)).map(|(uid, _)| uid.clone()).collect();
        one_of(&mut self.random, &all)
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..=6 => self.put_node(),
            7 => {
                let names: Vec<String> = self.fake.nodes.keys().cloned().collect();
                if let Some(name) = one_of(&mut self.random, &names) {
                    self.fake.remove_node(&name);
                }
            }
            8..=13 => self.put_group(),
            14 => {
                let name = self.group_name();
                self.fake.remove_group(&name);
            }
            15..=34 => self.add_pod(),
            35..=37 => self.add_gang(),
            38..=41 => self.lose_pod(),
            42..=46 => self.move_phase(),
            47..=49 => {
                if let Some(uid) = self.pick_pod(|pod| pod.gated) {
                    self.fake.change(&uid, |pod| pod.gated = false);
                }
                if let Some(uid) = self.pick_pod(|pod| pod.refused.is_some()) {
                    self.fake.change(&uid, |pod| pod.refused = None);
                }
            }
            50..=51 => self.nominate(),
            // An annotation changes, and the pod can no longer be honoured.
            94 => {
                let refusal = self.refusal();
                if let Some(uid) = self.pick_pod(|_| true) {
                    self.fake.change(&uid, |pod| pod.refused = Some(refusal));
                }
            }
            // A budget is created, changed or deleted.
            95 => self.put_budget(),
            // A running pod is resized.
            92..=93 => {
                let class = Arc::new(self.class());
                if let Some(uid) = self.pick_pod(|_| true) {
                    self.fake.change(&uid, |pod| pod.class = class);
                }
            }
            // A pod gets other labels.
            96 => {
                let labels = self.labels();
                if let Some(uid) = self.pick_pod(|_| true) {
                    self.fake.change(&uid, |pod| pod.labels = labels);
                }
            }
            // The namespace gets other labels.
            97 if self.random.chance(30) => {
                let labels =
                    if self.random.chance(50) { Labels::new() } else { inter_pod_affinity::labels(&[("team", "a")]) };
                self.fake.put_namespace("ns", labels);
            }
            52..=53 => self.replay_stale_event(),
            54 if self.random.chance(30) => self.restart(),
            55..=74 => self.answer_one(),
            75..=84 => self.fake.now += self.random.below(20_000) as u64,
            _ => self.fake.decide_all(),
        }
        if self.disturbed && self.random.chance(20) {
            self.disturb_plan();
        }
        let reserved = self.fake.engine.engine().node_views().any(|node| node.reservation_priority().is_some());
        self.coverage.reservations += usize::from(reserved);
    }

    pub(crate) fn evict_in_api(&mut self, pod: &Arc<PodName>) {
        self.coverage.evicted += 1;
        let gone = self.fake.pods.get(&pod.uid).cloned();
        self.fake.execute_eviction(pod);
        if let Some(gone) = gone.filter(|gone| gone.controlled && !self.stop_recreating) {
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
            0..=7 => inter_pod_affinity::labels(&[("zone", zone), ("host", &name)]),
            8 => inter_pod_affinity::labels(&[("host", &name)]),
            _ => Labels::new(),
        };
        let spec = NodeSpec {
            name,
            labels,
            startup_taints: if self.random.chance(30) { vec![taint.clone()] } else { vec![] },
            created_ms: self.fake.now,
            taints: if self.random.chance(15) { vec![taint] } else { vec![] },
            unschedulable: self.random.chance(8),
            allocatable: allocatable.into(),
            images: if self.random.chance(30) { [("image".into(), 500 << 20)].into() } else { [].into() },
            ..NodeSpec::default()
        };
        self.fake.put_node(spec);
    }

    fn put_budget(&mut self) {
        let name = format!("b{}", self.random.below(2));
        if self.random.chance(30) {
            self.fake.remove_budget(&name);
            return;
        }
        let allowed = self.random.below(4) as i32;
        self.fake.put_budget(BudgetSpec {
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
            queue_position: self.random.chance(30).then(|| QueuePosition {
                created_ms: self.fake.now,
                uid: ["u", "v", "w"][self.random.below(3)].into(),
            }),
            ..GroupSpec::with_policy(key(&name), policy)
        };
        let topology = self.topology.as_mut().and_then(random_terms::topology);
        let spec = GroupSpec { later: self.later_pods(&spec.key), topology, ..spec };
        // The condition in the API stays with the object; it refers to the minimum at that time.
        let recorded = self.fake.groups.get(&spec.key).map(|old| old.recorded.clone()).unwrap_or_default();
        self.fake.put_group(GroupSpec { recorded, ..spec });
    }

    /// Stages of one or two groups each, of which the group itself is one.
    fn later_pods(&mut self, key_of_group: &GroupKey) -> Vec<Vec<LaterPods>> {
        let Some(random) = &mut self.later else { return Vec::new() };
        if !random.chance(60) {
            return Vec::new();
        }
        let mut part = |group: GroupKey| {
            let mut class = cpus(1 + random.below(3) as i64);
            if random.chance(30) {
                class.requests.insert("gpu".into(), 1);
            }
            LaterPods { group, count: 1 + random.below(5) as u32, class: Arc::new(class) }
        };
        let others = [part(key("g0")), part(key("g1")), part(key("g2")), part(key("g3"))];
        let own = part(key_of_group.clone());
        let other = others[random.below(GROUPS)].clone();
        match random.below(4) {
            0 => vec![vec![own]],
            1 => vec![vec![other], vec![own]],
            2 if other.group != own.group => vec![vec![own, other]],
            _ => vec![vec![own.clone()], vec![own, other]],
        }
    }

    fn add_pod(&mut self) {
        let group = if self.random.chance(70) { self.group_name() } else { String::new() };
        let (class, subset) = (self.class(), if self.random.chance(50) { "x" } else { "y" });
        let has_subsets = self.has_subsets(&group);
        let foreign = self.random.chance(10);
        let node = one_of(&mut self.random, &self.fake.nodes.keys().cloned().collect::<Vec<_>>());
        let (gated, controlled) = (self.random.chance(7), self.random.chance(85));
        let priority = self.random.below(2) as i32;
        let refused = self.random.chance(4).then(|| self.refusal());
        let labels = self.labels();
        self.names += 1;
        let name = format!("p{}", self.names);
        if foreign {
            // Another scheduler's pod: it uses room, possibly more than there is.
            let Some(node) = node else { return };
            let group = if self.random.chance(30) { group } else { String::new() };
            self.fake.pod_with(&name, &group, 1, |pod| {
                pod.ours = false;
                pod.node = Some(node);
                pod.labels = labels;
            });
            return;
        }
        self.fake.pod_with(&name, &group, 1, |pod| {
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
        matches!(self.fake.groups.get(&key(group)).map(|group| &group.policy), Some(Policy::Subsets(_)))
    }

    /// Several identical members at once, so that gangs really start.
    fn add_gang(&mut self) {
        let group = self.group_name();
        let (class, labels) = (Arc::new(self.class()), self.labels());
        let has_subsets = self.has_subsets(&group);
        for number in 0..2 + self.random.below(4) {
            self.names += 1;
            let name = format!("p{}", self.names);
            let rank = self.topology.as_mut().filter(|_| number > 0).map(|random| random.below(8) as u64);
            self.fake.pod_with(&name, &group, 1, |pod| {
                pod.rank = rank;
                pod.class = class.clone();
                pod.labels.clone_from(&labels);
                if let Some(membership) = pod.membership.as_mut().filter(|_| has_subsets) {
                    if number.is_multiple_of(2) { "x" } else { "y" }.clone_into(&mut membership.subset);
                }
            });
        }
    }

    /// A user deletes a pod; a controller may recreate it.
    fn lose_pod(&mut self) {
        let Some(uid) = self.pick_pod(|_| true) else { return };
        let pod = self.fake.pods[&uid].clone();
        if pod.node.is_some() {
            self.fake.histories.lost(&pod);
        }
        if self.random.chance(30) {
            self.fake.change(&uid, |pod| pod.terminating = true);
            return;
        }
        self.fake.remove_pod(&uid);
        if pod.controlled && self.random.chance(60) {
            self.recreate(&pod);
        }
    }

    fn recreate(&mut self, gone: &PodSpec) {
        self.names += 1;
        let name = format!("p{}", self.names);
        let gone = gone.clone();
        self.fake.pod_with(&name, "", 1, |pod| {
            pod.class = gone.class;
            pod.membership = gone.membership;
            pod.priority = gone.priority;
            pod.ours = gone.ours;
        });
    }

    fn move_phase(&mut self) {
        let Some(uid) = self.pick_pod(|pod| pod.node.is_some() && matches!(pod.phase, Phase::Pending | Phase::Running))
        else {
            return;
        };
        let pod = self.fake.pods[&uid].clone();
        let phase = match (pod.phase, self.random.below(10)) {
            (Phase::Pending, 0..=1) => Phase::Rejected,
            (Phase::Pending, _) => Phase::Running,
            (_, 0..=5) => Phase::Succeeded,
            _ => Phase::Failed,
        };
        match phase {
            Phase::Failed => self.fake.histories.lost(&pod),
            Phase::Rejected => self.fake.record_kubelet_rejection(&uid),
            _ => {}
        }
        self.fake.change(&uid, |pod| pod.phase = phase);
    }

    fn nominate(&mut self) {
        let node = one_of(&mut self.random, &self.fake.nodes.keys().cloned().collect::<Vec<_>>());
        if let Some(uid) = self.pick_pod(|pod| pod.node.is_none()) {
            self.fake.change(&uid, |pod| pod.nominated = node);
        }
    }

    /// A watch shows an old state of a pod again.
    fn replay_stale_event(&mut self) {
        if let Some(old) = self.stale.take() {
            if self.fake.pods.contains_key(&old.id.uid) {
                self.fake.observe(Observation::PodSeen(old.clone()));
                // Then the current state, as a watch eventually does.
                self.fake.change(&old.id.uid.clone(), |_| {});
            }
            return;
        }
        self.stale = self.pick_pod(|_| true).map(|uid| self.fake.pods[&uid].clone());
    }

    fn restart(&mut self) {
        self.coverage.restarts += 1;
        // Some commands in flight took effect, some did not, and their outcomes are lost.
        for command in std::mem::take(&mut self.fake.in_flight) {
            match command {
                Command::Bind { pod, node, .. } if self.random.chance(50) && self.is_free(&pod.uid) => {
                    self.fake.bind_in_api(&pod.uid, &node);
                }
                Command::Evict { pods, group, .. } if self.disturbed => self.evict_unseen(&pods, group.as_ref()),
                _ => {}
            }
        }
        self.stale = None;
        self.fake.restart();
    }

    /// Whether the API would bind this pod.
    fn is_free(&self, uid: &str) -> bool {
        self.fake.pods.get(uid).is_some_and(|actual| actual.node.is_none() && !actual.terminating)
    }

    fn answer_one(&mut self) {
        if self.fake.in_flight.is_empty() {
            return;
        }
        let place = self.random.below(self.fake.in_flight.len());
        let command = self.fake.in_flight.remove(place);
        let roll = self.random.below(100);
        match command {
            Command::Bind { pod, node, .. } if roll < 12 => {
                self.coverage.repairs += 1;
                let outcome = BindOutcome::Refused { message: "no".into() };
                self.fake.observe(Observation::BindDone { pod, node, outcome });
            }
            Command::Bind { pod, node, .. } if roll < 30 => {
                // In some of these cases the bind succeeded anyway.
                if roll < 18 && self.is_free(&pod.uid) {
                    self.fake.bind_in_api(&pod.uid, &node);
                }
                let outcome = BindOutcome::Transient { message: "later".into() };
                self.fake.observe(Observation::BindDone { pod: pod.clone(), node, outcome });
                if self.random.chance(50) {
                    self.fake.change(&pod.uid.clone(), |_| {});
                }
            }
            Command::RollBack { pod } if roll < 10 => {
                if let Some(actual) = self.fake.pods.get(&pod.uid).cloned() {
                    self.fake.histories.delete_was_refused(&actual);
                }
                let outcome = DeleteOutcome::Refused { message: "forbidden".into() };
                self.fake.observe(Observation::RollBackDone { pod, outcome });
            }
            Command::RollBack { pod } if roll < 30 => {
                let outcome = DeleteOutcome::Transient { message: "later".into() };
                self.fake.observe(Observation::RollBackDone { pod, outcome });
            }
            Command::Evict { pods, group, .. } if self.disturbed => self.answer_eviction_per_pod(&pods, group.as_ref()),
            Command::Evict { pods, .. } if roll < 30 => {
                for pod in pods {
                    let outcome = match roll {
                        0..10 => DeleteOutcome::Refused { message: "forbidden".into() },
                        _ => DeleteOutcome::Transient { message: "later".into() },
                    };
                    self.fake.observe(Observation::EvictDone { pod, outcome });
                }
            }
            other => self.execute(other),
        }
    }

    fn execute(&mut self, command: Command) {
        if let Command::RollBack { pod } = &command {
            self.coverage.rolled_back += 1;
            let actual = self.fake.pods.get(&pod.uid).cloned();
            if let Some(actual) = actual.as_ref().filter(|actual| actual.phase == Phase::Succeeded) {
                // It finished while the delete was in flight, and counted; now it is gone.
                self.fake.histories.lost(actual);
            }
            self.fake.execute(command);
            if let Some(actual) = actual {
                self.recreate(&actual);
            }
            return;
        }
        if let Command::Evict { pods, group, .. } = &command {
            self.fake.begin_unit(pods, group.as_ref());
            for pod in pods {
                self.evict_in_api(pod);
            }
            return;
        }
        self.fake.execute(command);
    }

    /// The faults stop: everything is answered, nothing new happens, time passes.
    fn settle_and_check(&mut self) {
        self.fake.grace_ms = 0;
        self.stop_recreating = !self.fake.config.preemption.delayed;
        for uid in self.fake.pods.keys().cloned().collect::<Vec<_>>() {
            if self.fake.pods[&uid].terminating {
                let pod = self.fake.pods[&uid].clone();
                self.fake.histories.lost(&pod);
                self.fake.remove_pod(&uid);
            } else {
                self.fake.change(&uid, |_| {});
            }
        }
        self.advance(2 * HOUR_MS);
        checker::check_at_rest(&self.fake);
        // Unproven results are retried forever, and starving gangs reserve again: without commands, the state is
        // settled.
        let issued = self.fake.issued.len();
        self.advance(2 * HOUR_MS);
        assert_eq!(self.fake.issued.len(), issued, "the engine settles");
    }

    /// Advances the time and answers everything like a healthy API.
    fn advance(&mut self, span_ms: Millis) {
        let end = self.fake.now + span_ms;
        loop {
            self.fake.decide_all();
            if let Some(command) = self.fake.in_flight.pop() {
                self.execute(command);
                continue;
            }
            match self.fake.engine.engine().next_wakeup().filter(|due| *due <= end) {
                Some(due) => self.fake.now = self.fake.now.max(due),
                None => break,
            }
        }
        self.fake.now = end;
    }

    fn count(&mut self) {
        for report in &self.fake.reports {
            let refused_pod = matches!(report.diagnosis, Diagnosis::Waiting(Waiting::PodRefused { .. }));
            self.coverage.refused_pods += usize::from(refused_pod);
            match report.diagnosis.group_reason() {
                "Scheduled" => self.coverage.whole_gangs += 1,
                "Unschedulable" | "NeverFits" => self.coverage.refused_groups += 1,
                "Degraded" => self.coverage.degraded += 1,
                _ => {}
            }
        }
    }
}

fn one_of<T: Clone>(random: &mut Random, items: &[T]) -> Option<T> {
    if items.is_empty() { None } else { Some(random.pick(items).clone()) }
}

/// Runs one seed until it is settled and adds its counts.
pub(crate) fn one_run(seed: u64, disturbed: bool, total: &mut Coverage) {
    let mut run = Run::new(seed, disturbed);
    run.fake.keep_answers = seed.is_multiple_of(10);
    for _ in 0..3 {
        run.put_node();
        run.put_group();
    }
    for _ in 0..120 {
        run.step();
    }
    run.settle_and_check();
    if run.fake.keep_answers && run.coverage.restarts == 0 {
        let lines = run.fake.engine.take_lines();
        let answers = replay(lines.iter().map(String::as_str)).unwrap();
        assert_eq!(answers, run.fake.answers, "a replay gives the same bytes");
    }
    run.count();
    total.add(&run.coverage);
}

#[test]
fn invariants_hold_through_thousands_of_random_runs() {
    const RUNS: u64 = 3_000;
    let mut total = Coverage::default();
    for_each_seed(RUNS, |seed| one_run(seed, false, &mut total));
    println!("{total:?}");
    if !one_seed_only() {
        let counts = total.required_counts();
        assert!(counts.iter().all(|count| *count > RUNS as usize / 20), "the runs must cover all events: {total:?}");
    }
}
