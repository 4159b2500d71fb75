//! Pods that an owner creates only after others run: a group starts only if there is room for them, and the room is
//! kept.

use std::sync::Arc;

use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupPriority, GroupSpec, LaterPods};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::taint::{Effect, Taint, Toleration};
use muster_engine::{Command, Diagnosis, Observation};

use crate::fake_cluster::{FakeCluster, cpus, key};

/// A GPU node, which other pods do not tolerate.
fn gpu_node(fake: &mut FakeCluster, name: &str, gpus: i64) {
    fake.put_node(NodeSpec {
        name: name.into(),
        allocatable: [("cpu".to_owned(), 64_000), ("gpu".to_owned(), gpus), ("pods".to_owned(), 110)].into(),
        taints: vec![Taint { key: "gpu".into(), value: String::new(), effect: Effect::NoSchedule }],
        ..NodeSpec::default()
    });
}

/// A CPU node, and GPU nodes for a worker each.
fn with_gpu_nodes(count: usize) -> FakeCluster {
    let mut fake = FakeCluster::new();
    fake.node("cpu", 4);
    (0..count).for_each(|number| gpu_node(&mut fake, &format!("gpu{number}"), 8));
    fake
}

/// A worker of eight GPUs that tolerates GPU nodes.
fn gpu_worker() -> ClassSpec {
    let mut class = cpus(1);
    class.requests.insert("gpu".to_owned(), 8);
    class.tolerations = vec![Toleration { key: Some("gpu".into()), value: None, effect: None }];
    class
}

fn part(group: &str, count: u32, class: ClassSpec) -> LaterPods {
    LaterPods { group: key(group), count, class: Arc::new(class) }
}

/// A leader on CPU nodes, whose four workers on GPU nodes are created when it runs.
fn leader(fake: &mut FakeCluster, name: &str) {
    let later = vec![vec![part(name, 5, gpu_worker())]];
    fake.put_group(GroupSpec { later, ..GroupSpec::gang(key(name), 1) });
    fake.pod(&format!("{name}-leader"), name, 1);
}

fn workers(fake: &mut FakeCluster, name: &str, count: usize) {
    for number in 0..count {
        let class = Arc::new(gpu_worker());
        fake.pod_with(&format!("{name}-worker-{number}"), name, 1, |pod| pod.class = class);
    }
}

/// A single pod that wants all GPUs of a node.
fn single(fake: &mut FakeCluster, name: &str, priority: i32) {
    let class = Arc::new(gpu_worker());
    fake.pod_with(name, "", 1, |pod| {
        pod.class = class;
        pod.priority = priority;
    });
}

fn later_gap(fake: &FakeCluster, group: &str) -> (u32, u32, bool) {
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis(group) else {
        panic!("{:?}", fake.group_diagnosis(group))
    };
    let gap = shortfall.later.expect("it says what comes later");
    (gap.pods, gap.fit, gap.beside)
}

#[test]
fn leader_waits_for_room_for_its_workers_on_the_nodes_that_they_may_use() {
    let mut fake = with_gpu_nodes(3);
    leader(&mut fake, "g");
    fake.settle();
    assert_eq!(fake.bound(), [""; 0]);
    assert_eq!(later_gap(&fake, "g"), (4, 3, true));
    gpu_node(&mut fake, "gpu3", 8);
    fake.advance(15_000);
    assert_eq!(fake.bound(), ["g-leader"]);
    workers(&mut fake, "g", 4);
    fake.settle();
    assert_eq!(fake.bound_count("g-worker"), 4);
}

#[test]
fn room_for_workers_is_kept_from_single_pods_and_other_groups() {
    let mut fake = with_gpu_nodes(5);
    leader(&mut fake, "g");
    fake.settle();
    (0..3).for_each(|number| single(&mut fake, &format!("single{number}"), 0));
    leader(&mut fake, "other");
    fake.advance(10_000);
    assert_eq!((fake.bound_count("g-leader"), fake.bound_count("single"), fake.bound_count("other")), (1, 1, 0));
    workers(&mut fake, "g", 4);
    fake.advance(10_000);
    assert_eq!((fake.bound_count("g-worker"), fake.bound_count("single")), (4, 1));
}

