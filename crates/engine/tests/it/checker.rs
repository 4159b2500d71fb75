//! Reference checker: an independent implementation of the rules that checks every command and the settled state.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::diagnosis::{Preemption, ResourceGap, Waiting};
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{DegradedPolicy, GroupKey, GroupSpec};
use muster_engine::model::labels::Labels;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Phase, PodName, PodSpec};
use muster_engine::model::taint::Effect;
use muster_engine::model::topology::{GroupTopology, WhenFull};
use muster_engine::{Command, Diagnosis, Engine, NodeView, Subject};

use crate::domain_checker;
use crate::fake_cluster::FakeCluster;
use crate::gang_history::{is_live, is_member};
use crate::inter_pod_checker;

/// The usage of a node.
#[derive(Default)]
struct NodeUsage<'a> {
    amounts: BTreeMap<&'a str, i64>,
    pods: i64,
    classes: Vec<&'a ClassSpec>,
}

impl<'a> NodeUsage<'a> {
    fn add(&mut self, class: &'a ClassSpec) {
        for (name, amount) in &class.requests {
            *self.amounts.entry(name).or_default() += amount;
        }
        self.pods += 1;
        self.classes.push(class);
    }
}

/// Checks a command at the moment when it is issued.
pub(crate) fn check_command(fake: &FakeCluster, command: &Command) {
    match command {
        Command::Bind { pod, node, .. } => {
            check_bind_is_allowed(fake, &pod.uid);
            check_bind_has_room(fake, &pod.uid, node);
            // The node may have changed since a bind was sent first.
            if !is_bind_retry(fake, &pod.uid) {
                domain_checker::check_domain_of_bind(fake, &pod.uid, node);
                fake.check_volumes_are_bound(&fake.pods[&pod.uid], node);
            }
        }
        Command::RollBack { pod } => {
            let actual = &fake.pods[&pod.uid];
            assert!(actual.ours, "{pod} is not ours and must not be deleted");
            if is_evicted_when_degraded(fake, actual) {
                return;
            }
            fake.histories.check_rollback(actual, fake.may_stay(actual));
            assert!(actual.controlled, "{pod} would not be recreated and must not be deleted");
            assert!(actual.membership.is_some(), "{pod} is in no group and must not be deleted");
        }
        Command::Evict { pods, group, by } => {
            let is_again = pods.iter().any(|pod| fake.evicted().contains(&pod.name));
            if let Some(group) = group {
                let begun = |pod: &PodSpec| pod.terminating && is_member(pod, group);
                if fake.pods.values().any(begun) || unit_is_partly_gone(fake, pods, group, by) {
                    // An eviction of a whole group that has begun continues, regardless of the plan.
                    return;
                }
                check_evicted_whole(fake, group, if is_again { pods } else { &[] });
            }
            for pod in pods {
                check_eviction_is_allowed(fake, &pod.uid, by);
            }
            check_plan_fits(fake, by);
            // Plans of KEP-5710, used for comparison, may evict more than needed.
            if fake.config.preemption.cheaper {
                check_eviction_is_needed(fake, pods, by);
            }
        }
        Command::ClearDisruptionMark { pod } => assert!(fake.pods[&pod.uid].marked, "{pod} shows no mark"),
        Command::Nominate { .. }
        | Command::ClearNomination { .. }
        | Command::Report(_)
        | Command::ReserveVolume { .. }
        | Command::SelectNode { .. } => {}
    }
}

/// Whether a pod belongs to a group that is evicted when it is degraded.
fn is_evicted_when_degraded(fake: &FakeCluster, pod: &PodSpec) -> bool {
    let Some(key) = pod.membership.as_ref().map(|membership| &membership.group) else { return false };
    let moves =
        |group: &GroupSpec| group.topology.as_ref().is_some_and(|topology| topology.when_full == WhenFull::Move);
    let group = fake.groups.get(key);
    let group = group.filter(|group| group.degraded_policy == DegradedPolicy::Evict || moves(group));
    group.is_some_and(|group| fake.histories.is_below(key, group, &fake.shown))
}

