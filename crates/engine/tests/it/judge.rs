//! The judge: a plain reading of the rules, written without the engine's code, that looks at every command and at the
//! world when it has come to rest.

use std::collections::BTreeMap;

use muster_engine::cluster::pod::PodState;
use muster_engine::diagnosis::Waiting;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::labels::Labels;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Phase, PodSpec};
use muster_engine::model::taint::Effect;
use muster_engine::{Command, Diagnosis, Subject};

use crate::story::is_live;
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
            world.stories.judge_take_back(truth);
            assert!(truth.controlled, "{pod} would not be made again and must not be deleted");
            assert!(truth.membership.is_some(), "{pod} is in no group and must not be deleted");
        }
        Command::ClearNomination { .. } | Command::Report(_) => {}
    }
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

/// At rest: nothing in flight, nothing due, the truth known. Checks invariants 1 and 7.
pub(crate) fn at_rest(world: &World) {
    assert!(world.in_flight.is_empty());
    for key in world.groups.keys() {
        if let Err(broken) = world.stories.may_rest(key, &world.pods) {
            let cluster = world.engine.engine().cluster();
            let known = cluster.group_id(key).map(|id| cluster.group(id));
            panic!("{broken}\n{known:#?}");
        }
    }
    for pod in world.pods.values() {
        nobody_waits_for_nothing(world, pod);
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
    if !like || group.rules.len() > 1 || group.spec.is_none() {
        return;
    }
    let needed = (shortfall.minimum.saturating_sub(shortfall.held) as usize).max(1);
    assert!(room(&pod.class) < needed, "group {} waits, and there is room: {shortfall:?}", membership.group);
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
