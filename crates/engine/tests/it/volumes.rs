//! Volumes: where pods with claims may go, and claims that are bound before any pod of a gang.

use muster_engine::diagnosis::Waiting;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::storage::{
    AccessMode, AttachmentSpec, CapacitySpec, DriverSpec, NamedDisk, NodeDriversSpec, StorageObservation,
    StorageWriteOutcome, VolumeSpec, VolumeTopology,
};
use muster_engine::{Command, Config, Diagnosis, Observation, VolumeEvent};

use crate::fake_cluster::{FakeCluster, cpus};
use crate::fake_storage::{Provisioner, kind, on_label};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const NONE: &str = "kubernetes.io/no-provisioner";

/// Nodes `n0`, `n1`, ... with this many CPUs, in these zones.
fn cluster(zones: &[&str], cpus: i64) -> FakeCluster {
    let mut fake = FakeCluster::new();
    for (number, zone) in zones.iter().enumerate() {
        let name = format!("n{number}");
        let allocatable =
            [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)].into();
        let labels = [(ZONE.to_owned(), (*zone).to_owned()), (HOST.to_owned(), name.clone())].into();
        fake.put_node(NodeSpec { name, labels, allocatable, ..NodeSpec::default() });
    }
    fake
}

/// A gang of pods `a-0`, ... with a claim `c-0`, ... each.
fn gang_with_claims(fake: &mut FakeCluster, members: u32, class: &str) {
    fake.gang("g", members);
    for number in 0..members {
        fake.claim(&format!("c-{number}"), class, 10);
        fake.pod_with_claims(&format!("a-{number}"), "g", &[&format!("c-{number}")]);
    }
}

fn storage_writes(fake: &FakeCluster) -> usize {
    let is_write = |act: &&Command| matches!(act, Command::ReserveVolume { .. } | Command::SelectNode { .. });
    fake.issued.iter().filter(is_write).count()
}

#[test]
fn pod_with_a_first_consumer_claim_is_bound_after_its_volume_is_provisioned() {
    let mut fake = cluster(&["a"], 4);
    fake.storage_class("fast", "example.com/csi");
    fake.claim("c", "fast", 10);
    fake.storage.held.insert("c".into());
    fake.pod_with_claims("p", "", &["c"]);
    fake.settle();
    assert_eq!(fake.bound(), [""; 0], "its claim is not bound");
    assert!(matches!(fake.issued.last(), Some(Command::SelectNode { node, .. }) if **node == *"n0"));
    fake.advance(6_000);
    assert!(matches!(fake.pod_diagnosis("p"), Diagnosis::Waiting(Waiting::Volumes { claims: 1, .. })));
    fake.storage.held.clear();
    fake.run_storage_controllers("c");
    fake.settle();
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn the_smallest_volume_that_is_large_enough_is_reserved() {
    let mut fake = cluster(&["a"], 4);
    fake.storage_class("local", NONE);
    for (name, bytes) in [("large", 30), ("small", 5), ("right", 10), ("other", 12)] {
        fake.volume(name, "local", bytes, VolumeTopology::default());
    }
    fake.claim("c", "local", 10);
    fake.pod_with_claims("p", "", &["c"]);
    fake.settle();
    assert_eq!(fake.bound(), ["p"]);
    assert_eq!(fake.storage.claims["c"].volume, "right");
}

#[test]
fn a_volume_that_is_reserved_already_does_not_keep_others_from_being_provisioned() {
    let mut fake = cluster(&["a"], 4);
    fake.storage_class("fast", "example.com/csi");
    for claim in ["made", "reserved"] {
        fake.claim(claim, "fast", 10);
        fake.storage.held.insert(claim.into());
    }
    let reserved_for = fake.storage.claims["reserved"].id.clone();
    fake.put_volume(VolumeSpec {
        name: "volume".into(),
        kind: kind("fast", AccessMode::ReadWriteOnce),
        capacity_bytes: 10,
        claim: Some((*reserved_for).clone()),
        ..VolumeSpec::default()
    });
    fake.pod_with_claims("p", "", &["made", "reserved"]);
    fake.settle();
    assert!(matches!(fake.issued.last(), Some(Command::SelectNode { claim, .. }) if claim.name == "made"));
}

/// Zone `a` has two nodes and volumes of two sizes, zone `b` one node and volumes of one size between these.
fn cluster_with_volumes_of_three_sizes(weight: i64) -> FakeCluster {
    let mut config = Config::default();
    config.profiles[0].scoring.weight_volume_binding = weight;
    let mut fake = FakeCluster::with(config);
    fake.storage_class("local", NONE);
    for (name, zone, bytes) in
        [("full", "a", 10), ("huge", "a", 1000), ("half-1", "b", 20), ("half-2", "b", 20), ("half-3", "b", 20)]
    {
        fake.volume(name, "local", bytes, on_label(ZONE, zone));
    }
    for (number, zone) in ["a", "a", "b"].into_iter().enumerate() {
        put_one_cpu_node(&mut fake, number, zone, false);
    }
    fake
}

fn put_one_cpu_node(fake: &mut FakeCluster, number: usize, zone: &str, unschedulable: bool) {
    let name = format!("n{number}");
    let cpus = if zone == "a" { 1 } else { 8 };
    let allocatable =
        [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)].into();
    let labels = [(ZONE.to_owned(), zone.to_owned()), (HOST.to_owned(), name.clone())].into();
    fake.put_node(NodeSpec { name, labels, allocatable, unschedulable, ..NodeSpec::default() });
}

