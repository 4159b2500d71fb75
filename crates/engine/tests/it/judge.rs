//! The judge: a plain reading of the rules, written without the engine's code, that looks at every command and at the
//! world when it has come to rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::cluster::pod::PodState;
use muster_engine::diagnosis::{Preemption, ResourceGap, Waiting};
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{DegradedPolicy, GroupKey};
use muster_engine::model::labels::Labels;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Phase, PodName, PodSpec};
use muster_engine::model::taint::Effect;
use muster_engine::{Command, Diagnosis, Engine, Subject};

use crate::company_judge;
use crate::story::{is_live, is_member};
use crate::world::World;

/// What is on a node.
#[derive(Default)]
struct Taken<'a> {
    amounts: BTreeMap<&'a str, i64>,
    pods: i64,
    classes: Vec<&'a ClassSpec>,
}

impl<'a> Taken<'a> {
    fn add(&mut self, class: &'a ClassSpec) {
        for (name, amount) in &class.requests {
            *self.amounts.entry(name).or_default() += amount;
        }
        self.pods += 1;
        self.classes.push(class);
    }
}

/// A command must be right at the moment when it is given.
pub(crate) fn command(world: &World, command: &Command) {
    match command {
        Command::Bind { pod, node } => {
            bind_is_allowed(world, &pod.uid);
            bind_has_room(world, &pod.uid, node);
        }
        Command::TakeBack { pod } => {
            let truth = &world.pods[&pod.uid];
            assert!(truth.ours, "{pod} is not ours and must not be deleted");
            if may_be_given_up(world, truth) {
                return;
            }
            world.stories.judge_take_back(truth);
            assert!(truth.controlled, "{pod} would not be made again and must not be deleted");
            assert!(truth.membership.is_some(), "{pod} is in no group and must not be deleted");
        }
        Command::Evict { pods, group, by } => {
            let is_again = pods.iter().any(|pod| world.evicted().contains(&pod.name));
            if let Some(group) = group {
                let begun = |pod: &PodSpec| pod.terminating && is_member(pod, group);
                if world.pods.values().any(begun) || others_are_gone(world, pods, group, by) {
                    // What has begun to go whole goes on, whatever became of the plan.
                    return;
                }
                goes_whole(world, group, if is_again { pods } else { &[] });
            }
            for pod in pods {
                eviction_is_allowed(world, &pod.uid, by);
            }
            plan_stands(world, by);
            // The document's own plans, which are there for comparison, may take more than they need.
            if world.config.preemption.cheaper {
                is_in_the_way(world, pods, by);
            }
        }
        Command::Spare { pod } => assert!(world.pods[&pod.uid].marked, "{pod} shows no mark"),
        Command::Nominate { .. } | Command::ClearNomination { .. } | Command::Report(_) => {}
    }
}

/// Whether a pod is of a group that lost members and is given up then.
fn may_be_given_up(world: &World, pod: &PodSpec) -> bool {
    let Some(key) = pod.membership.as_ref().map(|membership| &membership.group) else { return false };
    let group = world.groups.get(key).filter(|group| group.degraded_policy == DegradedPolicy::Evict);
    group.is_some_and(|group| world.stories.is_below(key, group, &world.shown))
}

/// Whether others were evicted together with these, or of their group for the same one, and are gone.
fn others_are_gone(world: &World, pods: &[Arc<PodName>], group: &GroupKey, by: &Subject) -> bool {
    let mut together = world.acts.iter().filter_map(|act| match act {
        Command::Evict { pods: all, .. } if pods.iter().any(|pod| all.contains(pod)) => Some(all),
        Command::Evict { pods: all, group: Some(whole), by: whom } if whole == group && **whom == *by => Some(all),
        _ => None,
    });
    together.any(|all| all.iter().any(|pod| !world.pods.contains_key(&pod.uid)))
}

/// Only whoever is bound, of a lower priority and not its node's own is evicted.
fn eviction_is_allowed(world: &World, uid: &str, by: &Subject) {
    let cluster = world.engine.engine().cluster();
    let pod = cluster.pod_id(uid).expect("a pod that is evicted is known");
    let truth = &world.pods[uid];
    let by_priority = match by {
        Subject::Pod(by) => cluster.effective_priority(cluster.pod_id(&by.uid).expect("whoever preempts is known")),
        Subject::Group(key) => cluster.group_priority(cluster.group_id(key).expect("whoever preempts is known")),
    };
    assert!(cluster.effective_priority(pod) < by_priority, "{} is not below {by:?}", truth.id);
    assert!(truth.node.is_some() && !truth.is_static, "{} cannot be evicted", truth.id);
}

