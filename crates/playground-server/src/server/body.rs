//! Decodes request bodies as the kind that the path names.
//!
//! Invariant: any input results in a value or a StatusError; size and depth are bounded.
//! Must not depend on the store.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

use muster_playground_schema::FieldError;
use serde_json::{Map, Value};

use super::json_patch::go_type;
use super::json_text::{field_positions, parse};
use super::presentation::{Presentation, ProtobufError};
use super::query::FieldValidation;
use super::response::encode;
use super::status_error::StatusError;
use super::yaml_text;
use crate::kinds::{DecodeError, GroupResource, Kind, Registry, Strategy};

/// The most bytes of a request body.
pub(crate) const BODY_SIZE_MAX: usize = 3 * 1024 * 1024;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", PROTOBUF];
/// The prefix of Go's error for a body of unknown kind.
const NO_KIND: &str = "couldn't get version/kind; json parse error: ";
/// The most unknown fields that are reported to a client.
const WARNINGS_MAX: usize = 50;

/// The media type of a content type header, in lower case and without parameters.
pub(crate) fn media_type(header: Option<&str>) -> String {
    let text = header.and_then(|text| text.split(';').next()).unwrap_or_default();
    text.trim().to_ascii_lowercase()
}

/// The expected kind of a body, for bodies without `kind` and for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    /// Only built-in kinds have a protobuf form.
    pub(crate) is_builtin: bool,
}

impl Expected<'_> {
    pub(crate) const DELETE_OPTIONS: Self = Self { api_version: "v1", kind: "DeleteOptions", is_builtin: true };
    pub(crate) const BINDING: Self = Self { api_version: "v1", kind: "Binding", is_builtin: true };
    pub(crate) const EVICTION: Self = Self { api_version: "policy/v1", kind: "Eviction", is_builtin: true };
    pub(crate) const SCALE: Self = Self { api_version: "autoscaling/v1", kind: "Scale", is_builtin: true };
}

/// An encoded request body.
#[derive(Clone, Copy)]
pub(crate) struct RequestBody<'a> {
    /// Empty if there was no content type, which means JSON.
    pub(crate) media_type: &'a str,
    pub(crate) bytes: &'a [u8],
    /// Decodes protobuf, if supported.
    pub(crate) presentation: Option<&'a dyn Presentation>,
}

impl<'a> RequestBody<'a> {
    /// The body of an object as JSON, decoded from any media type.
    pub(crate) fn object(self, kind: &Kind) -> Result<Cow<'a, [u8]>, StatusError> {
        let expected = Expected { api_version: &kind.api_version(), kind: &kind.kind, is_builtin: kind.is_builtin() };
        self.into_json(expected)
    }

    /// A body as JSON, decoded from any media type.
    pub(crate) fn into_json(self, expected: Expected<'_>) -> Result<Cow<'a, [u8]>, StatusError> {
        let bytes = self.bytes;
        let binary = self.presentation.filter(|_| expected.is_builtin);
        let value = match (self.media_type, binary) {
            ("" | "application/json", _) => return Ok(Cow::Borrowed(bytes)),
            // JSON sent as YAML is decoded as JSON, so that errors are those of JSON.
            ("application/yaml", _) if bytes.trim_ascii_start().first() == Some(&b'{') => {
                return Ok(Cow::Borrowed(bytes));
            }
            ("application/yaml", _) => {
                yaml_text::parse(bytes).map_err(|why| unrecognized(expected.kind, &why, bytes))?
            }
            (PROTOBUF, Some(presentation)) => presentation
                .read_protobuf(bytes, (expected.api_version, expected.kind))
                .map_err(|error| protobuf_error(expected, &error, bytes))?,
            (_, binary) => {
                let known = if binary.is_some() { &MEDIA_TYPES[..] } else { &MEDIA_TYPES[..2] };
                return Err(StatusError::unsupported_media_type(known));
            }
        };
        Ok(Cow::Owned(encode(&value).into()))
    }
}

