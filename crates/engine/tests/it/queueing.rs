//! Queueing: the order of scheduling, parked pods, and what activates them.

use std::sync::Arc;

use muster_engine::diagnosis::Waiting;
use muster_engine::model::group::{GroupPriority, GroupSpec, QueuePosition};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{PodRefusal, RefusalKind};
use muster_engine::{BindOutcome, Command, Config, Diagnosis, Observation};

use crate::fake_cluster::{FakeCluster, cpus, key};

/// The names of pods in the order of their first bind.
fn bind_order(fake: &FakeCluster) -> Vec<String> {
    let binds = fake.issued.iter().filter_map(|act| match act {
        Command::Bind { pod, .. } => Some(pod.name.clone()),
        _ => None,
    });
    binds.collect()
}

#[test]
fn higher_priority_goes_first_then_the_oldest() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.pod_with("late", "", 1, |pod| pod.created_ms = 50);
    fake.pod_with("early", "", 1, |pod| pod.created_ms = 10);
    fake.pod_with("important", "", 1, |pod| {
        pod.created_ms = 99;
        pod.priority = 7;
    });
    fake.settle();
    assert_eq!(bind_order(&fake), ["important", "early"]);
    assert!(fake.pod_diagnosis("late").to_string().starts_with("0/1 nodes are available: 1 Insufficient cpu."));
}

#[test]
fn single_pod_queues_from_when_it_could_first_be_tried() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pod("running", "", 1);
    fake.settle();
    let uid = fake.pod_with("gated", "", 1, |pod| {
        pod.created_ms = 1;
        pod.gated = true;
    });
    fake.advance(60_000);
    fake.pod_with("open", "", 1, |pod| pod.created_ms = 60_000);
    fake.advance(60_000);
    fake.change(&uid, |pod| pod.gated = false);
    fake.advance(60_000);
    fake.remove("running");
    fake.advance(60_000);
    assert_eq!(bind_order(&fake), ["running", "open"], "the gated pod is older, and waits for less time");
}

#[test]
fn gated_member_holds_its_gang_if_the_minimum_is_not_there_without_it() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 2, 1);
    let uid = fake.pod_with("gated", "g", 1, |pod| pod.gated = true);
    fake.advance(6_000);
    assert_eq!(fake.bound().len(), 0);
    assert_eq!(fake.reasons("g"), ["Gated"]);
    assert_eq!(fake.group_diagnosis("g").to_string(), "Waiting for the scheduling gates of pod ns/gated.");
    fake.change(&uid, |pod| pod.gated = false);
    fake.settle();
    assert_eq!(fake.bound().len(), 3);
}

/// Members that may not be placed come first, last or in the middle, before or after the object.
#[test]
fn member_beyond_the_minimum_that_is_held_back_holds_only_itself() {
    for (minimum, position, object_first) in
        (0..3).flat_map(|minimum| (0..=2).flat_map(move |at| [(minimum, at, true), (minimum, at, false)]))
    {
        let mut fake = FakeCluster::new();
        fake.node("n0", 4);
        let object = |fake: &mut FakeCluster| match minimum {
            0 => fake.basic("g", None),
            _ => fake.gang("g", minimum),
        };
        if object_first {
            object(&mut fake);
        }
        let mut gated = String::new();
        for number in 0..=2 {
            if number == position {
                gated = fake.pod_with("gated", "g", 1, |pod| pod.gated = true);
                fake.pod_with("refused", "g", 1, |pod| {
                    let (field, value, reason) = ("spec.volumes[0]".into(), "c".into(), "is missing".into());
                    let kind = RefusalKind::Unsupported;
                    pod.refused = Some(Arc::new(PodRefusal { kind, field, value, reason }));
                });
            }
            if number < 2 {
                fake.pod(&format!("a-{number}"), "g", 1);
            }
        }
        if !object_first {
            object(&mut fake);
        }
        fake.settle();
        assert_eq!(fake.bound(), ["a-0", "a-1"], "{minimum} {position} {object_first}");
        fake.change(&gated, |pod| pod.gated = false);
        fake.settle();
        assert_eq!(fake.bound(), ["a-0", "a-1", "gated"], "{minimum} {position} {object_first}");
    }
}

#[test]
fn basic_group_with_only_gated_members_reports_the_gates() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.basic("g", None);
    fake.pod_with("gated", "g", 1, |pod| pod.gated = true);
    fake.advance(6_000);
    assert_eq!(fake.reasons("g"), ["Gated"]);
}

