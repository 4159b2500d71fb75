//! Invalid input: a stream of nonsense, contradictions and extremes must not make the engine panic or lose state.

use std::sync::Arc;

use muster_engine::model::budget::BudgetSpec;
use muster_engine::model::class::{ClassSpec, ScoringRequest};
use muster_engine::model::group::{
    DegradedPolicy, DisruptionMode, GroupKey, GroupPriority, GroupSpec, Policy, QueuePosition, RecordedStart, Subset,
};
use muster_engine::model::inter_pod::{
    InterPodConstraints, PodSelector, PodTerm, PreferredPodTerm, Spread, SpreadTerm,
};
use muster_engine::model::labels::{LabelOperator, NameRequirement, NodeTerm, PreferredTerm, Requirement};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{
    Lifetime, Membership, OwnerAttempt, Phase, PodName, PodRefusal, PodSpec, RefusalKind, StartStamp,
};
use muster_engine::model::port::{HostPort, Protocol};
use muster_engine::model::storage::{
    AccessMode, AttachmentSpec, BindingMode, CapacitySpec, ClaimName, ClaimSpec, ClaimUse, DriverSpec, NodeDriversSpec,
    StorageClassSpec, StorageObservation, StorageWriteOutcome, VolumeKind, VolumeSpec, VolumeTopology,
};
use muster_engine::model::taint::{Effect, Taint, Toleration};
use muster_engine::model::topology::GroupTopology;
use muster_engine::{BindOutcome, Command, Config, DeleteOutcome, Engine, Observation, invariants};

use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;

use crate::fake_cluster::{FakeCluster, cpus};

const WORDS: [&str; 6] = ["", "a", "b", "node.kubernetes.io/unschedulable", "\u{0}\u{1F600}", "7"];

struct Fool(Random);

impl Fool {
    fn word(&mut self) -> String {
        (*self.0.pick(&WORDS)).to_owned()
    }

    fn amount(&mut self) -> i64 {
        const AMOUNTS: [i64; 9] = [0, 1, 2, 1000, 1 << 50, (1 << 50) + 1, -1, i64::MAX, i64::MIN];
        // Mostly sensible, otherwise nothing would be placed.
        if self.0.chance(80) { self.0.below(5) as i64 } else { *self.0.pick(&AMOUNTS) }
    }

    fn amounts(&mut self) -> std::collections::BTreeMap<String, i64> {
        let mut amounts = std::collections::BTreeMap::new();
        for name in ["cpu", "memory", "pods", "x.io/y"] {
            if self.0.chance(60) {
                let amount = self.amount();
                amounts.insert(name.to_owned(), amount);
            }
        }
        if self.0.chance(3) {
            amounts.insert(format!("r{}", self.0.below(2000)), 1);
        }
        amounts
    }

    fn effect(&mut self) -> Effect {
        *self.0.pick(&[Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute])
    }

    fn term(&mut self) -> NodeTerm {
        let words = |generator: &mut Self| (0..generator.0.below(3)).map(|_| generator.word()).collect::<Vec<_>>();
        let labels = (0..self.0.below(3)).map(|_| {
            let demand = match self.0.below(6) {
                0 => LabelOperator::In(words(self)),
                1 => LabelOperator::NotIn(words(self)),
                2 => LabelOperator::Exists,
                3 => LabelOperator::DoesNotExist,
                4 => LabelOperator::Gt(self.amount()),
                _ => LabelOperator::Lt(self.amount()),
            };
            Requirement { key: self.word(), operator: demand }
        });
        let labels = labels.collect();
        let names = if self.0.chance(20) { vec![NameRequirement::IsNot(self.word())] } else { vec![] };
        NodeTerm { labels, names }
    }

