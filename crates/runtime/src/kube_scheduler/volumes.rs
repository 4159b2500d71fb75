//! Random volumes: claims that are bound, that can be bound or provisioned, or that cannot be used; limits of nodes,
//! attachments, and disks that pods name themselves.
//!
//! Sizes are distinct, since kube-scheduler chooses at random between equal ones. Volumes of in-tree plugins are left
//! out: kube-scheduler translates also where they can be used.

use muster_oracle::random::Random;
use serde_json::{Value, json};

use super::storage_objects::{self, CLASSES, ZONE};

const BOUND: &str = "pv.kubernetes.io/bind-completed";
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The claims and volumes of a case while it is made.
#[derive(Default)]
pub(super) struct Made {
    claims: Vec<Value>,
    volumes: Vec<Value>,
    /// How many sizes were given out.
    sizes: usize,
}

/// Gives some pods volumes.
pub(super) fn add(random: &mut Random, case: &mut Value) {
    // All claims are in one namespace.
    if case["pod"]["metadata"]["namespace"] != "ml" || !random.chance(26) {
        return;
    }
    let nodes: Vec<String> = names(&case["nodes"]);
    let mut made = Made::default();
    let mut volumes: Vec<Value> = Vec::new();
    for number in 0..=random.below(2) {
        volumes.push(match random.below(10) {
            0..4 => made.bound(random, number),
            4..8 => made.unbound(random, number, &nodes),
            8 => made.ephemeral(random, number),
            _ => json!({"name": format!("v{number}"), "csi": {"driver": "inline.example.com"}}),
        });
    }
    if random.chance(7) {
        volumes.push(made.unusable(random, 9));
    }
    if random.chance(12) {
        volumes.push(disk(random));
    }
    case["pod"]["spec"]["volumes"] = json!(volumes);
    for _ in 0..random.below(6) {
        made.free_volume(random, &nodes);
    }
    let count = case["pods"].as_array().map_or(0, Vec::len);
    for index in 0..count {
        let pod = &mut case["pods"][index];
        // kube-scheduler counts claims of nominated pods, and of pods on nodes that are gone, in other ways.
        let is_on_node = pod["spec"]["nodeName"].as_str().is_some_and(|node| nodes.iter().any(|known| known == node));
        if is_on_node && random.chance(45) {
            pod["spec"]["volumes"] = json!(made.of_other(random, index));
        }
    }
    storage_objects::add(random, case, &nodes, &made.volumes);
    (case["persistentVolumeClaims"], case["persistentVolumes"]) = (json!(made.claims), json!(made.volumes));
}

fn names(objects: &Value) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    objects.as_array().into_iter().flatten().map(name).collect()
}

/// A volume of a pod that uses a claim.
fn using(number: usize, claim: &str) -> Value {
    json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": claim}})
}

impl Made {
    /// A size that nothing else has.
    fn size(&mut self) -> String {
        self.sizes += 1;
        // Requests and volumes are mixed: about half of the volumes are large enough.
        format!("{}Mi", 1000 + (self.sizes * 613) % 997)
    }

    fn add_claim(&mut self, random: &mut Random, name: &str, class: &str) -> &mut Value {
        let mode =
            *random.pick(&["ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"]);
        let mut claim = json!({
            "metadata": {"name": name, "namespace": "ml", "uid": name, "resourceVersion": "1", "annotations": {}},
            "spec": {"accessModes": [mode], "storageClassName": class},
            "status": {"phase": "Pending"},
        });
        if random.chance(93) {
            claim["spec"]["resources"]["requests"]["storage"] = json!(self.size());
        }
        if random.chance(8) {
            claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"] = json!(class);
            claim["spec"]["storageClassName"] = json!("other");
        }
        if random.chance(15) {
            claim["spec"]["volumeMode"] = json!(random.pick(&["Filesystem", "Block"]));
        }
        if random.chance(5) {
            claim["spec"]["volumeAttributesClassName"] = json!("gold");
        }
        self.claims.push(claim);
        self.claims.last_mut().expect("just added")
    }