/// Whether pods that were evicted together with these, or other pods of their group for the same preemptor, are gone.
fn unit_is_partly_gone(fake: &FakeCluster, pods: &[Arc<PodName>], group: &GroupKey, by: &Subject) -> bool {
    let mut together = fake.issued.iter().filter_map(|act| match act {
        Command::Evict { pods: all, .. } if pods.iter().any(|pod| all.contains(pod)) => Some(all),
        Command::Evict { pods: all, group: Some(whole), by: preemptor } if whole == group && **preemptor == *by => {
            Some(all)
        }
        _ => None,
    });
    together.any(|all| all.iter().any(|pod| !fake.pods.contains_key(&pod.uid)))
}

/// Only bound pods of a lower priority that are not static may be evicted.
fn check_eviction_is_allowed(fake: &FakeCluster, uid: &str, by: &Subject) {
    let engine = fake.engine.engine();
    let pod = engine.pod_view(uid).expect("a pod that is evicted is known");
    let actual = &fake.pods[uid];
    let by_priority = match by {
        Subject::Pod(by) => engine.pod_view(&by.uid).expect("the preemptor is known").priority(),
        Subject::Group(key) => engine.group_view(key).expect("the preemptor is known").priority(),
    };
    assert!(pod.priority() < by_priority, "{} is not below {by:?}", actual.id);
    assert!(actual.node.is_some() && !actual.is_static, "{} cannot be evicted", actual.id);
}

/// Invariant 4: of a group that is evicted whole, no pod that is known to be bound is left behind. A bind that was
/// reported as failed may still have succeeded unnoticed. For a retried eviction, only the pods of the original
/// eviction count.
fn check_evicted_whole(fake: &FakeCluster, group: &GroupKey, again: &[Arc<PodName>]) {
    let last = fake.issued.iter().rev().find_map(|act| match act {
        Command::Evict { pods, .. } if again.iter().any(|pod| pods.contains(pod)) => Some(pods),
        _ => None,
    });
    let was_requested = |pod: &PodSpec| last.is_none_or(|last| last.contains(&pod.id));
    let members = fake.shown.values().filter(|pod| pod.node.is_some() && is_live(pod) && is_member(pod, group));
    for member in members.filter(|pod| was_requested(pod)) {
        let known = fake.engine.engine().pod_view(&member.id.uid).is_some_and(|pod| pod.is_leaving());
        assert!(known, "{} is left behind by its group", member.id);
    }
}