    fn class(&mut self) -> ClassSpec {
        let port = |generator: &mut Self| HostPort {
            address: generator.0.chance(30).then(|| generator.word()),
            protocol: *generator.0.pick(&[Protocol::Tcp, Protocol::Udp]),
            port: generator.0.below(3) as u16,
        };
        let rare = self.0.chance(20);
        ClassSpec {
            requests: self.amounts(),
            scoring_cpu_milli: self.amount(),
            scoring_memory_bytes: self.amount(),
            placed_scoring: rare.then(|| ScoringRequest { cpu_milli: self.amount(), memory_bytes: self.amount() }),
            node_name: (rare && self.0.chance(20)).then(|| self.word()),
            node_selector: if rare { [(self.word(), self.word())].into() } else { [].into() },
            required_terms: (rare && self.0.chance(30)).then(|| (0..self.0.below(3)).map(|_| self.term()).collect()),
            preferred_terms: (0..if rare { self.0.below(3) } else { 0 })
                .map(|_| PreferredTerm { weight: self.0.below(120) as i32 - 5, term: self.term() })
                .collect(),
            tolerations: (0..self.0.below(2))
                .map(|_| Toleration { key: Some(self.word()), value: None, effect: Some(self.effect()) })
                .collect(),
            host_ports: (0..if rare { self.0.below(3) } else { 0 }).map(|_| port(self)).collect(),
            enforced_terms: (rare && self.0.chance(20)).then(|| vec![self.term()]),
            images: (0..self.0.below(3)).map(|_| self.word().into()).collect(),
            features: if rare && self.0.chance(20) { [self.word()].into() } else { [].into() },
            inter_pod: rare.then(|| Arc::new(self.inter_pod())),
            ..ClassSpec::default()
        }
    }

    fn inter_pod(&mut self) -> InterPodConstraints {
        let some = |generator: &mut Self| (0..generator.0.below(3)).map(|_| generator.pod_term()).collect();
        let (required_affinity, required_anti_affinity) = (some(self), some(self));
        let preferred = (0..self.0.below(2))
            .map(|_| PreferredPodTerm { weight: self.0.below(250) as i32 - 120, term: self.pod_term() })
            .collect();
        let evenly = |generator: &mut Self| (0..generator.0.below(3)).map(|_| generator.spread_term()).collect();
        let spread = Spread {
            do_not_schedule: evenly(self),
            schedule_anyway: evenly(self),
            scores_nodes_without_keys: self.0.chance(30),
        };
        InterPodConstraints { required_affinity, required_anti_affinity, preferred, spread }
    }

    fn spread_term(&mut self) -> SpreadTerm {
        let PodTerm { pods, topology_key } = self.pod_term();
        SpreadTerm {
            pods,
            topology_key,
            max_skew: self.0.below(3) as u32,
            min_domains: self.0.below(4) as u32,
            honors_node_affinity: self.0.chance(50),
            honors_node_taints: self.0.chance(50),
        }
    }

    fn pod_term(&mut self) -> PodTerm {
        let namespaces = (0..self.0.below(3)).map(|_| self.word()).collect();
        let namespace_selector = self.0.chance(30).then(|| self.term().labels);
        let pods = PodSelector { namespaces, namespace_selector, labels: self.term().labels };
        PodTerm { pods, topology_key: self.word() }
    }

    fn group_key(&mut self) -> GroupKey {
        let name = if self.0.chance(95) { format!("g{}", self.0.below(4)) } else { self.word() };
        GroupKey { name, ..GroupKey::default() }
    }

    fn count(&mut self) -> u32 {
        if self.0.chance(90) {
            1 + self.0.below(4) as u32
        } else {
            *self.0.pick(&[0, u32::MAX, 1 << 31, i32::MAX as u32])
        }
    }

