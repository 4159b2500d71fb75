//! From the bytes of a request to a value of the kind that its path names.
//!
//! Invariant: whatever the bytes are, the answer is a value or a Failure; size and depth are bounded.
//! It must not know the store.

use std::borrow::Cow;
use std::fmt::Write as _;

use muster_playground_schema::FieldError;
use serde_json::{Map, Value};

use super::answer::printed;
use super::failure::Failure;
use super::json_patch::go_type;
use super::json_text::{order, parse};
use super::presentation::{Presentation, ProtobufError};
use super::query::UnknownFields;
use super::yaml_text;
use crate::kinds::{About, Kind, Registry, Rules};

/// The most bytes of a request's body.
pub(crate) const BODY_SIZE_MAX: usize = 3 * 1024 * 1024;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", PROTOBUF];
/// What Go's decoder says first when it cannot tell what a text is.
const NO_KIND: &str = "couldn't get version/kind; json parse error: ";
/// The most unknown fields that a client is told about.
const WARNINGS_MAX: usize = 50;

/// The media type of a content type header, in small letters and without its parameters.
pub(crate) fn media_type(header: Option<&str>) -> String {
    let text = header.and_then(|text| text.split(';').next()).unwrap_or_default();
    text.trim().to_ascii_lowercase()
}

/// What a body is expected to hold, for those that do not say it and for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    /// Only the server's own kinds have a binary form.
    pub(crate) is_builtin: bool,
}

impl Expected<'_> {
    pub(crate) const DELETE_OPTIONS: Self = Self { api_version: "v1", kind: "DeleteOptions", is_builtin: true };
    pub(crate) const BINDING: Self = Self { api_version: "v1", kind: "Binding", is_builtin: true };
    pub(crate) const EVICTION: Self = Self { api_version: "policy/v1", kind: "Eviction", is_builtin: true };
    pub(crate) const SCALE: Self = Self { api_version: "autoscaling/v1", kind: "Scale", is_builtin: true };
}

/// A body as it was sent.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    /// Empty if the client did not say, which means JSON.
    pub(crate) media_type: &'a str,
    pub(crate) bytes: &'a [u8],
    /// Who reads the binary form, if anybody does.
    pub(crate) presentation: Option<&'a dyn Presentation>,
}

impl<'a> Sent<'a> {
    /// The body of an object as JSON, in whatever form it was sent.
    pub(crate) fn object(self, kind: &Kind) -> Result<Cow<'a, [u8]>, Failure> {
        let expected = Expected { api_version: &kind.api_version(), kind: &kind.kind, is_builtin: kind.is_builtin() };
        self.in_json(expected)
    }

    /// A body as JSON, in whatever form it was sent.
    pub(crate) fn in_json(self, expected: Expected<'_>) -> Result<Cow<'a, [u8]>, Failure> {
        let bytes = self.bytes;
        let binary = self.presentation.filter(|_| expected.is_builtin);
        let value = match (self.media_type, binary) {
            ("" | "application/json", _) => return Ok(Cow::Borrowed(bytes)),
            // A JSON text is read as such, so that errors are those of JSON.
            ("application/yaml", _) if bytes.trim_ascii_start().first() == Some(&b'{') => {
                return Ok(Cow::Borrowed(bytes));
            }
            ("application/yaml", _) => {
                yaml_text::parse(bytes).map_err(|why| unrecognised(expected.kind, &why, bytes))?
            }
            (PROTOBUF, Some(presentation)) => presentation
                .read_protobuf(bytes, (expected.api_version, expected.kind))
                .map_err(|refusal| unreadable_message(expected, &refusal, bytes))?,
            (_, binary) => {
                let known = if binary.is_some() { &MEDIA_TYPES[..] } else { &MEDIA_TYPES[..2] };
                return Err(Failure::unsupported_media_type(known));
            }
        };
        Ok(Cow::Owned(printed(&value).into()))
    }
}

fn unreadable_message(expected: Expected<'_>, refusal: &ProtobufError, bytes: &[u8]) -> Failure {
    let (api_version, kind, why) = match refusal {
        ProtobufError::NotProtobuf | ProtobufError::Envelope(_) => {
            return unrecognised(expected.kind, &refusal.to_string(), bytes);
        }
        ProtobufError::UnknownKind { api_version, kind } => {
            let (group, version) = group_version(api_version).unwrap_or_default();
            (api_version, kind, not_registered(group, version, kind))
        }
        ProtobufError::Message { api_version, kind, why } => (api_version, kind, why.clone()),
    };
    let version = group_version(api_version).unwrap_or_default().1;
    let wanted = expected.kind;
    Failure::bad_request(format!("{kind} in version {version:?} cannot be handled as a {wanted}: {why}"))
}

