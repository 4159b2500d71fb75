//! Who is next, who waits, and who wakes whom.

use std::sync::Arc;

use muster_engine::diagnosis::Waiting;
use muster_engine::model::group::{GroupPriority, GroupSpec, Turn};
use muster_engine::model::node::NodeSpec;
use muster_engine::{BindOutcome, Command, Config, Diagnosis, Observation};

use crate::world::{World, cpus, key};

/// The names of pods in the order of their first bind.
fn bind_order(world: &World) -> Vec<String> {
    let binds = world.acts.iter().filter_map(|act| match act {
        Command::Bind { pod, .. } => Some(pod.name.clone()),
        _ => None,
    });
    binds.collect()
}

#[test]
fn higher_priority_goes_first_then_whoever_asked_first() {
    let mut world = World::new();
    world.node("n0", 2);
    world.pod_with("late", "", 1, |pod| pod.created_ms = 50);
    world.pod_with("early", "", 1, |pod| pod.created_ms = 10);
    world.pod_with("important", "", 1, |pod| {
        pod.created_ms = 99;
        pod.priority = 7;
    });
    world.settle();
    assert_eq!(bind_order(&world), ["important", "early"]);
    assert!(world.why_pod("late").to_string().starts_with("0/1 nodes are available: 1 Insufficient cpu."));
}

#[test]
fn one_gated_member_holds_the_whole_group_until_it_is_released() {
    for gang in [true, false] {
        let mut world = World::new();
        world.node("n0", 4);
        if gang {
            world.gang("g", 2);
        } else {
            world.basic("g", None);
        }
        world.pods_of("a", "g", 2, 1);
        let uid = world.pod_with("gated", "g", 1, |pod| pod.gated = true);
        world.pass(6_000);
        assert_eq!(world.bound().len(), 0);
        assert_eq!(world.reasons("g"), ["Gated"]);
        assert_eq!(world.why_group("g").to_string(), "Waiting for the scheduling gates of pod ns/gated.");
        world.change(&uid, |pod| pod.gated = false);
        world.settle();
        assert_eq!(world.bound().len(), 3);
    }
}

#[test]
fn a_gated_single_pod_waits_for_its_gates_alone() {
    let mut world = World::new();
    world.node("n0", 4);
    let uid = world.pod_with("p", "", 1, |pod| pod.gated = true);
    world.pass(10_000);
    assert_eq!((world.bound().len(), world.reports.len()), (0, 0), "the API shows gates by itself");
    world.change(&uid, |pod| pod.gated = false);
    world.settle();
    assert_eq!(world.bound(), ["p"]);
}

#[test]
fn only_an_event_that_helps_wakes_the_parked() {
    let mut world = World::new();
    world.node("n0", 2);
    world.pod("first", "", 2);
    world.settle();
    world.pod("second", "", 2);
    world.settle();
    let tries = |world: &World| world.reports.len();
    assert_eq!(tries(&world), 1);
    // A node that is too small, and one whose taint keeps the pod away, change nothing.
    world.node("small", 1);
    world.pass(60_000);
    assert_eq!(tries(&world), 1);
    assert_eq!(world.engine.engine().next_wakeup(), None, "without news there is nothing to do");
    world.remove("first");
    world.pass(11_000);
    assert_eq!(world.bound(), ["second"]);
}

#[test]
fn like_pods_stand_in_line_and_move_up_one_by_one() {
    let mut world = World::new();
    world.node("n0", 1);
    world.pods_of("p", "", 5, 1);
    world.pass(20_000);
    assert_eq!(world.bound_count("p"), 1);
    for _ in 0..4 {
        let name = world.bound().remove(0);
        world.remove(&name);
        world.pass(11_000);
        assert_eq!(world.bound_count("p"), 1);
    }
    world.node("big", 9);
    world.pods_of("q", "", 6, 1);
    world.pass(11_000);
    assert_eq!(world.bound_count("q"), 6);
}

