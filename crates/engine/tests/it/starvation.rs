//! Reservations: small pods must not starve a gang forever, and must not be blocked without need.

use std::sync::Arc;

use muster_engine::model::Millis;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{GroupKey, GroupPriority, GroupSpec};
use muster_engine::model::inter_pod::InterPodConstraints;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Lifetime, Membership, Phase, PodName};
use muster_engine::{Config, Diagnosis, MemberVerdict, PreemptionRules, Subject};

use crate::fake_cluster::{FakeCluster, key};
use crate::inter_pod_affinity::{HOST, app, gang_with, node, set_app};

const MINUTE: Millis = 60_000;

/// Four nodes full of small pods; each runs for two minutes and is replaced by another, with more pending. A gang that
/// needs two whole nodes arrives in between. Returns when it started, within this many minutes.
fn gang_among_small_pods(config: Config, minutes: u64) -> (Option<u64>, usize) {
    let mut fake = FakeCluster::with(config);
    for node in 0..4 {
        fake.node(&format!("n{node}"), 4);
    }
    let mut names = 0;
    let mut finished = 0;
    fake.gang("g", 8);
    fake.pods_of("early", "", 16, 1);
    fake.settle();
    fake.pods_of("g", "g", 8, 1);
    for minute in 0..minutes {
        // An eighth of the small pods end at a time and are replaced: never all at once.
        for slice in 0..4 {
            fake.advance(MINUTE / 4);
            let bound: Vec<String> = fake.bound().into_iter().filter(|name| !name.starts_with('g')).collect();
            for name in bound.into_iter().skip(slice % 2).step_by(8) {
                fake.remove(&name);
                finished += 1;
            }
            while fake.pods.values().filter(|pod| pod.membership.is_none()).count() < 24 {
                names += 1;
                fake.pod(&format!("small-{names}"), "", 1);
            }
            fake.settle();
            if fake.bound_count("g") == 8 {
                return (Some(minute), finished);
            }
        }
    }
    (None, finished)
}

#[test]
fn gang_starts_despite_a_constant_stream_of_small_pods() {
    let never = Config { reservation_nodes_percent_max: 100, starving_after_ms: u64::MAX, ..Config::default() };
    let (start, _) = gang_among_small_pods(never, 120);
    assert_eq!(start, None, "without reservations it starves: otherwise this test proves nothing");
    let (start, finished) =
        gang_among_small_pods(Config { reservation_nodes_percent_max: 100, ..Config::default() }, 120);
    let start = start.expect("with reservations it starts");
    assert!((10..60).contains(&start), "it started in minute {start}");
    assert!(finished > 20, "and the small ones continued meanwhile: {finished}");
}

#[test]
fn reserved_node_is_reported_and_open_to_higher_priorities() {
    let config = Config { reservation_nodes_percent_max: 100, starving_after_ms: MINUTE, ..Config::default() };
    let mut fake = FakeCluster::with(config);
    fake.node("n0", 2);
    fake.pods_of("old", "", 2, 1);
    fake.settle();
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 1);
    fake.advance(2 * MINUTE);
    fake.remove("old-0");
    fake.pod("small", "", 1);
    fake.advance(MINUTE);
    assert!(fake.node_of("small").is_none());
    let text = fake.pod_diagnosis("small").to_string();
    assert!(
        text.starts_with("0/1 nodes are available: 1 node(s) were reserved for a group that has waited too long."),
        "{text}"
    );
    fake.pod_with("important", "", 1, |pod| pod.priority = 1);
    fake.settle();
    assert!(fake.node_of("important").is_some(), "a reservation does not block a higher priority");
    fake.remove("important");
    fake.remove("old-1");
    fake.advance(MINUTE);
    assert_eq!(fake.bound_count("g"), 2);
}

