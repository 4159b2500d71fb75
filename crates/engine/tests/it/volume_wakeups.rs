//! Which event activates a pod that was refused because of its volumes.
//!
//! | refused because | activated by |
//! |---|---|
//! | a claim is missing, lost, being deleted, of another pod, or not bound at once | the claim, its class, its volume |
//! | no volume can be bound or provisioned | a free volume; a placement that is given up; the class; the node's labels; the provisioner that gives up a node |
//! | there is too little storage | more free capacity; a driver that publishes none any more; a placement that is given up |
//! | a volume is not accessible, or in another zone | the volume; the node's labels |
//! | the node has too many volumes | a higher limit; a pod or an attachment that is gone |
//! | a driver is missing | the driver on the node, or one that is not required any more |
//! | another pod uses the claim | that pod is gone |

use std::sync::Arc;

use muster_engine::model::node::NodeSpec;
use muster_engine::model::storage::{
    AccessMode, AttachmentSpec, BindingMode, CapacitySpec, ClaimName, ClaimSpec, ClaimUse, DriverSpec, NodeDriversSpec,
    StorageClassSpec, StorageObservation, VolumeSpec, VolumeTopology, ZoneRequirement,
};

use crate::fake_cluster::FakeCluster;
use crate::fake_storage::{Provisioner, kind, on_label};

const ZONE: &str = "topology.kubernetes.io/zone";
const DRIVER: &str = "example.com/csi";
const NONE: &str = "kubernetes.io/no-provisioner";

fn put_node(fake: &mut FakeCluster, zone: &str) {
    let allocatable = [("cpu".to_owned(), 8000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)].into();
    let labels = [(ZONE.to_owned(), zone.to_owned())].into();
    fake.put_node(NodeSpec { name: "n0".into(), labels, allocatable, ..NodeSpec::default() });
}

fn class(fake: &mut FakeCluster, change: impl FnOnce(&mut StorageClassSpec)) {
    let mut spec = StorageClassSpec {
        name: "c".into(),
        provisioner: DRIVER.into(),
        binding_mode: Some(BindingMode::WaitForFirstConsumer),
        allowed_topologies: None,
    };
    change(&mut spec);
    fake.storage.classes.insert("c".into(), spec.clone());
    fake.storage_seen(StorageObservation::ClassSeen(spec));
}

fn driver(fake: &mut FakeCluster, publishes_capacity: bool, is_required_on_node: bool) {
    let spec = DriverSpec { name: DRIVER.into(), publishes_capacity, is_required_on_node };
    fake.put_storage(StorageObservation::DriverSeen(spec));
}

fn limit(fake: &mut FakeCluster, drivers: &[(&str, u32)]) {
    let drivers = drivers.iter().map(|(name, count)| ((*name).to_owned(), Some(*count))).collect();
    fake.put_storage(StorageObservation::NodeDriversSeen(NodeDriversSpec { node: "n0".into(), drivers }));
}

fn capacity(fake: &mut FakeCluster, bytes: i64) {
    fake.put_storage(StorageObservation::CapacitySeen(CapacitySpec {
        key: ("ns".into(), "capacity".into()),
        storage_class: "c".into(),
        nodes: Some(Vec::new()),
        capacity_bytes: Some(bytes),
        volume_bytes_max: None,
    }));
}

/// A claim that is bound to a volume, with the volume if it exists.
fn bound(fake: &mut FakeCluster, name: &str, volume: Option<VolumeTopology>) {
    fake.claim_with(name, "c", 10, |claim| {
        claim.volume = format!("volume-of-{name}");
        claim.bind_completed = true;
    });
    if let Some(topology) = volume {
        let claim = ClaimName { namespace: "ns".into(), name: name.into(), uid: format!("claim-{name}") };
        fake.put_volume(VolumeSpec {
            name: format!("volume-of-{name}"),
            kind: kind("c", AccessMode::ReadWriteOnce),
            capacity_bytes: 10,
            topology,
            claim: Some(claim),
            attached_by: Some((DRIVER.into(), format!("handle-of-{name}"))),
            ..VolumeSpec::default()
        });
    }
}