#[test]
fn a_line_moves_up_when_its_first_pod_goes_away_before_its_turn() {
    let mut world = World::new();
    world.node("n0", 1);
    world.pods_of("p", "", 3, 1);
    world.settle();
    let first = world.bound().remove(0);
    let waiting: Vec<String> =
        ["p-0", "p-1", "p-2"].into_iter().map(str::to_owned).filter(|name| *name != first).collect();
    world.remove(&first);
    // The next in line was woken and waits for its backoff; it goes, and the one behind it must not be forgotten.
    world.remove(&waiting[0]);
    world.pass(11_000);
    assert_eq!(world.bound(), [waiting[1].clone()]);
}

#[test]
fn failures_are_not_repeated_before_the_backoff_is_over() {
    let mut world = World::new();
    world.node("n0", 1);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    let before = world.reports.len();
    // A burst of news that could help: a pod comes and goes.
    for number in 0..20 {
        let name = format!("blocker-{number}");
        world.pod_with(&name, "", 1, |pod| {
            pod.ours = false;
            pod.node = Some("n0".into());
        });
        world.settle();
        world.remove(&name);
        world.settle();
    }
    assert_eq!(world.reports.len(), before, "within the pause nothing is tried");
    world.node("n1", 1);
    world.pass(1_000);
    assert_eq!(world.bound_count("a"), 2);
}

#[test]
fn the_priority_of_a_group_is_its_own_or_its_lowest_members() {
    let mut world = World::new();
    world.node("n0", 1);
    world.put_group(GroupSpec { priority: GroupPriority::Own(5), ..GroupSpec::gang(key("own"), 1) });
    world.gang("derived", 2);
    world.pod_with("own", "own", 1, |pod| pod.created_ms = 9);
    world.pod_with("derived-0", "derived", 1, |pod| pod.priority = 9);
    world.pod_with("derived-1", "derived", 1, |pod| pod.priority = 3);
    world.pod_with("single", "", 1, |pod| pod.priority = 4);
    world.settle();
    assert_eq!(bind_order(&world), ["own"]);
    world.remove("own");
    world.pass(5_000);
    assert_eq!(bind_order(&world), ["own", "single"], "the weakest member ranks the derived group");
}

#[test]
fn a_member_whose_priority_differs_is_left_out_where_they_must_share_one() {
    let mut world = World::new();
    world.node("n0", 9);
    world.put_group(GroupSpec { priority: GroupPriority::SharedByMembers, ..GroupSpec::gang(key("g"), 2) });
    world.pod_with("a-0", "g", 1, |pod| pod.priority = 5);
    world.now = 10;
    world.pod_with("odd", "g", 1, |pod| pod.priority = 6);
    world.pass(6_000);
    assert_eq!(world.bound().len(), 0, "one is left out, the other is too few");
    let Diagnosis::Waiting(Waiting::OtherPriority { own: 6, shared: 5, .. }) = world.why_pod("odd") else {
        panic!("{:?}", world.why_pod("odd"));
    };
    world.pod_with("a-1", "g", 1, |pod| pod.priority = 5);
    world.settle();
    assert_eq!(world.bound(), ["a-0", "a-1"]);
}

#[test]
fn leftovers_keep_their_turn_and_newcomers_get_their_own() {
    // The leftover of a group asked before the single pod; both want the next free place.
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    assert_eq!(world.bound_count("a"), 2);
    world.now = 100;
    world.pod("single", "", 1);
    world.settle();
    world.now = 60_000;
    world.node("n1", 1);
    world.pass(1);
    assert_eq!(world.bound_count("a"), 3, "the leftover asked first");

    // A member that comes later than the single pod does not go before it.
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.now = 100;
    world.pod("single", "", 1);
    world.settle();
    world.now = 200;
    world.pod("a-2", "g", 1);
    world.settle();
    world.now = 60_000;
    world.node("n1", 1);
    world.pass(1);
    assert_eq!(world.bound_count("single"), 1, "the single pod asked first");
}