#[test]
fn room_is_not_kept_from_more_important_pods_nor_forever() {
    let mut fake = with_gpu_nodes(4);
    leader(&mut fake, "g");
    fake.settle();
    single(&mut fake, "important", 1);
    single(&mut fake, "equal", 0);
    fake.advance(10_000);
    assert_eq!((fake.bound_count("important"), fake.bound_count("equal")), (1, 0));
    fake.advance(29 * 60_000);
    assert_eq!(fake.bound_count("equal"), 0);
    fake.advance(2 * 60_000);
    assert_eq!(fake.bound_count("equal"), 1, "after half an hour it lapses");
}

#[test]
fn room_is_free_again_when_the_leader_is_gone_and_its_namespace_has_to_pause() {
    let mut fake = with_gpu_nodes(4);
    leader(&mut fake, "g");
    fake.advance(60_000);
    single(&mut fake, "single", 0);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("single"), 0);
    fake.remove("g-leader");
    fake.advance(10_000);
    assert_eq!(fake.bound_count("single"), 1);
    // The next one may start, and keeps nothing for a while.
    fake.remove("single");
    leader(&mut fake, "again");
    fake.advance(10_000);
    assert_eq!(fake.bound_count("again-leader"), 1);
    single(&mut fake, "second", 0);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("second"), 1);
}

#[test]
fn room_is_kept_after_a_restart() {
    let mut fake = with_gpu_nodes(4);
    leader(&mut fake, "g");
    fake.settle();
    assert_eq!(fake.bound(), ["g-leader"]);
    fake.restart();
    single(&mut fake, "single", 0);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("single"), 0);
    workers(&mut fake, "g", 4);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("g-worker"), 4);
}

#[test]
fn workers_that_join_one_by_one_use_the_room_that_is_kept() {
    let mut fake = with_gpu_nodes(4);
    leader(&mut fake, "g");
    fake.settle();
    single(&mut fake, "single", 0);
    for number in 0..4 {
        let class = Arc::new(gpu_worker());
        fake.pod_with(&format!("g-worker-{number}"), "g", 1, |pod| pod.class = class);
        fake.advance(10_000);
        assert_eq!((fake.bound_count("g-worker"), fake.bound_count("single")), (number + 1, 0));
    }
}

/// Two families of two groups of two pods that start one after another.
fn families(fake: &mut FakeCluster, together: bool) {
    for family in ["a", "b"] {
        let name = |part: &str| format!("{family}-{part}");
        let parts = ["first", "second"].map(|one| part(&name(one), 2, cpus(1)));
        let later = if together { vec![parts.to_vec()] } else { parts.map(|part| vec![part]).to_vec() };
        for one in ["first", "second"] {
            fake.put_group(GroupSpec { later: later.clone(), ..GroupSpec::gang(key(&name(one)), 2) });
        }
    }
}