fn change_claim(fake: &mut FakeCluster, name: &str, change: impl FnOnce(&mut ClaimSpec)) {
    let mut claim = fake.storage.claims[name].clone();
    change(&mut claim);
    fake.put_claim(claim);
}

fn change_volume(fake: &mut FakeCluster, name: &str, change: impl FnOnce(&mut VolumeSpec)) {
    let mut volume = fake.storage.volumes[name].clone();
    change(&mut volume);
    fake.put_volume(volume);
}

fn consumer(fake: &mut FakeCluster) {
    fake.pod_with_claims("p", "", &["data"]);
}

fn ephemeral_consumer(fake: &mut FakeCluster) {
    fake.pod_with("p", "", 1, |pod| {
        let field = "spec.volumes[0].ephemeral".to_owned();
        pod.claims = Arc::new(vec![ClaimUse { field, claim: "p-scratch".to_owned(), ephemeral: true }]);
    });
}

/// A pod that holds a volume or the room for one, and only waits.
fn waiting_holder(fake: &mut FakeCluster) {
    fake.claim("held", "c", 10);
    fake.storage.held.insert("held".into());
    fake.pod_with_claims("holder", "", &["held"]);
    fake.settle();
}

struct Row {
    because: &'static str,
    setup: fn(&mut FakeCluster),
    event: fn(&mut FakeCluster),
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row {
        because: "its claim is missing",
        setup: consumer,
        event: |fake| fake.claim("data", "c", 10),
    },
    Row {
        because: "the claim of its ephemeral volume is missing",
        setup: ephemeral_consumer,
        event: |fake| { let uid = fake.uid("p"); fake.claim_with("p-scratch", "c", 10, |claim| claim.owner_pod = uid); },
    },
    Row {
        because: "its claim is being deleted",
        setup: |fake| { fake.claim_with("data", "c", 10, |claim| claim.terminating = true); consumer(fake); },
        event: |fake| { fake.remove_claim("data"); fake.claim("data", "c", 10); },
    },
    Row {
        because: "its claim is bound at once, and is not",
        setup: |fake| { fake.claim("data", "other", 10); consumer(fake); },
        event: |fake| fake.storage_class("other", DRIVER),
    },
    Row {
        because: "the volume of its claim is missing",
        setup: |fake| { bound(fake, "data", None); consumer(fake); },
        event: |fake| bound(fake, "data", Some(VolumeTopology::default())),
    },
    Row {
        because: "no volume is free",
        setup: |fake| { class(fake, |class| class.provisioner = NONE.into()); fake.claim("data", "c", 10); consumer(fake); },
        event: |fake| fake.volume("v", "c", 10, VolumeTopology::default()),
    },
    Row {
        because: "its volume is too small",
        setup: |fake| {
            class(fake, |class| class.provisioner = NONE.into());
            fake.claim("data", "c", 10);
            fake.volume("v", "c", 5, VolumeTopology::default());
            let name = ClaimName { namespace: "ns".into(), name: "data".into(), uid: String::new() };
            change_volume(fake, "v", |volume| volume.claim = Some(name));
            consumer(fake);
        },
        event: |fake| change_volume(fake, "v", |volume| volume.capacity_bytes = 10),
    },
    Row {
        because: "another placement has the volume",
        setup: |fake| {
            class(fake, |class| class.provisioner = NONE.into());
            fake.volume("v", "c", 10, VolumeTopology::default());
            waiting_holder(fake);
            fake.in_flight.clear();
            fake.claim("data", "c", 10);
            consumer(fake);
        },
        event: |fake| { change_volume(fake, "v", |volume| (volume.claim, volume.available) = (None, true)); fake.remove("holder"); },
    },
    Row {
        because: "the class is not allowed on the node",
        setup: |fake| {
            class(fake, |class| class.allowed_topologies = on_label(ZONE, "b").required_terms);
            fake.claim("data", "c", 10);
            consumer(fake);
        },
        event: |fake| class(fake, |_| {}),
    },
    Row {
        because: "the class is not allowed in the zone of the node",
        setup: |fake| {
            class(fake, |class| class.allowed_topologies = on_label(ZONE, "b").required_terms);
            fake.claim("data", "c", 10);
            consumer(fake);
        },
        event: |fake| put_node(fake, "b"),
    },
    Row {
        because: "another node is selected",
        setup: |fake| {
            fake.storage.provisioner = Provisioner::Silent;
            fake.claim_with("data", "c", 10, |claim| claim.selected_node = "gone".into());
            consumer(fake);
        },
        event: |fake| { fake.storage.provisioner = Provisioner::Makes; change_claim(fake, "data", |claim| claim.selected_node.clear()); },
    },
    Row {
        because: "there is too little storage",
        setup: |fake| { driver(fake, true, false); capacity(fake, 5); fake.claim("data", "c", 10); consumer(fake); },
        event: |fake| capacity(fake, 10),
    },
    Row {
        because: "no free capacity is published",
        setup: |fake| { driver(fake, true, false); fake.claim("data", "c", 10); consumer(fake); },
        event: |fake| driver(fake, false, false),
    },
    Row {
        because: "another placement has the capacity",
        setup: |fake| {
            driver(fake, true, false);
            capacity(fake, 15);
            waiting_holder(fake);
            fake.claim("data", "c", 10);
            consumer(fake);
        },
        event: |fake| fake.remove("holder"),
    },
    Row {
        because: "its volume is in another zone",
        setup: |fake| { bound(fake, "data", Some(on_label(ZONE, "b"))); consumer(fake); },
        event: |fake| put_node(fake, "b"),
    },
    Row {
        because: "its volume is not accessible",
        setup: |fake| { bound(fake, "data", Some(on_label(ZONE, "b"))); consumer(fake); },
        event: |fake| change_volume(fake, "volume-of-data", |volume| volume.topology = VolumeTopology::default()),
    },
    Row {
        because: "its volume is labelled for another zone",
        setup: |fake| {
            let zones = vec![ZoneRequirement { keys: vec![ZONE.into()], values: ["b".to_owned()].into() }];
            bound(fake, "data", Some(VolumeTopology { zones, ..VolumeTopology::default() }));
            consumer(fake);
        },
        event: |fake| change_volume(fake, "volume-of-data", |volume| volume.topology.zones.clear()),
    },
    Row {
        because: "the node attaches no more volumes",
        setup: |fake| { limit(fake, &[(DRIVER, 0)]); bound(fake, "data", Some(VolumeTopology::default())); consumer(fake); },
        event: |fake| limit(fake, &[(DRIVER, 1)]),
    },
    Row {
        because: "another pod has a volume attached",
        setup: |fake| {
            limit(fake, &[(DRIVER, 1)]);
            bound(fake, "other", Some(VolumeTopology::default()));
            fake.pod_with_claims("other", "", &["other"]);
            fake.settle();
            bound(fake, "data", Some(VolumeTopology::default()));
            consumer(fake);
        },
        event: |fake| fake.remove("other"),
    },
    Row {
        because: "a volume is still attached",
        setup: |fake| {
            limit(fake, &[(DRIVER, 1)]);
            bound(fake, "other", Some(VolumeTopology::default()));
            let attachment = AttachmentSpec { name: "a".into(), node: "n0".into(), volume: "volume-of-other".into() };
            fake.put_storage(StorageObservation::AttachmentSeen(attachment));
            bound(fake, "data", Some(VolumeTopology::default()));
            consumer(fake);
        },
        event: |fake| fake.put_storage(StorageObservation::AttachmentGone("a".into())),
    },
    Row {
        because: "its driver is not on the node",
        setup: |fake| {
            driver(fake, false, true);
            limit(fake, &[]);
            bound(fake, "data", Some(VolumeTopology::default()));
            consumer(fake);
        },
        event: |fake| limit(fake, &[(DRIVER, 9)]),
    },
    Row {
        because: "its driver is required on the node",
        setup: |fake| { driver(fake, false, true); bound(fake, "data", Some(VolumeTopology::default())); consumer(fake); },
        event: |fake| driver(fake, false, false),
    },
    Row {
        because: "another pod uses its claim",
        setup: |fake| {
            fake.claim_with("data", "c", 10, |claim| claim.kind = kind("c", AccessMode::ReadWriteOncePod));
            fake.pod_with_claims("other", "", &["data"]);
            fake.settle();
            consumer(fake);
        },
        event: |fake| fake.remove("other"),
    },
];

