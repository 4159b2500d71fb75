//! The strategy of one version of a custom kind, according to its definition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_playground_schema::types::{Shape, TypeId, Types};
use muster_playground_schema::{FieldError, Schema};
use serde_json::{Value, json};

use super::printer_column::PrinterColumn;
use super::typed_decode::{DecodeError, decode_as, dropped};
use super::{copy_field, increment_generation};

/// The paths of a `scale` subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) selector: Option<String>,
}

/// The strategy of one version of a custom kind.
pub(crate) struct Custom {
    schema: Schema,
    /// The field types for field management.
    types: (Types, TypeId),
    pub(crate) status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// Selectable fields.
    pub(crate) fields: Vec<Box<str>>,
    pub(crate) is_storage_version: bool,
    pub(super) is_served: bool,
    /// The storage version.
    pub(super) storage_version: Box<str>,
    /// The deprecation warning.
    pub(crate) warning: Option<String>,
    /// The printer columns.
    pub(super) columns: Vec<PrinterColumn>,
    /// The schema as written in the definition.
    pub(super) written_schema: Value,
}

impl Custom {
    /// The strategy of a version of a definition.
    pub(super) fn of(version: &Value, storage_version: &str, warning: Option<String>) -> Result<Self, FieldError> {
        let schema = Schema::parse(&version["schema"]["openAPIV3Schema"])?;
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

    /// The field types for field management.
    pub(crate) fn shape(&self) -> Shape<'_> {
        Shape { types: &self.types.0, root: self.types.1 }
    }

    /// Decodes an object: prunes unknown fields, also in metadata.
    pub(super) fn decode(&self, mut value: Value) -> Result<(Value, Vec<String>), DecodeError> {
        let metadata = value["metadata"].take();
        let decoded = decode_as::<ObjectMeta>(if metadata.is_null() { json!({}) } else { metadata.clone() })
            .map_err(|error| DecodeError { field: format!("metadata.{}", error.field), why: error.why })?;
        let mut unknown: Vec<String> =
            dropped(&metadata, &decoded).iter().map(|path| format!("metadata.{path}")).collect();
        value["metadata"] = decoded;
        unknown.extend(self.schema.prune(&mut value));
        Ok((value, unknown))
    }

    /// Converts an object that was stored in another version.
    pub(super) fn adapt(&self, value: &mut Value) {
        self.schema.prune(value);
        self.schema.default(value);
    }

    pub(super) fn set_defaults(&self, value: &mut Value) {
        self.schema.default(value);
    }

    pub(super) fn prepare_for_create(&self, value: &mut Value) {
        value["metadata"]["generation"] = json!(1);
        if self.status
            && let Some(fields) = value.as_object_mut()
        {
            fields.remove("status");
        }
    }

    /// Everything except metadata and a status subresource counts as the spec for `generation`.
    pub(super) fn prepare_for_update(&self, value: &mut Value, old: &Value) {
        if self.status {
            copy_field(value, "status", old);
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
            increment_generation(value);
        }
    }

    /// Only the status can be changed through `status`.
    pub(super) fn prepare_for_status_update(value: &mut Value, old: &Value) {
        let status = value.get("status").cloned();
        let revision = value["metadata"]["resourceVersion"].take();
        *value = old.clone();
        value["metadata"]["resourceVersion"] = revision;
        match status {
            Some(status) => value["status"] = status,
            None => drop(value.as_object_mut().and_then(|fields| fields.remove("status"))),
        }
    }

    pub(super) fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = self.schema.validate(value, old);
        errors.extend(self.scale.iter().filter_map(|scale| replicas_error(value, &scale.spec_replicas)));
        errors
    }

    pub(super) fn validate_status_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.schema.validate_status(value, old);
        errors.extend(self.scale.iter().filter_map(|scale| replicas_error(value, &scale.status_replicas)));
        errors
    }
}

/// The error of an invalid number of replicas at a path.
fn replicas_error(value: &Value, path: &str) -> Option<FieldError> {
    let number = value.pointer(&path.replace('.', "/"))?.as_i64()?;
    if number < 0 {
        return Some(FieldError::invalid(path, number, "should be a non-negative integer"));
    }
    let max = i64::from(i32::MAX);
    (number > max).then(|| FieldError::invalid(path, number, format!("should be less than or equal to {max}")))
}