fn place_pod_with_claim(fake: &mut FakeCluster, name: &str) -> Option<String> {
    fake.claim(name, "local", 10);
    fake.pod_with_claims(name, "", &[name]);
    fake.settle();
    fake.node_of(name)
}

#[test]
fn node_whose_storage_is_left_free_is_preferred_also_after_others_have_taken_some() {
    let mut fake = cluster_with_volumes_of_three_sizes(100);
    assert_eq!(
        place_pod_with_claim(&mut fake, "first").as_deref(),
        Some("n2"),
        "half of a volume is less than all of one"
    );
    put_one_cpu_node(&mut fake, 2, "b", true);
    assert_eq!(place_pod_with_claim(&mut fake, "second").as_deref(), Some("n0"));
    put_one_cpu_node(&mut fake, 2, "b", false);
    assert_eq!(place_pod_with_claim(&mut fake, "third").as_deref(), Some("n1"), "the next volume there is huge");
}

#[test]
fn without_its_weight_free_storage_does_not_matter() {
    let mut fake = cluster_with_volumes_of_three_sizes(0);
    put_one_cpu_node(&mut fake, 2, "b", true);
    assert_eq!(place_pod_with_claim(&mut fake, "first").as_deref(), Some("n0"));
    put_one_cpu_node(&mut fake, 2, "b", false);
    assert_eq!(place_pod_with_claim(&mut fake, "second").as_deref(), Some("n2"), "it is emptier");
    assert_eq!(place_pod_with_claim(&mut fake, "third").as_deref(), Some("n2"));
}

#[test]
fn no_member_is_bound_before_all_claims_of_the_minimum_are() {
    let mut fake = cluster(&["a", "b"], 2);
    fake.storage_class("fast", "example.com/csi");
    gang_with_claims(&mut fake, 4, "fast");
    fake.storage.held.insert("c-3".into());
    fake.settle();
    assert_eq!(storage_writes(&fake), 4, "all at once");
    assert_eq!(fake.bound(), [""; 0]);
    fake.advance(6_000);
    assert!(matches!(fake.group_diagnosis("g"), Diagnosis::Waiting(Waiting::Volumes { claims: 1, .. })));
    fake.storage.held.clear();
    fake.run_storage_controllers("c-3");
    fake.settle();
    assert_eq!(fake.bound_count("a"), 4);
    assert_eq!(fake.reasons("g").last(), Some(&"Scheduled"));
}