#[test]
fn a_node_that_is_uncordoned_takes_whoever_waits_for_it() {
    let mut world = World::new();
    world.node("n0", 1);
    let open = world.nodes["n0"].clone();
    world.put_node(NodeSpec { unschedulable: true, ..open.clone() });
    world.pod("p", "", 1);
    world.pass(60_000);
    assert_eq!(world.bound().len(), 0);
    world.put_node(open);
    world.settle();
    assert_eq!(world.bound(), ["p"]);
}

#[test]
fn a_pod_that_is_made_smaller_leaves_room_for_others() {
    let mut world = World::new();
    world.node("n0", 2);
    let uid = world.pod("large", "", 2);
    world.settle();
    world.pod("small", "", 1);
    world.settle();
    world.change(&uid, |pod| pod.class = Arc::new(cpus(1)));
    world.pass(1_000);
    assert_eq!(world.bound(), ["large", "small"]);
}

#[test]
fn a_waiting_pod_that_is_made_smaller_is_tried_again() {
    for group in ["", "g"] {
        let mut world = World::new();
        world.node("n0", 1);
        world.gang("g", 1);
        let uid = world.pod("p", group, 2);
        world.settle();
        assert_eq!(world.bound().len(), 0);
        world.change(&uid, |pod| pod.class = Arc::new(cpus(1)));
        world.pass(1_000);
        assert_eq!(world.bound(), ["p"]);
    }
}

#[test]
fn a_nomination_is_not_in_the_way_of_its_own_pod() {
    for group in ["", "g"] {
        let mut world = World::new();
        world.node("n0", 1);
        world.gang("g", 1);
        world.pod_with("p", group, 1, |pod| pod.nominated = Some("n0".into()));
        world.settle();
        assert_eq!(world.bound(), ["p"]);
    }
}

#[test]
fn a_nomination_that_leads_to_nothing_is_cleared() {
    for group in ["", "g"] {
        let mut world = World::new();
        world.node("n0", 1);
        world.gang("g", 1);
        world.pod_with("p", group, 2, |pod| pod.nominated = Some("n0".into()));
        world.settle();
        assert!(matches!(world.acts[..], [Command::ClearNomination { .. }]), "{:?}", world.acts);
    }
}

#[test]
fn a_node_that_is_no_longer_kept_free_is_given_to_whoever_waits() {
    for way in 0..3 {
        let mut world = World::new();
        world.node("n0", 2);
        let other = world.pod_with("other", "", 2, |pod| {
            pod.ours = false;
            pod.nominated = Some("n0".into());
        });
        world.pod("own", "", 1);
        world.settle();
        assert_eq!(world.bound().len(), 0, "the node is kept free");
        match way {
            0 => world.change(&other, |pod| pod.nominated = None),
            1 => world.change(&other, |pod| pod.terminating = true),
            _ => world.remove_pod(&other),
        }
        world.pass(1_000);
        assert_eq!(world.bound(), ["own"], "way {way}");
    }
}

#[test]
fn a_group_ranks_as_its_weakest_member() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pod_with("strong", "g", 1, |pod| pod.priority = 9);
    world.pod_with("weak", "g", 1, |pod| pod.priority = 3);
    world.pod_with("single", "", 2, |pod| pod.priority = 4);
    world.settle();
    assert_eq!(bind_order(&world), ["single"]);
}

