//! JSON, merge and strategic merge patches.
//!
//! A patch is applied to the object in the version of the path; the result is then handled as an update. Server-side
//! apply is in `apply`.

use muster_playground_schema::FieldError;
use serde_json::Value;

use super::managed_fields::FieldTracking;
use super::query::{FieldValidation, Query, WriteOptions, WriteVerb};
use super::request::Target;
use super::response::{ApiResponse, encode};
use super::state::State;
use super::status_error::StatusError;
use super::update::{Part, check_name, replace};
use super::{apply, body, create, json_patch, json_text, managed_fields, strategic_patch};
use crate::kinds::{GroupResource, Kind};

/// The most operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    Json,
    Merge,
    Strategic,
}

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl PatchType {
    fn of(kind: &Kind, media_type: &str) -> Result<Self, StatusError> {
        match media_type {
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            STRATEGIC if kind.is_builtin() => Ok(PatchType::Strategic),
            _ if kind.is_builtin() => Err(StatusError::unknown_patch()),
            _ => Err(StatusError::unsupported_media_type(&CUSTOM_TYPES)),
        }
    }
}

/// The patch types of custom kinds.
const CUSTOM_TYPES: [&str; 3] = ["application/json-patch+json", "application/merge-patch+json", APPLY];

/// Patches an object, or its status.
pub(crate) fn patch(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    media_type: &str,
    bytes: &[u8],
    part: Part,
) -> Result<ApiResponse, StatusError> {
    if media_type == APPLY {
        return apply::apply(state, kind, target, query, bytes, part);
    }
    let patch_type = PatchType::of(kind, media_type)?;
    let options = WriteOptions::read(query, WriteVerb::Patch)?;
    let patch = Patch::read(patch_type, bytes)?;
    let old = state.get(kind, &target.namespace, &target.name);
    let old = old.ok_or_else(|| StatusError::not_found(kind.group_resource(), &target.name))?;
    let mut value = kind.show(old.value());
    if !patch.touches_managed_fields() {
        // A patch that does not touch `managedFields` leaves them unchanged, so they need not be decoded and encoded.
        managed_fields::take(&mut value);
    }
    let errors = patch.apply(&mut value, options.field_validation)?;
    let (mut value, warnings) = decode_patched(state, kind, value, errors, options.field_validation)?;
    create::set_namespace(kind, target, &mut value)?;
    check_name(target, &value)?;
    create::deduplicate_owner_references(&mut value);
    match replace(state, kind, &old, value, part, FieldTracking::Manager(&options.manager), options.dry_run) {
        Ok(response) => Ok(response.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// A decoded patch.
struct Patch {
    content_type: PatchType,
    value: Value,
    /// Duplicate fields.
    duplicates: Vec<String>,
}

impl Patch {
    fn read(patch_type: PatchType, bytes: &[u8]) -> Result<Self, StatusError> {
        let (value, duplicates) =
            json_text::parse(bytes).map_err(|_| StatusError::bad_request("invalid JSON patch"))?;
        Ok(Self { content_type: patch_type, value, duplicates })
    }

    /// Whether the patch may read or change `managedFields`.
    fn touches_managed_fields(&self) -> bool {
        if self.content_type != PatchType::Json {
            return self.value["metadata"].get("managedFields").is_some();
        }
        let operations = self.value.as_array().into_iter().flatten();
        let mut paths = operations.flat_map(|operation| [operation["path"].as_str(), operation["from"].as_str()]);
        paths.any(|path| {
            path.is_some_and(|path| path.starts_with("/metadata/managedFields") || ["", "/metadata"].contains(&path))
        })
    }

    /// Applies the patch. Returns strict decoding errors of the patch itself.
    fn apply(&self, value: &mut Value, field_validation: FieldValidation) -> Result<Vec<String>, StatusError> {
        let decoding = |why: String| StatusError::bad_request(format!("error decoding patch: {why}"));
        let duplicates = self.duplicates.iter().map(|path| format!("duplicate field \"{path}\""));
        if self.content_type == PatchType::Strategic {
            self.merge_strategically(value)?;
            return Ok(duplicates.collect());
        }
        if self.content_type == PatchType::Merge {
            if !self.value.is_object() {
                return Err(match &self.value {
                    other if other.is_null() || field_validation == FieldValidation::Ignore => {
                        StatusError::bad_request("Invalid JSON Patch")
                    }
                    other => decoding(format!(
                        "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        json_patch::go_type(other)
                    )),
                });
            }
            ::json_patch::merge(value, &self.value);
            return Ok(duplicates.collect());
        }
        if let Some(why) = json_patch::decode_error(&self.value) {
            return Err(decoding(why));
        }
        let count = self.value.as_array().map_or(0, Vec::len);
        if count > OPERATIONS_MAX {
            return Err(StatusError::entity_too_large(format!(
                "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
            )));
        }
        json_patch::apply(value, &self.value).map_err(|_| StatusError::unprocessable())?;
        let unknown = json_patch::unknown_fields(&self.value).into_iter();
        let unknown = unknown.map(|path| format!("unknown field \"{path}\""));
        Ok(duplicates.chain(unknown).map(|problem| format!("json patch {problem}")).collect())
    }
}

impl Patch {
    fn merge_strategically(&self, value: &mut Value) -> Result<(), StatusError> {
        let Some(patch) = self.value.as_object() else {
            let found = json_patch::go_type(&self.value);
            let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(StatusError::bad_request(why));
        };
        let object = value.as_object_mut().ok_or_else(StatusError::unprocessable)?;
        strategic_patch::apply(object, patch).map_err(|error| StatusError::bad_request(error.to_string()))
    }
}

/// Decodes the patched object. Its errors are errors of the patch.
fn decode_patched(
    state: &State,
    kind: &Kind,
    mut value: Value,
    mut errors: Vec<String>,
    field_validation: FieldValidation,
) -> Result<(Value, Vec<String>), StatusError> {
    let shown = encode(&value);
    let invalid = |why: String| {
        let error = FieldError::invalid("patch", String::from_utf8_lossy(&shown).into_owned(), why);
        StatusError::invalid(GroupResource { group: "", resource: "" }, "", &[error])
    };
    body::check_type_meta(&state.registry, kind, &mut value, &[])
        .map_err(|failure| invalid(failure.message().to_owned()))?;
    let (value, object_errors) = body::decode_value(kind, value, &[]).map_err(|error| invalid(error.to_string()))?;
    errors.extend(object_errors.iter().map(ToString::to_string));
    let warnings = field_validation.enforce(errors).map_err(|error| invalid(error.to_string()))?;
    Ok((value, warnings))
}
