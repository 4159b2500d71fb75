//! Rows of volumes, volume claims and storage classes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell_text::{NONE, UNSET, count, joined, list, name, text, text_or, to_text};
use super::{AGE, Column, NAME, TablePrinter, age, boolean, integer, text as column, wide};

const VOLUME_MODE: Column = wide("VolumeMode", "Whether it is a file system or a bare device.");
const MODES: Column = column("Access Modes", "How it may be mounted, in short.");
const CAPACITY: Column = column("Capacity", "How large it is.");
const ATTRIBUTES: Column = column("VolumeAttributesClass", "The class of its attributes.");
const STORAGE_CLASS: Column = column("StorageClass", "Its storage class.");

pub(super) static VOLUMES: TablePrinter = TablePrinter::new(
    &[
        NAME,
        CAPACITY,
        MODES,
        column("Reclaim Policy", "What happens to the volume when its claim goes."),
        column("Status", "Whether the volume is bound."),
        column("Claim", "The claim that the volume is bound to."),
        STORAGE_CLASS,
        ATTRIBUTES,
        column("Reason", "Why the volume is in its state."),
        AGE,
        VOLUME_MODE,
    ],
    volume,
);

fn volume(volume: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&volume["spec"], &volume["status"]);
    let claim = &spec["claimRef"];
    let claim = claim.as_object().map(|_| format!("{}/{}", text(&claim["namespace"]), text(&claim["name"])));
    vec![
        name(volume),
        json!(size(&spec["capacity"])),
        json!(modes(&spec["accessModes"])),
        json!(text(&spec["persistentVolumeReclaimPolicy"])),
        json!(phase(volume)),
        json!(claim.unwrap_or_default()),
        json!(class(volume)),
        json!(text_or(&spec["volumeAttributesClassName"], UNSET)),
        json!(text(&status["reason"])),
        age::of(volume, now),
        json!(text_or(&spec["volumeMode"], UNSET)),
    ]
}

pub(super) static CLAIMS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Status", "Whether the claim is bound."),
        column("Volume", "The volume that the claim is bound to."),
        CAPACITY,
        MODES,
        STORAGE_CLASS,
        ATTRIBUTES,
        AGE,
        VOLUME_MODE,
    ],
    |claim, now| {
        let (spec, status) = (&claim["spec"], &claim["status"]);
        let is_bound = !text(&spec["volumeName"]).is_empty();
        let of_bound = |shown: String| json!(if is_bound { shown } else { String::new() });
        vec![
            name(claim),
            json!(phase(claim)),
            json!(text(&spec["volumeName"])),
            of_bound(size(&status["capacity"])),
            of_bound(modes(&status["accessModes"])),
            json!(class(claim)),
            json!(text_or(&spec["volumeAttributesClassName"], UNSET)),
            age::of(claim, now),
            json!(text_or(&spec["volumeMode"], UNSET)),
        ]
    },
);

fn size(resources: &Value) -> String {
    resources.get("storage").map_or_else(|| "0".to_owned(), to_text)
}

fn phase(object: &Value) -> &str {
    if object["metadata"]["deletionTimestamp"].is_null() { text(&object["status"]["phase"]) } else { "Terminating" }
}

/// The class; very old objects have it in an annotation.
fn class(object: &Value) -> &str {
    let old = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    text_or(old, text(&object["spec"]["storageClassName"]))
}

fn modes(modes: &Value) -> String {
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| list(modes).iter().any(|written| *written == mode);
    short.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

pub(super) static CLASSES: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Provisioner", "The provisioner of volumes of the class."),
        column("ReclaimPolicy", "What happens to volumes of the class when their claims go."),
        column("VolumeBindingMode", "When claims of the class are bound."),
        column("AllowVolumeExpansion", "Whether volumes of the class can grow."),
        AGE,
    ],
    |class, now| {
        vec![
            name(class),
            json!(text(&class["provisioner"])),
            json!(text_or(&class["reclaimPolicy"], "Delete")),
            json!(text_or(&class["volumeBindingMode"], "Immediate")),
            json!(class["allowVolumeExpansion"] == true),
            age::of(class, now),
        ]
    },
);