fn protobuf_error(expected: Expected<'_>, error: &ProtobufError, bytes: &[u8]) -> StatusError {
    let (api_version, kind, why) = match error {
        ProtobufError::NotProtobuf | ProtobufError::Envelope(_) => {
            return unrecognized(expected.kind, &error.to_string(), bytes);
        }
        ProtobufError::UnknownKind { api_version, kind } => {
            let (group, version) = group_version(api_version).unwrap_or_default();
            (api_version, kind, not_registered(group, version, kind))
        }
        ProtobufError::Message { api_version, kind, why } => (api_version, kind, why.clone()),
    };
    let version = group_version(api_version).unwrap_or_default().1;
    let wanted = expected.kind;
    StatusError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {wanted}: {why}"))
}

/// A decoded object.
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// Warnings about unknown or duplicate fields.
    pub(crate) warnings: Vec<String>,
}

/// Decodes an object.
pub(crate) fn decode(
    registry: &Registry,
    kind: &Kind,
    bytes: &[u8],
    field_validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let (mut value, duplicates) =
        parse(bytes).map_err(|why| unrecognized(&kind.kind, &format!("{NO_KIND}{why}"), bytes))?;
    check_type_meta(registry, kind, &mut value, bytes)?;
    let (value, mut errors) = decode_value(kind, value, &duplicates).map_err(|error| decode_error(kind, &error))?;
    if errors.len() > 1 && field_validation != FieldValidation::Ignore {
        let field_positions = field_positions(bytes);
        errors.sort_by_key(|error| field_positions.get(&error.path));
    }
    let warnings = field_validation
        .enforce(errors.iter().map(StrictError::to_string).collect())
        .map_err(|error| decode_error(kind, &error))?;
    Ok(Decoded { value, warnings })
}

/// An unknown or duplicate field.
#[derive(Debug, thiserror::Error)]
#[error("{what} field \"{path}\"")]
pub(crate) struct StrictError {
    what: &'static str,
    path: String,
}

/// Unknown or duplicate fields where they are not allowed.
#[derive(Debug, thiserror::Error)]
#[error("strict decoding error: {}", .0.join(", "))]
pub(crate) struct StrictDecodingError(Vec<String>);

impl FieldValidation {
    /// Applies `fieldValidation` to strict decoding errors: warnings, or an error.
    pub(crate) fn enforce(self, mut errors: Vec<String>) -> Result<Vec<String>, StrictDecodingError> {
        match self {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Strict if !errors.is_empty() => Err(StrictDecodingError(errors)),
            FieldValidation::Warn | FieldValidation::Strict => {
                errors.truncate(WARNINGS_MAX);
                Ok(errors)
            }
        }
    }
}

/// Decodes a value as the kind, after its apiVersion and kind were checked; returns strict decoding errors as well.
pub(crate) fn decode_value(
    kind: &Kind,
    mut value: Value,
    duplicates: &[String],
) -> Result<(Value, Vec<StrictError>), DecodeError> {
    if value["metadata"].is_null() {
        value["metadata"] = Value::Object(Map::new());
    }
    // Go decodes null in a map of strings as the empty string.
    for map in ["/metadata/labels", "/metadata/annotations", "/data"] {
        let entries = if kind.is_builtin() { value.pointer_mut(map).and_then(Value::as_object_mut) } else { None };
        entries.into_iter().flatten().filter(|(_, text)| text.is_null()).for_each(|(_, text)| *text = "".into());
    }
    let (value, dropped) = kind.decode(value)?;
    let mut errors: Vec<StrictError> =
        duplicates.iter().map(|path| StrictError { what: "duplicate", path: path.clone() }).collect();
    errors.extend(dropped.into_iter().map(|path| StrictError { what: "unknown", path }));
    Ok((value, errors))
}

/// A value of the wrong type, with the message of Go's decoder.
#[derive(Debug, thiserror::Error)]
#[error("json: cannot unmarshal {found} into Go {place}")]
struct UnmarshalTypeError {
    found: &'static str,
    place: String,
}