/// Invariant 3: without the terminating pods, the preemptor has room for its minimum on its nominated nodes. With
/// per-pod preemption, each eviction is for one pod, which must have room next to the other nominated pods of its
/// group.
fn check_plan_fits(fake: &FakeCluster, by: &Subject) {
    let engine = fake.engine.engine();
    let is_preemptor = |pod: &&PodSpec| match by {
        Subject::Pod(by) => pod.id.uid == by.uid,
        Subject::Group(key) => pod.membership.as_ref().is_some_and(|membership| membership.group == *key),
    };
    // The API may show outdated nominations: of a pod whose bind is in flight, or that is terminating.
    let kept = |pod: &PodSpec| nominated_node(engine, &pod.id.uid);
    // Nominations of other schedulers' pods do not count.
    let ours = fake.pods.values().filter(|pod| pod.ours);
    let nominated: Vec<&PodSpec> = ours.filter(is_preemptor).filter(|pod| kept(pod).is_some()).collect();
    assert!(!nominated.is_empty(), "pods are evicted for {by:?}, which has no nominated node");
    let mut other_members: Vec<&PodSpec> = Vec::new();
    if let (false, Some(group)) = (fake.config.preemption.delayed, &nominated[0].membership) {
        assert!(matches!(by, Subject::Pod(_)), "{by:?} preempts as a whole");
        let is_other = |pod: &&PodSpec| pod.id.uid != nominated[0].id.uid && is_member(pod, &group.group);
        other_members.extend(fake.pods.values().filter(|pod| pod.ours && kept(pod).is_some()).filter(is_other));
    }
    if let Subject::Group(key) = by {
        let group = engine.group_view(key).expect("the preemptor is known");
        let is_tree = group.spec().is_some_and(|spec| spec.policy.tree().is_some());
        let needs: u32 = if is_tree { 1 } else { group.needs().iter().sum() };
        assert!(nominated.len() >= needs as usize, "{by:?} has {} places and needs {needs}", nominated.len());
    }
    for node in fake.nodes.values() {
        let mut taken = NodeUsage::default();
        let is_this = |other: Option<NodeView<'_>>| other.is_some_and(|other| other.name() == node.name);
        for pod in engine.pod_views().filter(|pod| is_this(pod.node()) && !pod.is_leaving()) {
            taken.add(pod.class());
        }
        for pod in other_members.iter().filter(|pod| is_this(kept(pod))) {
            taken.add(&pod.class);
        }
        for pod in nominated.iter().filter(|pod| is_this(kept(pod))) {
            // Pods that are placed together match each other's inter-pod terms, regardless of their order. With per-pod
            // preemption these may be pods that need no eviction.
            let allowed = inter_pod_checker::allows_after_preemption(fake, &pod.id.uid, &node.name, &nominated);
            if let (true, Err(broken)) = (fake.config.preemption.delayed, allowed) {
                panic!("{} may not be on {}: {broken}", pod.id, node.name);
            }
            assert!(
                passes_static_filters(node, &pod.class) && has_room(node, &taken, &pod.class),
                "{} does not fit on {node:?} with {:?} {}",
                pod.id,
                taken.amounts,
                taken.pods
            );
            taken.add(&pod.class);
        }
    }
}

/// Invariant 3, too: the eviction is needed. At least one pod of the unit is on a node nominated for the preemptor.
fn check_eviction_is_needed(fake: &FakeCluster, pods: &[Arc<PodName>], by: &Subject) {
    let engine = fake.engine.engine();
    let is_preemptor = |pod: &&PodSpec| match by {
        Subject::Pod(by) => pod.id.uid == by.uid,
        Subject::Group(key) => is_member(pod, key),
    };
    // Victims of anti-affinity may be on other nodes.
    if fake.pods.values().filter(is_preemptor).any(|pod| inter_pod_checker::has_inter_pod_terms(fake, pod)) {
        return;
    }
    let preemptors = fake.pods.values().filter(is_preemptor);
    let preemptors = preemptors.filter_map(|pod| Some(nominated_node(engine, &pod.id.uid)?.name()));
    // Room for pods that are created later is kept by pods that only the engine has.
    let stand_ins = engine.pod_views().filter(|pod| !fake.pods.contains_key(&pod.name().uid));
    let stand_ins = stand_ins.filter_map(|pod| Some(pod.nominated_node()?.name()));
    let kept: Vec<&str> = preemptors.chain(stand_ins).collect();
    let is_on_nominated_node = |pod: &Arc<PodName>| {
        engine.pod_view(&pod.uid).and_then(|pod| pod.node()).is_some_and(|node| kept.contains(&node.name()))
    };
    assert!(pods.iter().any(is_on_nominated_node), "{pods:?} do not need to be evicted");
}

/// The nominated node of a pod, as the engine knows it.
fn nominated_node<'e>(engine: &'e Engine, uid: &str) -> Option<NodeView<'e>> {
    engine.pod_view(uid)?.nominated_node()
}

/// Whether this bind is a retry: then nothing was decided now.
pub(crate) fn is_bind_retry(fake: &FakeCluster, uid: &str) -> bool {
    fake.engine.engine().pod_view(uid).expect("a pod that is bound is known").bind_tries() > 1
}

/// A gated or refused pod is not placed; a bind that was sent before that is completed.
fn check_bind_is_allowed(fake: &FakeCluster, uid: &str) {
    let actual = &fake.pods[uid];
    let held_back = actual.gated || actual.refused.is_some();
    assert!(!held_back || is_bind_retry(fake, uid), "{} is held back and must not be placed", actual.id);
}

