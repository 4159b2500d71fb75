//! Volumes between decision and bind: what others do to claims, volumes and nodes meanwhile, and answers that come
//! late.

use muster_engine::diagnosis::Waiting;
use muster_engine::model::storage::{
    AccessMode, ClaimName, ClaimSpec, StorageWriteOutcome, VolumeSpec, VolumeTopology,
};
use muster_engine::{Command, Diagnosis, Observation};

use crate::fake_cluster::FakeCluster;
use crate::fake_storage::{Provisioner, kind};

const NONE: &str = "kubernetes.io/no-provisioner";
const DRIVER: &str = "example.com/csi";

fn cluster(nodes: usize, cpus: i64) -> FakeCluster {
    let mut fake = FakeCluster::new();
    for number in 0..nodes {
        fake.node(&format!("n{number}"), cpus);
    }
    fake.storage_class("local", NONE);
    fake.storage_class("fast", DRIVER);
    fake
}

/// The only write to storage that was sent and is not answered yet.
fn sent(fake: &mut FakeCluster) -> Command {
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    let [write] = &sent[..] else { panic!("{sent:?}") };
    write.clone()
}

fn answer(fake: &mut FakeCluster, write: &Command, outcome: StorageWriteOutcome) {
    let (Command::SelectNode { claim, .. } | Command::ReserveVolume { claim, .. }) = write else { panic!("{write:?}") };
    fake.observe(Observation::StorageWriteDone { claim: claim.clone(), outcome });
}

/// The node on which a pod is placed.
fn place(fake: &FakeCluster, name: &str) -> Option<String> {
    let view = fake.engine.engine().pod_view(&fake.uid(name))?;
    Some(view.node()?.name().to_owned())
}

fn busy() -> StorageWriteOutcome {
    StorageWriteOutcome::Transient { message: "busy".into() }
}

fn failure(fake: &FakeCluster) -> Option<String> {
    fake.reports.iter().rev().find_map(|report| match &report.diagnosis {
        Diagnosis::VolumeBindFailed { message, .. } => Some(message.clone()),
        _ => None,
    })
}

#[test]
fn a_volume_that_another_claim_got_meanwhile_is_not_reserved() {
    let mut fake = cluster(1, 4);
    fake.volume("v", "local", 10, VolumeTopology::default());
    fake.claim("c", "local", 10);
    fake.pod_with_claims("p", "", &["c"]);
    let write = sent(&mut fake);
    answer(&mut fake, &write, busy());
    let other = ClaimName { namespace: "ns".into(), name: "other".into(), uid: "claim-other".into() };
    let volume = fake.storage.volumes["v"].clone();
    fake.put_volume(VolumeSpec { claim: Some(other), available: false, ..volume });
    fake.advance(60_000);
    assert_eq!(fake.in_flight, [], "its retry would take the volume from the other claim");
    assert_eq!(fake.issued.iter().filter(|act| matches!(act, Command::ReserveVolume { .. })).count(), 1);
    assert_eq!(failure(&fake).as_deref(), Some("the volume v is reserved for another claim"));
}

/// An earlier attempt has selected the node of one of two claims that ask for the same.
#[test]
fn a_volume_goes_to_the_claim_for_which_none_is_being_provisioned() {
    for selected in ["a", "b"] {
        let mut fake = cluster(1, 4);
        fake.volume("v", "fast", 10, VolumeTopology::default());
        fake.claim("a", "fast", 10);
        fake.claim("b", "fast", 10);
        let claim = fake.storage.claims[selected].clone();
        fake.put_claim(ClaimSpec { selected_node: "n0".to_owned(), ..claim });
        fake.pod_with_claims("p", "", &["a", "b"]);
        fake.decide_all();
        let reserved = fake.in_flight.iter().find_map(|act| match act {
            Command::ReserveVolume { claim, .. } => Some(claim.name.clone()),
            _ => None,
        });
        assert_eq!(reserved.as_deref(), Some(if selected == "a" { "b" } else { "a" }));
    }
}