#[test]
fn a_refused_claim_keeps_the_whole_gang_from_being_bound_and_the_next_decision_uses_what_was_made() {
    let mut fake = cluster(&["a", "a", "b", "b"], 1);
    fake.storage_class("fast", "example.com/csi");
    fake.storage.provisioner = Provisioner::MakesFor(ZONE);
    gang_with_claims(&mut fake, 3, "fast");
    fake.storage.held.insert("c-2".into());
    fake.settle();
    let refused_node = fake.storage.claims["c-2"].selected_node.clone();
    fake.storage.held.clear();
    fake.storage.provisioner = Provisioner::Refuses;
    fake.run_storage_controllers("c-2");
    assert_eq!(fake.bound(), [""; 0], "nothing is bound");
    fake.storage.provisioner = Provisioner::MakesFor(ZONE);
    fake.advance(60_000);
    let refusal = Diagnosis::VolumeBindFailed {
        claim: "ns/c-2".to_owned(),
        node: refused_node.clone(),
        message: "the provisioner example.com/csi refused to make a volume for the node".to_owned(),
    };
    assert!(fake.reports.iter().any(|report| report.diagnosis == refusal), "the refusal is reported");
    assert_eq!(fake.bound_count("a"), 3);
    assert_ne!(fake.node_of("a-2"), Some(refused_node), "the node that was refused is avoided");
}

#[test]
fn a_silent_provisioner_ends_the_placement_at_the_deadline() {
    let mut fake = cluster(&["a"], 2);
    fake.storage_class("fast", "example.com/csi");
    fake.storage.provisioner = Provisioner::Silent;
    gang_with_claims(&mut fake, 2, "fast");
    fake.pod("other", "", 1);
    fake.settle();
    assert_eq!(fake.bound(), [""; 0], "its places are taken");
    fake.advance(601_000);
    assert_eq!(fake.bound(), ["other"]);
    let late = fake.reports.iter().find_map(|report| match &report.diagnosis {
        Diagnosis::VolumeBindFailed { message, .. } => Some(message.clone()),
        _ => None,
    });
    assert_eq!(late.as_deref(), Some("the provisioner example.com/csi made no volume in time"));
}

#[test]
fn waits_for_volumes_and_their_failures_are_counted() {
    let mut fake = cluster(&["a"], 3);
    fake.storage_class("fast", "example.com/csi");
    gang_with_claims(&mut fake, 2, "fast");
    fake.storage.held.extend(["c-0".into(), "c-1".into()]);
    fake.settle();
    fake.advance(3_000);
    fake.storage.held.clear();
    fake.run_storage_controllers("c-0");
    fake.run_storage_controllers("c-1");
    fake.settle();
    assert_eq!(fake.bound_count("a"), 2);
    assert_eq!(fake.storage.events, vec![VolumeEvent::Waited { ms: 3_000, bound: true }; 2]);
    fake.storage.events.clear();
    fake.storage.provisioner = Provisioner::Silent;
    fake.claim("c-late", "fast", 10);
    fake.pod_with_claims("late", "", &["c-late"]);
    fake.advance(600_000);
    let failed = VolumeEvent::Failed { claim: "ns/c-late".to_owned(), provisioner: "example.com/csi".to_owned() };
    let given_up = VolumeEvent::Waited { ms: 600_000, bound: false };
    assert_eq!(fake.storage.events, [failed, given_up]);
}

#[test]
fn a_surplus_member_whose_claim_is_stuck_does_not_hold_back_the_minimum() {
    let mut fake = cluster(&["a"], 4);
    fake.storage_class("fast", "example.com/csi");
    gang_with_claims(&mut fake, 3, "fast");
    fake.gang("g", 2);
    fake.storage.held.insert("c-0".into());
    fake.settle();
    assert_eq!(fake.bound(), ["a-1", "a-2"]);
    fake.advance(700_000);
    assert_eq!(fake.bound(), ["a-1", "a-2"]);
}

#[test]
fn a_shared_claim_is_provisioned_once_and_before_all_others() {
    let mut fake = cluster(&["a", "a", "a"], 1);
    fake.storage_class("shared", "example.com/nfs");
    fake.storage_class("fast", "example.com/csi");
    fake.claim_with("data", "shared", 10, |claim| claim.kind = kind("shared", AccessMode::ReadWriteMany));
    fake.gang("g", 3);
    for number in 0..3 {
        fake.claim(&format!("c-{number}"), "fast", 10);
        fake.pod_with_claims(&format!("a-{number}"), "g", &["data", &format!("c-{number}")]);
    }
    fake.storage.held.insert("data".into());
    fake.settle();
    assert_eq!(storage_writes(&fake), 1, "the shared claim alone");
    fake.storage.held.clear();
    fake.run_storage_controllers("data");
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3, "a gang larger than one node");
}