/// The apiVersion and kind of an object; empty if missing.
fn type_meta(value: &Value) -> Result<(String, String), UnmarshalTypeError> {
    let Some(fields) = value.as_object() else {
        if value.is_null() {
            return Ok((String::new(), String::new()));
        }
        return Err(UnmarshalTypeError { found: go_type(value), place: format!("value of type {HEAD}") });
    };
    let text = |field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => {
            let place = format!("struct field .{field} of type string");
            Err(UnmarshalTypeError { found: go_type(other), place })
        }
    };
    Ok((text("apiVersion")?, text("kind")?))
}

/// The Go type that kube-apiserver decodes first.
const HEAD: &str =
    "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";

/// Checks the apiVersion and kind of an object, and fills them in if missing.
pub(crate) fn check_type_meta(
    registry: &Registry,
    kind: &Kind,
    value: &mut Value,
    bytes: &[u8],
) -> Result<(), StatusError> {
    let written = type_meta(value).map_err(|why| unrecognized(&kind.kind, &format!("{NO_KIND}{why}"), bytes))?;
    match kind.strategy {
        Strategy::Builtin(_) => check_kind(registry, kind, &written, bytes)?,
        Strategy::Custom(_) => check_custom_kind(kind, &written, value, bytes)?,
    }
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value["apiVersion"] = kind.api_version().into();
    value["kind"] = kind.kind.to_string().into();
    Ok(())
}

/// The group and version of an apiVersion, unless it has too many parts.
fn group_version(api_version: &str) -> Option<(&str, &str)> {
    match api_version.split_once('/') {
        None => Some(("", api_version)),
        Some((_, version)) if version.contains('/') => None,
        Some(both) => Some(both),
    }
}

fn check_kind(registry: &Registry, kind: &Kind, written: &(String, String), bytes: &[u8]) -> Result<(), StatusError> {
    let expected_version = kind.api_version();
    let (api_version, name) = (written.0.as_str(), written.1.as_str());
    let api_version = if api_version.is_empty() { &expected_version } else { api_version };
    let name = if name.is_empty() { &kind.kind } else { name };
    let Some((group, version)) = group_version(api_version) else {
        return Err(unrecognized(&kind.kind, &format!("unexpected GroupVersion string: {api_version}"), bytes));
    };
    if *api_version == expected_version && *name == *kind.kind {
        return Ok(());
    }
    match conversion_error(registry, kind, (group, version, name)) {
        Some(why) => Err(StatusError::bad_request(format!(
            "{name} in version {version:?} cannot be handled as a {}: {why}",
            kind.kind
        ))),
        // The same object in another version.
        None => Err(StatusError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
        ))),
    }
}

/// Custom objects must have apiVersion and kind.
fn check_custom_kind(kind: &Kind, written: &(String, String), value: &Value, bytes: &[u8]) -> Result<(), StatusError> {
    let (api_version, name) = (written.0.as_str(), written.1.as_str());
    let expected_version = kind.api_version();
    if name.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(bytes));
        return Err(unrecognized(&kind.kind, &why, bytes));
    }
    if *api_version != expected_version {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
        )));
    }
    if *name != *kind.kind {
        let error = FieldError::invalid("kind", name, format!("must be {}", kind.kind));
        let group_resource = GroupResource { group: &kind.group, resource: name };
        return Err(StatusError::invalid(
            group_resource,
            value["metadata"]["name"].as_str().unwrap_or_default(),
            &[error],
        ));
    }
    Ok(())
}

/// Why an object of one kind cannot be decoded as another, with the message of kube-apiserver.
fn conversion_error(registry: &Registry, kind: &Kind, (group, version, name): (&str, &str, &str)) -> Option<String> {
    match registry.of_kind(group, version, name) {
        Some(other) if other.table == kind.table => None,
        Some(_) => Some(unconvertible(version, name, &kind.group, &kind.kind)),
        None => Some(not_registered(group, version, name)),
    }
}