/// Invariant 2: the node has room for the pod, counting everything that the engine has observed. A retried bind is not
/// checked again: other pods may have taken the room since.
fn check_bind_has_room(fake: &FakeCluster, uid: &str, node: &str) {
    if is_bind_retry(fake, uid) {
        return;
    }
    let engine = fake.engine.engine();
    let bound = engine.pod_view(uid).expect("a pod that is bound is known");
    assert!(bound.is_assumed() && bound.node().is_some_and(|on| on.name() == node), "{bound:?} is not on {node}");
    let spec = fake.nodes.get(node).expect("a pod is only bound to a node that is there");
    let mut taken = NodeUsage::default();
    for pod in engine.pod_views().filter(|pod| pod.name().uid != uid) {
        if pod.node().is_some_and(|on| on.name() == node) {
            taken.add(pod.class());
        }
    }
    let class = bound.class();
    assert!(passes_static_filters(spec, class), "{uid} may not go to {node}");
    // Decisions of one batch count together: the other pods are already on the node, and this one must fit in addition.
    assert!(has_room(spec, &taken, class), "{uid} does not fit on {node}");
    if let Err(broken) = inter_pod_checker::allows(fake, uid, node) {
        panic!("{uid} may not go to {node}: {broken}");
    }
}

fn passes_static_filters(node: &NodeSpec, class: &ClassSpec) -> bool {
    let tolerates = |key: &str, value: &str, effect: Effect| {
        class.tolerations.iter().any(|toleration| {
            toleration.key.as_deref().is_none_or(|wanted| wanted == key)
                && toleration.value.as_deref().is_none_or(|wanted| wanted == value)
                && toleration.effect.is_none_or(|wanted| wanted == effect)
        })
    };
    let cordoned = node.unschedulable && !tolerates("node.kubernetes.io/unschedulable", "", Effect::NoSchedule);
    let tainted = node
        .taints
        .iter()
        .any(|taint| taint.effect != Effect::PreferNoSchedule && !tolerates(&taint.key, &taint.value, taint.effect));
    let selects = |labels: &Labels| class.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    !cordoned && !tainted && selects(&node.labels)
}

fn has_room(node: &NodeSpec, taken: &NodeUsage<'_>, class: &ClassSpec) -> bool {
    let allocatable = |name: &str| node.allocatable.get(name).copied().unwrap_or(0);
    let fits = class
        .requests
        .iter()
        .filter(|(_, amount)| **amount > 0)
        .all(|(name, amount)| taken.amounts.get(name.as_str()).copied().unwrap_or(0) + amount <= allocatable(name));
    let ports_free = class
        .host_ports
        .iter()
        .all(|port| !taken.classes.iter().any(|other| other.host_ports.iter().any(|taken| taken.port == port.port)));
    fits && ports_free && taken.pods < allocatable("pods")
}

/// Checks the settled state: nothing in flight, nothing due, all changes observed. Checks invariants 1, 4 and 7.
pub(crate) fn check_at_rest(fake: &FakeCluster) {
    assert!(fake.in_flight.is_empty());
    fake.check_units();
    for key in fake.groups.keys() {
        if let Err(broken) = fake.histories.check_at_rest(key, &fake.pods, |pod| fake.may_stay(pod)) {
            panic!("{broken}\n{:#?}", fake.engine.engine().group_view(key));
        }
    }
    let mut engine = fake.engine.engine().clone();
    for pod in fake.pods.values() {
        check_has_no_room(fake, pod);
        let waits = pod.ours && pod.node.is_none() && is_live(pod);
        assert!(!waits || pod.nominated.is_none(), "{} is nominated for nothing", pod.id);
        if waits && !pod.gated && pod.refused.is_none() {
            check_cannot_preempt(fake, &mut engine, pod);
        }
    }
}