#[test]
fn parts_that_run_together_start_only_if_all_fit() {
    let mut fake = FakeCluster::new();
    (0..5).for_each(|index| fake.node(&format!("n{index}"), 1));
    families(&mut fake, true);
    fake.pods_of("a-first-pod", "a-first", 2, 1);
    fake.pods_of("b-first-pod", "b-first", 2, 1);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a-first-pod"), fake.bound_count("b-first-pod")), (2, 0));
    fake.pods_of("a-second-pod", "a-second", 2, 1);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a-"), fake.bound_count("b-")), (4, 0));
    (0..3).for_each(|index| fake.node(&format!("late{index}"), 1));
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b-first-pod"), 2);
    fake.pods_of("b-second-pod", "b-second", 2, 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b-"), 4);
}

#[test]
fn parts_that_run_one_after_the_other_are_not_asked_for_at_once() {
    let mut fake = FakeCluster::new();
    (0..2).for_each(|index| fake.node(&format!("n{index}"), 1));
    families(&mut fake, false);
    fake.pods_of("a-first-pod", "a-first", 2, 1);
    fake.settle();
    assert_eq!(fake.bound_count("a-first-pod"), 2);
    // What comes later would not fit even on the empty cluster.
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    let later = vec![vec![part("small", 1, cpus(1))], vec![part("large", 3, cpus(1))]];
    for (name, least) in [("small", 1), ("large", 3)] {
        fake.put_group(GroupSpec { later: later.clone(), ..GroupSpec::gang(key(name), least) });
    }
    fake.pod("pod", "small", 1);
    fake.settle();
    assert_eq!(fake.bound(), [""; 0]);
    assert_eq!(later_gap(&fake, "small"), (3, 2, false));
    fake.node("n1", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["pod"]);
}

#[test]
fn nothing_is_evicted_for_a_leader_whose_workers_would_not_fit() {
    let start = |nodes: usize| {
        let mut fake = FakeCluster::new();
        fake.node("cpu", 1);
        (0..nodes).for_each(|number| gpu_node(&mut fake, &format!("gpu{number}"), 8));
        fake.pod("low", "", 1);
        (0..nodes).for_each(|number| single(&mut fake, &format!("gpu-low{number}"), 0));
        fake.settle();
        assert_eq!(fake.bound_count("gpu-low"), nodes);
        let later = vec![vec![part("g", 5, gpu_worker())]];
        fake.put_group(GroupSpec { later, priority: GroupPriority::Own(5), ..GroupSpec::gang(key("g"), 1) });
        fake.pod("g-leader", "g", 1);
        fake.advance(60_000);
        fake
    };
    let fake = start(3);
    assert_eq!(fake.evicted(), [""; 0]);
    assert_eq!(fake.bound_count("g-leader"), 0);
    let mut fake = start(4);
    assert_eq!(fake.evicted().len(), 5, "the leader's node and those of all workers");
    assert_eq!(fake.bound_count("g-leader"), 1);
    // What was evicted for the workers is kept for them.
    single(&mut fake, "greedy", 0);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("greedy"), 0);
    workers(&mut fake, "g", 4);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("g-worker"), 4);
}

#[test]
fn min_resources_are_not_counted_beside_later_pods() {
    let mut fake = FakeCluster::new();
    (0..6).for_each(|index| fake.node(&format!("n{index}"), 1));
    for name in ["a", "b"] {
        let later = vec![vec![part(name, 3, cpus(1))]];
        let min_resources = [("cpu".to_owned(), 3000), ("pods".to_owned(), 3)].into();
        fake.put_group(GroupSpec { later, min_resources, ..GroupSpec::gang(key(name), 1) });
        fake.pod(&format!("{name}-leader"), name, 1);
    }
    fake.settle();
    assert_eq!(fake.bound(), ["a-leader", "b-leader"]);
}

#[test]
fn stand_ins_are_never_shown() {
    let mut fake = with_gpu_nodes(4);
    leader(&mut fake, "g");
    fake.settle();
    let names_stand_in = |command: &Command| format!("{command:?}").contains("later pod");
    assert!(!fake.issued.iter().any(names_stand_in));
}

/// Four GPU nodes full of pods of priority 0, a free CPU node, and a leader of priority 5 with four workers to come.
fn leader_that_preempts(grace_ms: u64) -> FakeCluster {
    let mut fake = FakeCluster::new();
    fake.node("cpu", 4);
    fake.grace_ms = grace_ms;
    (0..4).for_each(|number| gpu_node(&mut fake, &format!("gpu{number}"), 8));
    (0..4).for_each(|number| single(&mut fake, &format!("low{number}"), 0));
    fake.settle();
    assert_eq!(fake.bound_count("low"), 4);
    let later = vec![vec![part("g", 5, gpu_worker())]];
    fake.put_group(GroupSpec { later, priority: GroupPriority::Own(5), ..GroupSpec::gang(key("g"), 1) });
    fake.pod("g-leader", "g", 1);
    fake
}