/// Invariant 4: nobody of a group that goes whole is left behind, of those who are known to be bound. A bind that was
/// said to have failed may have happened all the same; then nobody knows yet. Of an eviction that is sent again, those are
/// meant who were to go together.
fn goes_whole(world: &World, group: &GroupKey, again: &[Arc<PodName>]) {
    let cluster = world.engine.engine().cluster();
    let last = world.acts.iter().rev().find_map(|act| match act {
        Command::Evict { pods, .. } if again.iter().any(|pod| pods.contains(pod)) => Some(pods),
        _ => None,
    });
    let is_meant = |pod: &PodSpec| last.is_none_or(|last| last.contains(&pod.id));
    let members = world.shown.values().filter(|pod| pod.node.is_some() && is_live(pod) && is_member(pod, group));
    for member in members.filter(|pod| is_meant(pod)) {
        let known = cluster.pod_id(&member.id.uid).is_some_and(|id| cluster.pod(id).is_leaving());
        assert!(known, "{} is left behind by its group", member.id);
    }
}

/// Invariant 3: with everybody who is leaving gone, whoever preempts has room for his minimum on the places that are
/// kept free for him. Where the pods of a group preempt one by one, each eviction is for one of them, who must have room
/// beside the others that are nominated.
fn plan_stands(world: &World, by: &Subject) {
    let cluster = world.engine.engine().cluster();
    let asks = |pod: &&PodSpec| match by {
        Subject::Pod(by) => pod.id.uid == by.uid,
        Subject::Group(key) => pod.membership.as_ref().is_some_and(|membership| membership.group == *key),
    };
    // The API may show nominations that mean nothing any more: of a pod whose bind is on its way, or that is leaving.
    let kept = |pod: &PodSpec| cluster.pod_id(&pod.id.uid).and_then(|id| cluster.pod(id).nominated);
    // What another scheduler hopes for a pod of its own is no place of ours.
    let ours = world.pods.values().filter(|pod| pod.ours);
    let nominated: Vec<&PodSpec> = ours.filter(asks).filter(|pod| kept(pod).is_some()).collect();
    assert!(!nominated.is_empty(), "somebody is evicted for {by:?}, who has no place");
    let mut beside: Vec<&PodSpec> = Vec::new();
    if let (false, Some(group)) = (world.config.preemption.delayed, &nominated[0].membership) {
        assert!(matches!(by, Subject::Pod(_)), "{by:?} preempts as a whole");
        let is_other = |pod: &&PodSpec| pod.id.uid != nominated[0].id.uid && is_member(pod, &group.group);
        beside.extend(world.pods.values().filter(|pod| pod.ours && kept(pod).is_some()).filter(is_other));
    }
    if let Subject::Group(key) = by {
        let id = cluster.group_id(key).expect("whoever preempts is known");
        let needs: u32 = cluster.group(id).needs().iter().sum();
        assert!(nominated.len() >= needs as usize, "{by:?} has {} places and needs {needs}", nominated.len());
    }
    for node in world.nodes.values() {
        let mut taken = Taken::default();
        let id = cluster.node_id(&node.name);
        for (_, pod) in cluster.pods().filter(|(_, pod)| pod.state.node().is_some() && pod.state.node() == id) {
            if !pod.is_leaving() {
                taken.add(&cluster.class(pod.class).spec);
            }
        }
        for pod in beside.iter().filter(|pod| id.is_some() && kept(pod) == id) {
            taken.add(&pod.class);
        }
        for pod in nominated.iter().filter(|pod| id.is_some() && kept(pod) == id) {
            let (uid, node_id) =
                (cluster.pod_id(&pod.id.uid).expect("a nominated pod is known"), kept(pod).expect("just seen"));
            // Those who are meant to come together are each other's company, wherever they stand in the order. Where pods
            // preempt one by one, that may be others who need nobody's going.
            let stands = company_judge::stands(world, uid, node_id, &nominated);
            if let (true, Err(broken)) = (world.config.preemption.delayed, stands) {
                panic!("{} has no place on {}: {broken}", pod.id, node.name);
            }
            assert!(
                would_do(node, &pod.class) && has_room(node, &taken, &pod.class),
                "{} has no place on {node:?} beside {:?} {}",
                pod.id,
                taken.amounts,
                taken.pods
            );
            taken.add(&pod.class);
        }
    }
}