#[test]
fn members_beyond_the_minimum_are_placed_by_priority_and_then_by_age() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.basic("g", None);
    for (name, cpu, priority) in [("large", 2, 0), ("small", 1, 0), ("medium", 3, 0), ("late", 2, 7)] {
        fake.pod_with(name, "g", cpu, |pod| pod.priority = priority);
        fake.now += 1;
    }
    fake.settle();
    assert_eq!(fake.bound(), ["large", "late"], "the most important first, then the oldest");
}

#[test]
fn gated_single_pod_waits_only_for_its_gates() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    let uid = fake.pod_with("p", "", 1, |pod| pod.gated = true);
    fake.advance(10_000);
    assert_eq!((fake.bound().len(), fake.reports.len()), (0, 0), "the API shows gates by itself");
    fake.change(&uid, |pod| pod.gated = false);
    fake.settle();
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn only_helpful_events_activate_parked_pods() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.pod("first", "", 2);
    fake.settle();
    fake.pod("second", "", 2);
    fake.settle();
    let tries = |fake: &FakeCluster| fake.reports.len();
    assert_eq!(tries(&fake), 1);
    // A node that is too small and one with a taint change nothing.
    fake.node("small", 1);
    fake.advance(60_000);
    assert_eq!(tries(&fake), 1);
    assert_eq!(fake.engine.engine().next_wakeup(), None, "without events there is nothing to do");
    fake.remove("first");
    fake.advance(11_000);
    assert_eq!(fake.bound(), ["second"]);
}

#[test]
fn identical_pods_are_activated_one_by_one() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pods_of("p", "", 5, 1);
    fake.advance(20_000);
    assert_eq!(fake.bound_count("p"), 1);
    for _ in 0..4 {
        let name = fake.bound().remove(0);
        fake.remove(&name);
        fake.advance(11_000);
        assert_eq!(fake.bound_count("p"), 1);
    }
    fake.node("big", 9);
    fake.pods_of("q", "", 6, 1);
    fake.advance(11_000);
    assert_eq!(fake.bound_count("q"), 6);
}

#[test]
fn next_identical_pod_is_activated_when_the_first_is_deleted() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pods_of("p", "", 3, 1);
    fake.settle();
    let first = fake.bound().remove(0);
    let waiting: Vec<String> =
        ["p-0", "p-1", "p-2"].into_iter().map(str::to_owned).filter(|name| *name != first).collect();
    fake.remove(&first);
    // The next pod was activated and is in backoff; it is deleted, and the one behind it must not be forgotten.
    fake.remove(&waiting[0]);
    fake.advance(11_000);
    assert_eq!(fake.bound(), [waiting[1].clone()]);
}

#[test]
fn failures_are_not_retried_before_the_backoff_ends() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    let before = fake.reports.len();
    // A burst of events that could help: a pod is created and deleted.
    for number in 0..20 {
        let name = format!("blocker-{number}");
        fake.pod_with(&name, "", 1, |pod| {
            pod.ours = false;
            pod.node = Some("n0".into());
        });
        fake.settle();
        fake.remove(&name);
        fake.settle();
    }
    assert_eq!(fake.reports.len(), before, "nothing is retried during the backoff");
    fake.node("n1", 1);
    fake.advance(1_000);
    assert_eq!(fake.bound_count("a"), 2);
}

#[test]
fn group_priority_is_its_own_or_that_of_its_lowest_member() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.put_group(GroupSpec { priority: GroupPriority::Own(5), ..GroupSpec::gang(key("own"), 1) });
    fake.gang("derived", 2);
    fake.pod_with("own", "own", 1, |pod| pod.created_ms = 9);
    fake.pod_with("derived-0", "derived", 1, |pod| pod.priority = 9);
    fake.pod_with("derived-1", "derived", 1, |pod| pod.priority = 3);
    fake.pod_with("single", "", 1, |pod| pod.priority = 4);
    fake.settle();
    assert_eq!(bind_order(&fake), ["own"]);
    fake.remove("own");
    fake.advance(5_000);
    assert_eq!(bind_order(&fake), ["own", "single"], "the lowest member sets the priority of the derived group");
}