/// A client's object, read as the kind of its path.
pub(crate) struct Read {
    pub(crate) value: Value,
    /// What the client is told about fields that were not understood.
    pub(crate) warnings: Vec<String>,
}

/// Reads an object that a client sent.
pub(crate) fn read(registry: &Registry, kind: &Kind, bytes: &[u8], unknown: UnknownFields) -> Result<Read, Failure> {
    let (mut value, twice) = parse(bytes).map_err(|why| unrecognised(&kind.kind, &format!("{NO_KIND}{why}"), bytes))?;
    identify(registry, kind, &mut value, bytes)?;
    let (value, mut problems) = read_value(kind, value, &twice).map_err(|why| unreadable(kind, &why))?;
    if problems.len() > 1 && unknown != UnknownFields::Ignore {
        let order = order(bytes);
        problems.sort_by_key(|problem| order.get(&problem.path));
    }
    let warnings =
        unknown.judge(problems.iter().map(Problem::to_string).collect()).map_err(|why| unreadable(kind, &why))?;
    Ok(Read { value, warnings })
}

/// A field that was not understood.
#[derive(Debug, thiserror::Error)]
#[error("{what} field \"{path}\"")]
pub(crate) struct Problem {
    what: &'static str,
    path: String,
}

impl UnknownFields {
    /// What the client is told about problems; or why they are refused.
    pub(crate) fn judge(self, mut problems: Vec<String>) -> Result<Vec<String>, String> {
        match self {
            UnknownFields::Ignore => Ok(Vec::new()),
            UnknownFields::Refuse if !problems.is_empty() => {
                Err(format!("strict decoding error: {}", problems.join(", ")))
            }
            UnknownFields::Warn | UnknownFields::Refuse => {
                problems.truncate(WARNINGS_MAX);
                Ok(problems)
            }
        }
    }
}

/// Reads a value as the kind, once its apiVersion and kind are known to be right; tells what was not understood.
pub(crate) fn read_value(kind: &Kind, mut value: Value, twice: &[String]) -> Result<(Value, Vec<Problem>), String> {
    if value["metadata"].is_null() {
        value["metadata"] = Value::Object(Map::new());
    }
    // To Go, null in a map of texts is the empty text.
    for map in ["/metadata/labels", "/metadata/annotations", "/data"] {
        let entries = if kind.is_builtin() { value.pointer_mut(map).and_then(Value::as_object_mut) } else { None };
        entries.into_iter().flatten().filter(|(_, text)| text.is_null()).for_each(|(_, text)| *text = "".into());
    }
    let (value, dropped) = kind.read(value).map_err(|error| error.to_string())?;
    let mut problems: Vec<Problem> =
        twice.iter().map(|path| Problem { what: "duplicate", path: path.clone() }).collect();
    problems.extend(dropped.into_iter().map(|path| Problem { what: "unknown", path }));
    Ok((value, problems))
}

/// The apiVersion and kind that an object says it has; empty if it does not say.
fn written_kind(value: &Value) -> Result<(String, String), String> {
    let Some(fields) = value.as_object() else {
        if value.is_null() {
            return Ok((String::new(), String::new()));
        }
        return Err(format!("json: cannot unmarshal {} into Go value of type {HEAD}", go_type(value)));
    };
    let text = |field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => {
            Err(format!("json: cannot unmarshal {} into Go struct field .{field} of type string", go_type(other)))
        }
    };
    Ok((text("apiVersion")?, text("kind")?))
}

/// The Go type that the real server reads first.
const HEAD: &str =
    "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";

/// Checks that an object is of a kind; what it leaves out is filled in.
pub(crate) fn identify(registry: &Registry, kind: &Kind, value: &mut Value, bytes: &[u8]) -> Result<(), Failure> {
    let written = written_kind(value).map_err(|why| unrecognised(&kind.kind, &format!("{NO_KIND}{why}"), bytes))?;
    match kind.rules {
        Rules::Builtin(_) => is_of_kind(registry, kind, &written, bytes)?,
        Rules::Custom(_) => is_of_custom_kind(kind, &written, value, bytes)?,
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

fn is_of_kind(registry: &Registry, kind: &Kind, written: &(String, String), bytes: &[u8]) -> Result<(), Failure> {
    let right = kind.api_version();
    let (api_version, name) = (written.0.as_str(), written.1.as_str());
    let api_version = if api_version.is_empty() { &right } else { api_version };
    let name = if name.is_empty() { &kind.kind } else { name };
    let Some((group, version)) = group_version(api_version) else {
        return Err(unrecognised(&kind.kind, &format!("unexpected GroupVersion string: {api_version}"), bytes));
    };
    if *api_version == right && *name == *kind.kind {
        return Ok(());
    }
    match why_not(registry, kind, (group, version, name)) {
        Some(why) => Err(Failure::bad_request(format!(
            "{name} in version {version:?} cannot be handled as a {}: {why}",
            kind.kind
        ))),
        // The same object in another version.
        None => Err(Failure::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({right})"
        ))),
    }
}