#[test]
fn a_shared_volume_that_turns_out_to_be_in_one_zone_moves_the_gang_there() {
    let mut fake = cluster(&["a", "b", "b", "b"], 1);
    fake.storage_class("shared", "example.com/nfs");
    fake.storage.provisioner = Provisioner::MakesElsewhere("b");
    fake.claim_with("data", "shared", 10, |claim| claim.kind = kind("shared", AccessMode::ReadWriteMany));
    fake.gang("g", 3);
    for number in 0..3 {
        fake.pod_with_claims(&format!("a-{number}"), "g", &["data"]);
    }
    fake.storage.held.insert("data".into());
    fake.settle();
    let claim = fake.storage.claims["data"].clone();
    fake.put_volume(VolumeSpec {
        name: "v".into(),
        kind: claim.kind.clone(),
        capacity_bytes: 10,
        topology: on_label(ZONE, "b"),
        claim: Some((*claim.id).clone()),
        ..VolumeSpec::default()
    });
    fake.storage.held.clear();
    fake.run_storage_controllers("data");
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 3);
    assert!((0..3).all(|number| fake.node_of(&format!("a-{number}")).is_some_and(|node| node != "n0")));
}

#[test]
fn volumes_of_a_gang_are_counted_together_and_a_lack_is_proven() {
    let mut fake = cluster(&["a", "a"], 8);
    fake.storage_class("local", NONE);
    for number in 0..3 {
        fake.volume(&format!("v-{number}"), "local", 10, on_label(ZONE, "a"));
    }
    gang_with_claims(&mut fake, 4, "local");
    fake.settle();
    assert_eq!((fake.bound_count("a"), storage_writes(&fake)), (0, 0));
    assert_eq!(fake.group_diagnosis("g").group_reason(), "Unschedulable");
    let text = fake.group_diagnosis("g").to_string();
    assert!(text.contains("2 node(s) didn't find available persistent volumes to bind"), "{text}");
    fake.volume("v-3", "local", 10, on_label(ZONE, "b"));
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 0, "no node can access it");
    fake.volume("v-4", "local", 10, on_label(ZONE, "a"));
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 4);
}

#[test]
fn free_capacity_is_deducted_within_a_gang() {
    let mut fake = cluster(&["a", "b"], 8);
    fake.storage_class("pool", "example.com/csi");
    let driver = DriverSpec { name: "example.com/csi".into(), publishes_capacity: true, ..DriverSpec::default() };
    fake.put_storage(StorageObservation::DriverSeen(driver));
    let capacity = |zone: &str, bytes| {
        let nodes = on_label(ZONE, zone).required_terms.unwrap().remove(0).labels;
        let key = ("ns".to_owned(), zone.to_owned());
        let (nodes, capacity_bytes) = (Some(nodes), Some(bytes));
        CapacitySpec { key, storage_class: "pool".into(), nodes, capacity_bytes, volume_bytes_max: None }
    };
    fake.put_storage(StorageObservation::CapacitySeen(capacity("a", 25)));
    fake.put_storage(StorageObservation::CapacitySeen(capacity("b", 5)));
    gang_with_claims(&mut fake, 3, "pool");
    fake.settle();
    assert_eq!(storage_writes(&fake), 0, "two of them would fit");
    let text = fake.group_diagnosis("g").to_string();
    assert!(text.contains("node(s) did not have enough free storage"), "{text}");
    fake.put_storage(StorageObservation::CapacitySeen(capacity("b", 15)));
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 3);
}

#[test]
fn a_node_attaches_no_more_volumes_than_it_can() {
    let mut fake = cluster(&["a", "a"], 8);
    let driver = "example.com/csi";
    for (node, limit) in [("n0", 2), ("n1", 1)] {
        let drivers = [(driver.to_owned(), Some(limit))].into();
        fake.put_storage(StorageObservation::NodeDriversSeen(NodeDriversSpec { node: node.into(), drivers }));
    }
    fake.storage_class("fast", driver);
    gang_with_claims(&mut fake, 4, "fast");
    fake.settle();
    let text = fake.group_diagnosis("g").to_string();
    assert!(text.contains("node(s) exceed max volume count"), "{text}");
    assert!(text.starts_with("3 of 4"), "{text}");
    let drivers = [(driver.to_owned(), Some(3))].into();
    fake.put_storage(StorageObservation::NodeDriversSeen(NodeDriversSpec { node: "n0".into(), drivers }));
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 4);
}