#[test]
fn member_with_different_priority_is_excluded_where_it_must_be_shared() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 9);
    fake.put_group(GroupSpec { priority: GroupPriority::SharedByMembers, ..GroupSpec::gang(key("g"), 2) });
    fake.pod_with("a-0", "g", 1, |pod| pod.priority = 5);
    fake.now = 10;
    fake.pod_with("odd", "g", 1, |pod| pod.priority = 6);
    fake.advance(6_000);
    assert_eq!(fake.bound().len(), 0, "one is excluded, and one is not enough");
    let Diagnosis::Waiting(Waiting::OtherPriority { own: 6, shared: 5, .. }) = fake.pod_diagnosis("odd") else {
        panic!("{:?}", fake.pod_diagnosis("odd"));
    };
    fake.pod_with("a-1", "g", 1, |pod| pod.priority = 5);
    fake.settle();
    assert_eq!(fake.bound(), ["a-0", "a-1"]);
}

#[test]
fn remaining_members_keep_their_queue_position_and_new_ones_get_their_own() {
    // The remaining member of a group is older than the single pod; both need the next free room.
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 2);
    fake.now = 100;
    fake.pod("single", "", 1);
    fake.settle();
    fake.now = 60_000;
    fake.node("n1", 1);
    fake.advance(1);
    assert_eq!(fake.bound_count("a"), 3, "the remaining member is older");

    // A member that is younger than the single pod does not precede it.
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.now = 100;
    fake.pod("single", "", 1);
    fake.settle();
    fake.now = 200;
    fake.pod("a-2", "g", 1);
    fake.settle();
    fake.now = 60_000;
    fake.node("n1", 1);
    fake.advance(1);
    assert_eq!(fake.bound_count("single"), 1, "the single pod is older");
}

#[test]
fn uncordoned_node_activates_pending_pods() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    let open = fake.nodes["n0"].clone();
    fake.put_node(NodeSpec { unschedulable: true, ..open.clone() });
    fake.pod("p", "", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound().len(), 0);
    fake.put_node(open);
    fake.settle();
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn resized_running_pod_frees_room_for_others() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    let uid = fake.pod("large", "", 2);
    fake.settle();
    fake.pod("small", "", 1);
    fake.settle();
    fake.change(&uid, |pod| pod.class = Arc::new(cpus(1)));
    fake.advance(1_000);
    assert_eq!(fake.bound(), ["large", "small"]);
}

#[test]
fn resized_pending_pod_is_retried() {
    for group in ["", "g"] {
        let mut fake = FakeCluster::new();
        fake.node("n0", 1);
        fake.gang("g", 1);
        let uid = fake.pod("p", group, 2);
        fake.settle();
        assert_eq!(fake.bound().len(), 0);
        fake.change(&uid, |pod| pod.class = Arc::new(cpus(1)));
        fake.advance(1_000);
        assert_eq!(fake.bound(), ["p"]);
    }
}

#[test]
fn nomination_does_not_block_its_own_pod() {
    for group in ["", "g"] {
        let mut fake = FakeCluster::new();
        fake.node("n0", 1);
        fake.gang("g", 1);
        fake.pod_with("p", group, 1, |pod| pod.nominated = Some("n0".into()));
        fake.settle();
        assert_eq!(fake.bound(), ["p"]);
    }
}

#[test]
fn useless_nomination_is_cleared() {
    for group in ["", "g"] {
        let mut fake = FakeCluster::new();
        fake.node("n0", 1);
        fake.gang("g", 1);
        fake.pod_with("p", group, 2, |pod| pod.nominated = Some("n0".into()));
        fake.settle();
        assert!(matches!(fake.issued[..], [Command::ClearNomination { .. }]), "{:?}", fake.issued);
    }
}

#[test]
fn node_without_nomination_activates_pending_pods() {
    for way in 0..3 {
        let mut fake = FakeCluster::new();
        fake.node("n0", 2);
        let other = fake.pod_with("other", "", 2, |pod| {
            pod.ours = false;
            pod.nominated = Some("n0".into());
        });
        fake.pod("own", "", 1);
        fake.settle();
        assert_eq!(fake.bound().len(), 0, "the node is nominated");
        match way {
            0 => fake.change(&other, |pod| pod.nominated = None),
            1 => fake.change(&other, |pod| pod.terminating = true),
            _ => fake.remove_pod(&other),
        }
        fake.advance(1_000);
        assert_eq!(fake.bound(), ["own"], "way {way}");
    }
}

#[test]
fn group_ranks_as_its_lowest_priority_member() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pod_with("strong", "g", 1, |pod| pod.priority = 9);
    fake.pod_with("weak", "g", 1, |pod| pod.priority = 3);
    fake.pod_with("single", "", 2, |pod| pod.priority = 4);
    fake.settle();
    assert_eq!(bind_order(&fake), ["single"]);
}

