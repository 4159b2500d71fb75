//! Trees that are made up of groups with parents: parts that come late, are missing, invalid or gone.

use muster_engine::diagnosis::Waiting;
use muster_engine::model::group::{DisruptionMode, GroupPriority, GroupSpec, Policy, RecordedStart};
use muster_engine::status::{ScheduledStatus, StartStatus};
use muster_engine::{Diagnosis, Subject};

use crate::fake_cluster::{FakeCluster, key};

fn part(name: &str, parent: &str, policy: Policy) -> GroupSpec {
    let parent = (!parent.is_empty()).then(|| key(parent));
    GroupSpec { parent, ..GroupSpec::with_policy(key(name), policy) }
}

fn groups(fake: &mut FakeCluster, name: &str, parent: &str, min_groups: u32) {
    fake.put_group(part(name, parent, Policy::Groups { min_groups }));
}

fn gang(fake: &mut FakeCluster, name: &str, parent: &str, min_count: u32) {
    fake.put_group(part(name, parent, Policy::Gang { min_count }));
}

fn diagnosis(fake: &FakeCluster, name: &str) -> String {
    let subject = Subject::Group(key(name));
    let reports = fake.reports.iter().rev();
    let report = reports.into_iter().find(|report| report.subject == subject).expect("it was reported");
    report.diagnosis.to_string()
}

#[test]
fn leaf_that_comes_first_waits_for_its_parents() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    gang(&mut fake, "a", "inner", 2);
    fake.pods_of("a", "a", 2, 1);
    fake.advance(10_000);
    assert_eq!(diagnosis(&fake, "a"), "Waiting for the parent group ns/inner: no such object.");
    groups(&mut fake, "inner", "root", 1);
    fake.advance(10_000);
    assert_eq!(diagnosis(&fake, "a"), "Waiting for the parent group ns/root: no such object.");
    assert_eq!(fake.bound().len(), 0);
    groups(&mut fake, "root", "", 1);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("a"), 2);
    assert_eq!(diagnosis(&fake, "a"), "2 pods are bound, 2 are needed.");
}

#[test]
fn leaf_joins_a_tree_that_has_started() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    groups(&mut fake, "root", "", 1);
    gang(&mut fake, "a", "root", 2);
    fake.pods_of("a", "a", 2, 1);
    fake.settle();
    fake.pods_of("b", "b", 2, 1);
    fake.settle();
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (2, 0));
    gang(&mut fake, "b", "root", 2);
    fake.settle();
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (2, 2));
}

#[test]
fn restarted_engine_finds_the_tree_and_what_of_it_has_started() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    groups(&mut fake, "root", "", 1);
    gang(&mut fake, "a", "root", 2);
    gang(&mut fake, "b", "root", 2);
    fake.pods_of("a", "a", 2, 1);
    fake.pods_of("b", "b", 2, 1);
    fake.advance(10_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (2, 0));
    assert!(matches!(fake.groups[&key("a")].recorded, RecordedStart::Confirmed { .. }));
    assert_eq!(fake.groups[&key("b")].recorded, RecordedStart::None);
    fake.restart();
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (2, 0));
    let status = |fake: &FakeCluster, name: &str| fake.engine.engine().group_status(&key(name)).start;
    assert!(matches!(status(&fake, "a"), StartStatus::Started { .. }));
    assert_eq!(status(&fake, "b"), StartStatus::NotStarted);
    // A lost pod is replaced alone.
    fake.remove("a-0");
    fake.pod("a-2", "a", 1);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (2, 0));
}

#[test]
fn pods_go_on_when_the_objects_of_their_tree_are_gone() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    groups(&mut fake, "root", "", 1);
    groups(&mut fake, "inner", "root", 1);
    gang(&mut fake, "a", "inner", 2);
    fake.pods_of("a", "a", 2, 1);
    fake.advance(10_000);
    for name in ["inner", "root", "a"] {
        fake.remove_group(name);
    }
    fake.pod("late", "a", 1);
    fake.advance(600_000);
    assert_eq!((fake.bound_count("a-"), fake.bound_count("late")), (2, 0));
    groups(&mut fake, "root", "", 1);
    groups(&mut fake, "inner", "root", 1);
    gang(&mut fake, "a", "inner", 2);
    fake.advance(10_000);
    assert_eq!((fake.bound_count("a-"), fake.bound_count("late")), (2, 1));
}

#[test]
fn objects_without_pods_leave_nothing_behind() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    groups(&mut fake, "root", "", 1);
    gang(&mut fake, "a", "root", 2);
    fake.pods_of("a", "a", 2, 1);
    fake.advance(10_000);
    fake.remove("a-0");
    fake.remove("a-1");
    fake.remove_group("a");
    fake.remove_group("root");
    fake.advance(10_000);
    assert_eq!(fake.engine.engine().group_views().count(), 0);
}