/// Invariant 3 too: the eviction is needed. At least one of the unit is where a place is kept for whoever preempts.
fn is_in_the_way(world: &World, pods: &[Arc<PodName>], by: &Subject) {
    let cluster = world.engine.engine().cluster();
    let asks = |pod: &&PodSpec| match by {
        Subject::Pod(by) => pod.id.uid == by.uid,
        Subject::Group(key) => is_member(pod, key),
    };
    let id_of = |uid: &str| cluster.pod_id(uid).map(|id| cluster.pod(id));
    // Whom somebody shuns may stand elsewhere.
    if world.pods.values().filter(asks).any(|pod| company_judge::is_picky(world, pod)) {
        return;
    }
    let kept: Vec<_> =
        world.pods.values().filter(asks).filter_map(|pod| id_of(&pod.id.uid).and_then(|pod| pod.nominated)).collect();
    let stands_there =
        |pod: &Arc<PodName>| id_of(&pod.uid).and_then(|pod| pod.state.node()).is_some_and(|node| kept.contains(&node));
    assert!(pods.iter().any(stands_there), "{pods:?} are in nobody's way");
}

/// Whether the bind of this pod was sent before: then nothing was decided now.
pub(crate) fn is_sent_again(world: &World, uid: &str) -> bool {
    let cluster = world.engine.engine().cluster();
    let id = cluster.pod_id(uid).expect("a pod that is bound is known");
    cluster.pod(id).bind.as_ref().is_some_and(|bind| bind.tries > 1)
}

/// A pod that is held back is not placed; a bind that was sent before that is sent to its end.
fn bind_is_allowed(world: &World, uid: &str) {
    let truth = &world.pods[uid];
    let held_back = truth.gated || truth.refused.is_some();
    assert!(!held_back || is_sent_again(world, uid), "{} is held back and must not be placed", truth.id);
}

/// Invariant 2: the node has room for the pod, counting everything the engine was told. A bind that is sent again is
/// not judged again: others may have taken the room since.
fn bind_has_room(world: &World, uid: &str, node: &str) {
    if is_sent_again(world, uid) {
        return;
    }
    let cluster = world.engine.engine().cluster();
    let id = cluster.pod_id(uid).expect("a pod that is bound is known");
    let node_id = cluster.node_id(node).expect("a node that is bound to is known");
    assert_eq!(cluster.pod(id).state, PodState::Assumed(node_id));
    let spec = world.nodes.get(node).expect("a pod is only bound to a node that is there");
    let mut taken = Taken::default();
    for (other, pod) in cluster.pods() {
        if other != id && pod.state.node() == Some(node_id) {
            taken.add(&cluster.class(pod.class).spec);
        }
    }
    let class = &cluster.class(cluster.pod(id).class).spec;
    assert!(would_do(spec, class), "{uid} may not go to {node}");
    // What was decided together counts together: the others of the batch are on the node already, and this one must
    // fit beside all of them.
    assert!(has_room(spec, &taken, class), "{uid} does not fit on {node}");
    if let Err(broken) = company_judge::allows(world, id, node_id, |_| true) {
        panic!("{uid} may not go to {node}: {broken}");
    }
}