#[test]
fn a_volume_that_is_still_attached_counts_until_it_is_detached() {
    let mut fake = cluster(&["a"], 8);
    let driver = "example.com/csi";
    let drivers = [(driver.to_owned(), Some(1))].into();
    fake.put_storage(StorageObservation::NodeDriversSeen(NodeDriversSpec { node: "n0".into(), drivers }));
    fake.put_volume(VolumeSpec {
        name: "old".into(),
        attached_by: Some((driver.into(), "handle".into())),
        ..VolumeSpec::default()
    });
    let attachment = AttachmentSpec { name: "att".into(), node: "n0".into(), volume: "old".into() };
    fake.put_storage(StorageObservation::AttachmentSeen(attachment));
    fake.storage_class("fast", driver);
    fake.claim("c", "fast", 1);
    fake.pod_with_claims("p", "", &["c"]);
    fake.settle();
    assert_eq!(fake.bound(), [""; 0]);
    fake.put_storage(StorageObservation::AttachmentGone("att".into()));
    fake.advance(20_000);
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn a_single_pod_claim_is_used_by_one_pod_at_a_time() {
    let mut fake = cluster(&["a", "a"], 8);
    fake.storage_class("fast", "example.com/csi");
    fake.claim_with("c", "fast", 1, |claim| claim.kind = kind("fast", AccessMode::ReadWriteOncePod));
    fake.pod_with_claims("p", "", &["c"]);
    fake.pod_with_claims("q", "", &["c"]);
    fake.settle();
    assert_eq!(fake.bound(), ["p"]);
    assert!(fake.pod_diagnosis("q").to_string().contains("ReadWriteOncePod access mode already in-use by another pod"));
    fake.remove("p");
    fake.advance(20_000);
    assert_eq!(fake.bound(), ["q"]);
}

#[test]
fn the_user_of_a_single_pod_claim_can_be_preempted() {
    let mut fake = cluster(&["a", "a"], 8);
    fake.storage_class("fast", "example.com/csi");
    fake.claim_with("c", "fast", 1, |claim| claim.kind = kind("fast", AccessMode::ReadWriteOncePod));
    fake.pod_with_claims("low", "", &["c"]);
    fake.settle();
    assert_eq!(fake.bound(), ["low"]);
    fake.pod_with("high", "", 1, |pod| {
        crate::fake_storage::use_claims(pod, &["c"]);
        pod.priority = 10;
    });
    fake.advance(20_000);
    assert_eq!((fake.evicted(), fake.bound()), (vec!["low".to_owned()], vec!["high".to_owned()]));
}

#[test]
fn disks_that_pods_name_are_shared_by_readers_only() {
    let mut fake = cluster(&["a"], 8);
    let disk = |id: &str, shared_by_readers| NamedDisk { ids: [id.to_owned()].into(), shared_by_readers };
    let with = |disk: NamedDisk| std::sync::Arc::new(ClassSpec { disks: vec![disk], ..cpus(1) });
    fake.pod_with("r1", "", 1, |pod| pod.class = with(disk("gce/d", true)));
    fake.pod_with("r2", "", 1, |pod| pod.class = with(disk("gce/d", true)));
    fake.pod_with("w", "", 1, |pod| pod.class = with(disk("gce/d", false)));
    fake.pod_with("other", "", 1, |pod| pod.class = with(disk("gce/e", false)));
    fake.settle();
    assert_eq!(fake.bound(), ["other", "r1", "r2"]);
    assert!(fake.pod_diagnosis("w").to_string().contains("node(s) had no available disk"));
}

#[test]
fn a_claim_that_cannot_be_used_holds_its_pod_with_the_words_of_kube_scheduler() {
    let mut fake = cluster(&["a"], 8);
    let text = |fake: &FakeCluster| fake.pod_diagnosis("p").to_string();
    fake.pod_with_claims("p", "", &["c"]);
    fake.settle();
    assert!(text(&fake).contains("persistentvolumeclaim \"c\" not found"), "{}", text(&fake));
    fake.claim("c", "none", 1);
    fake.settle();
    assert!(text(&fake).contains("pod has unbound immediate PersistentVolumeClaims"), "{}", text(&fake));
    let claim = fake.storage.claims["c"].clone();
    fake.put_claim(muster_engine::model::storage::ClaimSpec {
        volume: "v".into(),
        bind_completed: true,
        ..claim.clone()
    });
    fake.settle();
    assert!(text(&fake).contains("persistentvolume \"v\" not found"), "{}", text(&fake));
    fake.volume("v", "none", 1, VolumeTopology::default());
    fake.advance(20_000);
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn a_restart_at_any_write_completes_the_gang_without_a_second_volume() {
    for crash_after in 0..8 {
        let mut fake = cluster(&["a", "b"], 2);
        fake.storage_class("fast", "example.com/csi");
        fake.storage_class("local", NONE);
        fake.storage.provisioner = Provisioner::MakesFor(ZONE);
        fake.volume("v", "local", 10, on_label(ZONE, "b"));
        fake.gang("g", 4);
        for number in 0..4 {
            let class = if number == 0 { "local" } else { "fast" };
            fake.claim(&format!("c-{number}"), class, 10);
            fake.pod_with_claims(&format!("a-{number}"), "g", &[&format!("c-{number}")]);
        }
        let mut done = 0;
        while done < crash_after {
            fake.decide_all();
            if fake.in_flight.is_empty() {
                break;
            }
            let command = fake.in_flight.remove(0);
            fake.execute(command);
            done += 1;
        }
        fake.restart();
        fake.advance(120_000);
        assert_eq!(fake.bound_count("a"), 4, "crashed after {crash_after} writes");
        assert_eq!(fake.storage.volumes.len(), 4, "crashed after {crash_after} writes");
    }
}

#[test]
fn a_write_that_fails_is_sent_again_and_a_conflict_is_decided_again() {
    let mut fake = cluster(&["a"], 4);
    fake.storage_class("fast", "example.com/csi");
    fake.claim("c", "fast", 1);
    fake.pod_with_claims("p", "", &["c"]);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    let [Command::SelectNode { claim, .. }] = &sent[..] else { panic!("{sent:?}") };
    let outcome = StorageWriteOutcome::Transient { message: "busy".into() };
    fake.observe(Observation::StorageWriteDone { claim: claim.clone(), outcome });
    fake.now += 10_000;
    fake.decide_all();
    assert_eq!(std::mem::take(&mut fake.in_flight), sent);
    let outcome = StorageWriteOutcome::Refused { message: "the object has been modified".into() };
    fake.observe(Observation::StorageWriteDone { claim: claim.clone(), outcome });
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn claims_that_tie_a_gang_to_nodes_without_room_are_named() {
    let mut fake = cluster(&["a", "a", "b"], 1);
    fake.storage_class("fast", "example.com/csi");
    fake.storage.provisioner = Provisioner::MakesFor("kubernetes.io/hostname");
    gang_with_claims(&mut fake, 2, "fast");
    fake.settle();
    assert_eq!(fake.bound_count("a"), 2);
    let node = fake.node_of("a-0").expect("it is bound");
    fake.remove("a-0");
    fake.remove("a-1");
    fake.pod_with("other", "", 1, |pod| pod.node = Some(node.clone()));
    fake.pod_with_claims("a-0", "g", &["c-0"]);
    fake.pod_with_claims("a-1", "g", &["c-1"]);
    fake.settle();
    let text = fake.reports.iter().rev().find_map(|report| match &report.diagnosis {
        Diagnosis::GroupUnschedulable(shortfall) => Some(shortfall.to_string()),
        _ => None,
    });
    let named = format!("Claim ns/c-0 is bound to volume volume-of-c-0, which can be used on {node} only.");
    assert!(text.as_deref().is_some_and(|text| text.contains(&named)), "{text:?}");
    fake.remove("a-0");
    fake.remove("a-1");
    fake.pod_with_claims("single", "", &["c-0"]);
    fake.settle();
    let text = fake.reports.iter().rev().find_map(|report| match &report.diagnosis {
        Diagnosis::PodUnschedulable { fit, .. } => Some(fit.to_string()),
        _ => None,
    });
    assert!(text.as_deref().is_some_and(|text| text.contains(&named)), "{text:?}");
}

#[test]
fn a_claim_that_vanishes_while_its_gang_waits_ends_the_placement() {
    let mut fake = cluster(&["a"], 4);
    fake.storage_class("fast", "example.com/csi");
    fake.storage.provisioner = Provisioner::Silent;
    gang_with_claims(&mut fake, 2, "fast");
    fake.settle();
    fake.remove_claim("c-1");
    fake.advance(10_000);
    assert_eq!(fake.bound(), [""; 0]);
    assert_eq!(fake.group_diagnosis("g").group_reason(), "WaitingForVolumes");
    assert!(fake.group_diagnosis("g").to_string().contains("\"c-1\" not found"));
}

#[test]
fn a_more_important_pod_takes_over_the_places_of_a_gang_that_waits_for_volumes() {
    let mut fake = cluster(&["a"], 2);
    fake.storage_class("fast", "example.com/csi");
    fake.storage.provisioner = Provisioner::Silent;
    gang_with_claims(&mut fake, 2, "fast");
    fake.settle();
    fake.pod("equal", "", 2);
    fake.advance(10_000);
    assert_eq!(fake.bound(), [""; 0], "one of the same priority waits");
    fake.pod_with("high", "", 2, |pod| pod.priority = 10);
    fake.settle();
    assert_eq!((fake.bound(), fake.evicted()), (vec!["high".to_owned()], Vec::new()));
    assert_eq!(fake.group_diagnosis("g").group_reason(), "Unschedulable");
    fake.remove("high");
    fake.remove("equal");
    fake.storage.provisioner = Provisioner::Makes;
    for claim in ["c-0", "c-1"] {
        fake.run_storage_controllers(claim);
    }
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 2);
}

#[test]
fn a_more_important_gang_takes_over_the_places_of_pods_that_wait_for_volumes() {
    let mut fake = cluster(&["a", "a"], 1);
    fake.storage_class("fast", "example.com/csi");
    fake.storage.provisioner = Provisioner::Silent;
    for name in ["p", "q"] {
        fake.claim(name, "fast", 1);
        fake.pod_with_claims(name, "", &[name]);
    }
    fake.settle();
    fake.gang("g", 2);
    for number in 0..2 {
        fake.pod_with(&format!("a-{number}"), "g", 1, |pod| pod.priority = 10);
    }
    fake.settle();
    assert_eq!((fake.bound_count("a"), fake.evicted()), (2, Vec::new()));
}

#[test]
fn a_preemptor_waits_until_the_volume_of_its_victim_is_detached() {
    let mut fake = cluster(&["a"], 8);
    let driver = "example.com/csi";
    let drivers = [(driver.to_owned(), Some(1))].into();
    fake.put_storage(StorageObservation::NodeDriversSeen(NodeDriversSpec { node: "n0".into(), drivers }));
    fake.storage_class("fast", driver);
    for name in ["low", "high"] {
        fake.claim(name, "fast", 1);
    }
    fake.pod_with_claims("low", "", &["low"]);
    fake.settle();
    let mut volume = fake.storage.volumes["volume-of-low"].clone();
    volume.attached_by = Some((driver.into(), "handle".into()));
    fake.put_volume(volume);
    let attachment = AttachmentSpec { name: "att".into(), node: "n0".into(), volume: "volume-of-low".into() };
    fake.put_storage(StorageObservation::AttachmentSeen(attachment));
    fake.pod_with("high", "", 1, |pod| {
        crate::fake_storage::use_claims(pod, &["high"]);
        pod.priority = 10;
    });
    fake.advance(60_000);
    assert_eq!((fake.evicted(), fake.bound()), (vec!["low".to_owned()], Vec::new()), "it is still attached");
    fake.put_storage(StorageObservation::AttachmentGone("att".into()));
    fake.advance(20_000);
    assert_eq!(fake.bound(), ["high"]);
}
