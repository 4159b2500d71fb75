//! The field `gangConfig` of JobSets, which their CRD does not have: a JSON patch that adds it.
//!
//! JobSet's own controller never writes the spec of a set, so the field stays. Without it the annotation
//! `muster.dev/gang-mode` says the same.

use serde_json::{Value, json};

/// The JSON patch of the CRD `jobsets.jobset.x-k8s.io`. Applying it again changes nothing.
pub(super) fn patch() -> Value {
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let field = |modes: &[&str], description: &str| {
        json!({
            "type": "object", "required": ["gangMode"], "description": description,
            "properties": {"gangMode": {"type": "string", "enum": modes, "description": "How pods form gangs."}},
        })
    };
    json!([
        // Other versions have other fields.
        {"op": "test", "path": "/spec/versions/0/name", "value": "v1alpha2"},
        {"op": "add", "path": format!("{spec}/gangConfig"),
            "value": field(&["Off", "Gang"], "Whether all pods of the set are one gang. Cannot be changed.")},
        {"op": "add", "path": format!("{spec}/replicatedJobs/items/properties/gangConfig"),
            "value": field(&["Off", "Gang", "ReplicatedGang"],
                "Whether all pods of these Jobs are one gang, or those of each Job. Cannot be changed.")},
    ])
}