#[test]
fn nodes_that_do_not_drain_are_released() {
    let config = Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        reservation_ms_max: 10 * MINUTE,
        ..Config::default()
    };
    let mut fake = FakeCluster::with(config);
    fake.node("n0", 2);
    fake.pods_of("old", "", 2, 1);
    fake.settle();
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 1);
    fake.advance(2 * MINUTE);
    fake.remove("old-0");
    fake.pod("small", "", 1);
    fake.advance(MINUTE);
    assert!(fake.node_of("small").is_none(), "the node is reserved");
    fake.advance(10 * MINUTE);
    assert!(fake.node_of("small").is_some(), "the other pod never ended: the reservation expired");
}

#[test]
fn deleted_gang_releases_its_reservation() {
    let config = Config { reservation_nodes_percent_max: 100, starving_after_ms: MINUTE, ..Config::default() };
    for how in 0..3 {
        let mut fake = FakeCluster::with(config.clone());
        fake.node("n0", 2);
        fake.pods_of("old", "", 2, 1);
        fake.settle();
        fake.gang("g", 2);
        fake.pods_of("g", "g", 2, 1);
        fake.advance(2 * MINUTE);
        fake.remove("old-0");
        fake.pod("small", "", 1);
        fake.advance(MINUTE);
        assert!(fake.node_of("small").is_none(), "the node is reserved");
        match how {
            0 => fake.remove("g-0"),
            1 => fake.remove_group("g"),
            _ => {
                fake.remove("g-0");
                fake.remove("g-1");
                fake.remove_group("g");
            }
        }
        fake.advance(MINUTE);
        assert!(fake.node_of("small").is_some(), "way {how}");
    }
}

/// The names of the reserved nodes, ordered.
fn reserved(fake: &FakeCluster) -> Vec<String> {
    let nodes = fake.engine.engine().node_views().filter(|node| node.reservation_priority().is_some());
    let mut names: Vec<String> = nodes.map(|node| node.name().to_owned()).collect();
    names.sort_unstable();
    names
}

fn bound_to(fake: &mut FakeCluster, name: &str, node: &str, cpu: i64, ours: bool) {
    fake.pod_with(name, "", cpu, |pod| {
        pod.ours = ours;
        pod.node = Some(node.into());
        pod.lifetime = if ours { Lifetime::ToCompletion } else { Lifetime::Unlimited };
    });
}

/// One node full of old pods, and a gang that needs all of it and has reserved it.
fn starving_gang(reservation_ms_max: Millis) -> FakeCluster {
    // Without preemption, so that waiting is the only way.
    let preemption = PreemptionRules { on: false, ..PreemptionRules::default() };
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        reservation_ms_max,
        preemption,
        ..Config::default()
    });
    fake.node("n0", 2);
    bound_to(&mut fake, "old-0", "n0", 1, true);
    bound_to(&mut fake, "old-1", "n0", 1, true);
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 1);
    fake.advance(MINUTE);
    assert_eq!(reserved(&fake), ["n0"]);
    fake
}

#[test]
fn node_that_needs_the_least_draining_is_reserved() {
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        ..Config::default()
    });
    fake.node("n0", 3);
    fake.node("n1", 3);
    bound_to(&mut fake, "three", "n0", 3, true);
    bound_to(&mut fake, "one", "n1", 1, true);
    fake.gang("g", 3);
    fake.pods_of("g", "g", 3, 1);
    fake.advance(MINUTE);
    assert_eq!(reserved(&fake), ["n1"]);
}

#[test]
fn node_full_of_other_schedulers_pods_is_not_reserved() {
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        ..Config::default()
    });
    fake.node("n0", 2);
    fake.node("n1", 2);
    bound_to(&mut fake, "daemon", "n0", 2, false);
    bound_to(&mut fake, "old", "n1", 2, true);
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 1);
    fake.advance(MINUTE);
    assert_eq!(reserved(&fake), ["n1"], "daemons stay, so the first node would never drain");
}