/// Custom objects must say what they are: nothing else tells how they are to be read.
fn is_of_custom_kind(kind: &Kind, written: &(String, String), value: &Value, bytes: &[u8]) -> Result<(), Failure> {
    let (api_version, name) = (written.0.as_str(), written.1.as_str());
    let right = kind.api_version();
    if name.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(bytes));
        return Err(unrecognised(&kind.kind, &why, bytes));
    }
    if *api_version != right {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({right})"
        )));
    }
    if *name != *kind.kind {
        let error = FieldError::invalid("kind", name, format!("must be {}", kind.kind));
        let about = About { group: &kind.group, resource: name };
        return Err(Failure::invalid(about, value["metadata"]["name"].as_str().unwrap_or_default(), &[error]));
    }
    Ok(())
}

/// Why an object of one kind cannot be read as another, in the words of the real server.
fn why_not(registry: &Registry, kind: &Kind, (group, version, name): (&str, &str, &str)) -> Option<String> {
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

/// What the real server says about a kind that it does not know.
pub(crate) fn not_registered(group: &str, version: &str, name: &str) -> String {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    format!("no kind {name:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Reads an object that is no resource of its own, such as a Binding.
pub(crate) fn read_part(
    registry: &Registry,
    bytes: &[u8],
    accepted: &[(&str, &str)],
    name: &str,
) -> Result<(Value, Vec<String>), Failure> {
    let failed = |why: String| unrecognised(name, &format!("{NO_KIND}{why}"), bytes);
    let (value, twice) = parse(bytes).map_err(failed)?;
    let (api_version, written) = written_kind(&value).map_err(failed)?;
    let Some((group, version)) = group_version(&api_version) else {
        return Err(unrecognised(name, &format!("unexpected GroupVersion string: {api_version}"), bytes));
    };
    let right_version = api_version.is_empty() || accepted.contains(&(group, version));
    if right_version && (written.is_empty() || written == name) {
        return Ok((value, twice));
    }
    let version = if version.is_empty() { accepted[0].1 } else { version };
    let written = if written.is_empty() { name } else { &written };
    let why = match registry.of_kind(group, version, written) {
        Some(_) => unconvertible(version, written, accepted[0].0, name),
        None => not_registered(group, version, written),
    };
    Err(Failure::bad_request(format!("{written} in version {version:?} cannot be handled as a {name}: {why}")))
}

/// Reads the options of a delete.
pub(crate) fn read_options(bytes: &[u8]) -> Result<Value, Failure> {
    let refused = |why: String| Failure::bad_request(format!("{NO_KIND}{why}"));
    let (value, _) = parse(bytes).map_err(refused)?;
    let (api_version, name) = written_kind(&value).map_err(refused)?;
    if !["", "DeleteOptions"].contains(&&*name) {
        let (group, version) = group_version(&api_version).unwrap_or_default();
        let version = if version.is_empty() { "v1" } else { version };
        return Err(Failure::bad_request(not_registered(group, version, &name)));
    }
    let right = |field: &str, is_right: fn(&Value) -> bool| match &value[field] {
        Value::Null => true,
        found => is_right(found),
    };
    for (field, go, is_right) in [
        ("gracePeriodSeconds", "int64", Value::is_i64 as fn(&Value) -> bool),
        ("orphanDependents", "bool", Value::is_boolean),
        ("propagationPolicy", "v1.DeletionPropagation", Value::is_string),
        ("preconditions", "v1.Preconditions", Value::is_object),
        ("dryRun", "[]string", Value::is_array),
    ] {
        if !right(field, is_right) {
            let found = go_type(&value[field]);
            let why = format!("json: cannot unmarshal {found} into Go struct field DeleteOptions.{field} of type {go}");
            return Err(Failure::bad_request(why));
        }
    }
    Ok(value)
}

fn unreadable(kind: &Kind, why: &str) -> Failure {
    Failure::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}

fn unrecognised(kind: &str, why: &str, bytes: &[u8]) -> Failure {
    Failure::bad_request(format!(
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