    fn add_volume(&mut self, random: &mut Random, name: &str) -> &mut Value {
        let mut volume = json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"capacity": {"storage": self.size()}, "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Available"},
        });
        if random.chance(65) {
            volume["spec"]["csi"] =
                json!({"driver": random.pick(storage_objects::DRIVERS), "volumeHandle": format!("handle-of-{name}")});
        } else {
            volume["spec"]["nfs"] = json!({"server": "x", "path": "/"});
        }
        if random.chance(50) {
            let terms: Vec<Value> = (0..=random.below(2)).map(|_| zone_term(random)).collect();
            volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = json!(terms);
        }
        self.volumes.push(volume);
        self.volumes.last_mut().expect("just added")
    }

    /// A claim that is bound to a volume, which may be missing.
    fn bound(&mut self, random: &mut Random, number: usize) -> Value {
        let (claim, volume) = (format!("bound-{number}"), format!("volume-{number}"));
        self.bind(random, &claim, &volume, 94);
        using(number, &claim)
    }

    fn bind(&mut self, random: &mut Random, claim: &str, volume: &str, exists: u64) {
        let class = *random.pick(CLASSES);
        let bound = self.add_claim(random, claim, class);
        bound["metadata"]["annotations"][BOUND] = json!("yes");
        (bound["spec"]["volumeName"], bound["status"]["phase"]) = (json!(volume), json!("Bound"));
        if !random.chance(exists) {
            return;
        }
        let of_claim = json!({"name": claim, "namespace": "ml", "uid": claim});
        let made = self.add_volume(random, volume);
        (made["spec"]["claimRef"], made["status"]["phase"]) = (of_claim, json!("Bound"));
        made["spec"]["storageClassName"] = json!(class);
        if random.chance(50) {
            let key = random.pick(&[ZONE, "failure-domain.beta.kubernetes.io/zone"]);
            made["metadata"]["labels"] = json!({*key: random.pick(&["a", "b", "a__b", "b__c"])});
        }
    }

    /// A claim that waits for its first consumer.
    fn unbound(&mut self, random: &mut Random, number: usize, nodes: &[String]) -> Value {
        let name = format!("unbound-{number}");
        let class = *random.pick(CLASSES);
        self.wait(random, &name, class, nodes);
        using(number, &name)
    }

    fn wait(&mut self, random: &mut Random, name: &str, class: &str, nodes: &[String]) {
        let claim = self.add_claim(random, name, class);
        if random.chance(15) {
            claim["spec"]["selector"] = match random.below(3) {
                0 => json!({}),
                1 => json!({"matchLabels": {"tier": "a"}}),
                _ => json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}),
            };
        }
        if random.chance(12) {
            let node = if random.chance(85) { random.pick(nodes).clone() } else { "gone".to_owned() };
            claim["metadata"]["annotations"][SELECTED_NODE] = json!(node);
        }
    }

    /// A generic ephemeral volume with the claim that belongs to it.
    fn ephemeral(&mut self, random: &mut Random, number: usize) -> Value {
        let name = format!("pod-v{number}");
        self.wait(random, &name, "csi", &["gone".to_owned()]);
        let claim = self.claims.last_mut().expect("just added");
        claim["metadata"]["annotations"] = json!({});
        claim["spec"]["storageClassName"] = json!("csi");
        claim["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": "pod", "controller": true}]);
        ephemeral_volume(number)
    }

    /// A claim that the pod cannot use.
    fn unusable(&mut self, random: &mut Random, number: usize) -> Value {
        let name = format!("unusable-{number}");
        let kind = random.below(8);
        match kind {
            // Neither of these exists.
            0 => return using(number, &name),
            1 => return ephemeral_volume(number),
            2 => {
                // It belongs to no pod.
                self.wait(random, &format!("pod-v{number}"), "csi", &["gone".to_owned()]);
                return ephemeral_volume(number);
            }
            _ => {}
        }
        let class = match kind {
            3 => "at-once",
            4 => "missing",
            _ => "csi",
        };
        self.wait(random, &name, class, &["gone".to_owned()]);
        let claim = self.claims.last_mut().expect("just added");
        match kind {
            5 => claim["spec"]["volumeName"] = json!("later"),
            6 => claim["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z"),
            7 => {
                claim["spec"]["volumeName"] = json!("lost");
                claim["metadata"]["annotations"][BOUND] = json!("yes");
                claim["status"]["phase"] = json!("Lost");
            }
            _ => {}
        }
        using(number, &name)
    }

    /// A volume that may match a claim.
    fn free_volume(&mut self, random: &mut Random, nodes: &[String]) {
        let name = format!("free-{}", self.volumes.len());
        let claims: Vec<String> = names(&json!(self.claims));
        let volume = self.add_volume(random, &name);
        let spec = &mut volume["spec"];
        spec["storageClassName"] = json!(random.pick(CLASSES));
        let modes =
            [json!(["ReadWriteOnce"]), json!(["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"])];
        spec["accessModes"] = random.pick(&modes).clone();
        if random.chance(15) {
            spec["volumeMode"] = json!(random.pick(&["Filesystem", "Block"]));
        }
        if random.chance(5) {
            spec["volumeAttributesClassName"] = json!("gold");
        }
        if random.chance(12) {
            let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [random.pick(nodes)]});
            spec["nodeAffinity"]["required"]["nodeSelectorTerms"] = json!([{"matchExpressions": [expression]}]);
        }
        if random.chance(15) {
            let claim = if claims.is_empty() || random.chance(20) { "another" } else { random.pick(&claims).as_str() };
            spec["claimRef"] = json!({"name": claim, "namespace": random.pick(&["ml", "ml", "other"])});
            if random.chance(50) {
                spec["claimRef"]["uid"] = json!(random.pick(&[claim, claim, "an-earlier-one"]));
            }
        }
        volume["metadata"]["labels"] = json!({"tier": random.pick(&["a", "b"])});
        if random.chance(10) {
            volume["status"]["phase"] = json!(random.pick(&["Released", "Pending", "Bound"]));
        }
        if random.chance(4) {
            volume["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        }
    }

    /// The volumes of a pod that is on a node.
    fn of_other(&mut self, random: &mut Random, index: usize) -> Vec<Value> {
        let mut volumes = Vec::new();
        for number in 0..=random.below(2) {
            let name = format!("of-{index}-{number}");
            volumes.push(match random.below(10) {
                0..5 => {
                    self.bind(random, &name, &format!("volume-of-{index}-{number}"), 95);
                    using(number, &name)
                }
                5 => {
                    self.wait(random, &name, "csi", &["gone".to_owned()]);
                    using(number, &name)
                }
                // One that another pod uses, too, or that does not exist.
                6..8 if !self.claims.is_empty() && random.chance(85) => {
                    let claims = names(&json!(self.claims));
                    using(number, random.pick::<String>(&claims))
                }
                _ => {
                    let mut disk = disk(random);
                    disk["name"] = json!(format!("v{number}"));
                    disk
                }
            });
        }
        volumes
    }
}