    fn group(&mut self) -> GroupSpec {
        let policy = match self.0.below(4) {
            0 | 1 => Policy::Gang { min_count: self.count() },
            2 => Policy::Basic { desired_count: self.0.chance(50).then(|| self.count()) },
            _ => Policy::Subsets(
                (0..self.0.below(4)).map(|_| Subset { name: self.word(), min_member: self.count() }).collect(),
            ),
        };
        let mut spec = GroupSpec::with_policy(self.group_key(), policy);
        spec.priority = match self.0.below(3) {
            0 => GroupPriority::Own(self.amount() as i32),
            1 => GroupPriority::LowestMember,
            _ => GroupPriority::SharedByMembers,
        };
        spec.schedule_timeout_ms = self.0.chance(50).then(|| self.0.draw() >> self.0.below(64));
        spec.parent = self.0.chance(10).then(|| self.group_key());
        spec.uid = self.word();
        let decided_ms = self.0.chance(30).then(|| self.0.draw() >> self.0.below(64));
        let minimum = self.0.chance(50).then(|| vec![Subset { name: self.word(), min_member: self.0.draw() as u32 }]);
        spec.recorded = match self.0.below(4) {
            0 => RecordedStart::GivenUp,
            1 => RecordedStart::Confirmed { minimum, decided_ms },
            _ => RecordedStart::None,
        };
        spec.degraded_policy =
            *self.0.pick(&[DegradedPolicy::Replace, DegradedPolicy::Requorum, DegradedPolicy::Evict]);
        if self.0.chance(30) {
            spec.min_resources = self.amounts();
        }
        if self.0.chance(30) {
            spec.queue_position =
                Some(QueuePosition { created_ms: self.0.draw() >> self.0.below(64), uid: self.word().into() });
        }
        if self.0.chance(5) {
            spec.topology = GroupTopology::of([(self.word(), true), (self.word(), false)]).map(Arc::new);
        }
        spec
    }

    fn name(&mut self) -> Arc<PodName> {
        let uid = if self.0.chance(97) { format!("u{}", self.0.below(25)) } else { self.word() };
        Arc::new(PodName { namespace: "ns".into(), name: uid.clone(), uid })
    }

    fn node_name(&mut self) -> String {
        if self.0.chance(95) { format!("n{}", self.0.below(5)) } else { self.word() }
    }

    fn refusal(&mut self) -> PodRefusal {
        let kind = *self.0.pick(&[RefusalKind::Unsupported, RefusalKind::Reference]);
        PodRefusal { kind, field: self.word(), value: self.word(), reason: self.word() }
    }

    fn pod(&mut self) -> PodSpec {
        const PHASES: [Phase; 6] =
            [Phase::Pending, Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Rejected];
        let number = self.0.below(3) as u32;
        let attempt = self.0.chance(30).then(|| OwnerAttempt { owner: self.word(), number });
        let membership =
            self.0.chance(60).then(|| Membership { group: self.group_key(), subset: self.word(), attempt });
        PodSpec {
            rank: self.0.chance(20).then(|| self.0.draw()),
            id: self.name(),
            class: Arc::new(self.class()),
            priority: self.0.below(3) as i32,
            membership,
            ours: self.0.chance(85),
            gated: self.0.chance(10),
            refused: self.0.chance(10).then(|| Arc::new(self.refusal())),
            created_ms: self.0.draw() >> self.0.below(64),
            node: self.0.chance(20).then(|| self.node_name()),
            nominated: self.0.chance(15).then(|| self.node_name()),
            phase: *self.0.pick(&PHASES),
            terminating: self.0.chance(8),
            controlled: self.0.chance(70),
            labels: Arc::new([(self.word(), self.word())].into()),
            started_ms: self.0.chance(50).then(|| self.0.draw() >> self.0.below(64)),
            preemption_cost: self.0.draw() as i32,
            stateful_set: None,
            lifetime: Lifetime::Deadline(self.0.draw()),
            claims: Arc::default(),
            is_static: self.0.chance(5),
            never_preempts: self.0.chance(10),
            grace_period_ends_ms: self.0.chance(20).then(|| self.0.draw() >> self.0.below(64)),
            marked: self.0.chance(20),
            start: self.0.chance(40).then(|| Arc::new(self.stamp())),
        }
    }