fn would_do(node: &NodeSpec, class: &ClassSpec) -> bool {
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

fn has_room(node: &NodeSpec, taken: &Taken<'_>, class: &ClassSpec) -> bool {
    let offers = |name: &str| node.allocatable.get(name).copied().unwrap_or(0);
    let fits = class
        .requests
        .iter()
        .filter(|(_, amount)| **amount > 0)
        .all(|(name, amount)| taken.amounts.get(name.as_str()).copied().unwrap_or(0) + amount <= offers(name));
    let ports_free = class
        .host_ports
        .iter()
        .all(|port| !taken.classes.iter().any(|other| other.host_ports.iter().any(|taken| taken.port == port.port)));
    fits && ports_free && taken.pods < offers("pods")
}

/// At rest: nothing in flight, nothing due, the truth known. Checks invariants 1, 4 and 7.
pub(crate) fn at_rest(world: &World) {
    assert!(world.in_flight.is_empty());
    world.judge_units();
    for key in world.groups.keys() {
        if let Err(broken) = world.stories.may_rest(key, &world.pods) {
            let cluster = world.engine.engine().cluster();
            let known = cluster.group_id(key).map(|id| cluster.group(id));
            panic!("{broken}\n{known:#?}");
        }
    }
    let mut engine = world.engine.engine().clone();
    for pod in world.pods.values() {
        nobody_waits_for_nothing(world, pod);
        let waits = pod.ours && pod.node.is_none() && is_live(pod);
        assert!(!waits || pod.nominated.is_none(), "a place is kept free for {} for nothing", pod.id);
        if waits && !pod.gated && pod.refused.is_none() {
            nobody_is_too_shy(world, &mut engine, pod);
        }
    }
}

/// Whoever waits at rest and may preempt has nobody whose going would help.
fn nobody_is_too_shy(world: &World, engine: &mut Engine, pod: &PodSpec) {
    if !world.config.preemption.on {
        return;
    }
    let subject = match &pod.membership {
        None => Subject::Pod(pod.id.clone()),
        Some(membership) => Subject::Group(membership.group.clone()),
    };
    let preemption = match engine.explain(&subject) {
        Some(Diagnosis::PodUnschedulable { preemption, .. }) => *preemption,
        // Who preempts one by one counted on a place that somebody else may have taken since; nobody is woken by that.
        Some(Diagnosis::GroupUnschedulable(shortfall))
            if !world.config.preemption.delayed && shortfall.would_fit > 0 =>
        {
            return;
        }
        Some(Diagnosis::GroupUnschedulable(shortfall)) => shortfall.preemption,
        _ => return,
    };
    let waits_for_nodes = matches!(preemption, Preemption::NodesArriving { .. });
    let cluster = engine.cluster();
    let is_left_out = |id| cluster.pod(id).group.is_some_and(|group| cluster.group(group).strays.contains_key(&id));
    let left_out = cluster.pod_id(&pod.id.uid).is_some_and(is_left_out);
    if waits_for_nodes && !left_out {
        let patience = world.config.preemption.arrival_ms;
        let awaited = |node: &NodeSpec| !node.startup_taints.is_empty() && world.now < node.created_ms + patience;
        assert!(world.nodes.values().any(awaited), "{} waits for nodes, and none is being set up", pod.id);
    }
    if preemption != Preemption::Never && !waits_for_nodes {
        let outlook = engine.preemption_outlook(&subject);
        assert!(!matches!(outlook, Some(Ok(_))), "{} says {preemption:?}, and could: {outlook:?}", pod.id);
    }
}

/// A single pod, or a gang of like pods, that waits at rest really has no room.
fn nobody_waits_for_nothing(world: &World, pod: &PodSpec) {
    if !is_live(pod) || pod.node.is_some() || !pod.ours || pod.gated {
        return;
    }
    if pod.refused.is_some() {
        let said = world.engine.engine().explain(&Subject::Pod(pod.id.clone()));
        assert!(matches!(said, Some(Diagnosis::Waiting(Waiting::PodRefused { .. }))), "{} is told {said:?}", pod.id);
        return;
    }
    if company_judge::is_picky(world, pod) {
        // Whether there is a place for one of them is judged where they are alone.
        if pod.membership.is_none() {
            let cluster = world.engine.engine().cluster();
            let id = cluster.pod_id(&pod.id.uid).expect("a pod that waits is known");
            for node in world.nodes.values().filter(|node| copies(world, node, &pod.class) > 0) {
                let node_id = cluster.node_id(&node.name).expect("a node that is there is known");
                let allowed = company_judge::allows(world, id, node_id, |_| true);
                assert!(allowed.is_err(), "{} waits, and {} would do", pod.id, node.name);
            }
        }
        return;
    }
    let room = |class: &ClassSpec| -> usize { world.nodes.values().map(|node| copies(world, node, class)).sum() };
    let Some(membership) = &pod.membership else {
        assert_eq!(room(&pod.class), 0, "{} waits, and there is room", pod.id);
        return;
    };
    let subject = Subject::Group(membership.group.clone());
    let engine = world.engine.engine();
    let Some(Diagnosis::GroupUnschedulable(shortfall)) = engine.explain(&subject) else { return };
    let cluster = engine.cluster();
    let Some(group) = cluster.group_id(&membership.group).map(|id| cluster.group(id)) else { return };
    // Members that are left out of their group, and mixed groups, are not judged here.
    let classes = group.waiting.iter().map(|(_, member)| &cluster.class(cluster.pod(*member).class).spec);
    let like = classes.clone().count() > 0 && classes.clone().all(|class| *class == pod.class);
    let mut waiting = group.waiting.iter().filter_map(|(_, member)| world.pods.get(&cluster.pod(*member).id.uid));
    if waiting.any(|member| company_judge::is_picky(world, member)) {
        return;
    }
    if !like || group.rules.len() > 1 || group.spec.is_none() {
        return;
    }
    if let Some(gap) = &shortfall.gap {
        really_lacks(world, &membership.group, gap, &pod.class);
        return;
    }
    let needed = (shortfall.minimum.saturating_sub(shortfall.held) as usize).max(1);
    assert!(room(&pod.class) < needed, "group {} waits, and there is room: {shortfall:?}", membership.group);
}

/// What a group will need in all is really not there: counted from the pods themselves. What its members take they take from
/// what is free, so it does not matter how many of them would be placed.
fn really_lacks(world: &World, key: &GroupKey, gap: &ResourceGap, class: &ClassSpec) {
    let asks = |pod: &PodSpec| pod.class.requests.get(&gap.resource).copied().unwrap_or(0);
    let stays = |pod: &&PodSpec| pod.node.is_some() && is_live(pod);
    let counts = |pod: &&PodSpec| pod.ours && is_member(pod, key) && (stays(pod) || pod.phase == Phase::Succeeded);
    let held: i64 = world.shown.values().filter(counts).map(asks).sum();
    let free = |node: &NodeSpec| {
        let there = world.shown.values().filter(|pod| pod.node.as_deref() == Some(&node.name));
        let takes = there.filter(|pod| matches!(pod.phase, Phase::Pending | Phase::Running));
        let offered = node.allocatable.get(&gap.resource).copied().unwrap_or(0);
        (offered - takes.map(asks).sum::<i64>()).max(0)
    };
    let left: i64 = world.nodes.values().filter(|node| would_do(node, class)).map(free).sum();
    // Places that are kept free are nobody else's, and claimed nodes are not open to all.
    let cluster = world.engine.engine().cluster();
    let reserved = cluster.nodes().any(|(_, node)| node.reserved.is_some() || node.claimed_at.is_some());
    // What others are owed who have started; on which nodes does not matter here.
    let owed = cluster.groups().filter(|(_, other)| other.key != *key).filter_map(|(_, other)| {
        let asked = other.spec.as_ref()?.min_resources.get(&gap.resource)?;
        let theirs = |pod: &&PodSpec| is_member(pod, &other.key) && (stays(pod) || pod.phase == Phase::Succeeded);
        let taken: Vec<i64> = world.shown.values().filter(theirs).map(asks).collect();
        (!taken.is_empty()).then(|| (asked - taken.iter().sum::<i64>()).max(0))
    });
    let left = left - owed.sum::<i64>();
    assert!(reserved || gap.asked > held + left, "group {key} waits for nothing: {gap:?}, {held} held, {left} left");
}

/// How many more pods of a class fit on a node.
fn copies(world: &World, node: &NodeSpec, class: &ClassSpec) -> usize {
    // A node that is claimed for a starving gang is closed to others for a while.
    let cluster = world.engine.engine().cluster();
    let claimed = cluster.node_id(&node.name).is_some_and(|id| cluster.node(id).claimed_at.is_some());
    if claimed || !would_do(node, class) {
        return 0;
    }
    let mut taken = Taken::default();
    for pod in world.pods.values() {
        let on_it = pod.node.as_deref() == Some(&*node.name) && matches!(pod.phase, Phase::Pending | Phase::Running);
        // Nominations of the pods that ask are not in their own way; only those of others count.
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