fn ephemeral_volume(number: usize) -> Value {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    json!({"name": format!("v{number}"), "ephemeral": {"volumeClaimTemplate": {"spec": spec}}})
}

/// A disk that a pod names itself.
fn disk(random: &mut Random) -> Value {
    let (name, read_only) = (*random.pick(&["d1", "d2"]), random.chance(60));
    let mut disk = json!({"name": "disk"});
    match random.below(4) {
        0 => disk["gcePersistentDisk"] = json!({"pdName": name, "readOnly": read_only}),
        1 => disk["awsElasticBlockStore"] = json!({"volumeID": name, "readOnly": read_only}),
        2 => {
            let iqn = format!("iqn.2001-04.com.example:{name}");
            disk["iscsi"] = json!({"targetPortal": "10.0.0.1", "iqn": iqn, "lun": 0, "readOnly": read_only});
        }
        _ => {
            let monitors: Vec<&str> = (0..=random.below(2)).map(|_| *random.pick(&["m1", "m2", "m3"])).collect();
            disk["rbd"] = json!({"monitors": monitors, "image": name, "readOnly": read_only});
            if random.chance(50) {
                disk["rbd"]["pool"] = json!(random.pick(&["rbd", "other"]));
            }
        }
    }
    disk
}

/// A term about the zone of a node.
pub(super) fn zone_term(random: &mut Random) -> Value {
    let values: Vec<&str> = (0..=random.below(2)).map(|_| *random.pick(&["a", "b", "c"])).collect();
    let expression = json!({"key": ZONE, "operator": random.pick(&["In", "In", "NotIn"]), "values": values});
    json!({"matchExpressions": [expression]})
}