    fn claim_use(&mut self) -> ClaimUse {
        ClaimUse { field: self.word(), claim: self.word(), ephemeral: self.0.chance(20) }
    }

    fn volume_kind(&mut self) -> VolumeKind {
        let mode = [AccessMode::ReadWriteOnce, AccessMode::ReadWriteOncePod][self.0.below(2)];
        VolumeKind { storage_class: self.word(), access_modes: [mode].into(), ..VolumeKind::default() }
    }

    fn claim_id(&mut self) -> Arc<ClaimName> {
        Arc::new(ClaimName { namespace: "ns".into(), name: self.word(), uid: self.word() })
    }

    /// An observation about storage.
    fn about_storage(&mut self) -> Observation {
        let message = String::new;
        let outcome = match self.0.below(10) {
            0 => StorageWriteOutcome::Written,
            1 => StorageWriteOutcome::Refused { message: message() },
            _ => return Observation::Storage(Box::new(self.storage())),
        };
        Observation::StorageWriteDone { claim: self.claim_id(), outcome }
    }

    fn storage(&mut self) -> StorageObservation {
        let topology = VolumeTopology {
            required_terms: self.0.chance(50).then(|| {
                let name = NameRequirement::Is(self.node_name());
                vec![NodeTerm { labels: Vec::new(), names: vec![name] }]
            }),
            zones: Vec::new(),
        };
        match self.0.below(12) {
            0..=2 => StorageObservation::ClaimSeen(ClaimSpec {
                id: self.claim_id(),
                kind: self.volume_kind(),
                request_bytes: self.0.chance(80).then(|| self.0.below(20) as i64 - 1),
                volume: if self.0.chance(40) { self.word() } else { String::new() },
                bind_completed: self.0.chance(40),
                terminating: self.0.chance(10),
                selected_node: if self.0.chance(30) { self.node_name() } else { String::new() },
                ..ClaimSpec::default()
            }),
            3 => StorageObservation::ClaimGone("ns".into(), self.word()),
            4..=5 => StorageObservation::VolumeSeen(VolumeSpec {
                name: self.word(),
                kind: self.volume_kind(),
                capacity_bytes: self.0.below(20) as i64,
                topology,
                claim: self.0.chance(30).then(|| (*self.claim_id()).clone()),
                available: self.0.chance(70),
                attached_by: self.0.chance(50).then(|| (self.word(), self.word())),
                ..VolumeSpec::default()
            }),
            6 => StorageObservation::VolumeGone(self.word()),
            7 => StorageObservation::ClassSeen(StorageClassSpec {
                name: self.word(),
                provisioner: self.word(),
                binding_mode: Some([BindingMode::Immediate, BindingMode::WaitForFirstConsumer][self.0.below(2)]),
                allowed_topologies: None,
            }),
            8 => StorageObservation::NodeDriversSeen(NodeDriversSpec {
                node: self.node_name(),
                drivers: [(self.word(), self.0.chance(80).then(|| self.0.below(3) as u32))].into(),
            }),
            9 => StorageObservation::DriverSeen(DriverSpec {
                name: self.word(),
                publishes_capacity: self.0.chance(50),
                is_required_on_node: self.0.chance(20),
            }),
            10 => StorageObservation::CapacitySeen(CapacitySpec {
                key: ("ns".into(), self.word()),
                storage_class: self.word(),
                nodes: self.0.chance(80).then(Vec::new),
                capacity_bytes: self.0.chance(80).then(|| self.0.below(40) as i64),
                volume_bytes_max: self.0.chance(20).then(|| self.0.below(40) as i64),
            }),
            _ => StorageObservation::AttachmentSeen(AttachmentSpec {
                name: self.word(),
                node: self.node_name(),
                volume: self.word(),
            }),
        }
    }