#[test]
fn a_refused_pod_is_activated_by_the_event_that_helps_it() {
    let mut stuck = Vec::new();
    for row in ROWS {
        let mut fake = FakeCluster::new();
        put_node(&mut fake, "a");
        class(&mut fake, |_| {});
        (row.setup)(&mut fake);
        fake.advance(400_000);
        assert_eq!(fake.node_of("p"), None, "refused since {}", row.because);
        (row.event)(&mut fake);
        fake.advance(20_000);
        stuck.extend(fake.node_of("p").is_none().then_some(row.because));
    }
    assert_eq!(stuck, [""; 0]);
}

#[test]
fn a_volume_that_was_provisioned_for_another_claim_activates_nothing() {
    let mut fake = FakeCluster::new();
    put_node(&mut fake, "a");
    class(&mut fake, |class| class.provisioner = NONE.into());
    fake.claim("data", "c", 10);
    capacity(&mut fake, 10);
    consumer(&mut fake);
    fake.advance(400_000);
    let before = fake.engine.engine().next_wakeup();
    bound(&mut fake, "other", Some(VolumeTopology::default()));
    capacity(&mut fake, 5);
    change_volume(&mut fake, "volume-of-other", |_| {});
    assert_eq!(fake.engine.engine().next_wakeup().filter(|due| *due <= fake.now), before, "nothing is due");
    fake.volume("v", "c", 10, VolumeTopology::default());
    assert_ne!(fake.engine.engine().next_wakeup(), before);
}