/// A settled pending pod that may preempt has no victims whose eviction would help.
fn check_cannot_preempt(fake: &FakeCluster, engine: &mut Engine, pod: &PodSpec) {
    if !fake.config.preemption.on {
        return;
    }
    let subject = match &pod.membership {
        None => Subject::Pod(pod.id.clone()),
        Some(membership) => Subject::Group(membership.group.clone()),
    };
    let preemption = match engine.explain(&subject) {
        Some(Diagnosis::PodUnschedulable { preemption, .. }) => *preemption,
        // With per-pod preemption, a pod may have relied on room that another pod has taken since; that does not
        // activate it.
        Some(Diagnosis::GroupUnschedulable(shortfall))
            if !fake.config.preemption.delayed && shortfall.would_fit > 0 =>
        {
            return;
        }
        Some(Diagnosis::GroupUnschedulable(shortfall)) => shortfall.preemption,
        _ => return,
    };
    let waits_for_nodes = matches!(preemption, Preemption::UpcomingNodes { .. });
    let is_excluded = engine.pod_view(&pod.id.uid).is_some_and(|pod| pod.is_excluded());
    if waits_for_nodes && !is_excluded {
        let patience = fake.config.preemption.upcoming_node_wait_ms;
        let awaited = |node: &NodeSpec| !node.startup_taints.is_empty() && fake.now < node.created_ms + patience;
        assert!(fake.nodes.values().any(awaited), "{} waits for upcoming nodes, and there is none", pod.id);
    }
    if preemption != Preemption::Never && !waits_for_nodes {
        let outlook = engine.preemption_outlook(&subject);
        assert!(!matches!(outlook, Some(Ok(_))), "{} reports {preemption:?}, but could preempt: {outlook:?}", pod.id);
    }
}

/// A settled pending pod, or gang of identical pods, really has no room.
fn check_has_no_room(fake: &FakeCluster, pod: &PodSpec) {
    if !is_live(pod) || pod.node.is_some() || !pod.ours || pod.gated {
        return;
    }
    if pod.refused.is_some() {
        let diagnosis = fake.engine.engine().explain(&Subject::Pod(pod.id.clone()));
        assert!(
            matches!(diagnosis, Some(Diagnosis::Waiting(Waiting::PodRefused { .. }))),
            "{} has diagnosis {diagnosis:?}",
            pod.id
        );
        return;
    }
    if inter_pod_checker::has_inter_pod_terms(fake, pod) {
        // Pods with inter-pod terms are only checked if they are in no group.
        if pod.membership.is_none() {
            for node in fake.nodes.values().filter(|node| copies(fake, node, &pod.class) > 0) {
                let allowed = inter_pod_checker::allows(fake, &pod.id.uid, &node.name);
                assert!(allowed.is_err(), "{} is pending, and {} is feasible", pod.id, node.name);
            }
        }
        return;
    }
    let room = |class: &ClassSpec| -> usize { fake.nodes.values().map(|node| copies(fake, node, class)).sum() };
    let Some(membership) = &pod.membership else {
        assert_eq!(room(&pod.class), 0, "{} is pending, and there is room", pod.id);
        return;
    };
    let subject = Subject::Group(membership.group.clone());
    let engine = fake.engine.engine();
    let Some(Diagnosis::GroupUnschedulable(shortfall)) = engine.explain(&subject) else { return };
    let Some(group) = engine.group_view(&membership.group) else { return };
    // Members excluded from their group, and groups of different pods, are not checked here.
    let mut classes = group.waiting_members().map(|member| member.class()).peekable();
    let like = classes.peek().is_some() && classes.all(|class| *class == pod.class);
    let mut waiting = group.waiting_members().filter_map(|member| fake.pods.get(&member.name().uid));
    if waiting.any(|member| inter_pod_checker::has_inter_pod_terms(fake, member)) {
        return;
    }
    if !like || group.spec().is_none_or(|spec| spec.rules().len() > 1) {
        return;
    }
    // Its members fit, but not what comes later: `later_pods` tests that.
    if shortfall.later.is_some() {
        return;
    }
    if let Some(gap) = &shortfall.gap {
        check_resource_gap(fake, &membership.group, gap, &pod.class);
        return;
    }
    let needed = (shortfall.minimum.saturating_sub(shortfall.held) as usize).max(1);
    let is_in_parts = |topology: &GroupTopology| {
        topology.slices.is_some() || topology.spread.is_some() || topology.exclusive.is_some()
    };
    // What fits in parts is compared with brute force in `random_parts`.
    if group.spec().and_then(|spec| spec.topology.as_deref()).is_some_and(is_in_parts) {
        return;
    }
    let topology = group.spec().and_then(|spec| spec.topology.as_deref());
    let room = match topology.and_then(|topology| Some((topology, topology.required?))) {
        Some((topology, level)) => {
            domain_checker::room(fake, &membership.group, topology, level, |node| copies(fake, node, &pod.class))
        }
        None => room(&pod.class),
    };
    assert!(room < needed, "group {} is pending, and there is room: {shortfall:?}", membership.group);
}

