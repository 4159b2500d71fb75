//! One version of a custom kind: its schema and what its definition switches on.
//!
//! The schema does the work; here is how it meets the verbs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_playground_schema::types::{Shape, TypeId, Types};
use muster_playground_schema::{FieldError, Schema};
use serde_json::{Value, json};

use super::printer_column::PrinterColumn;
use super::retype::{Unreadable, dropped, retype};
use super::{count_generation, keep};

/// Where the numbers of a `scale` subresource stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) selector: Option<String>,
}

/// The rules of one version of a custom kind.
pub(crate) struct Custom {
    schema: Schema,
    /// The fields as their owners see them.
    types: (Types, TypeId),
    pub(crate) status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// What field selectors may ask for.
    pub(crate) fields: Vec<Box<str>>,
    pub(crate) is_storage_version: bool,
    pub(super) is_served: bool,
    /// The name of the version in which objects are stored.
    pub(super) storage_version: Box<str>,
    /// What clients of this version are told.
    pub(crate) warning: Option<String>,
    /// What tables are to show of objects.
    pub(super) columns: Vec<PrinterColumn>,
    /// The schema as it was written, for those who want to read it.
    pub(super) written_schema: Value,
}

impl Custom {
    /// The rules of a version of a definition.
    pub(super) fn of(version: &Value, storage_version: &str, warning: Option<String>) -> Result<Self, String> {
        let schema = Schema::parse(&version["schema"]["openAPIV3Schema"]).map_err(|error| error.to_string())?;
        let scale = &version["subresources"]["scale"];
        let path = |field: &str| scale[field].as_str().map(str::to_owned);
        Ok(Self {
            types: schema.types(),
            schema,
            status: version["subresources"]["status"].is_object(),
            scale: path("specReplicasPath").zip(path("statusReplicasPath")).map(|(spec_replicas, status_replicas)| {
                ScalePaths { spec_replicas, status_replicas, selector: path("labelSelectorPath") }
            }),
            fields: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|field| field["jsonPath"].as_str())
                .map(|path| path.trim_start_matches('.').into())
                .collect(),
            is_storage_version: version["storage"] == true,
            is_served: version["served"] == true,
            storage_version: storage_version.into(),
            warning,
            columns: PrinterColumn::all_of(version)?,
            written_schema: version["schema"]["openAPIV3Schema"].clone(),
        })
    }

    /// The fields as their owners see them.
    pub(crate) fn shape(&self) -> Shape<'_> {
        Shape { types: &self.types.0, root: self.types.1 }
    }

    /// Reads a client's object: unknown fields fall out, in the metadata as well.
    pub(super) fn read(&self, mut value: Value) -> Result<(Value, Vec<String>), Unreadable> {
        let metadata = value["metadata"].take();
        let read = retype::<ObjectMeta>(if metadata.is_null() { json!({}) } else { metadata.clone() })
            .map_err(|error| Unreadable { field: format!("metadata.{}", error.field), why: error.why })?;
        let mut unknown: Vec<String> =
            dropped(&metadata, &read).iter().map(|path| format!("metadata.{path}")).collect();
        value["metadata"] = read;
        unknown.extend(self.schema.prune(&mut value));
        Ok((value, unknown))
    }

    /// Makes an object that was stored in another version one of this version.
    pub(super) fn adapt(&self, value: &mut Value) {
        self.schema.prune(value);
        self.schema.default(value);
    }

    pub(super) fn complete(&self, value: &mut Value) {
        self.schema.default(value);
    }

    pub(super) fn on_create(&self, value: &mut Value) {
        value["metadata"]["generation"] = json!(1);
        if self.status
            && let Some(fields) = value.as_object_mut()
        {
            fields.remove("status");
        }
    }

    /// Everything but metadata and a status with a road of its own is the spec that is counted.
    pub(super) fn on_update(&self, value: &mut Value, old: &Value) {
        if self.status {
            keep(value, "status", old);
        }
        let counted = |value: &Value| {
            let mut counted = value.clone();
            if let Some(fields) = counted.as_object_mut() {
                fields.remove("metadata");
                if self.status {
                    fields.remove("status");
                }
            }
            counted
        };
        if counted(value) != counted(old) {
            count_generation(value);
        }
    }

    /// Through `status` nothing but the status changes.
    pub(super) fn on_status(value: &mut Value, old: &Value) {
        let status = value.get("status").cloned();
        let revision = value["metadata"]["resourceVersion"].take();
        *value = old.clone();
        value["metadata"]["resourceVersion"] = revision;
        match status {
            Some(status) => value["status"] = status,
            None => drop(value.as_object_mut().and_then(|fields| fields.remove("status"))),
        }
    }

    pub(super) fn check(&self, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = self.schema.validate(value, old);
        errors.extend(self.scale.iter().filter_map(|scale| wrong_number(value, &scale.spec_replicas)));
        errors
    }

    pub(super) fn check_status(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.schema.validate_status(value, old);
        errors.extend(self.scale.iter().filter_map(|scale| wrong_number(value, &scale.status_replicas)));
        errors
    }
}

/// What is wrong with a number of replicas, wherever the kind keeps it.
fn wrong_number(value: &Value, path: &str) -> Option<FieldError> {
    let number = value.pointer(&path.replace('.', "/"))?.as_i64()?;
    if number < 0 {
        return Some(FieldError::invalid(path, number, "should be a non-negative integer"));
    }
    let max = i64::from(i32::MAX);
    (number > max).then(|| FieldError::invalid(path, number, format!("should be less than or equal to {max}")))
}