    fn stamp(&mut self) -> StartStamp {
        StartStamp {
            group_uid: self.word(),
            decided_ms: self.0.draw() >> self.0.below(64),
            confirmed: self.0.chance(40),
            minimum: self.0.draw() as u32 >> self.0.below(32),
            disruption_mode: *self.0.pick(&[DisruptionMode::Pod, DisruptionMode::Group]),
            priority: self.0.draw() as i32,
        }
    }

    fn observation(&mut self) -> Observation {
        let message = String::new;
        match self.0.below(23) {
            22 => Observation::EvictDone { pod: self.name(), outcome: DeleteOutcome::Refused { message: message() } },
            20 => Observation::BudgetSeen(BudgetSpec {
                namespace: "ns".into(),
                name: self.word(),
                selector: self.0.chance(80).then(Vec::new),
                allowed: self.amount() as i32,
                disrupted: [self.word()].into(),
            }),
            21 => Observation::BudgetGone { namespace: "ns".into(), name: self.word() },
            0..=2 => Observation::NodeSeen(NodeSpec {
                name: self.node_name(),
                labels: [(self.word(), self.word())].into(),
                taints: (0..self.0.below(2))
                    .map(|_| Taint { key: self.word(), value: self.word(), effect: self.effect() })
                    .collect(),
                startup_taints: (0..self.0.below(2))
                    .map(|_| Taint { key: self.word(), value: self.word(), effect: self.effect() })
                    .collect(),
                created_ms: self.0.draw() >> self.0.below(64),
                unschedulable: self.0.chance(10),
                allocatable: self.amounts(),
                images: (0..self.0.below(3)).map(|_| (self.word().into(), self.amount())).collect(),
                features: (0..self.0.below(3)).map(|_| self.word()).collect(),
            }),
            3 => Observation::NodeGone { name: self.node_name() },
            4..=11 => Observation::PodSeen(self.pod()),
            12..=13 => Observation::PodGone { uid: self.name().uid.clone() },
            14..=15 => Observation::GroupSeen(self.group()),
            16 => Observation::GroupGone { key: self.group_key() },
            17 => Observation::RollBackDone {
                pod: self.name(),
                outcome: match self.0.below(3) {
                    0 => DeleteOutcome::Deleted,
                    1 => DeleteOutcome::Transient { message: message() },
                    _ => DeleteOutcome::Refused { message: message() },
                },
            },
            _ => Observation::BindDone {
                pod: self.name(),
                node: self.node_name().into(),
                outcome: match self.0.below(3) {
                    0 => BindOutcome::Bound,
                    1 => BindOutcome::Transient { message: message() },
                    _ => BindOutcome::Refused { message: message() },
                },
            },
        }
    }
}

#[test]
fn no_stream_of_observations_breaks_the_engine() {
    for_each_seed(2_000, |seed| {
        let mut generator = Fool(Random::new(seed));
        let mut storage = Fool(Random::new(seed + 1_000_000));
        let mut engine = Engine::new(Config::default()).unwrap();
        let mut now = 0;
        let mut refused = 0;
        for step in 0..150 {
            // The clock jumps, also backwards.
            now = if generator.0.chance(5) {
                generator.0.draw() >> generator.0.below(64)
            } else {
                now + generator.0.below(3_000) as u64
            };
            let mut observation = generator.observation();
            if storage.0.chance(30) {
                refused += usize::from(engine.observe(now, storage.about_storage()).is_err());
            }
            if let Observation::PodSeen(pod) = &mut observation {
                pod.claims = Arc::new((0..storage.0.below(3)).map(|_| storage.claim_use()).collect());
            }
            let text = format!("{observation:?}");
            refused += usize::from(engine.observe(now, observation).is_err());
            let verdict = invariants::check(&engine);
            assert_eq!(verdict, Ok(()), "step {step}: {text}");
            for _ in 0..generator.0.below(3) {
                engine.decide(now);
                let verdict = invariants::check(&engine);
                assert_eq!(verdict, Ok(()), "step {step}: decision after {text}");
            }
        }
        assert!(refused > 0, "the stream must contain invalid observations");
    });
}