#[test]
fn the_oldest_member_sets_the_shared_priority_in_whatever_order_they_are_seen() {
    let mut world = World::new();
    world.node("n0", 9);
    world.put_group(GroupSpec { priority: GroupPriority::SharedByMembers, ..GroupSpec::gang(key("g"), 2) });
    let member = |world: &mut World, name: &str, priority, created_ms| {
        world.pod_with(name, "g", 1, |pod| {
            pod.priority = priority;
            pod.created_ms = created_ms;
        });
    };
    member(&mut world, "young", 6, 50);
    member(&mut world, "old", 5, 10);
    world.settle();
    assert_eq!(world.bound().len(), 0, "they do not share a priority");
    let Diagnosis::Waiting(Waiting::OtherPriority { own: 6, shared: 5, .. }) = world.why_pod("young") else {
        panic!("{:?}", world.why_pod("young"));
    };
    // The old one goes, and the young one is the measure.
    world.remove("old");
    member(&mut world, "youngest", 6, 60);
    world.pass(10_000);
    assert_eq!(world.bound(), ["young", "youngest"]);
    assert_eq!(world.reports.len(), 1, "that it was left out for a moment is not told: {:?}", world.reports);
}

#[test]
fn pauses_grow_with_every_failure() {
    let mut world = World::new();
    world.node("n0", 1);
    let block = |world: &mut World, name: &str| {
        world.pod_with(name, "", 1, |pod| {
            pod.ours = false;
            pod.node = Some("n0".into());
        })
    };
    let mut blocker = block(&mut world, "blocker-0");
    world.pod("p", "", 1);
    world.settle();
    let mut pauses = Vec::new();
    for number in 1..=5 {
        // Room appears and is gone again before the pause is over.
        world.remove_pod(&blocker);
        blocker = block(&mut world, &format!("blocker-{number}"));
        let due = world.engine.engine().next_wakeup().expect("it will be tried again");
        pauses.push(due - world.now);
        world.now = due;
        world.settle();
    }
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 10_000]);
}

#[test]
fn a_mixed_gang_wakes_for_room_for_any_of_its_kinds() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut world = World::new();
        let zone = |name: &str| [("zone".to_owned(), name.to_owned())].into();
        let put_node = |world: &mut World, name: &str| {
            world.node(name, 1);
            let spec = world.nodes[name].clone();
            world.put_node(NodeSpec { labels: zone(name), ..spec });
        };
        put_node(&mut world, first);
        world.gang("g", 2);
        for name in ["a", "b"] {
            world.pod_with(name, "g", 1, |pod| Arc::make_mut(&mut pod.class).node_selector = zone(name));
        }
        world.settle();
        assert_eq!(world.bound().len(), 0);
        put_node(&mut world, second);
        world.pass(2_000);
        assert_eq!(world.bound(), ["a", "b"]);
    }
}

#[test]
fn a_new_member_can_make_a_parked_gang_fit() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pod("small", "g", 1);
    world.pod("large", "g", 3);
    world.settle();
    assert_eq!(world.bound().len(), 0);
    world.pod("late", "g", 1);
    world.pass(2_000);
    assert_eq!(world.bound(), ["late", "small"]);
}

/// Two nodes of eight, and a gang that fills them both only as 3+3+2 and 2+2+2+2: no greedy order finds that.
fn puzzle(search_steps_max: u64) -> World {
    let mut world = World::with(Config { search_steps_initial: 1, search_steps_max, ..Config::default() });
    world.node("n0", 8);
    world.node("n1", 8);
    world.gang("g", 7);
    world.pods_of("three", "g", 2, 3);
    world.pods_of("two", "g", 5, 2);
    world.settle();
    assert_eq!(world.bound().len(), 0, "one step is not enough");
    assert_eq!(world.reasons("g"), ["NotFoundWithinBudget"]);
    assert!(world.why_group("g").to_string().contains("This is not a proof"));
    world
}

#[test]
fn a_search_in_vain_is_repeated_ever_less_often() {
    let mut world = puzzle(1);
    world.pass(6_000);
    let mut looks = Vec::new();
    for _ in 0..7 {
        world.now = world.engine.engine().next_wakeup().expect("it will be looked at again");
        looks.push(world.now / 1_000);
        world.settle();
    }
    assert_eq!(looks, [10, 30, 70, 150, 310, 610, 910], "seconds: at least every five minutes");
}

#[test]
fn a_search_that_is_repeated_may_take_more_steps() {
    let mut world = puzzle(1_000_000);
    world.pass(7_200_000);
    assert_eq!(world.bound().len(), 7);
}