#[test]
fn gang_that_can_never_fit_reserves_nothing() {
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        ..Config::default()
    });
    fake.node("n0", 2);
    bound_to(&mut fake, "old", "n0", 1, true);
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 2);
    fake.advance(10 * MINUTE);
    assert_eq!(reserved(&fake).len(), 0);
}

#[test]
fn higher_priority_gang_takes_over_the_reservation() {
    let mut fake = starving_gang(60 * MINUTE);
    fake.gang("h", 2);
    for name in ["h-0", "h-1"] {
        fake.pod_with(name, "h", 1, |pod| pod.priority = 5);
    }
    fake.advance(2 * MINUTE);
    let priority = |fake: &FakeCluster| fake.engine.engine().node_views().find_map(|node| node.reservation_priority());
    assert_eq!(priority(&fake), Some(5));
    fake.remove("old-0");
    fake.remove("old-1");
    fake.advance(MINUTE);
    assert_eq!((fake.bound_count("h"), fake.bound_count("g")), (2, 0));
    assert_eq!(priority(&fake), Some(0), "the reservation ended with the start, and the next starving gang reserves");
}

#[test]
fn failed_reservations_are_retried_with_growing_backoff() {
    let mut fake = starving_gang(10 * MINUTE);
    fake.remove("old-0");
    let mut seen = Vec::new();
    for _ in 0..9 {
        fake.advance(5 * MINUTE);
        seen.push(!reserved(&fake).is_empty());
        fake.advance(5 * MINUTE);
    }
    // Ten minutes each; intervals of ten, twenty and forty minutes between them.
    assert_eq!(seen, [true, false, true, false, false, true, false, false, false]);
}

#[test]
fn end_of_an_earlier_reservation_does_not_end_a_later_one() {
    let mut fake = starving_gang(10 * MINUTE);
    fake.gang("h", 2);
    fake.pods_of("h", "h", 2, 1);
    fake.advance(2 * MINUTE);
    fake.remove("old-0");
    fake.remove("g-0");
    fake.remove("g-1");
    fake.advance(MINUTE);
    assert_eq!(reserved(&fake), [""; 0], "the namespace pauses for as long as the reservation was held in vain");
    fake.advance(3 * MINUTE);
    assert_eq!(reserved(&fake), ["n0"], "now for the other gang");
    // The first reservation would have ended by now.
    fake.advance(6 * MINUTE);
    assert_eq!(reserved(&fake), ["n0"]);
}

fn is_reserved(fake: &FakeCluster) -> bool {
    fake.engine.engine().node_views().any(|node| node.reservation_priority().is_some())
}

#[test]
fn failed_reservation_is_retried() {
    let mut fake = FakeCluster::with(Config { reservation_nodes_percent_max: 100, ..Config::default() });
    for node in 0..2 {
        fake.node(&format!("n{node}"), 4);
    }
    fake.pods_of("s", "", 8, 1);
    fake.settle();
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 4);
    let (mut reservations, mut had) = (0, false);
    for _ in 0..48 * 12 {
        fake.advance(5 * MINUTE);
        let has = is_reserved(&fake);
        reservations += usize::from(has && !had);
        had = has;
    }
    assert!((2..10).contains(&reservations), "{reservations} reservations in two days");
}

#[test]
fn next_starving_gang_reserves_when_the_first_is_gone() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.pods_of("s", "", 4, 1);
    fake.settle();
    for name in ["g", "h"] {
        fake.gang(name, 1);
        fake.pods_of(name, name, 1, 4);
    }
    fake.advance(15 * MINUTE);
    assert!(is_reserved(&fake));
    fake.remove("g-0");
    fake.remove_group("g");
    fake.advance(MINUTE);
    assert!(!is_reserved(&fake), "the namespace pauses for as long as the reservation was held in vain");
    fake.advance(10 * MINUTE);
    assert!(is_reserved(&fake), "the other one has starved as long");
}