#[test]
fn group_of_a_pod_is_fixed_when_it_is_first_seen() {
    let mut generator = Fool(Random::new(1));
    let mut engine = Engine::new(Config::default()).unwrap();
    let id = generator.name();
    let member = |group: &str, node: Option<&str>| PodSpec {
        id: id.clone(),
        membership: Some(Membership::of(GroupKey { name: group.into(), ..GroupKey::default() })),
        ours: true,
        node: node.map(Into::into),
        ..PodSpec::default()
    };
    engine.observe(0, Observation::PodSeen(member("a", None))).unwrap();
    let refusal = engine.observe(0, Observation::PodSeen(member("b", Some("n")))).unwrap_err();
    assert_eq!((refusal.field.as_str(), refusal.value.as_str()), ("membership.group", "/b"));
    let pod = engine.pod_view(&id.uid).unwrap();
    assert!(pod.node().is_some(), "the rest of the observation counts");
    assert_eq!(pod.group().unwrap().key().name, "a");
}

#[test]
fn too_many_resource_names_are_refused_and_known_ones_still_work() {
    let mut engine = Engine::new(Config::default()).unwrap();
    let node = |name: String| NodeSpec { name: "n".into(), allocatable: [(name, 1)].into(), ..NodeSpec::default() };
    let mut refusals = 0;
    for number in 0..4200 {
        refusals += usize::from(engine.observe(0, Observation::NodeSeen(node(format!("x.io/{number}")))).is_err());
    }
    assert!(refusals > 50);
    engine.observe(0, Observation::NodeSeen(node("x.io/0".into()))).unwrap();
}

#[test]
fn invalid_pod_uses_room_once_it_is_bound() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    let mut class = cpus(2);
    class.requests.insert("example.com/bytes".into(), (1 << 50) + 1);
    let id = Arc::new(PodName { namespace: "ns".into(), name: "odd".into(), uid: "odd".into() });
    let odd = PodSpec { id, class: Arc::new(class), node: Some("n0".into()), ..PodSpec::default() };
    let refusal = fake.engine.observe(0, Observation::PodSeen(odd)).unwrap_err();
    assert_eq!(refusal.field, "requests[example.com/bytes]");
    fake.pod("p", "", 1);
    fake.settle();
    assert_eq!(fake.node_of("p"), None, "the node is full");
}

#[test]
fn sums_beyond_all_limits_are_harmless() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.node("n1", 3);
    let huge = Arc::new(ClassSpec { requests: [("cpu".to_owned(), 1 << 50)].into(), ..ClassSpec::default() });
    let mut engine = fake.engine.engine().clone();
    for number in 0..8192 {
        let id = Arc::new(PodName { namespace: "ns".into(), name: format!("h{number}"), uid: format!("h{number}") });
        let pod = PodSpec { id, class: huge.clone(), node: Some("n0".into()), ..PodSpec::default() };
        engine.observe(0, Observation::PodSeen(pod)).unwrap();
    }
    let group = GroupKey { name: "g".into(), ..GroupKey::default() };
    engine.observe(0, Observation::GroupSeen(GroupSpec::gang(group.clone(), 2))).unwrap();
    for number in 0..2 {
        let mut class = cpus(2);
        class.requests.insert("memory".into(), 1 + number);
        let id = Arc::new(PodName { namespace: "ns".into(), name: format!("p{number}"), uid: format!("p{number}") });
        let membership = Some(Membership::of(group.clone()));
        let pod = PodSpec { id, ours: true, class: Arc::new(class), membership, ..PodSpec::default() };
        engine.observe(0, Observation::PodSeen(pod)).unwrap();
    }
    let commands = engine.decide(0);
    assert!(!commands.iter().any(|command| matches!(command, Command::Bind { .. })), "only one of two fits");
}