#[test]
fn pods_whose_claim_selects_the_only_volume_of_its_kind_are_placed_one_after_the_other() {
    let mut fake = FakeCluster::new();
    put_node(&mut fake, "a");
    class(&mut fake, |class| class.provisioner = NONE.into());
    for (name, tier) in [("v0", "a"), ("v1", "b"), ("v2", "b")] {
        fake.volume(name, "c", 10, VolumeTopology::default());
        change_volume(&mut fake, name, |volume| _ = volume.labels.insert("tier".into(), tier.into()));
    }
    let selector = on_label("tier", "a").required_terms.map(|mut terms| terms.remove(0).labels);
    for name in ["p", "q"] {
        fake.claim_with(name, "c", 10, |claim| claim.selector.clone_from(&selector));
        fake.pod_with_claims(name, "", &[name]);
    }
    fake.decide_all();
    let failed = |report: &&muster_engine::Report| report.diagnosis.to_string().contains("no volume is left");
    assert_eq!(fake.reports.iter().filter(failed).count(), 0, "nothing is placed without a volume");
    fake.settle();
    assert_eq!(fake.bound(), ["p"]);
    assert!(fake.pod_diagnosis("q").to_string().contains("didn't find available persistent volumes to bind"));
}

#[test]
fn a_pod_with_very_many_claims_is_refused() {
    let mut fake = FakeCluster::new();
    put_node(&mut fake, "a");
    class(&mut fake, |_| {});
    fake.claim("data", "c", 10);
    fake.pod_with("p", "", 1, |pod| {
        let used = |index| ClaimUse { field: format!("spec.volumes[{index}]"), claim: "data".into(), ephemeral: false };
        pod.claims = Arc::new((0..513).map(used).collect());
    });
    fake.settle();
    let text = fake.pod_diagnosis("p").to_string();
    assert!(text.contains("more than 512 claims in one pod"), "{text}");
}