#[test]
fn a_group_that_becomes_more_important_is_tried_again() {
    let mut world = World::new();
    world.node("n0", 1);
    world.pod_with("other", "", 1, |pod| {
        pod.ours = false;
        pod.priority = 5;
        pod.nominated = Some("n0".into());
    });
    world.gang("g", 1);
    // A member on a node that takes no more: the weakest of the group.
    world.pod_with("weak", "g", 1, |pod| pod.node = Some("unseen".into()));
    world.pod_with("strong", "g", 1, |pod| pod.priority = 7);
    world.settle();
    assert!(world.node_of("strong").is_none(), "the node is kept free for a pod that goes before the group");
    world.remove("weak");
    world.pass(1_000);
    assert!(world.node_of("strong").is_some());
}

#[test]
fn a_line_does_not_wait_for_the_answers_to_its_binds() {
    let mut world = World::new();
    world.node("n0", 1);
    world.pods_of("p", "", 4, 1);
    world.pass(60_000);
    world.node("n1", 9);
    world.decide_all();
    assert_eq!(world.in_flight.len(), 3, "all that waited are on their way");
}

#[test]
fn a_gated_member_is_there_although_it_may_not_start() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pod("a", "g", 1);
    world.pod_with("gated", "g", 1, |pod| pod.gated = true);
    world.settle();
    let Diagnosis::Waiting(Waiting::Gates { gated: 1, .. }) = world.why_group("g") else {
        panic!("{:?}", world.why_group("g"));
    };
}

#[test]
fn a_member_that_has_a_place_is_not_left_out_for_its_priority() {
    let mut world = World::new();
    world.node("n0", 2);
    world.put_group(GroupSpec { priority: GroupPriority::SharedByMembers, ..GroupSpec::gang(key("g"), 2) });
    for (priority, name) in [(5, "old"), (6, "young")] {
        world.pod_with(name, "g", 1, |pod| {
            pod.priority = priority;
            pod.created_ms = priority as u64;
            pod.node = Some("n0".into());
        });
    }
    world.settle();
    assert_eq!(world.why_group("g"), Diagnosis::Scheduled { minimum: 2, secured: 2 });
}

#[test]
fn a_gang_is_not_impossible_because_its_only_node_refused_once() {
    for cpu in [1, 2] {
        let mut world = World::new();
        world.node("n0", 3);
        world.gang("g", 2);
        world.pod("a", "g", 1);
        world.pod("b", "g", cpu);
        world.decide_all();
        for sent in std::mem::take(&mut world.in_flight) {
            let Command::Bind { pod, node } = sent else { panic!("{sent:?}") };
            let outcome = BindOutcome::Refused { message: "not yet".into() };
            world.show(Observation::BindDone { pod, node, outcome });
        }
        world.pass(60_000);
        assert_eq!(world.bound(), ["a", "b"], "the node is looked at again soon");
    }
}

#[test]
fn a_group_that_is_ranked_by_its_object_has_its_turn_by_age_and_then_by_the_greater_uid() {
    let mut world = World::new();
    let turn = |created_ms, uid: &str| Some(Turn { created_ms, uid: uid.into() });
    for (name, turn) in [("late", turn(30, "z")), ("a", turn(10, "a")), ("b", turn(10, "b")), ("own", None)] {
        world.put_group(GroupSpec { turn, ..GroupSpec::gang(key(name), 1) });
    }
    // The members come in the wrong order, and a single pod between the two ages.
    for (name, created_ms) in [("late", 1), ("a", 50), ("b", 60), ("own", 25)] {
        world.pod_with(name, name, 1, |pod| pod.created_ms = created_ms);
    }
    world.pod_with("single", "", 1, |pod| pod.created_ms = 20);
    world.node("n0", 9);
    world.settle();
    assert_eq!(bind_order(&world), ["b", "a", "single", "own", "late"]);
}