#[test]
fn oldest_member_sets_the_shared_priority_in_any_order_of_events() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 9);
    fake.put_group(GroupSpec { priority: GroupPriority::SharedByMembers, ..GroupSpec::gang(key("g"), 2) });
    let member = |fake: &mut FakeCluster, name: &str, priority, created_ms| {
        fake.pod_with(name, "g", 1, |pod| {
            pod.priority = priority;
            pod.created_ms = created_ms;
        });
    };
    member(&mut fake, "young", 6, 50);
    member(&mut fake, "old", 5, 10);
    fake.settle();
    assert_eq!(fake.bound().len(), 0, "they do not share a priority");
    let Diagnosis::Waiting(Waiting::OtherPriority { own: 6, shared: 5, .. }) = fake.pod_diagnosis("young") else {
        panic!("{:?}", fake.pod_diagnosis("young"));
    };
    // The old one is deleted, and the young one sets the priority.
    fake.remove("old");
    member(&mut fake, "youngest", 6, 60);
    fake.advance(10_000);
    assert_eq!(fake.bound(), ["young", "youngest"]);
    assert_eq!(fake.reports.len(), 1, "the short exclusion is not reported: {:?}", fake.reports);
}

#[test]
fn backoff_grows_with_every_failure() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    let block = |fake: &mut FakeCluster, name: &str| {
        fake.pod_with(name, "", 1, |pod| {
            pod.ours = false;
            pod.node = Some("n0".into());
        })
    };
    let mut blocker = block(&mut fake, "blocker-0");
    fake.pod("p", "", 1);
    fake.settle();
    let mut pauses = Vec::new();
    for number in 1..=5 {
        // Room becomes free and is used again before the backoff ends.
        fake.remove_pod(&blocker);
        blocker = block(&mut fake, &format!("blocker-{number}"));
        let due = fake.engine.engine().next_wakeup().expect("it will be retried");
        pauses.push(due - fake.now);
        fake.now = due;
        fake.settle();
    }
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 10_000]);
}

#[test]
fn mixed_gang_is_activated_by_room_for_any_of_its_classes() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut fake = FakeCluster::new();
        let zone = |name: &str| [("zone".to_owned(), name.to_owned())].into();
        let put_node = |fake: &mut FakeCluster, name: &str| {
            fake.node(name, 1);
            let spec = fake.nodes[name].clone();
            fake.put_node(NodeSpec { labels: zone(name), ..spec });
        };
        put_node(&mut fake, first);
        fake.gang("g", 2);
        for name in ["a", "b"] {
            fake.pod_with(name, "g", 1, |pod| Arc::make_mut(&mut pod.class).node_selector = zone(name));
        }
        fake.settle();
        assert_eq!(fake.bound().len(), 0);
        put_node(&mut fake, second);
        fake.advance(2_000);
        assert_eq!(fake.bound(), ["a", "b"]);
    }
}

#[test]
fn new_member_can_make_a_parked_gang_fit() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pod("small", "g", 1);
    fake.pod("large", "g", 3);
    fake.settle();
    assert_eq!(fake.bound().len(), 0);
    fake.pod("late", "g", 1);
    fake.advance(2_000);
    assert_eq!(fake.bound(), ["late", "small"]);
}

/// Nodes of eight, and a gang that fills them only with 3+3+2 on one half and 2+2+2+2 on the other: no greedy order finds
/// that.
fn puzzle(search_steps_max: u64) -> FakeCluster {
    const HALF: usize = 10;
    let mut fake = FakeCluster::with(Config { search_steps_initial: 1, search_steps_max, ..Config::default() });
    for number in 0..2 * HALF {
        fake.node(&format!("n{number}"), 8);
    }
    fake.gang("g", 7 * HALF as u32);
    fake.pods_of("three", "g", 2 * HALF, 3);
    fake.pods_of("two", "g", 5 * HALF, 2);
    fake.settle();
    assert_eq!(fake.bound().len(), 0, "one step is not enough");
    assert_eq!(fake.reasons("g"), ["NotFoundWithinBudget"]);
    assert!(fake.group_diagnosis("g").to_string().contains("This is not a proof"));
    fake
}