#[test]
fn reservations_that_expire_delay_no_other_namespace() {
    let mut fake = FakeCluster::with(Config { reservation_ms_max: 10 * MINUTE, ..Config::default() });
    fake.node("n0", 4);
    fake.pods_of("s", "", 4, 1);
    fake.settle();
    fake.gang("g", 1);
    fake.pods_of("g", "g", 1, 4);
    fake.advance(15 * MINUTE);
    assert!(is_reserved(&fake));
    let other = GroupKey { namespace: "other".into(), ..key("h") };
    fake.put_group(GroupSpec::gang(other.clone(), 1));
    fake.pod_with("h-0", "", 4, |pod| {
        pod.id = Arc::new(PodName { namespace: "other".into(), ..(*pod.id).clone() });
        pod.membership = Some(Membership::of(other));
    });
    fake.advance(9 * MINUTE);
    assert!(!is_reserved(&fake), "the first gang's reservation expired, and the second has not starved yet");
    fake.advance(2 * MINUTE);
    assert!(is_reserved(&fake), "the second gang's turn comes before the first namespace's pause is over");
    for name in ["s-0", "s-1", "s-2", "s-3"] {
        fake.remove(name);
    }
    fake.advance(MINUTE);
    assert_eq!((fake.bound_count("h"), fake.bound_count("g")), (1, 0));
}

#[test]
fn gang_that_waits_for_members_is_not_starving() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.pods_of("s", "", 4, 1);
    fake.settle();
    fake.gang("g", 2);
    fake.pod("g-0", "g", 2);
    fake.advance(15 * MINUTE);
    fake.pod("g-1", "g", 2);
    fake.advance(1_000);
    assert!(!is_reserved(&fake), "it has been schedulable for one second");
}

#[test]
fn gang_without_chance_does_not_block_other_reservations() {
    let config = Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        reservation_ms_max: 10 * MINUTE,
        ..Config::default()
    };
    let mut fake = FakeCluster::with(config);
    let kind = |name: &str| [("kind".to_owned(), name.to_owned())].into();
    for name in ["stuck", "drains"] {
        let allocatable = [("cpu".to_owned(), 2000), ("pods".to_owned(), 110)].into();
        fake.put_node(NodeSpec { name: name.into(), labels: kind(name), allocatable, ..NodeSpec::default() });
    }
    fake.pods_of("old", "", 4, 1);
    fake.settle();
    // The first in the queue only fits on nodes whose pods never end.
    for (name, node) in [("hopeless", "stuck"), ("other", "drains")] {
        fake.now += 1;
        fake.gang(name, 1);
        fake.pod_with(name, name, 2, |pod| {
            pod.class = Arc::new(ClassSpec { node_selector: kind(node), ..(*pod.class).clone() });
        });
    }
    fake.advance(2 * MINUTE);
    let is_reserved_node = |fake: &FakeCluster, node: &str| {
        fake.engine.engine().node_view(node).is_some_and(|node| node.reservation_priority().is_some())
    };
    assert!(is_reserved_node(&fake, "stuck"));
    let mut other_had_its_turn = false;
    for _ in 0..60 {
        fake.advance(MINUTE);
        other_had_its_turn |= is_reserved_node(&fake, "drains");
    }
    assert!(other_had_its_turn, "after a failed reservation it is another gang's turn");
}

#[test]
fn mixed_gang_reserves_a_node_for_all_of_it_and_keeps_its_age_when_resized() {
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: 10 * MINUTE,
        ..Config::default()
    });
    fake.node("n0", 2);
    fake.pods_of("old", "", 2, 1);
    fake.settle();
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 1);
    let uid = fake.uid("g-0");
    for number in 0..3 {
        fake.change(&uid, |pod| {
            let scoring_cpu_milli = number;
            pod.class = Arc::new(ClassSpec { scoring_cpu_milli, ..(*pod.class).clone() });
        });
        fake.advance(5 * MINUTE);
    }
    assert!(is_reserved(&fake));
}