#[test]
fn a_node_that_another_selected_meanwhile_is_not_replaced() {
    let mut fake = cluster(2, 4);
    fake.claim("c", "fast", 10);
    fake.pod_with_claims("p", "", &["c"]);
    let write = sent(&mut fake);
    let Command::SelectNode { node, .. } = &write else { panic!("{write:?}") };
    answer(&mut fake, &write, busy());
    let other = if **node == *"n0" { "n1" } else { "n0" };
    let claim = fake.storage.claims["c"].clone();
    fake.put_claim(ClaimSpec { selected_node: other.to_owned(), ..claim });
    fake.advance(60_000);
    assert_eq!(fake.storage.claims["c"].selected_node, other, "a volume may be under way for that node");
    fake.run_storage_controllers("c");
    fake.advance(60_000);
    assert_eq!(fake.node_of("p").as_deref(), Some(other));
}

#[test]
fn a_volume_that_vanishes_before_it_is_reserved_ends_the_placement_at_once() {
    let mut fake = cluster(1, 4);
    fake.volume("v", "local", 10, VolumeTopology::default());
    fake.claim("c", "local", 10);
    fake.pod_with_claims("p", "", &["c"]);
    let write = sent(&mut fake);
    answer(&mut fake, &write, busy());
    fake.remove_volume("v");
    fake.advance(1_000);
    assert_eq!(failure(&fake).as_deref(), Some("the volume v is gone"));
    fake.volume("w", "local", 10, VolumeTopology::default());
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn a_pod_goes_on_where_another_that_shares_its_claim_has_left_off() {
    let mut fake = cluster(1, 4);
    fake.claim_with("data", "fast", 10, |claim| claim.kind = kind("fast", AccessMode::ReadWriteMany));
    fake.pod_with_claims("p", "", &["data"]);
    fake.pod_with_claims("q", "", &["data"]);
    let write = sent(&mut fake);
    answer(&mut fake, &write, busy());
    fake.remove("p");
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["q"], "the write that failed for the other pod is sent for this one");
}

#[test]
fn the_answer_about_a_deleted_claim_is_not_taken_for_one_about_its_successor() {
    let mut fake = cluster(1, 4);
    fake.claim("c", "fast", 10);
    fake.pod_with_claims("p", "", &["c"]);
    let old = sent(&mut fake);
    fake.remove_claim("c");
    fake.claim_with("c", "fast", 10, |claim| {
        let id = ClaimName { uid: "claim-c-2".into(), ..(*claim.id).clone() };
        claim.id = id.into();
    });
    fake.decide_all();
    fake.now += 20_000;
    let new = sent(&mut fake);
    answer(&mut fake, &old, StorageWriteOutcome::Refused { message: "the claim is gone".into() });
    fake.decide_all();
    assert!(matches!(fake.pod_diagnosis("p"), Diagnosis::Waiting(Waiting::Volumes { .. })), "{new:?} is under way");
    fake.execute(new);
    fake.settle();
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn a_refusal_is_noticed_although_only_the_state_after_it_was_seen() {
    let mut fake = cluster(1, 4);
    fake.storage.provisioner = Provisioner::Silent;
    fake.claim("c", "fast", 10);
    fake.pod_with_claims("p", "", &["c"]);
    let write = sent(&mut fake);
    answer(&mut fake, &write, StorageWriteOutcome::Written);
    fake.decide_all();
    assert_eq!(failure(&fake), None);
    // The watch was interrupted: the next state that it shows is the one after the refusal.
    let claim = fake.storage.claims["c"].clone();
    fake.put_claim(claim);
    fake.decide_all();
    assert_eq!(
        failure(&fake).as_deref(),
        Some("the provisioner example.com/csi refused to make a volume for the node")
    );
}

#[test]
fn a_node_that_vanishes_while_volumes_are_awaited_ends_the_placement_at_once() {
    let mut fake = cluster(3, 1);
    fake.storage.provisioner = Provisioner::Silent;
    fake.gang("g", 2);
    fake.claim("c", "fast", 10);
    fake.pod_with_claims("a-0", "g", &["c"]);
    fake.pod("a-1", "g", 1);
    fake.settle();
    let selected = fake.storage.claims["c"].selected_node.clone();
    let without_claims = place(&fake, "a-1").expect("it is placed");
    assert_ne!(selected, without_claims);
    fake.remove_node(&without_claims);
    fake.advance(1_000);
    let elsewhere = place(&fake, "a-1");
    assert!(elsewhere.is_some_and(|node| node != without_claims && node != selected), "the gang has other places");
    fake.storage.provisioner = Provisioner::Makes;
    fake.run_storage_controllers("c");
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 2);
}