#[test]
fn leader_waits_for_the_victims_of_its_workers_on_other_nodes() {
    for busy in [false, true] {
        let mut fake = leader_that_preempts(30_000);
        fake.pod("other", "", 1);
        fake.advance(5_000);
        assert_eq!((fake.evicted().len(), fake.bound_count("g-leader")), (4, 0));
        // Something else happens where the leader will run.
        if busy {
            fake.remove("other");
            fake.advance(5_000);
        }
        single(&mut fake, "greedy", 0);
        (0..3).for_each(|number| fake.remove(&format!("low{number}")));
        fake.advance(15_000);
        assert_eq!((fake.evicted().len(), fake.bound_count("g-leader")), (4, 0), "busy: {busy}");
        fake.remove("low3");
        fake.advance(1_000);
        assert_eq!((fake.bound_count("g-leader"), fake.bound_count("greedy")), (1, 0), "busy: {busy}");
        workers(&mut fake, "g", 4);
        fake.advance(10_000);
        assert_eq!((fake.bound_count("g-worker"), fake.evicted().len()), (4, 4), "busy: {busy}");
    }
}

#[test]
fn room_is_released_when_the_object_no_longer_names_the_later_pods() {
    for other_family in [false, true] {
        let mut fake = with_gpu_nodes(4);
        leader(&mut fake, "g");
        fake.settle();
        single(&mut fake, "single", 0);
        fake.advance(10_000);
        assert_eq!((fake.bound_count("g-leader"), fake.bound_count("single")), (1, 0));
        let later = if other_family { vec![vec![part("x", 1, cpus(1)), part("g", 1, cpus(1))]] } else { vec![] };
        fake.put_group(GroupSpec { later, ..GroupSpec::gang(key("g"), 1) });
        fake.advance(10_000);
        assert_eq!(fake.bound_count("single"), 1);
    }
}

#[test]
fn room_for_fewer_pods_is_kept_when_the_count_is_lowered() {
    let mut fake = with_gpu_nodes(4);
    leader(&mut fake, "g");
    fake.settle();
    (0..4).for_each(|number| single(&mut fake, &format!("single{number}"), 0));
    fake.put_group(GroupSpec { later: vec![vec![part("g", 3, gpu_worker())]], ..GroupSpec::gang(key("g"), 1) });
    fake.advance(10_000);
    assert_eq!(fake.bound_count("single"), 2);
    fake.put_group(GroupSpec { later: vec![vec![part("g", 9, gpu_worker())]], ..GroupSpec::gang(key("g"), 1) });
    fake.advance(10_000);
    assert_eq!(fake.bound_count("single"), 2, "no more is kept after the start");
}

#[test]
fn what_a_later_stage_may_preempt_does_not_keep_the_first_one_waiting() {
    for (priority, starts) in [(0, 0), (5, 1)] {
        let mut fake = FakeCluster::new();
        fake.node("cpu", 4);
        gpu_node(&mut fake, "gpu", 8);
        single(&mut fake, "low", 0);
        fake.settle();
        let later = vec![vec![part("prepare", 1, cpus(1))], vec![part("train", 1, gpu_worker())]];
        let priority = GroupPriority::Own(priority);
        fake.put_group(GroupSpec { later, priority, ..GroupSpec::gang(key("prepare"), 1) });
        fake.pod("pod", "prepare", 1);
        fake.advance(60_000);
        assert_eq!((fake.bound_count("pod"), fake.evicted().len()), (starts, 0));
    }
}

#[test]
fn group_that_runs_beside_several_stages_needs_room_for_each() {
    let mut fake = FakeCluster::new();
    (0..2).for_each(|index| fake.node(&format!("n{index}"), 2));
    let stage = |name: &str, count| vec![part("server", 1, cpus(1)), part(name, count, cpus(1))];
    let later = vec![stage("train", 3), stage("eval", 4)];
    fake.put_group(GroupSpec { later, ..GroupSpec::gang(key("server"), 1) });
    fake.pod("pod", "server", 1);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("pod"), later_gap(&fake, "server")), (0, (4, 3, true)));
    fake.node("late", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("pod"), 1);
}