#[test]
fn group_below_the_priority_of_its_parent_is_refused() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    let with = |spec: GroupSpec, own| GroupSpec { priority: GroupPriority::Own(own), ..spec };
    fake.put_group(with(part("root", "", Policy::Groups { min_groups: 1 }), 10));
    fake.put_group(with(part("a", "root", Policy::Gang { min_count: 1 }), 5));
    fake.pods_of("a", "a", 1, 1);
    fake.advance(10_000);
    assert_eq!(diagnosis(&fake, "a"), "The group's priority (5): a group has at least the priority of its parent.");
    assert_eq!(fake.bound().len(), 0);
    // The root itself has nothing to schedule.
    assert_eq!(fake.engine.engine().group_status(&key("root")).scheduled, ScheduledStatus::NoMembers);
}

#[test]
fn composite_group_without_its_parent_says_so() {
    let mut fake = FakeCluster::new();
    groups(&mut fake, "inner", "root", 1);
    fake.advance(1_000);
    let waiting = Diagnosis::Waiting(Waiting::Parent { parent: "ns/root".into() });
    assert_eq!(fake.engine.engine().group_status(&key("inner")).scheduled, ScheduledStatus::Incomplete(waiting));
}

#[test]
fn each_group_of_a_tree_has_its_own_status() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    groups(&mut fake, "root", "", 1);
    gang(&mut fake, "a", "root", 2);
    gang(&mut fake, "b", "root", 2);
    fake.pods_of("a", "a", 2, 1);
    fake.pods_of("b", "b", 2, 1);
    fake.advance(10_000);
    let engine = fake.engine.engine();
    let (a, b, root) =
        (engine.group_status(&key("a")), engine.group_status(&key("b")), engine.group_status(&key("root")));
    assert_eq!((a.counts.scheduled, b.counts.scheduled, root.counts.scheduled), (2, 0, 2));
    let ScheduledStatus::OfTree(a) = a.scheduled else { panic!("{:?}", a.scheduled) };
    let ScheduledStatus::OfTree(b) = b.scheduled else { panic!("{:?}", b.scheduled) };
    assert_eq!((a.group_reason(), b.group_reason()), ("Scheduled", "Unschedulable"));
}

#[test]
fn part_of_a_tree_is_evicted_together_and_the_rest_stays() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 5);
    let with = |spec: GroupSpec, own| GroupSpec { priority: GroupPriority::Own(own), ..spec };
    fake.put_group(with(part("root", "", Policy::Groups { min_groups: 2 }), 1));
    // The leader is better protected than its workers, which go together.
    fake.put_group(with(part("leader", "root", Policy::Gang { min_count: 1 }), 100));
    let workers = with(part("workers", "root", Policy::Gang { min_count: 3 }), 1);
    fake.put_group(GroupSpec { disruption_mode: DisruptionMode::Group, ..workers });
    fake.pods_of("leader", "leader", 1, 1);
    fake.pods_of("workers", "workers", 3, 1);
    fake.advance(10_000);
    assert_eq!(fake.bound().len(), 4);
    fake.pod_with("high", "", 3, |pod| pod.priority = 50);
    fake.advance(10_000);
    let mut evicted = fake.evicted();
    evicted.sort();
    assert_eq!(evicted, ["workers-0", "workers-1", "workers-2"], "two would have been enough");
    assert_eq!((fake.bound_count("leader"), fake.bound_count("high")), (1, 1));
    fake.pod_with("higher", "", 2, |pod| pod.priority = 99);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("leader"), 1, "its own priority is higher");
    fake.pod_with("highest", "", 5, |pod| pod.priority = 101);
    fake.advance(10_000);
    assert_eq!((fake.bound_count("highest"), fake.bound_count("leader")), (1, 0));
}

#[test]
fn tree_whose_objects_are_gone_is_forgotten_with_its_last_pod() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    groups(&mut fake, "root", "", 1);
    gang(&mut fake, "a", "root", 2);
    fake.pods_of("a", "a", 2, 1);
    fake.advance(10_000);
    fake.remove_group("root");
    fake.remove_group("a");
    fake.remove("a-0");
    fake.remove("a-1");
    fake.advance(10_000);
    assert_eq!(fake.engine.engine().group_views().count(), 0);
    // The same names mean a new tree.
    gang(&mut fake, "a", "other", 1);
    fake.pods_of("b", "a", 1, 1);
    fake.advance(10_000);
    assert_eq!(
        (diagnosis(&fake, "a"), fake.bound_count("b")),
        ("Waiting for the parent group ns/other: no such object.".to_owned(), 0)
    );
}