#[test]
fn search_goes_on_every_second_and_then_with_growing_backoff() {
    let mut fake = puzzle(1);
    let mut looks = Vec::new();
    for _ in 0..60 {
        fake.now = fake.engine.engine().next_wakeup().expect("it will be retried");
        looks.push(fake.now / 1_000);
        fake.settle();
    }
    looks.dedup();
    assert_eq!(looks[..16], (1..=16).collect::<Vec<_>>(), "seconds: it goes on soon");
    let pauses: Vec<u64> = looks[15..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| (5..=300).contains(pause)), "{looks:?}");
    assert_eq!(pauses.last(), Some(&300), "at least every five minutes: {looks:?}");
}

#[test]
fn repeated_search_may_use_more_steps() {
    let mut fake = puzzle(1_000_000);
    fake.advance(7_200_000);
    assert_eq!(fake.bound().len(), 70);
}

#[test]
fn group_with_raised_priority_is_retried() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pod_with("other", "", 1, |pod| {
        pod.ours = false;
        pod.priority = 5;
        pod.nominated = Some("n0".into());
    });
    fake.gang("g", 1);
    // A member on a full node: the lowest priority of the group.
    fake.pod_with("weak", "g", 1, |pod| pod.node = Some("unseen".into()));
    fake.pod_with("strong", "g", 1, |pod| pod.priority = 7);
    fake.settle();
    assert!(fake.node_of("strong").is_none(), "the node is nominated for a pod that precedes the group");
    fake.remove("weak");
    fake.advance(1_000);
    assert!(fake.node_of("strong").is_some());
}

#[test]
fn identical_pods_do_not_wait_for_each_others_binds() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pods_of("p", "", 4, 1);
    fake.advance(60_000);
    fake.node("n1", 9);
    fake.decide_all();
    assert_eq!(fake.in_flight.len(), 3, "all pending pods have binds in flight");
}

#[test]
fn gated_member_counts_as_existing() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pod("a", "g", 1);
    fake.pod_with("gated", "g", 1, |pod| pod.gated = true);
    fake.settle();
    let Diagnosis::Waiting(Waiting::Gates { gated: 1, .. }) = fake.group_diagnosis("g") else {
        panic!("{:?}", fake.group_diagnosis("g"));
    };
}

#[test]
fn bound_member_is_not_excluded_for_its_priority() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.put_group(GroupSpec { priority: GroupPriority::SharedByMembers, ..GroupSpec::gang(key("g"), 2) });
    for (priority, name) in [(5, "old"), (6, "young")] {
        fake.pod_with(name, "g", 1, |pod| {
            pod.priority = priority;
            pod.created_ms = priority as u64;
            pod.node = Some("n0".into());
        });
    }
    fake.settle();
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Scheduled { minimum: 2, scheduled: 2 });
}

#[test]
fn gang_is_not_impossible_after_one_refusal_of_its_only_node() {
    for cpu in [1, 2] {
        let mut fake = FakeCluster::new();
        fake.node("n0", 3);
        fake.gang("g", 2);
        fake.pod("a", "g", 1);
        fake.pod("b", "g", cpu);
        fake.decide_all();
        for sent in std::mem::take(&mut fake.in_flight) {
            let Command::Bind { pod, node, .. } = sent else { panic!("{sent:?}") };
            let outcome = BindOutcome::Refused { message: "not yet".into() };
            fake.observe(Observation::BindDone { pod, node, outcome });
        }
        fake.advance(60_000);
        assert_eq!(fake.bound(), ["a", "b"], "the node is retried soon");
    }
}

#[test]
fn group_ranked_by_its_object_is_ordered_by_age_and_then_by_greater_uid() {
    let mut fake = FakeCluster::new();
    let queue_position = |created_ms, uid: &str| Some(QueuePosition { created_ms, uid: uid.into() });
    for (name, queue_position) in [
        ("late", queue_position(30, "z")),
        ("a", queue_position(10, "a")),
        ("b", queue_position(10, "b")),
        ("own", None),
    ] {
        fake.put_group(GroupSpec { queue_position, ..GroupSpec::gang(key(name), 1) });
    }
    // The members are created in the wrong order, and a single pod between the two ages.
    for (name, created_ms) in [("late", 1), ("a", 50), ("b", 60), ("own", 25)] {
        fake.pod_with(name, name, 1, |pod| pod.created_ms = created_ms);
    }
    fake.pod_with("single", "", 1, |pod| pod.created_ms = 20);
    fake.node("n0", 9);
    fake.settle();
    assert_eq!(bind_order(&fake), ["b", "a", "single", "own", "late"]);
}