#[test]
fn room_is_not_renewed_by_another_start_of_the_family() {
    let mut fake = FakeCluster::new();
    fake.node("cpu", 8);
    (0..2).for_each(|number| gpu_node(&mut fake, &format!("gpu{number}"), 8));
    let parts = vec![part("a", 1, cpus(1)), part("b", 1, cpus(1)), part("x", 2, gpu_worker())];
    for name in ["a", "b"] {
        fake.put_group(GroupSpec { later: vec![parts.clone()], ..GroupSpec::gang(key(name), 1) });
    }
    fake.pod("a-pod", "a", 1);
    fake.settle();
    single(&mut fake, "single", 0);
    fake.advance(25 * 60_000);
    fake.pod("b-pod", "b", 1);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("b-pod"), fake.bound_count("single")), (1, 0));
    fake.remove("a-pod");
    fake.remove_group("a");
    fake.advance(10 * 60_000);
    assert_eq!(fake.bound_count("single"), 1);
}

#[test]
fn namespace_keeps_a_share_of_the_nodes_at_most() {
    let mut fake = FakeCluster::new();
    (0..40).for_each(|index| fake.node(&format!("n{index}"), 1));
    fake.put_group(GroupSpec { later: vec![vec![part("g", 40, cpus(1))]], ..GroupSpec::gang(key("g"), 1) });
    fake.pod("leader", "g", 1);
    fake.settle();
    assert_eq!(fake.bound_count("leader"), 1);
    (0..40).for_each(|index| _ = fake.pod(&format!("single{index}"), "", 1));
    fake.advance(60_000);
    assert_eq!(fake.bound_count("single"), 19, "half of the nodes are kept");
}

#[test]
fn worker_is_placed_when_its_kept_node_is_free_again() {
    let mut fake = FakeCluster::new();
    fake.node("cpu", 4);
    gpu_node(&mut fake, "gpu", 8);
    fake.put_group(GroupSpec { later: vec![vec![part("g", 2, gpu_worker())]], ..GroupSpec::gang(key("g"), 1) });
    fake.pod("g-leader", "g", 1);
    fake.settle();
    single(&mut fake, "important", 1);
    fake.settle();
    assert_eq!(fake.bound_count("important"), 1);
    workers(&mut fake, "g", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("g-worker"), 0);
    fake.remove("important");
    fake.advance(1_000);
    assert_eq!(fake.bound_count("g-worker"), 1);
}

#[test]
fn leaders_of_many_namespaces_are_tried_when_a_node_for_their_workers_comes() {
    let mut fake = FakeCluster::new();
    fake.node("cpu", 100);
    for number in 0..80 {
        leader(&mut fake, &format!("g{number:02}"));
    }
    fake.advance(3_600_000);
    assert_eq!(fake.bound(), [""; 0]);
    (0..4).for_each(|number| gpu_node(&mut fake, &format!("gpu{number}"), 8));
    fake.advance(15_000);
    assert_eq!(fake.bound().len(), 1);
}

#[test]
fn restart_does_not_renew_the_time() {
    let mut fake = with_gpu_nodes(4);
    leader(&mut fake, "g");
    fake.settle();
    fake.advance(20 * 60_000);
    fake.restart();
    single(&mut fake, "single", 0);
    fake.advance(5 * 60_000);
    assert_eq!(fake.bound_count("single"), 0);
    fake.advance(6 * 60_000);
    assert_eq!(fake.bound_count("single"), 1);
}