#[test]
fn gang_with_failed_reservation_does_not_wait_for_gangs_without_chance() {
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        reservation_ms_max: 10 * MINUTE,
        ..Config::default()
    });
    fake.node("n0", 2);
    fake.pods_of("old", "", 2, 1);
    fake.settle();
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 1);
    fake.gang("never", 1);
    fake.pod("never", "never", 9);
    fake.basic("basic", None);
    fake.pod("basic", "basic", 1);
    let (mut reservations, mut had) = (0, false);
    for _ in 0..24 * 12 {
        fake.advance(5 * MINUTE);
        let has = is_reserved(&fake);
        reservations += usize::from(has && !had);
        had = has;
    }
    assert!(reservations > 1, "{reservations} reservations in a day");
}

#[test]
fn gang_with_nothing_to_drain_does_not_end_another_reservation() {
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        reservation_ms_max: 600 * MINUTE,
        ..Config::default()
    });
    fake.node("n0", 2);
    fake.pods_of("old", "", 2, 1);
    fake.settle();
    fake.gang("g", 2);
    fake.pods_of("g", "g", 2, 1);
    fake.advance(5 * MINUTE);
    assert!(is_reserved(&fake));
    // Higher priority, but only daemons block it, and they never end.
    let place = [("kind".to_owned(), "other".to_owned())];
    let allocatable = [("cpu".to_owned(), 2000), ("pods".to_owned(), 110)].into();
    let labels = place.clone().into();
    fake.put_node(NodeSpec { name: "n1".into(), labels, allocatable, ..NodeSpec::default() });
    bound_to(&mut fake, "daemon", "n1", 1, false);
    fake.gang("h", 1);
    fake.pod_with("h", "h", 2, |pod| {
        pod.priority = 5;
        pod.class = Arc::new(ClassSpec { node_selector: place.into(), ..(*pod.class).clone() });
    });
    for _ in 0..10 {
        fake.advance(MINUTE);
        assert_eq!(reserved(&fake), ["n0"]);
    }
}

/// A node with one pod of this lifetime that started so long ago, and a gang that needs all of it. Returns whether the
/// node is reserved for the gang.
fn is_reserved_beside(lifetime: Lifetime, ran_ms: Millis) -> bool {
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        ..Config::default()
    });
    fake.now = 100_000 * MINUTE;
    fake.node("n0", 3);
    let started = fake.now - ran_ms;
    fake.pod_with("old", "", 1, |pod| {
        pod.node = Some("n0".into());
        pod.phase = Phase::Running;
        pod.started_ms = Some(started);
        pod.lifetime = lifetime;
    });
    fake.gang("g", 3);
    fake.pods_of("g", "g", 3, 1);
    fake.advance(MINUTE);
    fake.pod("small", "", 1);
    fake.settle();
    let is_reserved = !reserved(&fake).is_empty();
    assert_eq!(fake.node_of("small").is_none(), is_reserved);
    is_reserved
}

#[test]
fn only_nodes_whose_pods_end_in_time_are_reserved() {
    const HOUR: Millis = 60 * MINUTE;
    assert!(!is_reserved_beside(Lifetime::Unlimited, MINUTE), "it never ends");
    assert!(is_reserved_beside(Lifetime::Deadline(2 * HOUR), HOUR + 2 * MINUTE));
    assert!(!is_reserved_beside(Lifetime::Deadline(3 * HOUR), HOUR + 2 * MINUTE), "after the reservation");
    assert!(is_reserved_beside(Lifetime::ToCompletion, MINUTE));
    assert!(!is_reserved_beside(Lifetime::ToCompletion, 48 * HOUR), "it is not expected to end within the hour");
}