/// The default class of a list: the newest that is marked, the first by name if several have the same age.
pub(super) fn default_class(classes: &[Value]) -> Option<usize> {
    let is_default = |class: &Value| {
        let is_true = |key: &str| class["metadata"]["annotations"][key] == "true";
        is_true("storageclass.kubernetes.io/is-default-class")
            || is_true("storageclass.beta.kubernetes.io/is-default-class")
    };
    let created = |class: &Value| age::read(&class["metadata"]["creationTimestamp"]);
    // Lists are sorted by name, and `max_by_key` takes the last of equals: so in reverse.
    let candidates = classes.iter().enumerate().rev().filter(|(_, class)| is_default(class));
    candidates.max_by_key(|(_, class)| created(class)).map(|(index, _)| index)
}

pub(super) static NODES: TablePrinter =
    TablePrinter::new(&[NAME, integer("Drivers", "How many storage drivers the node has."), AGE], |node, now| {
        vec![name(node), json!(count(&node["spec"]["drivers"])), age::of(node, now)]
    });

pub(super) static DRIVERS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        boolean("AttachRequired", "Whether volumes must be attached before they are mounted."),
        boolean("PodInfoOnMount", "Whether the driver needs information about the pod."),
        boolean("StorageCapacity", "Whether the driver reports the free capacity."),
        column("TokenRequests", "The audiences of the tokens that the driver needs."),
        boolean("RequiresRepublish", "Whether the driver needs periodic NodePublishVolume calls."),
        column("Modes", "How long volumes of the driver live."),
        AGE,
    ],
    |driver, now| {
        let spec = &driver["spec"];
        let tokens = spec["tokenRequests"].as_array().map_or_else(
            || UNSET.to_owned(),
            |tokens| tokens.iter().map(|token| text(&token["audience"])).collect::<Vec<_>>().join(","),
        );
        let modes = joined(&spec["volumeLifecycleModes"]);
        vec![
            name(driver),
            json!(spec["attachRequired"] != false),
            json!(spec["podInfoOnMount"] == true),
            json!(spec["storageCapacity"] == true),
            json!(tokens),
            json!(spec["requiresRepublish"] == true),
            json!(if modes.is_empty() { NONE } else { &modes }),
            age::of(driver, now),
        ]
    },
);

pub(super) static ATTACHMENTS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        Column { format: "name", ..column("Attacher", "The driver that attaches the volume.") },
        column("PV", "The volume."),
        column("Node", "The node that the volume goes to."),
        boolean("Attached", "Whether it is attached."),
        AGE,
    ],
    |attachment, now| {
        let spec = &attachment["spec"];
        vec![
            name(attachment),
            json!(text(&spec["attacher"])),
            json!(text(&spec["source"]["persistentVolumeName"])),
            json!(text(&spec["nodeName"])),
            json!(attachment["status"]["attached"] == true),
            age::of(attachment, now),
        ]
    },
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_default_class_wins() {
        let class = |name: &str, time: &str, default: &str| {
            let annotations = json!({"storageclass.kubernetes.io/is-default-class": default});
            json!({"metadata": {"name": name, "creationTimestamp": time, "annotations": annotations}})
        };
        let classes = [
            class("a", "2026-01-01T00:00:00Z", "true"),
            class("b", "2026-01-02T00:00:00Z", "true"),
            class("c", "2026-01-02T00:00:00Z", "true"),
            class("d", "2026-01-03T00:00:00Z", "false"),
        ];
        assert_eq!(default_class(&classes), Some(1));
        assert_eq!(default_class(&classes[3..]), None);
    }

    #[test]
    fn claims_show_their_size_once_bound() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut claim = json!({
            "metadata": {"name": "c"}, "spec": {"storageClassName": "fast", "volumeMode": "Filesystem"},
            "status": {"phase": "Pending", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]},
        });
        let shown = ["c", "Pending", "", "", "", "fast", "<unset>", "<unknown>", "Filesystem"];
        assert_eq!((CLAIMS.cells)(&claim, now), shown);
        claim["spec"]["volumeName"] = json!("v");
        assert_eq!((CLAIMS.cells)(&claim, now)[2..5], ["v", "1Gi", "RWO,RWX"]);
    }
}
