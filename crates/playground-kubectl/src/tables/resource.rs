//! Rows of ResourceClaims and ResourceSlices.

use serde_json::{Value, json};

use super::cell_text::{list, name, text};
use super::{AGE, NAME, TablePrinter, age, text as column};

pub(super) static CLAIMS: TablePrinter = TablePrinter::new(
    &[NAME, column("State", "Whether devices are allocated, and whether a pod has reserved them."), AGE],
    |claim, now| vec![name(claim), json!(state(claim)), age::of(claim, now)],
);

fn state(claim: &Value) -> String {
    let is_going = !claim["metadata"]["deletionTimestamp"].is_null();
    let is_allocated = !claim["status"]["allocation"].is_null();
    let is_reserved = is_allocated && !list(&claim["status"]["reservedFor"]).is_empty();
    let states = [
        (is_going, "deleted"),
        (!is_going && !is_allocated, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    states.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect::<Vec<_>>().join(",")
}

pub(super) static SLICES: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Node", "The node that has the devices."),
        column("Driver", "The driver of the devices."),
        column("Pool", "The pool of devices that the slice is a part of."),
        AGE,
    ],
    |slice, now| {
        let spec = &slice["spec"];
        let words = [&spec["nodeName"], &spec["driver"], &spec["pool"]["name"]].map(|word| json!(text(word)));
        let [node, driver, pool] = words;
        vec![name(slice), node, driver, pool, age::of(slice, now)]
    },
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_claims() {
        assert_eq!(state(&json!({})), "pending");
        let held = json!({"status": {"allocation": {}, "reservedFor": [{}]}});
        assert_eq!(state(&held), "allocated,reserved");
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"allocation": {}}});
        assert_eq!(state(&going), "deleted,allocated");
    }
}