#[test]
fn nothing_is_evicted_for_room_that_cannot_be_kept() {
    // The namespace has to pause: its last leader left without its workers.
    let mut fake = leader_that_preempts(0);
    fake.advance(60_000);
    fake.remove("g-leader");
    fake.advance(1_000);
    let evicted = fake.evicted().len();
    assert_eq!(evicted, 4);
    (0..4).for_each(|number| single(&mut fake, &format!("again{number}"), 0));
    fake.advance(10_000);
    assert_eq!(fake.bound_count("again"), 4);
    fake.pod("g-leader-2", "g", 1);
    fake.advance(30_000);
    assert_eq!((fake.evicted().len(), fake.bound_count("g-leader-2")), (evicted, 0));
    fake.advance(600_000);
    assert_eq!(fake.bound_count("g-leader-2"), 1, "after the pause it preempts again");
    // A share of the nodes is too little for its workers.
    let mut fake = FakeCluster::new();
    (0..30).for_each(|index| fake.node(&format!("n{index}"), 1));
    (0..30).for_each(|index| _ = fake.pod(&format!("low{index}"), "", 1));
    fake.settle();
    let later = vec![vec![part("g", 20, cpus(1))]];
    fake.put_group(GroupSpec { later, priority: GroupPriority::Own(5), ..GroupSpec::gang(key("g"), 1) });
    fake.pod("leader", "g", 1);
    fake.advance(600_000);
    assert_eq!(fake.evicted(), [""; 0]);
}

#[test]
fn lowering_the_count_is_no_way_around_the_pause() {
    let mut fake = with_gpu_nodes(4);
    leader(&mut fake, "g");
    fake.advance(20 * 60_000);
    fake.put_group(GroupSpec { later: vec![vec![part("g", 1, gpu_worker())]], ..GroupSpec::gang(key("g"), 1) });
    fake.remove("g-leader");
    fake.advance(1_000);
    leader(&mut fake, "again");
    fake.advance(10_000);
    single(&mut fake, "single", 0);
    fake.advance(10_000);
    assert_eq!((fake.bound_count("again-leader"), fake.bound_count("single")), (1, 1));
}

#[test]
fn node_for_a_later_stage_activates_the_first_one() {
    let mut fake = FakeCluster::new();
    fake.node("cpu", 4);
    let later = vec![vec![part("prepare", 1, cpus(1))], vec![part("train", 1, gpu_worker())]];
    fake.put_group(GroupSpec { later, ..GroupSpec::gang(key("prepare"), 1) });
    fake.pod("pod", "prepare", 1);
    fake.advance(3_600_000);
    assert_eq!(fake.bound(), [""; 0]);
    gpu_node(&mut fake, "gpu", 8);
    fake.advance(15_000);
    assert_eq!(fake.bound(), ["pod"]);
}

#[test]
fn later_pods_do_not_use_up_the_names_of_resources() {
    let mut fake = FakeCluster::new();
    fake.node("cpu", 4);
    let with = |from: usize, count: usize| {
        let mut class = cpus(1);
        class.requests.extend((from..from + count).map(|number| (format!("example.com/r{number}"), 1)));
        class
    };
    let group = |name: &str, classes: Vec<ClassSpec>| {
        let parts = classes.into_iter().map(|class| part(name, 2, class)).collect();
        GroupSpec { later: vec![parts], ..GroupSpec::gang(key(name), 1) }
    };
    let refused = fake
        .engine
        .engine()
        .clone()
        .observe(fake.now, Observation::GroupSeen(group("x", vec![with(0, 40), with(40, 40)])));
    assert!(refused.is_err(), "64 names in one group");
    // Without a bound they would fill the table, in which nodes need names too.
    for number in 0..80 {
        let name = format!("g{number}");
        fake.put_group(group(&name, vec![with(number * 60, 60)]));
        fake.pod(&format!("{name}-leader"), &name, 1);
    }
    fake.advance(60_000);
    assert_eq!(fake.bound(), [""; 0]);
    gpu_node(&mut fake, "gpu", 8);
    single(&mut fake, "single", 0);
    fake.advance(10_000);
    assert_eq!(fake.bound(), ["single"]);
}