#[test]
fn pods_that_can_be_preempted_come_free() {
    let mut fake = FakeCluster::with(Config {
        reservation_nodes_percent_max: 100,
        starving_after_ms: MINUTE,
        ..Config::default()
    });
    fake.node("n0", 2);
    for (name, priority) in [("low", 0), ("equal", 10)] {
        fake.pod_with(name, "", 1, |pod| {
            pod.node = Some("n0".into());
            pod.priority = priority;
            pod.lifetime = if priority == 0 { Lifetime::Unlimited } else { Lifetime::ToCompletion };
        });
    }
    fake.put_group(GroupSpec { priority: GroupPriority::Own(10), ..GroupSpec::gang(key("g"), 2) });
    fake.pods_of("g", "g", 2, 1);
    fake.advance(2 * MINUTE);
    assert_eq!(reserved(&fake), ["n0"], "one ends by itself, the other can be preempted then");
}

#[test]
fn gang_that_must_not_be_beside_pods_without_an_end_reserves_nothing() {
    for (lifetime, expected) in [(Lifetime::Unlimited, 0), (Lifetime::ToCompletion, 2)] {
        let mut fake = FakeCluster::with(Config {
            reservation_nodes_percent_max: 100,
            starving_after_ms: MINUTE,
            ..Config::default()
        });
        for name in ["n0", "n1"] {
            node(&mut fake, name, "z", 4);
            fake.pod_with(&format!("tiny-{name}"), "", 0, |pod| {
                pod.node = Some(name.into());
                pod.lifetime = lifetime;
                set_app(pod, "tiny", None);
            });
        }
        let terms = InterPodConstraints { required_anti_affinity: vec![app("tiny", HOST)], ..Default::default() };
        gang_with(&mut fake, "g", 6, &terms);
        fake.advance(2 * MINUTE);
        assert_eq!(reserved(&fake).len(), expected, "{lifetime:?}");
    }
}

#[test]
fn what_a_reservation_keeps_from_others_is_no_demand() {
    let mut fake = starving_gang(60 * MINUTE);
    fake.remove("old-0");
    fake.pod("single", "", 1);
    fake.put_group(GroupSpec::gang(key("other"), 2));
    fake.pods_of("o", "other", 2, 1);
    fake.advance(MINUTE);
    let Diagnosis::PodUnschedulable { fit, .. } = fake.pod_diagnosis("single") else { panic!("unschedulable") };
    assert_eq!(fit.reserved_only, 1);
    let report = fake.reports.iter().rfind(|report| report.subject == Subject::Group(key("other")));
    let verdicts: Vec<MemberVerdict> = report.into_iter().flat_map(|report| &report.members).map(|one| one.1).collect();
    assert_eq!(verdicts, [MemberVerdict::ScaleUpWouldNotHelp, MemberVerdict::NoRoom], "one has room there");
}

#[test]
fn gang_that_needs_more_than_its_share_of_the_nodes_reserves_nothing() {
    for (percent, expected) in [(50, 0), (100, 4)] {
        let mut fake = FakeCluster::with(Config {
            reservation_nodes_percent_max: percent,
            starving_after_ms: MINUTE,
            ..Config::default()
        });
        for number in 0..4 {
            fake.node(&format!("n{number}"), 2);
            bound_to(&mut fake, &format!("old-{number}"), &format!("n{number}"), 1, true);
        }
        fake.gang("g", 4);
        fake.pods_of("g", "g", 4, 2);
        fake.advance(5 * MINUTE);
        assert_eq!(reserved(&fake).len(), expected, "{percent} percent");
    }
}

#[test]
fn gang_that_is_deleted_and_created_again_does_not_reserve_at_once() {
    let mut fake = starving_gang(10 * MINUTE);
    let mut held = 0;
    for round in 0..60 {
        // As soon as it has reserved its node, the gang is deleted and created again.
        if !reserved(&fake).is_empty() {
            for pod in ["g-0", "g-1"] {
                fake.remove(pod);
            }
            fake.pods_of("g", "g", 2, 1);
        }
        for _ in 0..10 {
            fake.advance(MINUTE);
            held += usize::from(!reserved(&fake).is_empty());
        }
        assert!(held <= 10 * (round + 1), "{held}");
    }
    assert!(held < 100, "the node was reserved in {held} of 600 minutes");
}
