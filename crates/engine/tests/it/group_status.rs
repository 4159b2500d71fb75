//! The status that the engine derives for a group: it says nothing that is not true any more, and nothing that the engine
//! does not know.

use muster_engine::Command;
use muster_engine::model::group::{DegradedPolicy, DisruptionMode, GroupPriority, GroupSpec, RecordedStart, Subset};
use muster_engine::model::pod::Phase;
use muster_engine::status::{Completion, EvictionStatus, GroupStatus, Health, ScheduledStatus, StartStatus};

use crate::fake_cluster::{FakeCluster, key, started};

const HOUR_MS: u64 = 3_600_000;

fn status(fake: &FakeCluster) -> GroupStatus<'_> {
    fake.engine.engine().group_status(&key("g"))
}

fn nodes_of_one(count: usize) -> FakeCluster {
    let mut fake = FakeCluster::new();
    fake.now = 10 * HOUR_MS;
    for number in 0..count {
        fake.node(&format!("n{number}"), 1);
    }
    fake
}

fn running_gang(spec: GroupSpec, pods: usize) -> FakeCluster {
    let mut fake = nodes_of_one(pods);
    fake.put_group(spec);
    fake.pods_of("p", "g", pods, 1);
    fake.settle();
    assert_eq!(fake.bound().len(), pods);
    fake
}

#[test]
fn report_about_an_ended_start_is_not_shown_for_the_next_one() {
    let mut fake = running_gang(GroupSpec::gang(key("g"), 2), 2);
    assert!(matches!(status(&fake).scheduled, ScheduledStatus::Reported(_)));
    for pod in fake.bound() {
        fake.remove(&pod);
    }
    let now = status(&fake);
    assert_eq!((&now.scheduled, &now.start), (&ScheduledStatus::NoMembers, &StartStatus::NotStarted));
    assert_eq!(now.health, Some(Health::NothingLeft));
    fake.pod("q", "g", 1);
    assert_eq!(status(&fake).scheduled, ScheduledStatus::Unchanged, "one of two is there");
}

#[test]
fn group_that_is_below_a_raised_minimum_is_not_found_scheduled() {
    for (minimum, found) in [(2, ScheduledStatus::Started), (4, ScheduledStatus::Unchanged)] {
        let mut fake = running_gang(GroupSpec::gang(key("g"), 2), 2);
        fake.gang("g", minimum);
        fake.groups.get_mut(&key("g")).expect("the group").recorded = started(2, None);
        fake.restart();
        let now = status(&fake);
        assert_eq!(now.scheduled, found, "minimum {minimum}");
        let two = vec![Subset { name: String::new(), min_member: 2 }];
        assert_eq!(now.start, StartStatus::Started { minimum: two, decided_ms: None });
    }
}

/// The status of the next start could not be written before the process ended.
#[test]
fn recorded_start_of_which_no_member_is_left_does_not_count() {
    for is_left in [false, true] {
        let mut fake = nodes_of_one(3);
        let now = fake.now;
        fake.put_group(GroupSpec { recorded: started(3, Some(1_000)), ..GroupSpec::gang(key("g"), 3) });
        for (name, decided_ms) in [("a-new", now - 1_000), ("b-old", 1_000)].into_iter().take(1 + usize::from(is_left))
        {
            let stamp = fake.stamp("g", decided_ms);
            fake.pod_with(name, "g", 1, |pod| {
                pod.node = Some(format!("n{}", usize::from(name == "b-old")));
                pod.start = Some(stamp.into());
            });
        }
        fake.pod("waiting", "g", 1);
        fake.decide_all();
        let joined = fake.in_flight.iter().any(|command| matches!(command, Command::Bind { .. }));
        assert_eq!(joined, is_left, "a member joins one by one only if the group has started");
        assert_eq!(status(&fake).start == StartStatus::Open, !is_left);
    }
}

#[test]
fn nothing_is_left_of_a_gang_whose_object_cannot_be_used() {
    let mut fake = running_gang(GroupSpec::gang(key("g"), 2), 2);
    fake.remove_group("g");
    assert!(matches!(status(&fake).start, StartStatus::Started { .. }), "what it was holds");
    for pod in fake.bound() {
        fake.remove(&pod);
    }
    fake.pod("waiting", "g", 1);
    let now = status(&fake);
    assert_eq!((now.start, now.health), (StartStatus::NotStarted, Some(Health::NothingLeft)));
}

#[test]
fn group_that_was_given_up_has_not_completed() {
    let spec = GroupSpec { degraded_policy: DegradedPolicy::Evict, ..GroupSpec::gang(key("g"), 3) };
    let mut fake = running_gang(spec, 3);
    fake.phase("p-0", Phase::Failed);
    fake.advance(HOUR_MS);
    let now = status(&fake);
    assert_eq!((&now.start, now.completion), (&StartStatus::GivenUp, None), "one failed pod is all that is left");
    let recorded = now.start.recorded(&RecordedStart::None);
    fake.groups.get_mut(&key("g")).expect("the group").recorded = recorded;
    fake.restart();
    assert_eq!((&status(&fake).start, status(&fake).completion), (&StartStatus::GivenUp, None));
    fake.pods_of("q", "g", 3, 1);
    fake.settle();
    assert!(matches!(status(&fake).start, StartStatus::Started { .. }));
    assert_eq!(status(&fake).completion, Some(Completion::NotFinished));
}

#[test]
fn preemptor_is_forgotten_when_a_group_is_spared_or_back_on_nodes() {
    for ours in [true, false] {
        let mut fake = nodes_of_one(2);
        let mode = DisruptionMode::Group;
        let own = GroupPriority::Own(0);
        fake.put_group(GroupSpec { disruption_mode: mode, priority: own, ..GroupSpec::gang(key("g"), 2) });
        for number in 0..2 {
            fake.pod_with(&format!("p-{number}"), "g", 1, |pod| {
                pod.ours = ours;
                pod.node = Some(format!("n{number}"));
            });
        }
        fake.pod_with("high", "", 1, |pod| pod.priority = 100);
        fake.decide_all();
        assert_eq!(status(&fake).eviction, Some(EvictionStatus::Ordered));
        fake.settle();
        assert!(matches!(status(&fake).eviction, Some(EvictionStatus::Evicted { .. })), "ours: {ours}");
        let node = fake.node_of("high").expect("it is bound");
        let free = if node == "n0" { "n1" } else { "n0" };
        fake.pod_with("back", "g", 1, |pod| {
            pod.ours = ours;
            pod.node = Some(free.to_owned());
        });
        assert_eq!(status(&fake).eviction, Some(EvictionStatus::NotEvicted));
        fake.remove("back");
        assert_eq!(status(&fake).eviction, None, "nobody evicted it this time");
    }
}

#[test]
fn group_of_a_new_leader_knows_nothing_of_the_former_one() {
    let object =
        |uid: &str| GroupSpec { owner: Some(uid.to_owned()), uid: uid.to_owned(), ..GroupSpec::gang(key("g"), 2) };
    for was_seen in [true, false] {
        let mut fake = running_gang(object("first"), 2);
        fake.pod("waiting", "g", 1);
        if !was_seen {
            fake.remove_group("g");
        }
        for pod in fake.bound() {
            fake.remove(&pod);
        }
        fake.put_group(object("second"));
        let now = status(&fake);
        assert_eq!((now.start, now.scheduled), (StartStatus::NotStarted, ScheduledStatus::Unchanged));
    }
}