/// The missing resources of a group are really missing, computed from the pods. Its members are placed on free
/// resources, so the number of placed members does not matter.
fn check_resource_gap(fake: &FakeCluster, key: &GroupKey, gap: &ResourceGap, class: &ClassSpec) {
    let requested = |pod: &PodSpec| pod.class.requests.get(&gap.resource).copied().unwrap_or(0);
    let stays = |pod: &&PodSpec| pod.node.is_some() && is_live(pod);
    let counts = |pod: &&PodSpec| pod.ours && is_member(pod, key) && (stays(pod) || pod.phase == Phase::Succeeded);
    let held: i64 = fake.shown.values().filter(counts).map(requested).sum();
    let free = |node: &NodeSpec| {
        let there = fake.shown.values().filter(|pod| pod.node.as_deref() == Some(&node.name));
        let running = there.filter(|pod| matches!(pod.phase, Phase::Pending | Phase::Running));
        let allocatable = node.allocatable.get(&gap.resource).copied().unwrap_or(0);
        (allocatable - running.map(requested).sum::<i64>()).max(0)
    };
    let left: i64 = fake.nodes.values().filter(|node| passes_static_filters(node, class)).map(free).sum();
    // Nominated room is not available to others, and reserved nodes are not open to all.
    let engine = fake.engine.engine();
    let reserved = engine.node_views().any(|node| node.has_nominations() || node.reservation_priority().is_some());
    // Resources owed to other groups that have started, on any node.
    let owed = engine.group_views().filter(|other| other.key() != key).filter_map(|other| {
        let asked = other.last_spec()?.min_resources.get(&gap.resource)?;
        let is_counted = |pod: &&PodSpec| is_member(pod, other.key()) && (stays(pod) || pod.phase == Phase::Succeeded);
        let taken: Vec<i64> = fake.shown.values().filter(is_counted).map(requested).collect();
        (!taken.is_empty()).then(|| (asked - taken.iter().sum::<i64>()).max(0))
    });
    let left = left - owed.sum::<i64>();
    assert!(
        reserved || gap.asked > held + left,
        "group {key} is pending for no reason: {gap:?}, {held} held, {left} left"
    );
}

/// How many more pods of a class fit on a node.
fn copies(fake: &FakeCluster, node: &NodeSpec, class: &ClassSpec) -> usize {
    // A node that is reserved for a starving gang is closed to others for a while.
    let view = fake.engine.engine().node_view(&node.name);
    let reserved = view.is_some_and(|node| node.reservation_priority().is_some());
    if reserved || !passes_static_filters(node, class) {
        return 0;
    }
    let mut taken = NodeUsage::default();
    for pod in fake.pods.values() {
        let on_it = pod.node.as_deref() == Some(&*node.name) && matches!(pod.phase, Phase::Pending | Phase::Running);
        // Nominations of the pending pods do not block them; only those of other schedulers' pods count.
        let kept_free =
            pod.nominated.as_deref() == Some(&*node.name) && pod.node.is_none() && is_live(pod) && !pod.ours;
        if on_it || kept_free {
            taken.add(&pod.class);
        }
    }
    let mut count = 0;
    while count < 64 && has_room(node, &taken, class) {
        taken.add(class);
        count += 1;
    }
    count
}
