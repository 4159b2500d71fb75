//! Rows of CustomResourceDefinitions.

use serde_json::{Value, json};

use super::cell_text::{holds, joined, list, name, text};
use super::{CREATED_AT, Column, NAME, TablePrinter, boolean, text as column, wide};

pub(super) static DEFINITIONS: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        column("Scope", "Whether objects of the kind are in namespaces."),
        column("Versions", "The versions that are served."),
        CREATED_AT,
        wide("Group", "The group of the kind."),
        wide("Kind", "The kind."),
        wide("ShortNames", "Shorter names for the kind."),
        Column { priority: 1, ..boolean("Established", "Whether the kind is served.") },
    ],
    cells: |definition, _| {
        let spec = &definition["spec"];
        vec![
            name(definition),
            json!(text(&spec["scope"])),
            json!(versions(spec)),
            definition["metadata"]["creationTimestamp"].clone(),
            json!(text(&spec["group"])),
            json!(text(&spec["names"]["kind"])),
            json!(joined(&spec["names"]["shortNames"])),
            json!(holds(definition, "Established")),
        ]
    },
    null_for_none: true,
};

fn versions(spec: &Value) -> String {
    let served = list(&spec["versions"]).iter().filter(|version| version["served"] == true);
    let shown = |version: &Value| {
        let mark = if version["storage"] == true { "(storage)" } else { "" };
        format!("{}{mark}", text(&version["name"]))
    };
    let mut all: Vec<String> = served.map(shown).collect();
    all.sort_unstable();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_version_is_marked() {
        let spec = json!({"versions": [
            {"name": "v1", "served": true, "storage": true}, {"name": "v1alpha1", "served": false},
            {"name": "v1beta1", "served": true},
        ]});
        assert_eq!(versions(&spec), "v1(storage),v1beta1");
    }
}