fn unconvertible(version: &str, name: &str, into_group: &str, into: &str) -> String {
    let inner = if into_group.is_empty() { "core" } else { into_group.split('.').next().unwrap_or_default() };
    format!("converting ({version}.{name}) to ({inner}.{into}): unknown conversion")
}

/// The message of kube-apiserver for an unknown kind.
pub(crate) fn not_registered(group: &str, version: &str, name: &str) -> String {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    format!("no kind {name:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Decodes an object that is not a resource of its own, such as a Binding.
pub(crate) fn decode_part(
    registry: &Registry,
    bytes: &[u8],
    accepted: &[(&str, &str)],
    name: &str,
) -> Result<(Value, Vec<String>), StatusError> {
    let failed = |why: &dyn Display| unrecognized(name, &format!("{NO_KIND}{why}"), bytes);
    let (value, duplicates) = parse(bytes).map_err(|error| failed(&error))?;
    let (api_version, written) = type_meta(&value).map_err(|error| failed(&error))?;
    let Some((group, version)) = group_version(&api_version) else {
        return Err(unrecognized(name, &format!("unexpected GroupVersion string: {api_version}"), bytes));
    };
    let is_accepted_version = api_version.is_empty() || accepted.contains(&(group, version));
    if is_accepted_version && (written.is_empty() || written == name) {
        return Ok((value, duplicates));
    }
    let version = if version.is_empty() { accepted[0].1 } else { version };
    let written = if written.is_empty() { name } else { &written };
    let why = match registry.of_kind(group, version, written) {
        Some(_) => unconvertible(version, written, accepted[0].0, name),
        None => not_registered(group, version, written),
    };
    Err(StatusError::bad_request(format!("{written} in version {version:?} cannot be handled as a {name}: {why}")))
}

/// Decodes the options of a delete.
pub(crate) fn decode_delete_options(bytes: &[u8]) -> Result<Value, StatusError> {
    let decode_error = |why: &dyn Display| StatusError::bad_request(format!("{NO_KIND}{why}"));
    let (value, _) = parse(bytes).map_err(|error| decode_error(&error))?;
    let (api_version, name) = type_meta(&value).map_err(|error| decode_error(&error))?;
    if !["", "DeleteOptions"].contains(&&*name) {
        let (group, version) = group_version(&api_version).unwrap_or_default();
        let version = if version.is_empty() { "v1" } else { version };
        return Err(StatusError::bad_request(not_registered(group, version, &name)));
    }
    let has_type = |field: &str, is_type: fn(&Value) -> bool| match &value[field] {
        Value::Null => true,
        found => is_type(found),
    };
    for (field, go, is_type) in [
        ("gracePeriodSeconds", "int64", Value::is_i64 as fn(&Value) -> bool),
        ("orphanDependents", "bool", Value::is_boolean),
        ("propagationPolicy", "v1.DeletionPropagation", Value::is_string),
        ("preconditions", "v1.Preconditions", Value::is_object),
        ("dryRun", "[]string", Value::is_array),
    ] {
        if !has_type(field, is_type) {
            let place = format!("struct field DeleteOptions.{field} of type {go}");
            let error = UnmarshalTypeError { found: go_type(&value[field]), place };
            return Err(StatusError::bad_request(error.to_string()));
        }
    }
    Ok(value)
}

fn decode_error(kind: &Kind, why: &dyn Display) -> StatusError {
    StatusError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}

fn unrecognized(kind: &str, why: &str, bytes: &[u8]) -> StatusError {
    StatusError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        summary(bytes)
    ))
}

/// The beginning of a body, as text if it looks like an object.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let start = &bytes[..bytes.len().min(SHOWN)];
    let shown = match bytes.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().fold(String::new(), |mut shown, byte| {
            // Writing into a string cannot fail.
            let _ = write!(shown, "{byte:02x}");
            shown
        }),
    };
    if bytes.len() > SHOWN { format!("{shown} ...") } else { shown }
}
